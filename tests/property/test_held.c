/* Held addresses, for every cluster and every history of it. The judge is the policy written once more
 * over the world's own numbers, without the planner's indexes: who forwards, who writes, which marks.
 * PORTOLAN_SEED runs one seed. */
#include "../unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "gen.h"
#include "plan/plan.h"
#include "plan/plan_text.h"
#include "store/store.h"

#define HISTORIES 150
#define STEPS     40
#define NODES     6 /* at most */
#define SERVICES  8
#define PODS      6
#define ADDRESSES 5

/* Sorted. Three have one mark to begin with; that of edge-a is taken for ever. */
static const char *const names[NODES] = {
    "edge-a", "node-0", "node-126", "node-37", "node-91", "w"
};

struct world_node {
    bool exists;
    bool host[ADDRESSES];            /* 203.0.113.1 and on, on its interface */
    bool garbage;                    /* in its annotations */
    char addresses[80], overlay[48]; /* as published */
};
struct world_pod {
    unsigned node; /* NODES: of a node that is not there */
    bool ready, known;
};
struct world_service {
    bool exists, ours, local;
    int ip;    /* ADDRESSES: one that nobody can have; -1: no address */
    int shows; /* in its status; -1: none */
    unsigned version;
    struct world_pod pods[PODS];
};
struct world {
    struct rng rng;
    unsigned n_nodes;
    bool vxlan;
    struct world_node nodes[NODES];
    struct world_service services[SERVICES];
    struct store *store;
    struct plan_options options;
    struct planner *planners[NODES];
    struct host hosts[NODES];
    struct host_iface ifaces[NODES][2];
    struct host_address host_addresses[NODES][2][ADDRESSES];
    bool host_changed[NODES];
    unsigned set[NODES]; /* of nodes that were holders to this one, by bit */
    unsigned marks[NODES][NODES];
};

static struct {
    unsigned forwards, several, none, invalid, garbage, cleared, set, marks, probed, stable, routed,
        direct, unreachable, conflicts, incremental, told;
} met;
static uint64_t seed_now;

/* ---- the world's objects ---- */

static const char *address_text(int i, char out[static 32])
{
    snprintf(out, 32, "203.0.113.%d", i + 1);
    return out;
}

static void put_node(struct world *w, unsigned i)
{
    const struct world_node *n = &w->nodes[i];
    if (!n->exists) {
        store_remove(w->store, KIND_NODE, "", names[i]);
        return;
    }
    struct node *o = object_new(KIND_NODE);
    struct arena *a = &o->o.mem;
    o->o.meta.name = arena_strdup(a, names[i]);
    o->o.meta.annotations.v = arena_new_array(a, 2, struct label);
    o->o.meta.annotations.v[o->o.meta.annotations.n++] =
        (struct label){ ANNOTATION_ADDRESSES, arena_strdup(a, n->addresses) };
    o->o.meta.annotations.v[o->o.meta.annotations.n++] =
        (struct label){ ANNOTATION_OVERLAY, arena_strdup(a, n->overlay) };
    o->internal_ips = arena_new(a, struct ip);
    o->internal_ips[0] = ip_v4(192, 0, 2, (uint8_t)(i + 1));
    o->n_internal_ips = 1;
    o->pod_cidrs.v = arena_new_array(a, 2, const char *);
    o->pod_cidrs.v[o->pod_cidrs.n++] = arena_printf(a, "10.244.%u.0/24", i);
    o->pod_cidrs.v[o->pod_cidrs.n++] = arena_printf(a, "10.32.%u.0/24", 1 + i);
    store_upsert(w->store, &o->o);
}

/* Pods 0 and 1 of a Service are on the bridge, the others routed; the last is in its node's network. */
static const char *pod_text(const struct world *w, unsigned service, unsigned pod,
                            char out[static 32])
{
    const struct world_pod *p = &w->services[service].pods[pod];
    if (pod == PODS - 1)
        snprintf(out, 32, "192.0.2.%u", p->node + 1);
    else if (pod < 2)
        snprintf(out, 32, "10.32.%u.%u", 1 + p->node, 1 + pod);
    else
        snprintf(out, 32, "10.244.%u.%u", p->node, 1 + pod);
    return out;
}

static void put_slice(struct world *w, unsigned i)
{
    struct endpoint_slice *o = object_new(KIND_ENDPOINTSLICE);
    struct arena *a = &o->o.mem;
    o->o.meta.ns = "a";
    o->o.meta.name = o->service = arena_printf(a, "s%u", i);
    o->family = IP_V4;
    o->ports = arena_new(a, struct endpoint_port);
    o->ports[o->n_ports++] = (struct endpoint_port){ "", L4_TCP, 8080 };
    o->endpoints = arena_new_array(a, PODS, struct endpoint);
    for (unsigned j = 0; j < PODS; j++) {
        const struct world_pod *p = &w->services[i].pods[j];
        char text[32];
        if (!p->known)
            continue;
        struct endpoint *e = &o->endpoints[o->n_endpoints++];
        *e = (struct endpoint){ .ready = p->ready,
                                .serving = p->ready,
                                .target_kind = "",
                                .target_ns = "",
                                .target_name = "" };
        e->node_name = p->node < NODES ? names[p->node] : "gone";
        e->addresses.v = arena_new(a, const char *);
        e->addresses.v[e->addresses.n++] = arena_strdup(a, pod_text(w, i, j, text));
    }
    store_upsert(w->store, &o->o);
}

static void put_service(struct world *w, unsigned i)
{
    struct world_service *s = &w->services[i];
    char name[8], text[32];
    snprintf(name, sizeof(name), "s%u", i);
    if (!s->exists) {
        store_remove(w->store, KIND_SERVICE, "a", name);
        return;
    }
    struct service *o = object_new(KIND_SERVICE);
    struct arena *a = &o->o.mem;
    o->o.meta.ns = "a";
    o->o.meta.name = arena_strdup(a, name);
    o->o.meta.creation = 1000 + i % 3;
    o->o.meta.resource_version = arena_printf(a, "%u", s->version);
    o->type = SERVICE_LOADBALANCER;
    o->load_balancer_class = s->ours ? NODE_ADDRESS_CLASS : "other";
    o->load_balancer_ip = s->ip < 0 ? "" : arena_strdup(a, address_text(s->ip, text));
    o->external_policy = s->local ? POLICY_LOCAL : POLICY_CLUSTER;
    o->cluster_ip = arena_printf(a, "10.96.0.%u", i + 1);
    o->cluster_ips.v = arena_new(a, const char *);
    o->cluster_ips.v[o->cluster_ips.n++] = o->cluster_ip;
    o->ports = arena_new(a, struct service_port);
    o->ports[o->n_ports++] = (struct service_port){ "", L4_TCP, (uint16_t)(80 + i % 4), 0 };
    if (s->shows >= 0) {
        o->ingress = arena_new(a, struct service_ingress);
        o->ingress[o->n_ingress++] =
            (struct service_ingress){ arena_strdup(a, address_text(s->shows, text)),
                                      IP_MODE_PROXY };
    }
    store_upsert(w->store, &o->o);
}

static void make_host(struct world *w, unsigned i)
{
    struct host *h = &w->hosts[i];
    struct host_iface *eth = &w->ifaces[i][0], *weave = &w->ifaces[i][1];
    *eth = (struct host_iface){ "eth0", 1500, true, true, .addresses = w->host_addresses[i][0] };
    w->host_addresses[i][0][eth->n_addresses++] =
        (struct host_address){ ip_v4(192, 0, 2, (uint8_t)(i + 1)), 24, false, false };
    for (unsigned j = 0; j + 1 < ADDRESSES; j++)
        if (w->nodes[i].host[j])
            w->host_addresses[i][0][eth->n_addresses++] =
                (struct host_address){ ip_v4(203, 0, 113, (uint8_t)(j + 1)), 24, false, false };
    *weave = (struct host_iface){
        "weave", 1376, true, .addresses = w->host_addresses[i][1], .n_addresses = 1, .bridge = true
    };
    memcpy(weave->mac, (uint8_t[]){ 0x9e, 0, 0, 0, 0, (uint8_t)(i + 1) }, 6);
    w->host_addresses[i][1][0] =
        (struct host_address){ ip_v4(10, 32, 0, (uint8_t)(i + 1)), 12, false, false };
    *h = (struct host){ .ifaces = w->ifaces[i],
                        .n_ifaces = w->vxlan ? 1 : 2,
                        .forwarding4 = true,
                        .bridge_nf_call_iptables = 1,
                        .forwarding4_error = "",
                        .forwarding6_error = "" };
    w->host_changed[i] = true;
}

/* ---- its history ---- */

static void mutate_pod(struct world *w, unsigned i)
{
    struct world_pod *p = &w->services[i].pods[rng_below(&w->rng, PODS)];
    p->known = !rng_one_in(&w->rng, 4);
    p->ready = !rng_one_in(&w->rng, 3);
    p->node = rng_one_in(&w->rng, 12) ? NODES : rng_below(&w->rng, w->n_nodes);
    put_slice(w, i);
}

static void mutate_service(struct world *w, unsigned i)
{
    struct world_service *s = &w->services[i];
    struct rng *r = &w->rng;
    s->exists = !rng_one_in(r, 6);
    s->ours = !rng_one_in(r, 6);
    s->local = rng_one_in(r, 5);
    s->ip = (int)rng_below(r, ADDRESSES + 1) - 1;
    s->shows = s->ours && !rng_one_in(r, 4) ? s->shows : (int)rng_below(r, ADDRESSES + 1) - 1;
    s->version++;
    put_service(w, i);
}

static void mutate_node(struct world *w, unsigned i)
{
    struct world_node *n = &w->nodes[i];
    struct rng *r = &w->rng;
    if (rng_one_in(r, 6)) {
        n->exists = !n->exists;
    } else if (rng_one_in(r, 3)) {
        n->garbage = true;
        if (rng_one_in(r, 2))
            snprintf(n->overlay, sizeof(n->overlay), "nonsense");
        else
            snprintf(n->addresses, sizeof(n->addresses), "192.0.2.1,,");
    } else {
        unsigned j = rng_below(r, ADDRESSES - 1);
        n->host[j] = !n->host[j];
        make_host(w, i);
        return;
    }
    put_node(w, i);
}

static void mutate(struct world *w)
{
    unsigned what = rng_below(&w->rng, 5);
    if (what < 2)
        mutate_node(w, rng_below(&w->rng, w->n_nodes));
    else if (what < 4)
        mutate_pod(w, rng_below(&w->rng, SERVICES));
    else
        mutate_service(w, rng_below(&w->rng, SERVICES));
}

static struct world *world_new(uint64_t seed)
{
    struct world *w = xcalloc(1, sizeof(*w));
    seed_now = seed;
    w->rng.state = seed;
    w->n_nodes = 2 + rng_below(&w->rng, NODES - 1);
    w->vxlan = rng_one_in(&w->rng, 2);
    w->options = (struct plan_options){ .portmap = true,
                                        .loadbalancer = true,
                                        .serviceproxy = rng_one_in(&w->rng, 2),
                                        .overlay = w->vxlan ? OVERLAY_VXLAN : "weave" };
    if (rng_one_in(&w->rng, 4))
        w->options.proxy_mode = PROXY_IPVS;
    w->options.ipvs = (struct ipvs_options){ .scheduler = IPVS_RR, .weight = 1 };
    assert_true(ip_prefix_parse("169.254.96.0/28", &w->options.overlay_subnet));
    w->store = store_new();
    for (unsigned i = 0; i < w->n_nodes; i++) {
        w->nodes[i].exists = true;
        for (unsigned j = 0; j + 1 < ADDRESSES; j++)
            w->nodes[i].host[j] = rng_one_in(&w->rng, w->n_nodes);
        make_host(w, i);
        put_node(w, i);
        w->planners[i] = planner_new(&w->options);
    }
    for (unsigned i = 0; i < SERVICES; i++) {
        w->services[i].shows = -1;
        for (unsigned j = 0; j < PODS; j++)
            w->services[i].pods[j] =
                (struct world_pod){ rng_below(&w->rng, w->n_nodes), !rng_one_in(&w->rng, 4), true };
        mutate_service(w, i);
        put_slice(w, i);
    }
    return w;
}

static void world_free(struct world *w)
{
    for (unsigned i = 0; i < w->n_nodes; i++)
        planner_free(w->planners[i]);
    store_free(w->store);
    free(w);
}

/* As the API server would: the version decides. */
static void apply(struct world *w, unsigned node, const struct status_write *s)
{
    if (s->kind == WRITE_NODE_ANNOTATIONS) {
        snprintf(w->nodes[node].addresses, sizeof(w->nodes[node].addresses), "%s", s->addresses);
        snprintf(w->nodes[node].overlay, sizeof(w->nodes[node].overlay), "%s", s->overlay);
        w->nodes[node].garbage = false;
        put_node(w, node);
    } else if (s->kind == WRITE_SERVICE_STATUS) {
        unsigned i = (unsigned)atoi(s->name + 1);
        if ((unsigned)atoi(s->resource_version) != w->services[i].version)
            return;
        w->services[i].version++;
        w->services[i].shows = *s->ingress ? atoi(s->ingress + strlen("203.0.113.")) - 1 : -1;
        put_service(w, i);
    }
}

/* ---- the policy, once more ---- */

static bool holds(const struct world *w, unsigned node, int ip)
{
    const struct world_node *n = &w->nodes[node];
    char text[32], list[90];
    if (ip < 0 || !n->exists || n->garbage)
        return false;
    snprintf(list, sizeof(list), ",%s,", n->addresses);
    size_t len = strlen(address_text(ip, text));
    for (const char *s = list; (s = strstr(s, text)); s++)
        if (s[-1] == ',' && s[len] == ',')
            return true;
    return false;
}

static unsigned holders(const struct world *w, int ip, unsigned *ret_first)
{
    unsigned n = 0;
    for (unsigned i = w->n_nodes; i-- > 0;)
        if (holds(w, i, ip)) {
            *ret_first = i;
            n++;
        }
    return n;
}

/* NODES: nobody. */
static unsigned forwarder(const struct world *w, const struct world_service *s)
{
    unsigned node = NODES;
    return s->exists && s->ours && holders(w, s->ip, &node) == 1 ? node : NODES;
}

static unsigned writer(const struct world *w, const struct world_service *s)
{
    unsigned node = forwarder(w, s);
    if (node < NODES)
        return s->shows == s->ip ? NODES : node;
    if (!s->exists || !s->ours || s->shows < 0)
        return NODES;
    if (holders(w, s->shows, &node) == 1)
        return node;
    for (node = 0; node < w->n_nodes && !w->nodes[node].exists;)
        node++;
    return node < w->n_nodes ? node : NODES;
}

static bool somebody(const struct world *w)
{
    bool exists = false;
    for (unsigned i = 0; i < w->n_nodes; i++)
        exists |= w->nodes[i].exists;
    return exists;
}

/* ---- what nodes plan ---- */

struct seen { /* of all nodes, in one state of the world */
    unsigned forwards[SERVICES], writes[SERVICES], tells[SERVICES];
};

static bool find_elem(const struct desired *d, const char *owner, enum nft_set set,
                      struct nft_elem const **ret)
{
    for (size_t i = 0; i < d->n_groups; i++)
        for (const struct nft_elem *e = NULL;
             !strcmp(d->groups[i]->owner, owner) && (e = nft_group_next(d->groups[i], e));)
            if (e->set == set) {
                *ret = e;
                return true;
            }
    return false;
}

/* Two claims on one port: the older Service has it. */
static bool has_port(const struct world *w, unsigned i)
{
    for (unsigned j = 0; j < SERVICES; j++)
        if (j != i && w->services[j].exists && w->services[j].ours &&
            w->services[j].ip == w->services[i].ip && j % 4 == i % 4 &&
            (j % 3 < i % 3 || (j % 3 == i % 3 && j < i)))
            return false;
    return true;
}

static unsigned count_endpoints(const struct desired *d, const char *owner, const uint8_t ip[4])
{
    unsigned n = 0;
    for (size_t i = 0; i < d->n_groups; i++)
        for (const struct nft_elem *e = NULL;
             !strcmp(d->groups[i]->owner, owner) && (e = nft_group_next(d->groups[i], e));)
            n += e->set == NFT_ENDPOINT4 && !memcmp(e->b, ip, 4);
    return n;
}

static bool is_told(const struct plan *plan, const char *service, const char *ip)
{
    for (size_t i = 0; i < plan->problems.n; i++) {
        const struct problem *q = &plan->problems.v[i];
        if (!strcmp(q->name, service) && !strcmp(q->value, ip) &&
            !strcmp(q->reason, "EndpointUnreachable"))
            return true;
    }
    return false;
}

/* Every ready endpoint is sent clients, or its trouble is told. */
static void check_endpoints(const struct world *w, unsigned node, unsigned i,
                            const struct plan *plan, const char *owner)
{
    unsigned want = 0;
    char text[32], name[8];
    const struct world_service *s = &w->services[i];
    snprintf(name, sizeof(name), "s%u", i);
    for (unsigned j = 0; j < PODS; j++) {
        const struct world_pod *p = &s->pods[j];
        if (!p->known || !p->ready || (s->local && p->node != node))
            continue;
        bool lost = is_told(plan, name, pod_text(w, i, j, text));
        bool reachable = p->node == node || (!w->vxlan && j < 2);
        assert_false(lost && reachable);
        want += !lost;
        met.unreachable += lost;
        met.direct += reachable && p->node != node;
        met.routed += !lost && !reachable;
    }
    assert_int_equal(
        count_endpoints(&plan->desired, owner, (uint8_t[]){ 203, 0, 113, (uint8_t)(s->ip + 1) }),
        want);
}

/* It has published an address that it has no more. */
static bool lost(const struct world *w, unsigned node, const struct world_service *s)
{
    return forwarder(w, s) == node && !w->nodes[node].host[s->ip];
}

static void look_at_services(const struct world *w, unsigned node, const struct plan *plan,
                             struct seen *seen)
{
    for (unsigned i = 0; i < SERVICES; i++) {
        char owner[32];
        const struct nft_elem *e;
        unsigned by = forwarder(w, &w->services[i]);
        snprintf(owner, sizeof(owner), "service/a/s%u", i);
        bool here = find_elem(&plan->desired, owner, NFT_HELD4, &e);
        seen->forwards[i] += here;
        bool has = by == node && !lost(w, node, &w->services[i]);
        assert_int_equal(here, has && has_port(w, i));
        met.conflicts += has && !here;
        if (here)
            check_endpoints(w, node, i, plan, owner);
    }
    for (size_t i = 0; i < plan->problems.n; i++) {
        const struct problem *q = &plan->problems.v[i];
        if (q->kind == KIND_SERVICE && q->event && !strcmp(q->field, "spec.loadBalancerIP"))
            seen->tells[atoi(q->name + 1)]++;
        met.garbage += !strcmp(q->reason, "InvalidAnnotation");
        met.several += !strcmp(q->reason, "SeveralHolders");
        met.none += !strcmp(q->reason, "NoHolder");
        met.invalid += !strcmp(q->reason, "AddressInvalid");
    }
}

static void look_at_writes(const struct world *w, unsigned node, const struct status_writes *writes,
                           struct seen *seen)
{
    bool mine[SERVICES] = { false };
    for (size_t i = 0; i < writes->n; i++)
        if (writes->v[i].kind == WRITE_SERVICE_STATUS) {
            unsigned s = (unsigned)atoi(writes->v[i].name + 1);
            mine[s] = true;
            seen->writes[s]++;
            met.cleared += !*writes->v[i].ingress;
            met.set += *writes->v[i].ingress != 0;
        }
    for (unsigned i = 0; i < SERVICES; i++)
        if (mine[i] != (writer(w, &w->services[i]) == node && !lost(w, node, &w->services[i])))
            fail_msg("seed %llu: %s writes s%u (address %d, shown %d), or does not",
                     (unsigned long long)seed_now, names[node], i, w->services[i].ip,
                     w->services[i].shows);
}

static unsigned mark_of(const struct plan *plan, unsigned holder, const struct world *w)
{
    uint8_t mac[6] = { 0x9e, 0, 0, 0, 0, (uint8_t)(holder + 1) };
    for (unsigned i = 0; i < w->n_nodes; i++)
        if (i != holder && !strcmp(w->nodes[i].overlay, w->nodes[holder].overlay))
            return 0; /* they have chosen one address: until one gives it up */
    unsigned m[6];
    if (w->vxlan && sscanf(w->nodes[holder].overlay, "%*[^,],%2x:%2x:%2x:%2x:%2x:%2x", &m[0], &m[1],
                           &m[2], &m[3], &m[4], &m[5]) == 6)
        for (int i = 0; i < 6; i++)
            mac[i] = (uint8_t)m[i];
    for (size_t i = 0; i < plan->desired.n_groups; i++)
        for (const struct nft_elem *e = NULL; (e = nft_group_next(plan->desired.groups[i], e));) {
            struct nft_class c;
            if (e->set == NFT_HOLDERS && !memcmp(e->b, mac, 6) && nft_elem_class(e, &c))
                return c.n;
        }
    return 0;
}

/* Distinct, never 0x6b, and the same as long as the same nodes have one. */
static void look_at_marks(struct world *w, unsigned node, const struct plan *plan)
{
    unsigned marks[NODES] = { 0 }, set = 0;
    for (unsigned i = 0; i < w->n_nodes; i++) {
        bool forwards = false;
        for (unsigned j = 0; j < SERVICES; j++)
            forwards |= forwarder(w, &w->services[j]) == i;
        set |= (forwards && i != node && *w->nodes[i].overlay) ? 1u << i : 0;
        marks[i] = mark_of(plan, i, w);
        if (marks[i] && (!forwards || i == node))
            fail_msg("%s is a holder to %s", names[i], names[node]);
        if (!marks[i])
            continue;
        met.marks++;
        met.probed += !strcmp(names[i], "edge-a");
        assert_int_not_equal(marks[i], 0x6b);
        assert_true(marks[i] <= 250);
        for (unsigned j = 0; j < i; j++)
            assert_int_not_equal(marks[i], marks[j]);
    }
    for (unsigned i = 0; i < w->n_nodes && set == w->set[node]; i++)
        if (marks[i] && w->marks[node][i]) {
            met.stable++;
            assert_int_equal(marks[i], w->marks[node][i]);
        }
    w->set[node] = set;
    memcpy(w->marks[node], marks, sizeof(marks));
}

static int by_key(const void *x, const void *y)
{
    return nft_elem_cmp_key(*(const struct nft_elem *const *)x, *(const struct nft_elem *const *)y);
}

/* Nor does an interval of clients lie inside another of the same endpoint. */
static void look_at_keys(const struct desired *d)
{
    VEC(const struct nft_elem *) v = { 0 };
    for (size_t i = 0; i < d->n_groups; i++)
        for (const struct nft_elem *e = NULL; (e = nft_group_next(d->groups[i], e));)
            vec_push(&v, e);
    if (v.n)
        qsort(v.v, v.n, sizeof(v.v[0]), by_key);
    for (size_t i = 1; i < v.n; i++)
        assert_true(nft_elem_cmp_key(v.v[i - 1], v.v[i]) < 0);
    for (size_t i = 0; i < v.n; i++)
        for (size_t j = 0; j < v.n && v.v[i]->set == NFT_HELDNEAR4; j++)
            if (i != j && v.v[j]->set == NFT_HELDNEAR4 && !memcmp(v.v[i]->b + 4, v.v[j]->b + 4, 4))
                assert_true(memcmp(v.v[i]->b, v.v[j]->b, 4) > 0 ||
                            memcmp(v.v[i]->b + 8, v.v[j]->b + 8, 4) < 0);
    vec_done(&v);
#define ASSERT_SORTED(what, cmp)             \
    for (size_t i = 1; i < d->n_##what; i++) \
    assert_true(cmp(&d->what[i - 1], &d->what[i]) < 0)
    ASSERT_SORTED(links, desired_link_cmp);
    ASSERT_SORTED(addrs, desired_addr_cmp);
    ASSERT_SORTED(neighs, desired_neigh_cmp);
    ASSERT_SORTED(routes, desired_route_cmp);
    ASSERT_SORTED(rules, desired_rule_cmp);
    ASSERT_SORTED(sysctls, desired_sysctl_cmp);
}

/* ---- one state of the world, seen by all nodes ---- */

static void assert_full_agrees(const struct world *w, struct snapshot s, const struct plan *plan,
                               const struct status_writes *writes, const struct applied *applied)
{
    struct buf got = { 0 }, want = { 0 };
    struct planner *fresh = planner_new(&w->options);
    met.incremental += s.changes_known;
    s.changes_known = false;
    plan_text(plan, writes, &got);
    const struct plan *full = plan_build(fresh, &s);
    struct status_writes full_writes = plan_statuses(fresh, &s, applied);
    plan_text(full, &full_writes, &want);
    if (strcmp(buf_str(&got), buf_str(&want)))
        fail_msg("seed %llu node %s: incremental\n%sfull\n%s", (unsigned long long)seed_now, s.node,
                 buf_str(&got), buf_str(&want));
    for (size_t i = 0; i < full->problems.n; i++)
        assert_int_equal(full->problems.v[i].event, plan->problems.v[i].event);
    planner_free(fresh);
    buf_done(&got);
    buf_done(&want);
}

/* Returns how many writes are due; of each node's the world takes one in `of`. */
static unsigned look(struct world *w, unsigned of)
{
    static const struct applied applied = { .acknowledged = true };
    struct seen seen = { 0 };
    struct status_writes writes[NODES];
    struct snapshot base = { 0 };
    unsigned n = 0;
    store_snapshot(w->store, &base);
    for (unsigned i = 0; i < w->n_nodes; i++) {
        struct snapshot s = base;
        s.node = names[i];
        s.host = &w->hosts[i];
        s.host_changed = w->host_changed[i];
        const struct plan *plan = plan_build(w->planners[i], &s);
        writes[i] = plan_statuses(w->planners[i], &s, &applied);
        look_at_keys(&plan->desired);
        look_at_services(w, i, plan, &seen);
        look_at_writes(w, i, &writes[i], &seen);
        look_at_marks(w, i, plan);
        assert_full_agrees(w, s, plan, &writes[i], &applied);
        w->host_changed[i] = false;
    }
    for (unsigned i = 0; i < SERVICES; i++) {
        assert_true(seen.forwards[i] <= 1 && seen.writes[i] <= 1 && seen.tells[i] <= 1);
        if (w->services[i].exists && w->services[i].ours && forwarder(w, &w->services[i]) == NODES)
            assert_int_equal(seen.tells[i], somebody(w));
        met.forwards += seen.forwards[i];
        met.told += seen.tells[i];
    }
    store_commit(w->store);
    for (unsigned i = 0; i < w->n_nodes; i++)
        for (size_t j = 0; j < writes[i].n; j++, n++)
            if (rng_one_in(&w->rng, of))
                apply(w, i, &writes[i].v[j]);
    return n;
}

static void nobody_shows_what_nobody_forwards(const struct world *w)
{
    for (unsigned i = 0; i < SERVICES; i++) {
        const struct world_service *s = &w->services[i];
        if (s->exists && s->ours && s->shows >= 0 && somebody(w))
            assert_true(s->shows == s->ip && forwarder(w, s) < NODES);
    }
}

static void run_history(uint64_t seed)
{
    struct world *w = world_new(seed);
    for (unsigned step = 0; step < STEPS; step++) {
        for (uint32_t n = rng_below(&w->rng, 4); n; n--)
            mutate(w);
        look(w, 2);
    }
    unsigned rounds = 0;
    while (look(w, 1) && rounds < 10)
        rounds++;
    assert_true(rounds < 10); /* it comes to rest */
    nobody_shows_what_nobody_forwards(w);
    world_free(w);
}

static void held_addresses_have_one_holder(void **state)
{
    (void)state;
    const char *one = getenv("PORTOLAN_SEED");
    for (uint64_t i = 0; i < (one ? 1 : HISTORIES); i++)
        run_history(one ? strtoull(one, NULL, 0) : 1 + i);
    print_message(
        "# met: %u forwards, %u told, %u several, %u none, %u invalid, %u garbage, %u set, "
        "%u cleared, %u marks, %u probed, %u stable, %u routed, %u direct, %u unreachable, "
        "%u conflicts, %u incremental\n",
        met.forwards, met.told, met.several, met.none, met.invalid, met.garbage, met.set,
        met.cleared, met.marks, met.probed, met.stable, met.routed, met.direct, met.unreachable,
        met.conflicts, met.incremental);
    assert_true(one ||
                (met.forwards && met.told && met.several && met.none && met.invalid &&
                 met.garbage && met.set && met.cleared && met.marks && met.probed && met.stable &&
                 met.routed && met.direct && met.unreachable && met.conflicts && met.incremental));
}

static int say_seed(void **state)
{
    (void)state;
    print_message("# last seed: %llu\n", (unsigned long long)seed_now);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(held_addresses_have_one_holder, say_seed),
    };
    return cmocka_run_group_tests_name("held properties", tests, NULL, NULL);
}
