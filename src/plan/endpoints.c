/* Which endpoints a port of a Service may use on this node, in one family, as kube-proxy chooses:
 * ready ones whose hints allow it, and where there are none those that still serve while they
 * terminate. */
#include "plan/services.h"

struct candidate {
    struct backend at;
    bool ready, fallback; /* serves while it terminates */
    uint32_t order;       /* of arrival */
    const struct endpoint_hints *hints;
};

#define CMP(a, b) (((a) > (b)) - ((a) < (b)))

static int by_place(const struct backend *a, const struct backend *b)
{
    int c = ip_cmp(&a->ip, &b->ip);
    return c ? c : CMP(a->port, b->port);
}

/* Of several at one place the first counts: here rather than elsewhere, ready rather than not. */
static int by_place_and_worth(const void *x, const void *y)
{
    const struct candidate *a = x, *b = y;
    int c = by_place(&a->at, &b->at);
    if (!c)
        c = CMP(b->at.local, a->at.local);
    if (!c)
        c = CMP(b->ready, a->ready);
    if (!c)
        c = CMP(b->fallback, a->fallback);
    return c ? c : CMP(a->order, b->order);
}

static uint16_t slice_port(const struct endpoint_slice *slice, const struct service_port *port)
{
    for (uint32_t i = 0; i < slice->n_ports; i++)
        if (slice->ports[i].port && slice->ports[i].protocol == port->protocol &&
            !strcmp(slice->ports[i].name, port->name))
            return slice->ports[i].port;
    return 0;
}

/* The first address is the endpoint's. */
static const char *endpoint_address(const struct endpoint_slice *slice, uint32_t i, struct ip *ret)
{
    const struct string_list *l = &slice->endpoints[i].addresses;
    const char *trouble = l->n ? address_parse(l->v[0], ret) : "no IP address";
    if (!trouble && ret->family != slice->family)
        trouble = slice->family == IP_V4 ? "no IPv4 address" : "no IPv6 address";
    return trouble;
}

static void collect(const struct planner *p, const struct endpoint_slice *slice, uint16_t port,
                    struct endpoint_choice *out)
{
    for (uint32_t i = 0; i < slice->n_endpoints; i++) {
        const struct endpoint *e = &slice->endpoints[i];
        struct candidate c = { .at.port = port,
                               .at.local = !strcmp(e->node_name, p->snap->node),
                               .ready = e->ready,
                               .fallback = e->serving && e->terminating,
                               .order = (uint32_t)out->candidates.n,
                               .hints = e->hints };
        if (endpoint_address(slice, i, &c.at.ip))
            out->bad = true;
        else if (c.ready || c.fallback)
            vec_push(&out->candidates, c);
    }
}

static void keep_one_at_each_place(struct endpoint_choice *out)
{
    size_t n = 0;
    if (out->candidates.n > 1)
        qsort(out->candidates.v, out->candidates.n, sizeof(out->candidates.v[0]),
              by_place_and_worth);
    for (size_t i = 0; i < out->candidates.n; i++)
        if (!n || by_place(&out->candidates.v[n - 1].at, &out->candidates.v[i].at))
            out->candidates.v[n++] = out->candidates.v[i];
    out->candidates.n = n;
}

/* ---- hints ---- */

enum topology { EVERYWHERE, SAME_NODE, SAME_ZONE };

static bool lists(const struct string_list *l, const char *s)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (!strcmp(l->v[i], s))
            return true;
    return false;
}

/* Hints count when every ready endpoint has them and one is meant for here. */
static enum topology topology_of(const struct planner *p, const struct endpoint_choice *c)
{
    bool nodes = true, zones = true, this_node = false, this_zone = false;
    for (size_t i = 0; i < c->candidates.n; i++) {
        const struct endpoint_hints *h = c->candidates.v[i].hints;
        if (!c->candidates.v[i].ready)
            continue;
        nodes &= h && h->nodes.n;
        zones &= h && h->zones.n;
        this_node |= h && lists(&h->nodes, p->snap->node);
        this_zone |= h && lists(&h->zones, p->services->node.zone);
    }
    return nodes && this_node ? SAME_NODE : zones && this_zone ? SAME_ZONE : EVERYWHERE;
}

static bool allows(const struct planner *p, enum topology t, const struct endpoint_hints *h)
{
    switch (t) {
    case EVERYWHERE:
        return true;
    case SAME_NODE:
        return lists(&h->nodes, p->snap->node);
    case SAME_ZONE:
        return lists(&h->zones, p->services->node.zone);
    }
    return true;
}

/* ---- the two sets ---- */

static void choose_cluster(const struct planner *p, struct endpoint_choice *c)
{
    enum topology t = topology_of(p, c);
    for (size_t i = 0; i < c->candidates.n; i++)
        if (c->candidates.v[i].ready && allows(p, t, c->candidates.v[i].hints))
            vec_push(&c->cluster, c->candidates.v[i].at);
    for (size_t i = 0, none = !c->cluster.n; none && i < c->candidates.n; i++)
        if (c->candidates.v[i].fallback)
            vec_push(&c->cluster, c->candidates.v[i].at);
}

static void choose_local(struct endpoint_choice *c)
{
    for (size_t i = 0; i < c->candidates.n; i++)
        if (c->candidates.v[i].at.local && c->candidates.v[i].ready)
            vec_push(&c->local, c->candidates.v[i].at);
    for (size_t i = 0, none = !c->local.n; none && i < c->candidates.n; i++)
        if (c->candidates.v[i].at.local && c->candidates.v[i].fallback)
            vec_push(&c->local, c->candidates.v[i].at);
}

static const struct endpoint_slice *const *slices_of(const struct planner *p,
                                                     const struct service_memo *m, size_t *ret_n)
{
    return snapshot_slices(p->snap, m->obj->o.meta.ns, m->obj->o.meta.name, ret_n);
}

void endpoints_choose(const struct planner *p, const struct service_memo *m,
                      const struct service_port *port, uint8_t family, struct endpoint_choice *ret)
{
    size_t n;
    const struct endpoint_slice *const *slices = slices_of(p, m, &n);
    ret->candidates.n = ret->cluster.n = ret->local.n = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t number = slices[i]->family == family ? slice_port(slices[i], port) : 0;
        if (number)
            collect(p, slices[i], number, ret);
    }
    keep_one_at_each_place(ret);
    choose_cluster(p, ret);
    choose_local(ret);
    ret->any = ret->candidates.n;
}

void endpoints_done(struct endpoint_choice *c)
{
    vec_done(&c->cluster);
    vec_done(&c->local);
    vec_done(&c->candidates);
}

/* ---- of the whole Service ---- */

static int by_ip(const void *a, const void *b)
{
    return ip_cmp(a, b);
}

uint32_t endpoints_local_ready(const struct planner *p, const struct service_memo *m)
{
    size_t n;
    const struct endpoint_slice *const *slices = slices_of(p, m, &n);
    VEC(struct ip) ips = { 0 };
    for (size_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < slices[i]->n_endpoints; j++) {
            const struct endpoint *e = &slices[i]->endpoints[j];
            struct ip ip;
            if (e->ready && !strcmp(e->node_name, p->snap->node) &&
                !endpoint_address(slices[i], j, &ip))
                vec_push(&ips, ip);
        }
    if (ips.n > 1)
        qsort(ips.v, ips.n, sizeof(ips.v[0]), by_ip);
    uint32_t of_family[F_COUNT] = { 0 };
    for (size_t i = 0; i < ips.n; i++)
        if (!i || !ip_equal(&ips.v[i - 1], &ips.v[i]))
            of_family[ips.v[i].family == IP_V6 ? F6 : F4]++;
    vec_done(&ips);
    return of_family[F4] > of_family[F6] ? of_family[F4] : of_family[F6];
}

void endpoints_check(const struct planner *p, const struct service_memo *m,
                     struct service_problems *ret)
{
    size_t n;
    const struct endpoint_slice *const *slices = slices_of(p, m, &n);
    for (size_t i = 0; i < n; i++)
        for (uint32_t j = 0; slices[i]->family && j < slices[i]->n_endpoints; j++) {
            const struct string_list *l = &slices[i]->endpoints[j].addresses;
            struct ip ip;
            const char *trouble = endpoint_address(slices[i], j, &ip);
            if (trouble)
                service_problem(ret, &slices[i]->o,
                                arena_printf(&ret->mem, "endpoints[%u].addresses", j),
                                l->n ? l->v[0] : "", "InvalidAddress",
                                arena_printf(&ret->mem, "it is %s: nobody is sent there", trouble));
        }
}
