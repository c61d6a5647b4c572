/* The endpoints of a held address: which of them its holder can send clients to, and by what way.
 *
 * A pod of another node is sent what a client sent, with the client's address, over the overlay, and
 * only from there does its node know whom to answer. Where the overlay is a bridge that the pod is on,
 * that is a matter of Ethernet; elsewhere the way is a route to the pod through its node. */
#include <stdlib.h>

#include "plan/loadbalancer.h"

struct place {         /* of an endpoint */
    bool here, direct; /* on this node; on the overlay's own network */
    const struct lb_node *node;
    struct ip via;       /* the node's end of the overlay; IP_NONE: no route is needed */
    const char *trouble; /* NULL: it can be reached */
};

static bool is_direct(const struct lb_overlay *o, const struct ip *ip)
{
    for (size_t i = 0; i < o->n_nets && o->device && !o->vxlan; i++)
        if (ip_prefix_contains(&o->nets[i], ip))
            return true;
    return false;
}

static struct place place_of(const struct planner *p, const char *node_name, const struct ip *ip,
                             struct arena *a)
{
    const struct lb_facts *f = &p->loadbalancer->facts;
    const struct lb_overlay *o = &f->overlay;
    struct place r = { .here = !strcmp(node_name, p->snap->node),
                       .node = lb_node_find(f, node_name),
                       .direct = is_direct(o, ip) };
    if (r.here || r.direct)
        return r;
    if (!*node_name)
        r.trouble = "the slice does not say on which node it is";
    else if (!r.node)
        r.trouble = arena_printf(a, "there is no Node %s, where it is", node_name);
    else if (!o->device)
        r.trouble = "this node has no overlay to reach it by";
    else if (!r.node->overlay.family)
        r.trouble =
            arena_printf(a, "node %s, where it is, has not published its overlay", node_name);
    else if (r.node->rival)
        r.trouble = arena_printf(
            a, "node %s, where it is, and node %s have published the same place on the overlay",
            node_name, r.node->rival);
    else if (!lb_overlay_reaches(o, r.node))
        r.trouble =
            arena_printf(a, "node %s, where it is, is not behind this node's overlay", node_name);
    else
        r.via = r.node->overlay;
    return r;
}

/* ---- who would be answered past this node ---- */

static void add_client(struct hairpin_vec *v, const struct ip *ep, const struct ip_prefix *client)
{
    vec_push(v, (struct hairpin_pair){ .ep = *ep, .client = *client });
}

static void add_hairpins(const struct planner *p, const struct place *at, const struct ip *ep,
                         struct hairpin_vec *v)
{
    const struct lb_overlay *o = &p->loadbalancer->facts.overlay;
    add_client(v, ep, &(struct ip_prefix){ *ep, 32 });
    for (uint32_t i = 0; i < (at->node && !at->here ? at->node->n_near : 0); i++)
        add_client(v, ep, &at->node->near[i]);
    for (size_t i = 0; i < (at->direct && !at->here ? o->n_nets : 0); i++)
        add_client(v, ep, &o->nets[i]);
}

/* ---- the endpoints ---- */

struct chooser {
    const struct planner *p;
    const struct service_memo *m;
    bool local_only;
    struct held_choice *out;
    struct hairpin_vec *hairpins;
    struct held_route_vec *routes;
    struct service_problems *problems;
};

static void unreachable(struct chooser *c, const struct ip *ip, const char *why)
{
    struct arena *a = &c->problems->mem;
    char text[IP_TEXT_MAX];
    service_problem(c->problems, &c->m->obj->o, "endpoints", ip_format(ip, text),
                    "EndpointUnreachable",
                    arena_printf(a, "%s: nobody is sent to this endpoint", why));
    c->problems->v.v[c->problems->v.n - 1].event = c->m->held_teller;
}

/* A route stays as long as the endpoint is known, ready or not: connections may last longer. */
static void consider(struct chooser *c, const struct endpoint *e, const struct ip *ip,
                     uint16_t port)
{
    struct place at = place_of(c->p, e->node_name, ip, &c->problems->mem);
    if (c->local_only && !at.here)
        return;
    if (at.via.family) {
        vec_push(c->routes, (struct held_route){ .ep = *ip, .via = at.via });
        c->out->routed = true;
    }
    if (!e->ready)
        return;
    if (at.trouble) {
        unreachable(c, ip, at.trouble);
        return;
    }
    vec_push(&c->out->endpoints, (struct backend){ .ip = *ip, .port = port, .local = at.here });
    add_hairpins(c->p, &at, ip, c->hairpins);
}

static void collect(struct chooser *c, const struct endpoint_slice *slice, uint16_t port)
{
    struct ip ip;
    for (uint32_t i = 0; i < slice->n_endpoints; i++) {
        const struct endpoint *e = &slice->endpoints[i];
        for (uint32_t j = 0; j < e->addresses.n; j++)
            if (lb_ip4_parse(e->addresses.v[j], &ip) && !ip_special(&ip))
                consider(c, e, &ip, port);
    }
}

/* Of the same place twice the one here comes first, and stays. */
static int by_place(const void *x, const void *y)
{
    const struct backend *a = x, *b = y;
    int c = ip_cmp(&a->ip, &b->ip);
    if (!c)
        c = (a->port > b->port) - (a->port < b->port);
    return c ? c : b->local - a->local;
}

static void keep_one_at_each_place(struct backend_vec *v)
{
    size_t n = 0;
    if (v->n > 1)
        qsort(v->v, v->n, sizeof(v->v[0]), by_place);
    for (size_t i = 0; i < v->n; i++)
        if (!n || v->v[n - 1].port != v->v[i].port || !ip_equal(&v->v[n - 1].ip, &v->v[i].ip))
            v->v[n++] = v->v[i];
    v->n = n;
}

void held_choose(const struct planner *p, const struct service_memo *m, uint16_t port,
                 struct held_choice *ret, struct hairpin_vec *hairpins,
                 struct held_route_vec *routes, struct service_problems *problems)
{
    const struct service *s = m->obj;
    const struct service_port *sp = &s->ports[port];
    size_t n;
    const struct endpoint_slice *const *slices =
        snapshot_slices(p->snap, s->o.meta.ns, s->o.meta.name, &n);
    struct chooser c = {
        p, m, s->external_policy == POLICY_LOCAL, ret, hairpins, routes, problems
    };
    ret->endpoints.n = 0;
    ret->routed = false;
    for (size_t i = 0; i < n; i++)
        for (uint32_t j = 0; slices[i]->family == IP_V4 && j < slices[i]->n_ports; j++) {
            const struct endpoint_port *ep = &slices[i]->ports[j];
            if (ep->port && ep->protocol == sp->protocol && !strcmp(ep->name, sp->name))
                collect(&c, slices[i], ep->port);
        }
    keep_one_at_each_place(&ret->endpoints);
}
