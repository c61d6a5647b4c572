/* What BIRD does for a class on this node. It follows from the objects, not from the state of
 * links: so it changes when they change, and no session ends because a link was late. */
#include "plan/traffic.h"

static uint8_t family_of(enum family_index f)
{
    return f == F4 ? IP_V4 : IP_V6;
}

bool traffic_needs_bird(const struct traffic_class *c)
{
    const struct traffic_routes *r = c->routes;
    return r && (r->mesh || r->attached.n || *r->pod_device ||
                 (r->gateway && r->gateway->manager == GATEWAY_BIRD));
}

/* ---- addresses ---- */

/* The Node's address on the mesh; family IP_NONE: none that can be used. */
static struct ip mesh_address(struct traffic_pass *t, struct traffic_view *v,
                              const struct node *node, enum family_index f)
{
    const struct address_annotations *keys = &v->obj->routes->mesh->annotations;
    const char *key = f == F4 ? keys->ipv4 : keys->ipv6;
    const char *text = label_value(&node->o.meta.annotations, key);
    struct ip ip = { 0 };
    if (!*key || !traffic_has_family(v->obj, f))
        return ip;
    struct verdict bad = { .reason = "MeshAddressInvalid",
                           .field = arena_printf(&t->out->mem, "metadata.annotations[%s]", key),
                           .value = text };
    if (!label_present(&node->o.meta.annotations, key)) {
        bad.reason = "MeshAddressMissing";
        bad.message = "is not there; the node's address on the mesh is needed";
    } else if (!ip_parse(text, &ip) || ip.family != family_of(f)) {
        bad.message = arena_printf(&t->out->mem, "is no IPv%u address", family_of(f));
    } else if (!ip_is_global_unicast(&ip)) {
        bad.message = "is no address that one node of several can have";
    } else {
        return ip;
    }
    traffic_problem(t, v->obj, node, bad);
    if (!v->trouble.reason)
        v->trouble = (struct verdict){ .reason = bad.reason,
                                       .message = arena_printf(
                                           &t->out->mem, "Node %s, annotation %s%s%s%s %s",
                                           node->o.meta.name, key, *text ? " \"" : "", text,
                                           *text ? "\"" : "", bad.message) };
    return (struct ip){ 0 };
}

/* The node that has it; NULL: none. */
static const char *taken_by(const struct traffic_pass *t, const struct bird_peer *peers, size_t n,
                            const struct ip *local, const struct ip *ip)
{
    if (ip_equal(local, ip))
        return t->node->o.meta.name;
    for (size_t i = 0; i < n; i++)
        if (ip_equal(&peers[i].remote, ip))
            return peers[i].node;
    return NULL;
}

/* ---- neighbours ---- */

static void read_cidrs(struct traffic_pass *t, struct traffic_view *v, const struct node *node,
                       enum family_index f, struct prefix_list *ret)
{
    if (node_pod_cidrs(node, f, ret))
        return;
    traffic_problem(t, v->obj, node,
                    (struct verdict){ .reason = "InvalidCIDR",
                                      .field = "spec.podCIDRs",
                                      .value = f == F4 ? "0.0.0.0/0" : "::/0",
                                      .message = "is every address: nothing is led to its pods; "
                                                 "the range of its own pods is needed" });
}

static void add_peer(struct traffic_pass *t, struct traffic_view *v, const struct node *node,
                     enum family_index f, const struct ip *local, struct bird_peer *peers,
                     size_t *n)
{
    struct arena *a = &t->out->mem;
    struct prefix_list cidrs = { 0 };
    read_cidrs(t, v, node, f, &cidrs);
    struct ip remote = { 0 };
    if (cidrs.n)
        remote = mesh_address(t, v, node, f);
    const char *other = remote.family ? taken_by(t, peers, *n, local, &remote) : NULL;
    if (other) {
        char text[IP_TEXT_MAX];
        traffic_problem(t, v->obj, node,
                        (struct verdict){ .reason = "MeshAddressTaken",
                                          .field = "metadata.annotations",
                                          .value = ip_format(&remote, text),
                                          .message = arena_printf(
                                              a, "is node %s's address on the mesh, too", other) });
        remote.family = IP_NONE;
    }
    if (remote.family) {
        struct ip_prefix *copy = arena_new_array(a, cidrs.n, struct ip_prefix);
        memcpy(copy, cidrs.v, cidrs.n * sizeof(copy[0]));
        peers[(*n)++] = (struct bird_peer){ .node = arena_strdup(a, node->o.meta.name),
                                            .local = *local,
                                            .remote = remote,
                                            .cidrs = copy,
                                            .n_cidrs = (uint32_t)cidrs.n };
    }
    vec_done(&cidrs);
}

static const struct bird_mesh *build_mesh(struct traffic_pass *t, struct traffic_view *v)
{
    struct arena *a = &t->out->mem;
    const struct traffic_mesh *m = v->obj->routes->mesh;
    const struct snapshot *s = t->snap;
    struct bird_peer *peers = arena_new_array(a, 2 * s->n_nodes, struct bird_peer);
    struct bird_mesh *ret = arena_new(a, struct bird_mesh);
    struct ip local[F_COUNT];
    size_t n = 0;
    for (enum family_index f = F4; f < F_COUNT; f++) {
        struct prefix_list own = { 0 };
        read_cidrs(t, v, t->node, f, &own);
        vec_done(&own);
        local[f] = mesh_address(t, v, t->node, f);
    }
    for (size_t i = 0; i < s->n_nodes; i++)
        for (enum family_index f = F4; f < F_COUNT; f++)
            if (s->nodes[i] != t->node && traffic_selects(v->obj, s->nodes[i]) && local[f].family)
                add_peer(t, v, s->nodes[i], f, &local[f], peers, &n);
    *ret = (struct bird_mesh){ .link = arena_strdup(a, m->link),
                               .asn = m->asn,
                               .hold_time = m->hold_time,
                               .bfd = m->bfd,
                               .graceful_restart = m->graceful_restart,
                               .peers = peers,
                               .n_peers = n };
    v->sessions = (uint32_t)n;
    return ret;
}

/* ---- the rest of the table ---- */

static void put_own_cidrs(struct traffic_pass *t, const struct traffic_class *c,
                          struct bird_table *ret)
{
    const struct prefix_list *own = t->sets.own_pods;
    struct ip_prefix *v = arena_new_array(&t->out->mem, own[F4].n + own[F6].n, struct ip_prefix);
    for (enum family_index f = F4; f < F_COUNT; f++)
        for (size_t i = 0; traffic_has_family(c, f) && i < own[f].n; i++)
            v[ret->n_own_cidrs++] = own[f].v[i];
    ret->own_cidrs = v;
}

static void put_gateways(struct traffic_pass *t, struct traffic_view *v, struct bird_table *ret)
{
    const struct traffic_gateway *g = v->obj->routes->gateway;
    if (!g || g->manager != GATEWAY_BIRD)
        return;
    if (!bird_symbol_ok(g->link)) {
        v->gateway = (struct verdict){
            .reason = "LinkUnnameable",
            .field = "spec.routes.gateway.link",
            .value = g->link,
            .message = "BIRD takes letters, digits and _.:- in the name of a gateway's link only: "
                       "rename it, or set manager to Agent"
        };
        traffic_problem(t, v->obj, NULL, v->gateway);
        return;
    }
    ret->gateway_link = arena_strdup(&t->out->mem, g->link);
    for (enum family_index f = F4; f < F_COUNT; f++)
        ret->gateway[f] = traffic_gateway_ip(t, v, f);
}

void traffic_mesh_build(struct traffic_pass *t, struct traffic_view *v, struct bird_table *ret)
{
    struct arena *a = &t->out->mem;
    const struct traffic_routes *r = v->obj->routes;
    const char **attached = arena_new_array(a, r->attached.n, const char *);
    for (uint32_t i = 0; i < r->attached.n; i++)
        attached[i] = arena_strdup(a, r->attached.v[i]);
    *ret = (struct bird_table){ .number = v->obj->table,
                                .owner = traffic_owner(t, v->obj),
                                .families = { traffic_has_family(v->obj, F4),
                                              traffic_has_family(v->obj, F6) },
                                .attached = attached,
                                .n_attached = r->attached.n,
                                .pod_device = arena_strdup(a, r->pod_device),
                                .gateway_link = "" };
    put_own_cidrs(t, v->obj, ret);
    put_gateways(t, v, ret);
    if (r->mesh)
        ret->mesh = build_mesh(t, v);
}
