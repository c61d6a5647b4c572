/* What of the IPVS mode depends on this node alone: who is a pod, which addresses are machines',
 * rules, sysctls. */
#include "plan/ipvs_rules.h"
#include "plan/loadbalancer.h"

bool service_ipvs_link(const struct host_iface *iface)
{
    return !strcmp(iface->name, IPVS_LINK);
}

static int by_ip(const void *a, const void *b)
{
    return ip_cmp(a, b);
}

/* To bind an address of another node would cut this node off from that one; to bind one of its own is
 * of no use, and unbinding it later would take it away. */
static void read_owned(struct planner *p, struct service_node *node)
{
    struct service_node_ipvs *out = node->ipvs;
    const struct host *h = p->snap->host;
    VEC(struct ip) v = { 0 };
    for (uint32_t i = 0; i < h->n_ifaces; i++)
        for (uint32_t j = 0; j < h->ifaces[i].n_addresses; j++)
            if (!service_ipvs_link(&h->ifaces[i]))
                vec_push(&v, h->ifaces[i].addresses[j].ip);
    for (size_t i = 0; i < p->snap->n_nodes; i++)
        for (uint32_t j = 0; j < p->snap->nodes[i]->n_internal_ips; j++)
            vec_push(&v, p->snap->nodes[i]->internal_ips[j]);
    for (size_t i = 0; p->loadbalancer && i < p->loadbalancer->facts.n_held; i++)
        vec_push(&v, p->loadbalancer->facts.held[i].ip);
    if (v.n > 1)
        qsort(v.v, v.n, sizeof(v.v[0]), by_ip);
    out->owned = arena_new_array(&node->mem, v.n, struct ip);
    for (size_t i = 0; i < v.n; i++)
        if (!out->n_owned || !ip_equal(&out->owned[out->n_owned - 1], &v.v[i]))
            out->owned[out->n_owned++] = v.v[i];
    vec_done(&v);
}

bool service_ipvs_owned(const struct service_node_ipvs *n, const struct ip *ip)
{
    return n->n_owned && bsearch(ip, n->owned, n->n_owned, sizeof(n->owned[0]), by_ip);
}

void service_ipvs_node_read(struct planner *p, struct service_node *node,
                            struct ipvs_group_builder *pods)
{
    struct service_node_ipvs *n = node->ipvs = arena_new(&node->mem, struct service_node_ipvs);
    n->group = ipvs_group_end(pods);
    read_owned(p, node);
    ipvs_rules(p->options, IP_V4, node->knows_pods[F4], &n->rules[F4]);
    ipvs_rules(p->options, IP_V6, node->knows_pods[F6], &n->rules[F6]);
    n->want = (struct ipvs_want){ buf_str(&n->rules[F4]), buf_str(&n->rules[F6]) };
}

void service_ipvs_node_done(struct service_node_ipvs *n)
{
    if (!n)
        return;
    ipvs_group_unref(n->group);
    buf_done(&n->rules[F4]);
    buf_done(&n->rules[F6]);
}

/* ---- addresses that come and go ---- */

static bool is_bound_by(const struct claim *c)
{
    switch ((enum claim_kind)c->key.kind) {
    case CLAIM_CLUSTER_IP:
        return true;
    case CLAIM_FLOW:
        return c->role == ROLE_LOAD_BALANCER || c->role == ROLE_EXTERNAL;
    case CLAIM_HEALTH:
    case CLAIM_AFFINITY:
        return false;
    }
    return false;
}

static bool same_owned(const struct service_node_ipvs *a, const struct service_node_ipvs *b)
{
    return a->n_owned == b->n_owned &&
           (!a->n_owned || !memcmp(a->owned, b->owned, a->n_owned * sizeof(a->owned[0])));
}

void service_ipvs_owned_changed(struct planner *p, const struct service_node_ipvs *before)
{
    const struct service_node_ipvs *now = p->services->node.ipvs;
    const struct service_memo_vec *v = &p->services->memos;
    if (!now || !before || same_owned(now, before))
        return;
    for (size_t i = 0; i < v->n; i++)
        for (size_t j = 0; j < v->v[i]->n_claims; j++) {
            const struct claim *c = &v->v[i]->claims[j];
            if (is_bound_by(c) &&
                service_ipvs_owned(now, &c->key.ip) != service_ipvs_owned(before, &c->key.ip))
                service_due(p, v->v[i]);
        }
}

/* ---- the result ---- */

/* By path, as they are merged into those there are. */
static const struct {
    const char *path, *value;
    bool strict_arp;
} sysctls[] = {
    { "net/ipv4/conf/all/arp_announce", "2", true },
    { "net/ipv4/conf/all/arp_ignore", "1", true },
    { "net/ipv4/ip_forward", "1", false },
    { "net/ipv4/vs/conntrack", "1", false },
    { "net/ipv4/vs/expire_nodest_conn", "1", false },
    { "net/ipv4/vs/expire_quiescent_template", "1", false },
};

static void put_sysctl(struct pass *pass, const char *path, const char *value)
{
    const struct desired_sysctl s = { "node", path, value, true };
    size_t at = vec_lower_bound(&pass->sysctls, e, desired_sysctl_cmp(e, &s) < 0);
    if (at == pass->sysctls.n || desired_sysctl_cmp(&pass->sysctls.v[at], &s))
        *vec_insert(&pass->sysctls, at) = s;
}

void service_ipvs_publish(const struct planner *p, struct pass *pass)
{
    const struct services *x = p->services;
    struct desired *d = &pass->plan.desired;
    if (!x->node.ipvs)
        return;
    pass->ipvs.n = 0;
    vec_reserve(&pass->ipvs, x->ipvs.n + 1);
    if (x->node.ipvs->group->n)
        vec_push(&pass->ipvs, x->node.ipvs->group);
    for (size_t i = 0; i < x->ipvs.n; i++)
        vec_push(&pass->ipvs, x->ipvs.v[i]);
    pass->sysctls.n = 0;
    for (size_t i = 0; i < d->n_sysctls; i++)
        vec_push(&pass->sysctls, d->sysctls[i]);
    for (size_t i = 0; i < sizeof(sysctls) / sizeof(sysctls[0]); i++)
        if (!sysctls[i].strict_arp || p->options->ipvs.strict_arp)
            put_sysctl(pass, sysctls[i].path, sysctls[i].value);
    d->ipvs = pass->ipvs.v;
    d->n_ipvs = pass->ipvs.n;
    d->sysctls = pass->sysctls.v;
    d->n_sysctls = pass->sysctls.n;
    d->ipvs_node = &x->node.ipvs->want;
}
