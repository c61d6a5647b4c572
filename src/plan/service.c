/* One Service: what this node does with packets to each of its addresses, and what is wrong with it.
 * Which address is whose: claims.c; which endpoints: endpoints.c. */
#include "plan/loadbalancer.h"

#define ENDPOINTS_MAX NFT_INDEX_ALL /* where the other indexes begin */

struct programming {
    struct planner *p;
    struct service_memo *m;
    struct nft_group_builder *group;
    struct service_ipvs *ipvs; /* NULL: nftables has the Service */
    struct service_problems *problems;
    VEC(struct ip_prefix) ranges; /* loadBalancerSourceRanges */
    bool ranged[F_COUNT];
    struct hairpin_vec hairpins;
    struct held_route_vec routes;
};

/* ---- what a Service says ---- */

const char *address_parse(const char *text, struct ip *ret)
{
    if (!ip_parse(text, ret))
        return "no IP address";
    return ip_special(ret);
}

uint16_t service_node_port(const struct service *s, uint32_t port)
{
    bool has = s->type == SERVICE_NODEPORT || s->type == SERVICE_LOADBALANCER;
    return has ? s->ports[port].node_port : 0;
}

uint16_t service_health_port(const struct service *s)
{
    bool has = s->type == SERVICE_LOADBALANCER && s->external_policy == POLICY_LOCAL;
    return has ? s->health_check_port : 0;
}

static struct arena *text_of(const struct programming *g)
{
    return &g->problems->mem;
}

void service_problem(struct service_problems *s, const struct object *o, const char *field,
                     const char *value, const char *reason, const char *message)
{
    vec_push(&s->v, (struct problem){ .kind = o->meta.kind,
                                      .ns = arena_strdup(&s->mem, o->meta.ns),
                                      .name = arena_strdup(&s->mem, o->meta.name),
                                      .field = field,
                                      .value = arena_strdup(&s->mem, value),
                                      .reason = reason,
                                      .message = message });
}

static void problem(struct programming *g, const char *field, const char *value, const char *reason,
                    const char *message)
{
    service_problem(g->problems, &g->m->obj->o, field, value, reason, message);
    g->problems->v.v[g->problems->v.n - 1].event = g->m->held && g->m->held_teller;
}

/* ---- addresses ---- */

static void check_address(struct programming *g, const char *list, uint32_t i, const char *text)
{
    struct ip ip;
    const char *trouble = address_parse(text, &ip);
    if (trouble)
        problem(g, arena_printf(text_of(g), "%s[%u]", list, i), text, "InvalidAddress",
                arena_printf(text_of(g), "it is %s: it is left out", trouble));
}

static void check_addresses(struct programming *g)
{
    const struct service *s = g->m->obj;
    for (uint32_t i = 0; i < s->cluster_ips.n; i++)
        check_address(g, "spec.clusterIPs", i, s->cluster_ips.v[i]);
    for (uint32_t i = 0; i < s->external_ips.n; i++)
        check_address(g, "spec.externalIPs", i, s->external_ips.v[i]);
    for (uint32_t i = 0; i < s->n_ingress && s->type == SERVICE_LOADBALANCER; i++)
        if (s->ingress[i].mode == IP_MODE_VIP && *s->ingress[i].ip)
            check_address(g, "status.loadBalancer.ingress", i, s->ingress[i].ip);
}

static const char *trim(struct arena *a, const char *s)
{
    s += strspn(s, " \t\r\n");
    size_t n = strlen(s);
    while (n && strchr(" \t\r\n", s[n - 1]))
        n--;
    return arena_strndup(a, s, n);
}

/* A range that cannot be read admits nobody, and so must not admit everybody. */
static void read_ranges(struct programming *g)
{
    const struct string_list *l = &g->m->obj->source_ranges;
    for (uint32_t i = 0; i < l->n; i++) {
        struct ip_prefix prefix;
        if (ip_prefix_parse(trim(text_of(g), l->v[i]), &prefix)) {
            vec_push(&g->ranges, prefix);
            g->ranged[prefix.ip.family == IP_V6 ? F6 : F4] = true;
            continue;
        }
        g->ranged[F4] = g->ranged[F6] = true;
        problem(g, arena_printf(text_of(g), "spec.loadBalancerSourceRanges[%u]", i), l->v[i],
                "InvalidCIDR", "it is no CIDR; such as 198.51.100.0/24 is needed");
    }
}

/* ---- what others hold ---- */

static const char *role_field(struct arena *a, const struct claim *c)
{
    switch ((enum flow_role)c->role) {
    case ROLE_HELD:
        return "spec.loadBalancerIP";
    case ROLE_CLUSTER:
        return "spec.clusterIPs";
    case ROLE_LOAD_BALANCER:
        return "status.loadBalancer.ingress";
    case ROLE_EXTERNAL:
        return "spec.externalIPs";
    case ROLE_NODE_PORT:
        return arena_printf(a, "spec.ports[%u].nodePort", c->port);
    }
    return "";
}

static void flow_lost(struct programming *g, const struct claim *c, const struct claim *holder)
{
    struct arena *a = text_of(g);
    char ip[IP_TEXT_MAX];
    const char *proto = l4proto_name(c->key.proto);
    ip_format(&c->key.ip, ip);
    const char *value =
        c->role == ROLE_NODE_PORT ? arena_printf(a, "%u", c->key.port) : arena_strdup(a, ip);
    const char *message = holder->memo == c->memo
                              ? arena_printf(a, "%s port %u of %s is ports[%u]'s", proto,
                                             c->key.port, ip, holder->port)
                              : arena_printf(a, "%s port %u of %s is held by Service %s", proto,
                                             c->key.port, ip, service_key(holder->memo));
    problem(g, role_field(a, c), value, "PortConflict", message);
}

static void lost(struct programming *g, const struct claim *c)
{
    struct arena *a = text_of(g);
    const struct claim *holder = claims_holder(g->p, c);
    bool own = holder->memo == c->memo && holder->port == c->port;
    switch ((enum claim_kind)c->key.kind) {
    case CLAIM_FLOW:
        if (!own) /* the same address in two fields is no conflict */
            flow_lost(g, c, holder);
        return;
    case CLAIM_CLUSTER_IP: /* told of its ports, where it matters */
    case CLAIM_AFFINITY:
        return;
    case CLAIM_HEALTH:
        problem(g, "spec.healthCheckNodePort", arena_printf(a, "%u", c->key.port), "PortConflict",
                arena_printf(a, "it is held by Service %s", service_key(holder->memo)));
        return;
    }
}

/* ---- mappings before node ports and held addresses ---- */

static const struct memo *mapping_on(const struct planner *p, const struct claim *c, int iface)
{
    uint8_t proto = c->key.proto == L4_TCP ? 0 : c->key.proto == L4_UDP ? 1 : 2;
    const struct memo_vec *v = &p->accepted.bucket[proto][c->key.port / BUCKET_PORTS];
    enum family_index f = c->key.ip.family == IP_V6 ? F6 : F4;
    const struct memo *first = NULL;
    for (size_t i = 0; i < v->n; i++) {
        const struct memo *m = v->v[i];
        bool answers = m->port <= c->key.port && c->key.port <= m->end && m->group;
        for (size_t j = 0; answers && j < m->answers.ifaces[f].n; j++)
            if (m->answers.ifaces[f].v[j] == iface && (!first || memo_before(m, first)))
                first = m;
    }
    return first;
}

static bool is_node_port(const struct claim *c)
{
    return c->key.kind == CLAIM_FLOW && c->role == ROLE_NODE_PORT;
}

static bool is_held(const struct claim *c)
{
    return c->key.kind == CLAIM_FLOW && c->role == ROLE_HELD;
}

/* The mapping that answers where the node port or the held address does, and on which interface. */
static const struct memo *mapping_first(const struct planner *p, const struct claim *c,
                                        int *ret_iface)
{
    if (is_held(c) && p->options->portmap) {
        const struct host_iface *owner = host_address_owner(p->snap->host, &c->key.ip);
        *ret_iface = owner ? (int)(owner - p->snap->host->ifaces) : -1;
        return owner ? mapping_on(p, c, *ret_iface) : NULL;
    }
    const struct service_node *node = &p->services->node;
    for (size_t i = 0; i < node->n_node_ports && p->options->portmap; i++) {
        *ret_iface = node->node_ports[i].iface;
        if (ip_equal(&node->node_ports[i].ip, &c->key.ip))
            return *ret_iface >= 0 ? mapping_on(p, c, *ret_iface) : NULL;
    }
    return NULL;
}

bool service_meets_mapping(const struct planner *p, const struct service_memo *m)
{
    int iface;
    for (size_t i = 0; i < m->n_claims; i++)
        if ((is_node_port(&m->claims[i]) || is_held(&m->claims[i])) &&
            mapping_first(p, &m->claims[i], &iface))
            return true;
    return false;
}

static void check_mapping(struct programming *g, const struct claim *c)
{
    int iface;
    const struct memo *m = mapping_first(g->p, c, &iface);
    if (!m)
        return;
    g->m->met_mapping = true;
    const char *field = is_held(c) ? arena_printf(text_of(g), "spec.ports[%u].port", c->port)
                                   : role_field(text_of(g), c);
    problem(g, field, arena_printf(text_of(g), "%u", c->key.port), "PortMapFirst",
            arena_printf(text_of(g),
                         "PortMap %s answers on interface %s: what arrives there does not come to "
                         "this %s",
                         memo_key(m), g->p->snap->host->ifaces[iface].name,
                         is_held(c) ? "Service" : "node port"));
}

/* ---- classes ---- */

struct port_classes {
    struct nft_class internal, external;
};

static uint16_t at_most(size_t n)
{
    return (uint16_t)(n < ENDPOINTS_MAX ? n : ENDPOINTS_MAX);
}

static enum nft_masquerade of_cluster_ip(const struct planner *p, enum family_index f)
{
    if (p->options->masquerade_all)
        return NFT_MASQUERADE_ALWAYS;
    return p->services->node.knows_pods[f] ? NFT_MASQUERADE_OUTSIDE : NFT_MASQUERADE_NEVER;
}

/* Where the set is empty although endpoints are somewhere, another node serves: silence. */
static void finish_class(struct nft_class *c, const struct endpoint_choice *choice,
                         uint32_t timeout)
{
    c->kind = !choice->any ? NFT_CLASS_REJECT : c->n || c->n_all ? NFT_CLASS_PICK : NFT_CLASS_DROP;
    if (!c->n)
        c->masquerade = NFT_MASQUERADE_NEVER;
    if (c->kind == NFT_CLASS_PICK)
        c->timeout = timeout;
}

static struct port_classes classes_of(const struct planner *p, const struct service *s,
                                      enum family_index f, const struct endpoint_choice *choice)
{
    struct port_classes c;
    uint8_t family = f == F6 ? IP_V6 : IP_V4;
    uint16_t cluster = at_most(choice->cluster.n), local = at_most(choice->local.n);
    memset(&c, 0, sizeof(c)); /* compared as bytes */
    c.internal.family = c.external.family = family;
    c.internal.n = s->internal_policy == POLICY_LOCAL ? local : cluster;
    c.internal.masquerade = (uint8_t)of_cluster_ip(p, f);
    if (s->external_policy == POLICY_LOCAL) {
        c.external.n = local;
        c.external.n_all = cluster;
    } else {
        c.external.n = cluster;
        c.external.masquerade = NFT_MASQUERADE_ALWAYS;
    }
    finish_class(&c.internal, choice, s->affinity_timeout);
    finish_class(&c.external, choice, s->affinity_timeout);
    return c;
}

/* ---- elements ---- */

static void put_endpoints(struct programming *g, const struct claim *c,
                          const struct backend_vec *endpoints, uint16_t n, uint32_t first,
                          bool affinity)
{
    const struct claim_key *k = &c->key;
    enum nft_set set = first ? NFT_AFFINITYALL4 : NFT_AFFINITYENDPOINT4;
    for (uint16_t i = 0; i < n; i++) {
        const struct backend *e = &endpoints->v[i];
        nft_put_endpoint(g->group, &k->ip, k->proto, k->port, (uint16_t)(first + i), &e->ip,
                         e->port);
        if (affinity)
            nft_put_affinity_endpoint(g->group, set, &k->ip, k->proto, k->port, &e->ip, e->port);
        const struct hairpin_pair itself = { e->ip, { e->ip, ip_bits(e->ip.family) } };
        if (e->local)
            vec_push(&g->hairpins, itself);
    }
}

/* A node whose own address is admitted may find the address itself as its source. */
static void put_source_ranges(struct programming *g, const struct claim_key *k)
{
    const struct ip *node = &g->p->services->node.primary[k->ip.family == IP_V6 ? F6 : F4];
    bool admits_node = false;
    for (size_t i = 0; i < g->ranges.n; i++) {
        if (g->ranges.v[i].ip.family != k->ip.family)
            continue;
        nft_put_source_range(g->group, &k->ip, k->proto, k->port, &g->ranges.v[i]);
        admits_node |= node->family && ip_prefix_contains(&g->ranges.v[i], node);
    }
    const struct ip_prefix itself = { k->ip, ip_bits(k->ip.family) };
    if (admits_node)
        nft_put_source_range(g->group, &k->ip, k->proto, k->port, &itself);
}

/* A flow of a class, the endpoints of which it has class->n of `v` and class->n_all of `all`. */
static void put_class(struct programming *g, const struct claim *c, const struct nft_class *class,
                      const struct backend_vec *v, const struct backend_vec *all)
{
    const struct claim_key *k = &c->key;
    nft_put_service(g->group, &k->ip, k->proto, k->port, class);
    if (class->ranged)
        put_source_ranges(g, k);
    put_endpoints(g, c, v, class->n, 0, class->timeout);
    put_endpoints(g, c, all, class->n_all, NFT_INDEX_ALL, class->timeout);
    if (class->timeout) {
        uint32_t id = claims_id(g->m, c->port);
        nft_put_affinity(g->group, &k->ip, k->proto, k->port, id);
        nft_put_affinity_timeout(g->group, id, class->timeout);
    }
}

static void put_flow(struct programming *g, const struct claim *c,
                     const struct port_classes *classes, const struct endpoint_choice *choice)
{
    const struct claim_key *k = &c->key;
    const struct service *s = g->m->obj;
    enum family_index f = k->ip.family == IP_V6 ? F6 : F4;
    struct nft_class class = c->role == ROLE_CLUSTER ? classes->internal : classes->external;
    bool local =
        (c->role == ROLE_CLUSTER ? s->internal_policy : s->external_policy) == POLICY_LOCAL;
    class.ranged = c->role == ROLE_LOAD_BALANCER && g->ranged[f] && class.kind != NFT_CLASS_DROP;
    put_class(g, c, &class, local ? &choice->local : &choice->cluster, &choice->cluster);
}

static void check_number(struct programming *g, uint16_t port, size_t n)
{
    if (n > ENDPOINTS_MAX)
        problem(g, arena_printf(text_of(g), "spec.ports[%u]", port), g->m->obj->ports[port].name,
                "TooManyEndpoints",
                arena_printf(text_of(g), "of its %zu endpoints the first %u by address are used", n,
                             ENDPOINTS_MAX));
}

/* A port of the address that this node holds: refused where no endpoint can be reached. */
static void put_held(struct programming *g, const struct claim *c)
{
    struct held_choice *choice = &g->p->services->held_choice;
    const struct claim_key *k = &c->key;
    struct nft_class class;
    if (lb_tunnel_ends_at(g->p, &k->ip, k->proto, k->port)) {
        char ip[IP_TEXT_MAX];
        problem(g, arena_printf(text_of(g), "spec.ports[%u].port", c->port),
                arena_printf(text_of(g), "%u", k->port), "PortConflict",
                arena_printf(text_of(g),
                             "UDP port %u of %s, the node's InternalIP, is where links between "
                             "nodes end: another port or address is needed",
                             k->port, ip_format(&k->ip, ip)));
        return;
    }
    held_choose(g->p, g->m, c->port, choice, &g->hairpins, &g->routes, g->problems);
    check_number(g, c->port, choice->endpoints.n);
    memset(&class, 0, sizeof(class)); /* compared as bytes */
    class.family = IP_V4;
    class.n = at_most(choice->endpoints.n);
    class.kind = class.n ? NFT_CLASS_PICK : NFT_CLASS_REJECT;
    class.ranged = g->ranged[F4];
    class.timeout = class.n ? g->m->obj->affinity_timeout : 0;
    put_class(g, c, &class, &choice->endpoints, &choice->endpoints);
    nft_put_flow(g->group, NFT_HELD4, &k->ip, k->proto, k->port, k->port);
    if (choice->routed)
        nft_put_flow(g->group, NFT_HELDROUTE4, &k->ip, k->proto, k->port, k->port);
    check_mapping(g, c);
}

/* The flows of one port in one family: claims begin..end. */
static void put_port(struct programming *g, enum family_index f, size_t begin, size_t end)
{
    const struct service_memo *m = g->m;
    struct endpoint_choice *choice = &g->p->services->choice;
    struct port_classes classes;
    bool chosen = false;
    for (size_t i = begin; i < end; i++) {
        const struct claim *c = &m->claims[i];
        if (!c->holds || is_held(c) || c->key.ip.family != (f == F6 ? IP_V6 : IP_V4))
            continue;
        if (!chosen) {
            endpoints_choose(g->p, m, &m->obj->ports[c->port], c->key.ip.family, choice);
            classes = classes_of(g->p, m->obj, f, choice);
            if (!g->ipvs)
                check_number(g, c->port, choice->cluster.n);
            chosen = true;
        }
        if (g->ipvs)
            service_ipvs_flow(g->ipvs, c, choice);
        else
            put_flow(g, c, &classes, choice);
        if (is_node_port(c))
            check_mapping(g, c);
    }
}

static void put_all(struct programming *g)
{
    const struct service_memo *m = g->m;
    size_t begin = 0, end;
    for (; begin < m->n_claims && m->claims[begin].key.kind == CLAIM_FLOW; begin = end) {
        for (end = begin + 1; end < m->n_claims && m->claims[end].key.kind == CLAIM_FLOW &&
                              m->claims[end].port == m->claims[begin].port;)
            end++;
        if (is_held(&m->claims[begin]) && m->claims[begin].holds)
            put_held(g, &m->claims[begin]);
        put_port(g, F4, begin, end);
        put_port(g, F6, begin, end);
    }
    for (size_t i = 0; i < m->n_claims; i++) {
        if (!m->claims[i].holds)
            lost(g, &m->claims[i]);
        else if (m->claims[i].key.kind == CLAIM_CLUSTER_IP && g->ipvs)
            service_ipvs_cluster_ip(g->ipvs, &m->claims[i]);
        else if (m->claims[i].key.kind == CLAIM_CLUSTER_IP)
            nft_put_address(g->group, NFT_CLUSTERIP4, &m->claims[i].key.ip);
    }
}

static bool holds_health_port(const struct service_memo *m)
{
    const struct claim *last = m->n_claims ? &m->claims[m->n_claims - 1] : NULL;
    return last && last->key.kind == CLAIM_HEALTH && last->holds;
}

void service_program(struct planner *p, struct service_memo *m)
{
    struct service_problems problems = { .mem.chunk_size = 512 };
    struct programming g = { .p = p, .m = m, .problems = &problems };
    g.group = nft_group_begin(m->owner);
    p->services->choice.bad = m->met_mapping = false;
    if (service_is_proxied(p, m->obj))
        check_addresses(&g);
    if (service_is_proxied(p, m->obj) || m->held_here)
        read_ranges(&g);
    struct service_ipvs ipvs = { p, m, NULL, g.ranges.v, g.ranges.n, g.ranged };
    if (p->options->proxy_mode == PROXY_IPVS) {
        ipvs.group = ipvs_group_begin(m->owner);
        g.ipvs = &ipvs;
    }
    put_all(&g);
    if (m->held)
        held_check(p, m, &problems);
    if (p->services->choice.bad)
        endpoints_check(p, m, &problems);
    if (g.ipvs && holds_health_port(m))
        service_ipvs_health(g.ipvs);
    if (g.ipvs)
        service_set_ipvs(p, m, ipvs_group_end(ipvs.group));
    service_set_group(p, m, nft_group_end(g.group));
    service_set_hairpins(p, m, g.hairpins.v, g.hairpins.n);
    service_set_routes(p, m, g.routes.v, g.routes.n);
    service_set_health(p, m, holds_health_port(m) ? service_health_port(m->obj) : 0);
    service_set_problems(p, m, &problems);
    vec_done(&g.ranges);
    vec_done(&g.hairpins);
    vec_done(&g.routes);
}
