/* What this node needs as a whole: its links with all that hangs on them, the elements no single
 * mapping owns, routes, rules and sysctls, and what is wrong with classes and host. */
#include <stdio.h>

#include "base/buf.h"
#include "plan/loadbalancer.h"

#define IFACES_NAMED 3
#define ALIAS_MAX    255 /* IFALIASZ - 1: the kernel refuses a longer one */

struct builder {
    struct planner *p;
    struct fabric *f;
    struct nft_group_builder *group;
};

/* ---- links ---- */

static void put_address(struct builder *b, const struct desired_link *link, const struct ip *ip)
{
    vec_push(&b->f->addrs, (struct desired_addr){ .ifname = link->name,
                                                  .owner = link->owner,
                                                  .ip = *ip,
                                                  .prefix_len = ip->family == IP_V4 ? 31 : 127 });
}

static const char *link_alias(struct arena *a, const struct pair *pair)
{
    const char *all =
        arena_printf(a, LINK_ALIAS_PREFIX " class %s %s", pair->class_name, pair->key);
    return arena_printf(a, "%.*s", ALIAS_MAX, all);
}

static void put_link(struct builder *b, const struct pair *pair, int side)
{
    struct arena *a = &b->f->mem;
    const struct link_state *s = &pair->state;
    uint32_t vni = pair->cls->obj->vni + s->slot;
    struct desired_link link = {
        .name = link_device(a, pair->cls, s->slot),
        .owner = link_owner(a, pair),
        .alias = link_alias(a, pair),
        .vni = vni,
        .port = pair->cls->obj->vxlan_port,
        .local = s->node_ip[side],
        .remote = s->node_ip[!side],
        .mtu = s->mtu,
        .mac = { 0x02, 0x6b, (uint8_t)(vni >> 16), (uint8_t)(vni >> 8), (uint8_t)vni,
                 (uint8_t)side },
    };
    vec_push(&b->f->links, link);
    put_address(b, &link, &s->end[side][F4]);
    if (s->v6)
        put_address(b, &link, &s->end[side][F6]);
    nft_put_ifname(b->group, NFT_LINKS, link.name);
    vec_push(&b->f->sysctls, (struct desired_sysctl){
                                 .owner = link.owner,
                                 .path = arena_printf(a, "net/ipv4/conf/%s/rp_filter", link.name),
                                 .value = "2" });
}

static void put_rule(struct builder *b, const char *owner, uint8_t family, uint32_t priority,
                     uint32_t mark, uint32_t table, const struct ip *dst)
{
    struct desired_rule r = {
        .owner = owner,
        .family = family,
        .priority = priority,
        .fwmark = mark,
        .mask = UINT32_MAX,
        .table = table,
    };
    if (dst) {
        r.has_dst = true;
        r.dst = (struct ip_prefix){ *dst, ip_bits(dst->family) };
    }
    vec_push(&b->f->rules, r);
}

/* The side that holds pods: arrivals on its end are mapped, replies are marked and routed back. */
static void put_pod_side(struct builder *b, const struct pair *pair, int side)
{
    const struct link_state *s = &pair->state;
    const struct desired_link *link = &b->f->links.v[b->f->links.n - 1];
    uint32_t mark = LINK_MARK_BASE | s->slot, table = link_table(s->slot);
    put_rule(b, link->owner, IP_V4, RULE_PRIO_OUTER, mark, TABLE_MAIN, &s->node_ip[!side]);
    for (enum family_index f = F4; f < (s->v6 ? F_COUNT : F6); f++) {
        uint8_t family = f == F4 ? IP_V4 : IP_V6;
        nft_put_ifaddr(b->group, link->name, &s->end[side][f]);
        nft_put_mark(b->group, NFT_REPLYMARK4, &s->end[side][f], mark);
        put_rule(b, link->owner, family, RULE_PRIO_LINK, mark, table, NULL);
        vec_push(&b->f->routes, (struct desired_route){ .owner = link->owner,
                                                        .type = ROUTE_UNICAST,
                                                        .table = table,
                                                        .dst = { { .family = family }, 0 },
                                                        .via = s->end[!side][f],
                                                        .ifname = link->name });
    }
}

/* Of what several links or addresses need. */
static void put_rule_once(struct builder *b, const struct desired_rule *r)
{
    for (size_t i = 0; i < b->f->rules.n; i++)
        if (!desired_rule_cmp(&b->f->rules.v[i], r))
            return;
    vec_push(&b->f->rules, *r);
}

/* A pod that dials a mapping of a pod elsewhere: by now that is a connection to the link's far end. */
static void put_link_net(struct builder *b, const struct ip_prefix *subnet)
{
    put_rule_once(b, &(struct desired_rule){ .owner = "node",
                                             .family = subnet->ip.family,
                                             .priority = RULE_PRIO_LINK_NET,
                                             .has_dst = true,
                                             .dst = *subnet,
                                             .table = TABLE_MAIN });
}

static void put_links(struct builder *b)
{
    const struct class_view *done[F_COUNT] = { NULL, NULL };
    for (size_t i = 0; i < b->p->pairs.n; i++) {
        const struct pair *pair = b->p->pairs.v[i];
        int side = pair_side(pair, b->p->snap->node);
        if (side < 0 || *pair->state.trouble)
            continue;
        put_link(b, pair, side);
        if (pair->uses[side])
            put_pod_side(b, pair, side);
        for (enum family_index f = F4; b->p->traffic && f < (pair->state.v6 ? F_COUNT : F6); f++) {
            if (done[f] != pair->cls)
                put_link_net(b, &pair->cls->subnet[f]);
            done[f] = pair->cls;
        }
    }
}

/* ---- the node ---- */

/* By which table the node answers over the interface: a traffic class's whose gateway is behind it, or
 * main with its default route; 0: by the same as everything else. */
static uint32_t answer_table(struct builder *b, const struct host_iface *iface, enum family_index f)
{
    uint32_t table = traffic_gateway_table(b->p, iface->name, f);
    if (!table && (f == F4 ? iface->default4 : iface->default6))
        table = TABLE_MAIN;
    return table;
}

/* Replies that are translated here are routed before they have the dialled address again, so that no
 * rule by source address would do. */
static void put_way_back(struct builder *b, const struct ip *ip, uint32_t table)
{
    struct desired_rule r = { .owner = "node",
                              .family = ip->family,
                              .priority = RULE_PRIO_EDGE,
                              .fwmark = table == TABLE_MAIN ? EDGE_MARK : EDGE_MARK_BASE | table,
                              .mask = UINT32_MAX,
                              .table = table };
    nft_put_mark(b->group, NFT_REPLYMARK4, ip, r.fwmark);
    put_rule_once(b, &r);
    if (table == TABLE_MAIN)
        return;
    r.priority = RULE_PRIO_EDGE_NEAR;
    r.table = TABLE_MAIN;
    r.suppress_default = true;
    put_rule_once(b, &r);
}

static void put_answers(struct builder *b)
{
    const struct host *h = b->p->snap->host;
    for (enum family_index f = F4; f < F_COUNT; f++) {
        uint8_t family = f == F4 ? IP_V4 : IP_V6;
        for (uint32_t i = 0; i < h->n_ifaces; i++) {
            const struct host_iface *iface = &h->ifaces[i];
            uint32_t table = answer_table(b, iface, f);
            for (uint32_t j = 0; j < iface->n_addresses; j++) {
                const struct ip *ip = &iface->addresses[j].ip;
                bool mapped = b->p->answers[f].v[i], held = lb_forwards_here(b->p, ip);
                if ((!mapped && !held) || ip->family != family || !host_owns(b->p, i, j))
                    continue;
                if (mapped)
                    nft_put_ifaddr(b->group, iface->name, ip);
                if (table)
                    put_way_back(b, ip, table);
            }
        }
    }
}

static void put_standin(struct builder *b, const char *net)
{
    struct desired_route r = {
        .owner = "node", .type = ROUTE_UNREACHABLE, .table = TABLE_MAIN, .ifname = ""
    };
    if (ip_prefix_parse(net, &r.dst))
        vec_push(&b->f->routes, r);
}

/* IPv6 sysctls have an owner of their own: one that is refused must not speak for IPv4. */
static void put_sysctl(struct builder *b, const char *owner, const char *path)
{
    vec_push(&b->f->sysctls,
             (struct desired_sysctl){ .owner = owner,
                                      .path = path,
                                      .value = strstr(path, "accept_ra") ? "2" : "1",
                                      .restore = true });
}

/* Pods here may be dialled at another node's address, and answer by way of it. */
static bool needs_forwarding4(const struct planner *p)
{
    return p->programs[F4] || lb_forwards(p) || lb_others_forward(p);
}

static void put_forwarding(struct builder *b)
{
    const struct host *h = b->p->snap->host;
    if (b->p->programs[F4] || lb_forwards(b->p))
        put_standin(b, STANDIN4_NET);
    if (needs_forwarding4(b->p))
        put_sysctl(b, "node", "net/ipv4/ip_forward");
    if (!b->p->programs[F6])
        return;
    put_standin(b, STANDIN6_NET);
    if (!h->ipv6)
        return;
    put_sysctl(b, "node ipv6", "net/ipv6/conf/all/forwarding");
    /* A host that forwards ignores router advertisements unless told otherwise, and would
     * lose its default route. */
    for (uint32_t i = 0; i < h->n_ifaces && !h->forwarding6; i++)
        if (h->ifaces[i].accept_ra == 1)
            put_sysctl(b, "node ipv6",
                       arena_printf(&b->f->mem, "net/ipv6/conf/%s/accept_ra", h->ifaces[i].name));
}

/* ---- problems ---- */

static void put_problem(struct builder *b, enum object_kind kind, const char *name,
                        const char *field, const char *value, const char *reason,
                        const char *message)
{
    struct arena *a = &b->f->mem;
    vec_push(&b->f->problems, (struct problem){ .kind = kind,
                                                .ns = "",
                                                .name = arena_strdup(a, name),
                                                .field = field,
                                                .value = arena_strdup(a, value),
                                                .reason = reason,
                                                .message = arena_strdup(a, message) });
}

static const char *iface_field(struct builder *b, uint32_t i)
{
    return arena_printf(&b->f->mem, "spec.nodes.%s.interfaces[%u]", b->p->snap->node, i);
}

/* All that cannot be used are one problem, which names the first few: a class may list a thousand. */
static void iface_problem(struct builder *b, const struct class_view *v)
{
    const struct host *h = b->p->snap->host;
    const struct string_list *l = &v->accepting[v->self].spec->interfaces;
    struct buf text = { 0 };
    uint32_t n = 0, first = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        const char *what = class_iface_trouble(h, v, i);
        if (!what)
            continue;
        first = n ? first : i;
        if (n++ < IFACES_NAMED)
            buf_printf(&text, "%sinterface %s %s", n == 1 ? "" : ", ", l->v[i], what);
    }
    if (n > IFACES_NAMED)
        buf_printf(&text, " and %u more: %u of %u cannot be used", n - IFACES_NAMED, n, l->n);
    if (n)
        put_problem(b, KIND_PORTMAPCLASS, v->obj->o.meta.name, iface_field(b, first), l->v[first],
                    "InterfaceNotPresent", text.p);
    buf_done(&text);
}

static void address_problems(struct builder *b, const struct class_view *v)
{
    struct arena *a = &b->f->mem;
    const struct host *h = b->p->snap->host;
    const struct string_list *l = &v->accepting[v->self].spec->interfaces;
    char text[IP_TEXT_MAX];
    for (uint32_t i = 0; i < l->n; i++) {
        bool usable = !class_iface_trouble(h, v, i);
        for (uint32_t j = 0; usable && j < h->ifaces[v->self_ifaces[i]].n_addresses; j++) {
            const struct ip *ip = &h->ifaces[v->self_ifaces[i]].addresses[j].ip;
            if (!host_owns(b->p, (size_t)v->self_ifaces[i], j))
                put_problem(b, KIND_PORTMAPCLASS, v->obj->o.meta.name, iface_field(b, i), l->v[i],
                            "AddressShared",
                            arena_printf(a, "address %s of %s counts as %s's", ip_format(ip, text),
                                         l->v[i], host_address_owner(h, ip)->name));
        }
    }
}

static void class_problems(struct builder *b, const struct class_view *v)
{
    const struct portmap_class *c = v->obj;
    const char *name = c->o.meta.name;
    if (v->self < 0)
        return;
    if (!v->selector_ok)
        put_problem(b, KIND_PORTMAPCLASS, name, "spec.namespaceSelector", "", "InvalidSelector",
                    "the selector is invalid and selects no namespace; operators are In and NotIn "
                    "with values, Exists and DoesNotExist without");
    if (v->blocked.reason)
        put_problem(b, KIND_PORTMAPCLASS, name, v->blocked.field, v->blocked.value,
                    v->blocked.reason, v->blocked.message);
    if (v->subnet6_trouble)
        put_problem(b, KIND_PORTMAPCLASS, name, "spec.returnPath.vxlan.subnet6", c->subnet6,
                    "InvalidSubnet", v->subnet6_trouble);
    iface_problem(b, v);
    address_problems(b, v);
}

static void link_problems(struct builder *b, const struct pair *pair)
{
    struct arena *a = &b->f->mem;
    const struct link_state *s = &pair->state;
    if (!s->local || pair->cls->blocked.reason)
        return;
    if (*s->trouble && s->landed)
        put_problem(b, KIND_PORTMAPCLASS, pair->class_name, "status.links", pair->key,
                    "ReturnPathUnavailable", s->trouble);
    if (*s->trouble || s->v6 || !(pair->uses6[0] || pair->uses6[1]))
        return;
    const char *why = host_v6_trouble(b->p->snap->host);
    if (!why && s->end[0][F6].family)
        why = arena_printf(a, "its MTU of %u is below the 1280 that IPv6 needs", s->mtu);
    else if (!why && pair->cls->subnet6_trouble)
        why = pair->cls->subnet6_trouble;
    else if (!why)
        why = arena_printf(a, "subnet6 has no /127 for its slot %u alone", s->slot);
    put_problem(b, KIND_PORTMAPCLASS, pair->class_name, "status.links", pair->key,
                "IPv6Unavailable",
                arena_printf(a, "link %s carries IPv4 only: %s", pair->key, why));
}

static void node_problems(struct builder *b, const struct node *n)
{
    for (uint32_t i = 0; i < n->no_ips.n; i++)
        put_problem(b, KIND_NODE, n->o.meta.name, "status.addresses", n->no_ips.v[i],
                    "InvalidAddress",
                    arena_printf(&b->f->mem,
                                 "InternalIP \"%.100s\" is no IP address and is passed over; an IP "
                                 "address is needed",
                                 n->no_ips.v[i]));
}

static void host_problems(struct builder *b)
{
    const struct host *h = b->p->snap->host;
    const char *node = b->p->snap->node;
    if (needs_forwarding4(b->p) && *h->forwarding4_error)
        put_problem(b, KIND_NODE, node, "sysctl", "net.ipv4.ip_forward", "ForwardingUnavailable",
                    h->forwarding4_error);
    if (b->p->programs[F6] && host_v6_trouble(h))
        put_problem(b, KIND_NODE, node, "sysctl", "net.ipv6.conf.all.forwarding",
                    "ForwardingUnavailable", host_v6_trouble(h));
}

int problem_cmp(const void *x, const void *y)
{
    const struct problem *a = x, *b = y;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    const char *const u[] = { a->ns, a->name, a->field, a->value, a->reason, a->message };
    const char *const v[] = { b->ns, b->name, b->field, b->value, b->reason, b->message };
    for (size_t i = 0; i < sizeof(u) / sizeof(u[0]); i++) {
        int c = strcmp(u[i], v[i]);
        if (c)
            return c;
    }
    return 0;
}

/* ---- all of it ---- */

#define SORT(vec, cmp)                                             \
    do {                                                           \
        if ((vec)->n > 1)                                          \
            qsort((vec)->v, (vec)->n, sizeof((vec)->v[0]), (cmp)); \
    } while (0)
#define CMP_VOID(type, name)                           \
    static int name##_v(const void *a, const void *b)  \
    {                                                  \
        return name((const type *)a, (const type *)b); \
    }
CMP_VOID(struct desired_link, desired_link_cmp)
CMP_VOID(struct desired_addr, desired_addr_cmp)
CMP_VOID(struct desired_neigh, desired_neigh_cmp)
CMP_VOID(struct desired_route, desired_route_cmp)
CMP_VOID(struct desired_rule, desired_rule_cmp)
CMP_VOID(struct desired_sysctl, desired_sysctl_cmp)

struct nft_group *fabric_group(struct nft_group_builder *b, struct nft_group *old)
{
    struct nft_group *g = nft_group_end(b);
    if (g->n && !(old && nft_group_equal(g, old)))
        return g;
    bool keep = g->n;
    nft_group_unref(g);
    return keep ? nft_group_ref(old) : NULL;
}

struct fabric *fabric_build(struct planner *p)
{
    struct fabric *f = xcalloc(1, sizeof(*f));
    f->refs = 1;
    struct builder b = { p, f, nft_group_begin("node") };
    put_links(&b);
    put_answers(&b);
    put_forwarding(&b);
    for (size_t i = 0; i < p->n_classes; i++)
        class_problems(&b, &p->classes[i]);
    for (size_t i = 0; i < p->pairs.n; i++)
        link_problems(&b, p->pairs.v[i]);
    for (size_t i = 0; i < p->snap->n_nodes; i++)
        node_problems(&b, p->snap->nodes[i]);
    host_problems(&b);
    f->node = fabric_group(b.group, p->fabric ? p->fabric->node : NULL);
    if (p->loadbalancer)
        overlay_put(p, f);
    SORT(&f->links, desired_link_cmp_v);
    SORT(&f->addrs, desired_addr_cmp_v);
    SORT(&f->neighs, desired_neigh_cmp_v);
    SORT(&f->routes, desired_route_cmp_v);
    SORT(&f->rules, desired_rule_cmp_v);
    SORT(&f->sysctls, desired_sysctl_cmp_v);
    SORT(&f->problems, problem_cmp);
    return f;
}

void fabric_unref(struct fabric *f)
{
    if (!f || --f->refs)
        return;
    nft_group_unref(f->node);
    nft_group_unref(f->loadbalancer);
    vec_done(&f->links);
    vec_done(&f->addrs);
    vec_done(&f->neighs);
    vec_done(&f->routes);
    vec_done(&f->rules);
    vec_done(&f->sysctls);
    vec_done(&f->problems);
    arena_done(&f->mem);
    free(f);
}
