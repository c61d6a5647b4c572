/* What follows from the classes, the nodes and the host alone: rebuilt on every full pass. */
#include <stdio.h>

#include "plan/internal.h"

#define VNI_MAX 0xffffffu

static void find_accepting(struct planner *p, struct class_view *v)
{
    const struct portmap_class *c = v->obj;
    v->self = -1;
    v->accepting = arena_new_array(&p->class_mem, c->n_nodes, struct accepting);
    for (uint32_t i = 0; i < c->n_nodes; i++) {
        if (!snapshot_node(p->snap, c->nodes[i].name))
            continue;
        struct accepting *a = &v->accepting[v->n_accepting];
        *a = (struct accepting){ .name = c->nodes[i].name, .spec = &c->nodes[i] };
        for (uint32_t j = 0; j < c->status.n_nodes && !a->row; j++)
            if (!strcmp(c->status.nodes[j].name, a->name))
                a->row = &c->status.nodes[j];
        if (!strcmp(a->name, p->snap->node))
            v->self = (int)v->n_accepting;
        v->n_accepting++;
    }
}

static int find_iface(const struct host *h, const char *name)
{
    const struct host_iface *i = host_iface_find(h, name);
    return i ? (int)(i - h->ifaces) : -1;
}

static void find_ifaces(struct planner *p, struct class_view *v)
{
    if (v->self < 0)
        return;
    const struct string_list *l = &v->accepting[v->self].spec->interfaces;
    v->self_ifaces = arena_new_array(&p->class_mem, l->n, int);
    for (uint32_t i = 0; i < l->n; i++)
        v->self_ifaces[i] = find_iface(p->snap->host, l->v[i]);
}

/* NULL, or what is wrong with a subnet of return links. */
static const char *subnet_parse(const char *text, enum family_index f, struct ip_prefix *ret)
{
    static const char *const standin[] = { STANDIN4_NET, STANDIN6_NET };
    struct ip_prefix p, ours;
    uint8_t family = f == F4 ? IP_V4 : IP_V6;
    if (!ip_prefix_parse(text, &p) || p.ip.family != family)
        return f == F4 ? "is no IPv4 prefix" : "is no IPv6 prefix";
    p = ip_prefix_masked(&p);
    if (p.len >= ip_bits(family))
        return f == F4 ? "has no room for a /31" : "has no room for a /127";
    if (!ip_is_global_unicast(&p.ip))
        return "holds no unicast addresses";
    if (ip_prefix_parse(standin[f], &ours) && ip_prefix_overlaps(&p, &ours))
        return f == F4 ? "overlaps " STANDIN4_NET ", which Portolan keeps for itself"
                       : "overlaps " STANDIN6_NET ", which Portolan keeps for itself";
    *ret = p;
    return NULL;
}

static uint32_t slot_count(const struct portmap_class *c, const struct ip_prefix *subnet)
{
    unsigned bits = ip_bits(subnet->ip.family) - subnet->len - 1u;
    uint32_t n = bits >= 16 ? LINK_SLOT_MAX + 1 : 1u << bits;
    uint32_t vnis = c->vni > VNI_MAX ? 0 : VNI_MAX - c->vni + 1;
    return n < vnis ? n : vnis;
}

/* An end of a link is local to one node, which would cut it off from the node that has that
 * address: NULL, or which node has one of the subnet's. */
static const char *node_within(struct planner *p, const struct ip_prefix *subnet)
{
    char text[IP_TEXT_MAX];
    for (size_t i = 0; i < p->snap->n_nodes; i++) {
        const struct node *n = p->snap->nodes[i];
        for (uint32_t j = 0; j < n->n_internal_ips; j++)
            if (ip_prefix_contains(subnet, &n->internal_ips[j]))
                return arena_printf(&p->class_mem,
                                    "contains InternalIP %s of node %s; a subnet nothing else "
                                    "uses is needed",
                                    ip_format(&n->internal_ips[j], text), n->o.meta.name);
    }
    return NULL;
}

static void block_subnet(struct planner *p, struct class_view *v, enum family_index f,
                         const char *why)
{
    const char *subnet = f == F4 ? v->obj->subnet : v->obj->subnet6;
    const char *field = f == F4 ? "spec.returnPath.vxlan.subnet" : "spec.returnPath.vxlan.subnet6";
    v->blocked = (struct verdict){
        .reason = "InvalidSubnet",
        .message =
            arena_printf(&p->class_mem, "%s \"%s\" %s", field + strlen("spec."), subnet, why),
        .field = field,
        .value = subnet,
    };
}

static void check_subnets(struct planner *p, struct class_view *v)
{
    const struct portmap_class *c = v->obj;
    const char *why = subnet_parse(c->subnet, F4, &v->subnet[F4]);
    if (!why)
        why = node_within(p, &v->subnet[F4]);
    if (why)
        block_subnet(p, v, F4, why);
    else
        v->slots[F4] = slot_count(c, &v->subnet[F4]);
    why = subnet_parse(c->subnet6, F6, &v->subnet[F6]);
    const char *cut = why ? NULL : node_within(p, &v->subnet[F6]);
    if (cut && !v->blocked.reason)
        block_subnet(p, v, F6, cut);
    if (why)
        v->subnet6_trouble =
            arena_printf(&p->class_mem, "returnPath.vxlan.subnet6 \"%s\" %s", c->subnet6, why);
    else
        v->slots[F6] = slot_count(c, &v->subnet[F6]);
}

static bool share_a_node(const struct class_view *a, const struct class_view *b)
{
    for (size_t i = 0; i < a->n_accepting; i++)
        if (class_accepting(b, a->accepting[i].name) >= 0)
            return true;
    return false;
}

/* What the two cannot both have; no reason: nothing. */
static struct verdict collision(struct arena *a, const struct class_view *v,
                                const struct class_view *earlier)
{
    const struct portmap_class *c = v->obj, *e = earlier->obj;
    struct verdict r = { .reason = "VxlanPortConflict" };
    const char *what, *remedy;
    if (e->vni == c->vni && e->vxlan_port == c->vxlan_port) {
        what =
            arena_printf(a, "returnPath.vxlan.vni %u and port %u are those", c->vni, c->vxlan_port);
        remedy = "another vni or port";
        r.field = "spec.returnPath.vxlan.vni";
        r.value = arena_printf(a, "%u", c->vni);
    } else if (ip_prefix_overlaps(&earlier->subnet[F4], &v->subnet[F4])) {
        what = arena_printf(a, "returnPath.vxlan.subnet %s overlaps %s", c->subnet, e->subnet);
        remedy = "another subnet";
        r.field = "spec.returnPath.vxlan.subnet";
        r.value = c->subnet;
    } else {
        return (struct verdict){ 0 };
    }
    r.message = arena_printf(a, "%s of class %s, which is older and shares a node; %s is needed",
                             what, e->o.meta.name, remedy);
    return r;
}

static void check_collisions(struct planner *p, struct class_view *v)
{
    struct arena *a = &p->class_mem;
    uint16_t port = v->obj->vxlan_port;
    if (port == p->snap->cni_vxlan_port)
        v->blocked = (struct verdict){
            .reason = "VxlanPortConflict",
            .message = arena_printf(
                a, "returnPath.vxlan.port %u is the CNI's own VXLAN port; another port is needed",
                port),
            .field = "spec.returnPath.vxlan.port",
            .value = arena_printf(a, "%u", port),
        };
    for (size_t i = 0; i < v->rank && !v->blocked.reason; i++) {
        const struct class_view *e = p->by_rank[i];
        if (!e->blocked.reason && e->obj->return_mode == RETURN_VXLAN && share_a_node(e, v))
            v->blocked = collision(a, v, e);
    }
}

static int by_age(const void *x, const void *y)
{
    const struct meta *a = &(*(struct class_view *const *)x)->obj->o.meta;
    const struct meta *b = &(*(struct class_view *const *)y)->obj->o.meta;
    if (a->creation != b->creation)
        return a->creation < b->creation ? -1 : 1;
    return strcmp(a->name, b->name);
}

struct held { /* one address of the host */
    struct ip ip;
    uint32_t iface, index;
};

static int by_address(const void *x, const void *y)
{
    const struct held *a = x, *b = y;
    int c = ip_cmp(&a->ip, &b->ip);
    return c ? c : (a->iface > b->iface) - (a->iface < b->iface);
}

/* Elements are keyed by address: with two owners of one, two mappings would want one key. */
static void find_owners(struct planner *p)
{
    const struct host *h = p->snap->host;
    VEC(struct held) all = { 0 };
    p->owned = arena_new_array(&p->class_mem, h->n_ifaces, bool *);
    for (uint32_t i = 0; i < h->n_ifaces; i++) {
        p->owned[i] = arena_new_array(&p->class_mem, h->ifaces[i].n_addresses, bool);
        for (uint32_t j = 0; j < h->ifaces[i].n_addresses; j++)
            vec_push(&all, (struct held){ h->ifaces[i].addresses[j].ip, i, j });
    }
    if (all.n > 1)
        qsort(all.v, all.n, sizeof(all.v[0]), by_address);
    for (size_t i = 0; i < all.n; i++)
        p->owned[all.v[i].iface][all.v[i].index] = !i || !ip_equal(&all.v[i].ip, &all.v[i - 1].ip);
    vec_done(&all);
}

struct node_ip {
    struct ip ip;
    size_t node;
};

static int by_ip(const void *x, const void *y)
{
    const struct node_ip *a = x, *b = y;
    int c = ip_cmp(&a->ip, &b->ip);
    return c ? c : (a->node > b->node) - (a->node < b->node);
}

static void find_shared_ips(struct planner *p)
{
    VEC(struct node_ip) all = { 0 };
    for (size_t i = 0; i < p->snap->n_nodes; i++)
        for (uint32_t j = 0; j < p->snap->nodes[i]->n_internal_ips; j++)
            vec_push(&all, (struct node_ip){ p->snap->nodes[i]->internal_ips[j], i });
    if (all.n > 1)
        qsort(all.v, all.n, sizeof(all.v[0]), by_ip);
    p->n_shared_ips = 0;
    p->shared_ips = arena_new_array(&p->class_mem, all.n, struct ip);
    for (size_t i = 1; i < all.n; i++)
        if (all.v[i].node != all.v[i - 1].node && ip_equal(&all.v[i].ip, &all.v[i - 1].ip))
            p->shared_ips[p->n_shared_ips++] = all.v[i].ip;
    vec_done(&all);
}

void classes_build(struct planner *p)
{
    const struct snapshot *s = p->snap;
    arena_reset(&p->class_mem);
    p->n_classes = s->n_classes;
    p->classes = arena_new_array(&p->class_mem, s->n_classes, struct class_view);
    p->by_rank = arena_new_array(&p->class_mem, s->n_classes, struct class_view *);
    for (size_t i = 0; i < s->n_classes; i++) {
        struct class_view *v = &p->classes[i];
        v->obj = s->classes[i];
        v->selector_ok = !v->obj->has_selector || selector_valid(&v->obj->selector);
        find_accepting(p, v);
        find_ifaces(p, v);
        if (v->obj->return_mode == RETURN_VXLAN)
            check_subnets(p, v);
        p->by_rank[i] = v;
    }
    if (p->n_classes > 1)
        qsort(p->by_rank, p->n_classes, sizeof(p->by_rank[0]), by_age);
    for (size_t i = 0; i < p->n_classes; i++) {
        p->by_rank[i]->rank = i;
        if (p->by_rank[i]->obj->return_mode == RETURN_VXLAN && !p->by_rank[i]->blocked.reason)
            check_collisions(p, p->by_rank[i]);
    }
    find_owners(p);
    find_shared_ips(p);
    struct ip own = node_internal_ip(s, s->node);
    const struct host_iface *underlay = own.family ? host_address_owner(s->host, &own) : NULL;
    p->underlay_mtu = underlay ? underlay->mtu : 0;
}

const struct class_view *class_find(const struct planner *p, const char *name)
{
    for (size_t lo = 0, hi = p->n_classes; lo < hi;) {
        size_t mid = lo + (hi - lo) / 2;
        int cmp = strcmp(p->classes[mid].obj->o.meta.name, name);
        if (!cmp)
            return &p->classes[mid];
        if (cmp < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

int class_accepting(const struct class_view *cls, const char *node)
{
    for (size_t lo = 0, hi = cls->n_accepting; lo < hi;) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(cls->accepting[mid].name, node);
        if (!c)
            return (int)mid;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

struct ip node_internal_ip(const struct snapshot *s, const char *node)
{
    const struct node *n = snapshot_node(s, node);
    for (uint32_t i = 0; n && i < n->n_internal_ips; i++)
        if (n->internal_ips[i].family == IP_V4)
            return n->internal_ips[i];
    return (struct ip){ 0 };
}

const char *node_ip_trouble(const struct planner *p, const struct ip *ip)
{
    for (size_t i = 0; i < p->n_shared_ips; i++)
        if (ip_equal(&p->shared_ips[i], ip))
            return "that of another Node too";
    return ip_special(ip);
}

bool host_owns(const struct planner *p, size_t iface, uint32_t address)
{
    return p->owned[iface][address];
}

const char *host_v4_trouble(const struct host *h)
{
    return !h->forwarding4 && *h->forwarding4_error ? h->forwarding4_error : NULL;
}

const char *host_v6_trouble(const struct host *h)
{
    if (!h->ipv6)
        return "the kernel has no IPv6";
    return *h->forwarding6_error ? h->forwarding6_error : NULL;
}

const char *class_iface_trouble(const struct host *h, const struct class_view *v, uint32_t i)
{
    if (v->self_ifaces[i] < 0)
        return "not present";
    const struct host_iface *iface = &h->ifaces[v->self_ifaces[i]];
    if (!iface->up)
        return "is down";
    return iface->n_addresses ? NULL : "has no address";
}
