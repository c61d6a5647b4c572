/* What this node is to Services: its zone, its addresses, and who is a pod. */
#include "plan/services.h"

struct reader {
    const struct planner *p;
    struct service_node *out;
    VEC(struct problem) problems;
    VEC(struct node_port_address) node_ports;
    struct nft_group_builder *group;
    struct ipvs_group_builder *pods; /* NULL: not the mode */
};

static enum family_index family_of(const struct ip *ip)
{
    return ip->family == IP_V6 ? F6 : F4;
}

static void bad_range(struct reader *r, const struct object *o, const char *list, uint32_t i,
                      const char *value)
{
    struct arena *a = &r->out->mem;
    vec_push(&r->problems,
             (struct problem){ .kind = o->meta.kind,
                               .ns = "",
                               .name = arena_strdup(a, o->meta.name),
                               .field = arena_printf(a, "%s[%u]", list, i),
                               .value = arena_strdup(a, value),
                               .reason = "InvalidCIDR",
                               .message = "it is no CIDR; such as 10.96.0.0/12 is needed" });
}

/* By IPVS nobody looks at ranges of services. */
static void put_range(struct reader *r, enum nft_set set, const struct ip_prefix *prefix)
{
    bool pods = set == NFT_PODRANGE4;
    if (pods)
        r->out->knows_pods[family_of(&prefix->ip)] = true;
    if (!r->pods)
        nft_put_prefix(r->group, set, prefix);
    else if (pods)
        ipvs_put_net(r->pods, KUBE_POD_RANGE, prefix);
}

static void read_ranges(struct reader *r, const struct object *o, const char *list,
                        const struct string_list *l, enum nft_set set)
{
    for (uint32_t i = 0; i < l->n; i++) {
        struct ip_prefix prefix;
        if (!ip_prefix_parse(l->v[i], &prefix)) {
            bad_range(r, o, list, i, l->v[i]);
            continue;
        }
        put_range(r, set, &prefix);
    }
}

static void read_pod_ranges(struct reader *r, const struct node *node)
{
    const struct plan_options *opt = r->p->options;
    if (opt->node_cidr && node)
        read_ranges(r, &node->o, "spec.podCIDRs", &node->pod_cidrs, NFT_PODRANGE4);
    for (size_t i = 0; i < opt->n_cluster_cidrs && !opt->node_cidr; i++)
        put_range(r, NFT_PODRANGE4, &opt->cluster_cidrs[i]);
}

static void read_primaries(struct reader *r, const struct node *node)
{
    for (uint32_t i = 0; node && i < node->n_internal_ips; i++) {
        struct ip *primary = &r->out->primary[family_of(&node->internal_ips[i])];
        if (!primary->family && !ip_special(&node->internal_ips[i]))
            *primary = node->internal_ips[i];
    }
}

/* ---- where node ports answer ---- */

static int iface_with(const struct planner *p, const struct ip *ip)
{
    const struct host *h = p->snap->host;
    const struct host_iface *owner = host_address_owner(h, ip);
    return owner ? (int)(owner - h->ifaces) : -1;
}

static bool is_asked_for(const struct plan_options *opt, const struct ip *ip)
{
    for (size_t i = 0; i < opt->n_nodeport_addresses; i++)
        if (ip_prefix_contains(&opt->nodeport_addresses[i], ip))
            return true;
    for (size_t i = 0; i < opt->ipvs.n_node_addresses; i++)
        if (ip_equal(&opt->ipvs.node_addresses[i], ip))
            return true;
    return !opt->n_nodeport_addresses && !opt->ipvs.n_node_addresses;
}

static bool on_primary_alone(const struct plan_options *opt)
{
    bool all = opt->proxy_mode == PROXY_IPVS && !opt->ipvs.nodeport_primary;
    return !all && !opt->n_nodeport_addresses;
}

static int by_address(const void *a, const void *b)
{
    return ip_cmp(&((const struct node_port_address *)a)->ip,
                  &((const struct node_port_address *)b)->ip);
}

static void put_address(struct reader *r, const struct ip *ip)
{
    vec_push(&r->node_ports, (struct node_port_address){ *ip, iface_with(r->p, ip) });
}

static void read_node_ports(struct reader *r)
{
    const struct plan_options *opt = r->p->options;
    const struct host *h = r->p->snap->host;
    bool primary = on_primary_alone(opt);
    for (enum family_index f = F4; f < F_COUNT && primary; f++)
        if (r->out->primary[f].family)
            put_address(r, &r->out->primary[f]);
    for (uint32_t i = 0; i < h->n_ifaces && !primary; i++)
        for (uint32_t j = 0; j < h->ifaces[i].n_addresses; j++) {
            const struct ip *ip = &h->ifaces[i].addresses[j].ip;
            if (is_asked_for(opt, ip) && !ip_special(ip) && !service_ipvs_link(&h->ifaces[i]))
                put_address(r, ip);
        }
    if (r->node_ports.n > 1)
        qsort(r->node_ports.v, r->node_ports.n, sizeof(r->node_ports.v[0]), by_address);
    size_t n = 0;
    for (size_t i = 0; i < r->node_ports.n; i++)
        if (!n || by_address(&r->node_ports.v[n - 1], &r->node_ports.v[i]))
            r->node_ports.v[n++] = r->node_ports.v[i];
    r->out->node_ports = arena_new_array(&r->out->mem, n, struct node_port_address);
    r->out->n_node_ports = n;
    if (n)
        memcpy(r->out->node_ports, r->node_ports.v, n * sizeof(r->node_ports.v[0]));
}

/* One that is written wrong would do nothing, silently. */
static void check_node_addresses(struct reader *r)
{
    const struct ipvs_options *opt = &r->p->options->ipvs;
    struct arena *a = &r->out->mem;
    char text[IP_TEXT_MAX];
    for (size_t i = 0; i < opt->n_node_addresses; i++) {
        const struct node_port_address key = { .ip = opt->node_addresses[i] };
        if (bsearch(&key, r->out->node_ports, r->out->n_node_ports, sizeof(key), by_address))
            continue;
        vec_push(
            &r->problems,
            (struct problem){
                .kind = KIND_NODE,
                .ns = "",
                .name = arena_strdup(a, r->p->snap->node),
                .field = "--node-address",
                .value = arena_strdup(a, ip_format(&key.ip, text)),
                .reason = "NoSuchAddress",
                .message = "no interface of this node has it: node ports do not answer there" });
    }
}

/* ---- all of it ---- */

void service_node_read(struct planner *p, struct service_node *ret)
{
    struct reader r = { .p = p, .out = ret, .group = nft_group_begin("proxy") };
    if (p->options->proxy_mode == PROXY_IPVS)
        r.pods = ipvs_group_begin("proxy");
    const struct node *node = snapshot_node(p->snap, p->snap->node);
    *ret = (struct service_node){ .zone = "" };
    if (node)
        ret->zone = arena_strdup(&ret->mem, label_value(&node->o.meta.labels, LABEL_ZONE));
    read_primaries(&r, node);
    if (p->options->serviceproxy)
        read_pod_ranges(&r, node);
    for (size_t i = 0; p->options->serviceproxy && i < p->snap->n_service_cidrs; i++) {
        const struct service_cidr *c = p->snap->service_cidrs[i];
        read_ranges(&r, &c->o, "spec.cidrs", &c->cidrs, NFT_SERVICERANGE4);
    }
    if (p->options->serviceproxy)
        read_node_ports(&r);
    check_node_addresses(&r);
    ret->group = nft_group_end(r.group);
    if (r.pods)
        service_ipvs_node_read(p, ret, r.pods);
    ret->problems = arena_new_array(&ret->mem, r.problems.n, struct problem);
    ret->n_problems = r.problems.n;
    if (r.problems.n)
        memcpy(ret->problems, r.problems.v, r.problems.n * sizeof(r.problems.v[0]));
    vec_done(&r.problems);
    vec_done(&r.node_ports);
}

void service_node_done(struct service_node *n)
{
    nft_group_unref(n->group);
    service_ipvs_node_done(n->ipvs);
    arena_done(&n->mem);
    *n = (struct service_node){ 0 };
}

bool service_node_same(const struct service_node *a, const struct service_node *b)
{
    if (!a->zone || strcmp(a->zone, b->zone) || a->n_node_ports != b->n_node_ports)
        return false;
    for (size_t i = 0; i < a->n_node_ports; i++)
        if (by_address(&a->node_ports[i], &b->node_ports[i]))
            return false;
    for (enum family_index f = F4; f < F_COUNT; f++)
        if (!ip_equal(&a->primary[f], &b->primary[f]) || a->knows_pods[f] != b->knows_pods[f])
            return false;
    return true;
}
