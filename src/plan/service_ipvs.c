/* One Service in IPVS: servers with their destinations, the addresses they need here, and the ipsets
 * by which iptables knows what to masquerade, to refuse and to drop. Rules: ipvs_rules.c. */
#include "plan/services.h"

static enum family_index family_of(const struct claim *c)
{
    return c->key.ip.family == IP_V6 ? F6 : F4;
}

static void put(struct service_ipvs *g, enum ipvs_set set, const struct claim *c)
{
    ipvs_put_address_port(g->group, set, &c->key.ip, c->key.proto, c->key.port);
}

static void bind(struct service_ipvs *g, const struct ip *ip)
{
    if (!service_ipvs_owned(g->p->services->node.ipvs, ip))
        ipvs_put_bound(g->group, ip);
}

/* ---- what is said of an address and port ---- */

static void put_node_port(struct service_ipvs *g, const struct claim *c, bool local)
{
    static const struct {
        enum l4proto proto;
        enum ipvs_set all, local;
    } sets[] = {
        { L4_TCP, KUBE_NODE_PORT_TCP, KUBE_NODE_PORT_LOCAL_TCP },
        { L4_UDP, KUBE_NODE_PORT_UDP, KUBE_NODE_PORT_LOCAL_UDP },
    };
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        if (c->key.proto != sets[i].proto)
            continue;
        ipvs_put_port(g->group, sets[i].all, c->key.ip.family, c->key.port);
        if (local)
            ipvs_put_port(g->group, sets[i].local, c->key.ip.family, c->key.port);
    }
    if (c->key.proto != L4_SCTP)
        return;
    put(g, KUBE_NODE_PORT_SCTP, c);
    if (local)
        put(g, KUBE_NODE_PORT_LOCAL_SCTP, c);
}

/* A node whose own address is admitted may find the address itself as its source. */
static void put_source_ranges(struct service_ipvs *g, const struct claim *c)
{
    const struct claim_key *k = &c->key;
    const struct ip *node = &g->p->services->node.primary[family_of(c)];
    bool admits_node = false;
    put(g, KUBE_LOAD_BALANCER_FW, c);
    for (size_t i = 0; i < g->n_ranges; i++) {
        if (g->ranges[i].ip.family != k->ip.family)
            continue;
        ipvs_put_address_port_net(g->group, KUBE_LOAD_BALANCER_SRC_CIDR, &k->ip, k->proto, k->port,
                                  &g->ranges[i]);
        admits_node |= node->family && ip_prefix_contains(&g->ranges[i], node);
    }
    if (admits_node)
        ipvs_put_address_port_address(g->group, KUBE_LOAD_BALANCER_SOURCE_IP, &k->ip, k->proto,
                                      k->port, &k->ip);
}

static void put_role(struct service_ipvs *g, const struct claim *c)
{
    bool local = g->m->obj->external_policy == POLICY_LOCAL;
    switch ((enum flow_role)c->role) {
    case ROLE_HELD: /* nftables' in this mode, too */
        return;
    case ROLE_CLUSTER:
        put(g, KUBE_CLUSTER_IP, c);
        return;
    case ROLE_LOAD_BALANCER:
        put(g, KUBE_LOAD_BALANCER, c);
        if (local)
            put(g, KUBE_LOAD_BALANCER_LOCAL, c);
        if (g->ranged[family_of(c)])
            put_source_ranges(g, c);
        bind(g, &c->key.ip);
        return;
    case ROLE_EXTERNAL:
        put(g, KUBE_EXTERNAL_IP, c);
        if (local)
            put(g, KUBE_EXTERNAL_IP_LOCAL, c);
        bind(g, &c->key.ip);
        return;
    case ROLE_NODE_PORT:
        put_node_port(g, c, local);
        return;
    }
}

/* ---- servers ---- */

static void put_server(struct service_ipvs *g, const struct claim *c,
                       const struct backend_vec *endpoints)
{
    const struct claim_key *k = &c->key;
    const struct ipvs_options *opt = &g->p->options->ipvs;
    ipvs_put_server(g->group, &k->ip, k->proto, k->port, opt->scheduler,
                    g->m->obj->affinity_timeout);
    for (size_t i = 0; i < endpoints->n; i++) {
        const struct backend *e = &endpoints->v[i];
        ipvs_put_dest(g->group, &k->ip, k->proto, k->port, &e->ip, e->port, opt->weight);
        if (e->local)
            ipvs_put_address_port_address(g->group, KUBE_LOOP_BACK, &e->ip, k->proto, e->port,
                                          &e->ip);
    }
}

/* Where the policy is Local and endpoints are elsewhere alone, nobody outside gets an answer: the
 * client or the load balancer tries another node. This node and its pods are sent there. A server
 * without destinations refuses; so what is silent to everybody has none. */
void service_ipvs_flow(struct service_ipvs *g, const struct claim *c,
                       const struct endpoint_choice *choice)
{
    const struct service *s = g->m->obj;
    bool internal = c->role == ROLE_CLUSTER;
    bool local = (internal ? s->internal_policy : s->external_policy) == POLICY_LOCAL;
    bool elsewhere = local && !choice->local.n && choice->any;
    if (elsewhere)
        put(g, internal ? KUBE_DROP : KUBE_DROP_OUTSIDE, c);
    if (elsewhere && internal)
        return;
    if (!choice->any)
        put(g, KUBE_REJECT, c);
    put_server(g, c, local && !elsewhere ? &choice->local : &choice->cluster);
    put_role(g, c);
}

/* ---- of the whole Service ---- */

void service_ipvs_cluster_ip(struct service_ipvs *g, const struct claim *c)
{
    bind(g, &c->key.ip);
}

void service_ipvs_health(struct service_ipvs *g)
{
    uint16_t port = service_health_port(g->m->obj);
    for (size_t i = 0; i < g->m->n_claims; i++)
        if (g->m->claims[i].key.kind == CLAIM_CLUSTER_IP)
            ipvs_put_port(g->group, KUBE_HEALTH_CHECK_NODE_PORT, g->m->claims[i].key.ip.family,
                          port);
}

void service_set_ipvs(struct planner *p, struct service_memo *m, struct ipvs_group *g)
{
    struct services *x = p->services;
    struct ipvs_group *old = m->ipvs;
    if (g && (!g->n || (old && ipvs_group_equal(g, old)))) {
        bool same = g->n;
        ipvs_group_unref(g);
        g = NULL;
        if (same)
            return;
    }
    if (!g && !old)
        return;
    size_t at = vec_lower_bound(&x->ipvs, e, strcmp((*e)->owner, m->owner) < 0);
    if (g && old)
        x->ipvs.v[at] = g;
    else if (g)
        *vec_insert(&x->ipvs, at) = g;
    else
        vec_remove(&x->ipvs, at);
    if (old)
        vec_push(&x->old_ipvs, old);
    m->ipvs = g;
}
