/* The planner alone: a full pass, and what one change costs, in microseconds of CPU (so that a
 * busy machine does not show).
 *
 *   bench-plan [MAPPINGS]
 *   bench-plan held [SERVICES [NODES]]
 *
 * Half of the mappings have their pod on this node, half on eight others over links. Services are
 * held by all nodes alike, and have an endpoint on their holder and one on the node after it. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/vec.h"
#include "plan/plan.h"
#include "store/store.h"

#define WORKERS 8
#define ROUNDS  200

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void put_node(struct store *s, const char *name, unsigned number)
{
    struct node *n = object_new(KIND_NODE);
    n->o.meta.name = arena_strdup(&n->o.mem, name);
    n->internal_ips = arena_new(&n->o.mem, struct ip);
    n->internal_ips[n->n_internal_ips++] = ip_v4(100, 64, 0, (uint8_t)number);
    store_upsert(s, &n->o);
}

static void put_class(struct store *s)
{
    struct portmap_class *c = object_new(KIND_PORTMAPCLASS);
    struct arena *a = &c->o.mem;
    c->o.meta.name = "public";
    c->nodes = arena_new(a, struct class_node);
    c->n_nodes = 1;
    c->nodes[0].name = "edge";
    c->nodes[0].interfaces = (struct string_list){ arena_new(a, const char *), 1 };
    c->nodes[0].interfaces.v[0] = "eth0";
    c->port_min = 1;
    c->port_max = 65535;
    c->vni = 4242;
    c->vxlan_port = 4790;
    c->subnet = "169.254.77.0/24";
    c->subnet6 = "fd64:f5ac:e961::/112";
    c->status.nodes = arena_new(a, struct node_row);
    c->status.nodes[c->status.n_nodes++] =
        (struct node_row){ .name = "edge", .ready = true, .message = "" };
    c->status.links = arena_new_array(a, WORKERS, struct link_claim);
    for (unsigned i = 0; i < WORKERS; i++)
        c->status.links[c->status.n_links++] =
            (struct link_claim){ .key = arena_printf(a, "edge/w-%u", i),
                                 .peer = { "edge", arena_printf(a, "w-%u", i) },
                                 .subnet = arena_printf(a, "169.254.77.%u/31", 2 * i),
                                 .slot = i };
    store_upsert(s, &c->o);
}

static void put_mapping(struct store *s, unsigned i)
{
    struct portmap *m = object_new(KIND_PORTMAP);
    m->o.meta.ns = arena_printf(&m->o.mem, "team-%u", i % 50);
    m->o.meta.name = arena_printf(&m->o.mem, "map-%u", i);
    m->o.meta.resource_version = "1";
    m->o.meta.creation = i;
    m->class_name = "public";
    m->protocol = i % 2 ? L4_TCP : L4_UDP;
    m->port = m->end_port = (uint16_t)(1000 + i / 2);
    m->service_name = arena_printf(&m->o.mem, "svc-%u", i);
    m->service_port = "game";
    store_upsert(s, &m->o);
}

/* The i-th Service's, for so many endpoints. */
static struct endpoint_slice *new_slice(unsigned i, enum l4proto proto, unsigned endpoints)
{
    struct endpoint_slice *e = object_new(KIND_ENDPOINTSLICE);
    struct arena *a = &e->o.mem;
    e->o.meta.ns = arena_printf(a, "team-%u", i % 50);
    e->service = arena_printf(a, "svc-%u", i);
    e->o.meta.name = arena_printf(a, "svc-%u-x", i);
    e->family = IP_V4;
    e->ports = arena_new(a, struct endpoint_port);
    e->ports[e->n_ports++] = (struct endpoint_port){ "game", proto, 3000 };
    e->endpoints = arena_new_array(a, endpoints, struct endpoint);
    return e;
}

/* The pod 10.NET.i. */
static void add_endpoint(struct endpoint_slice *e, const char *node, unsigned net, unsigned i)
{
    struct arena *a = &e->o.mem;
    struct endpoint *ep = &e->endpoints[e->n_endpoints++];
    *ep = (struct endpoint){ .ready = true,
                             .node_name = node,
                             .target_kind = "Pod",
                             .target_ns = e->o.meta.ns,
                             .target_name = "pod" };
    ep->addresses = (struct string_list){ arena_new(a, const char *), 1 };
    ep->addresses.v[0] = arena_printf(a, "10.%u.%u.%u", net, i >> 8, i & 255);
}

static void put_slice(struct store *s, unsigned i, unsigned pod)
{
    struct endpoint_slice *e = new_slice(i, i % 2 ? L4_TCP : L4_UDP, 1);
    const char *node = i % 4 < 2 ? "edge" : arena_printf(&e->o.mem, "w-%u", i % WORKERS);
    add_endpoint(e, node, pod, i);
    store_upsert(s, &e->o);
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

struct run {
    struct store *store;
    struct planner *planner;
    struct snapshot snap;
    int64_t built;  /* ns of the last pass before its statuses */
    unsigned nodes; /* of held addresses */
};

/* As if the API server had taken the status: the same object, with it. */
static void take_status(struct run *r, const struct status_write *w)
{
    struct portmap *m = (struct portmap *)(void *)store_get(r->store, KIND_PORTMAP, w->ns, w->name);
    struct arena *a = &m->o.mem;
    m->status = w->portmap;
    m->status.endpoint_node = arena_strdup(a, w->portmap.endpoint_node);
    m->status.endpoint_address = arena_strdup(a, w->portmap.endpoint_address);
    m->status.published = arena_new_array(a, w->portmap.n_published, struct published);
    for (uint32_t i = 0; i < w->portmap.n_published; i++)
        m->status.published[i] =
            (struct published){ "edge", "eth0", arena_strdup(a, w->portmap.published[i].address) };
    m->status.conditions.v = arena_new_array(a, w->portmap.conditions.n, struct condition);
    for (uint32_t i = 0; i < w->portmap.conditions.n; i++) {
        struct condition *c = &m->status.conditions.v[i];
        *c = w->portmap.conditions.v[i];
        c->reason = arena_strdup(a, c->reason);
        c->message = arena_strdup(a, c->message);
    }
}

static int64_t pass(struct run *r)
{
    store_snapshot(r->store, &r->snap);
    int64_t t = now_ns();
    plan_build(r->planner, &r->snap);
    r->built = now_ns() - t;
    struct status_writes w =
        plan_statuses(r->planner, &r->snap, &(struct applied){ .acknowledged = true });
    t = now_ns() - t;
    for (size_t i = 0; i < w.n; i++)
        if (w.v[i].kind == WRITE_PORTMAP_STATUS)
            take_status(r, &w.v[i]);
    store_commit(r->store);
    return t;
}

static void each(struct run *r, unsigned n, const char *what,
                 void (*change)(struct run *, unsigned))
{
    int64_t took[ROUNDS];
    for (unsigned i = 0; i < ROUNDS; i++) {
        change(r, (i * 7919u) % n);
        took[i] = pass(r);
    }
    qsort(took, ROUNDS, sizeof(took[0]), by_value);
    printf("%-32s p50 %7.1f us  p99 %7.1f us\n", what, (double)took[ROUNDS / 2] / 1e3,
           (double)took[ROUNDS * 99 / 100] / 1e3);
}

static void move_endpoint(struct run *r, unsigned i)
{
    static unsigned turn;
    put_slice(r->store, i, 1 + ++turn % 200);
}

static void replace_mapping(struct run *r, unsigned i)
{
    char ns[32], name[32];
    snprintf(ns, sizeof(ns), "team-%u", i % 50);
    snprintf(name, sizeof(name), "map-%u", i);
    store_remove(r->store, KIND_PORTMAP, ns, name);
    pass(r);
    put_mapping(r->store, i);
}

static void once(struct run *r, const char *what)
{
    double us = (double)pass(r) / 1e3;
    printf("%-32s %9.1f us, of it statuses %9.1f us\n", what, us, us - (double)r->built / 1e3);
}

/* ---- held addresses ---- */

static const char *holder_name(struct arena *a, unsigned i)
{
    return i ? arena_printf(a, "node-%03u", i) : "edge";
}

static void put_holder(struct store *s, unsigned i, unsigned more)
{
    struct node *n = object_new(KIND_NODE);
    struct arena *a = &n->o.mem;
    n->o.meta.name = holder_name(a, i);
    n->internal_ips = arena_new(a, struct ip);
    n->internal_ips[n->n_internal_ips++] = ip_v4(100, 64, 0, (uint8_t)(i + 1));
    struct label *l = arena_new_array(a, 2, struct label);
    l[0] = (struct label){ ANNOTATION_ADDRESSES, arena_printf(a, "203.0.113.%u", i + 1) };
    if (more)
        l[0].value = arena_printf(a, "%s,203.0.114.%u", l[0].value, more);
    l[1] = (struct label){ ANNOTATION_OVERLAY,
                           arena_printf(a, "169.254.96.%u,02:6b:a9:fe:60:%02x", i + 1, i + 1) };
    n->o.meta.annotations = (struct label_list){ l, 2 };
    store_upsert(s, &n->o);
}

static void put_held(struct store *s, unsigned i, unsigned nodes)
{
    struct service *v = object_new(KIND_SERVICE);
    struct arena *a = &v->o.mem;
    v->o.meta.ns = arena_printf(a, "team-%u", i % 50);
    v->o.meta.name = arena_printf(a, "svc-%u", i);
    v->o.meta.resource_version = "1";
    v->type = SERVICE_LOADBALANCER;
    v->cluster_ip = "";
    v->load_balancer_class = NODE_ADDRESS_CLASS;
    v->load_balancer_ip = arena_printf(a, "203.0.113.%u", i % nodes + 1);
    v->ingress = arena_new(a, struct service_ingress);
    v->ingress[v->n_ingress++] =
        (struct service_ingress){ .ip = v->load_balancer_ip, .mode = IP_MODE_PROXY };
    v->ports = arena_new(a, struct service_port);
    v->ports[v->n_ports++] = (struct service_port){ .name = "game",
                                                    .protocol = L4_TCP,
                                                    .port = (uint16_t)(1000 + i / nodes) };
    store_upsert(s, &v->o);
}

static void put_held_slice(struct store *s, unsigned i, unsigned nodes, unsigned pod)
{
    struct endpoint_slice *e = new_slice(i, L4_TCP, 2);
    for (unsigned k = 0; k < 2; k++)
        add_endpoint(e, holder_name(&e->o.mem, (i + k) % nodes), 2 * pod + k, i);
    store_upsert(s, &e->o);
}

static void move_held_endpoint(struct run *r, unsigned i)
{
    static unsigned turn;
    put_held_slice(r->store, i - i % r->nodes, r->nodes, 1 + ++turn % 100); /* held by this node */
}

static void move_address(struct run *r, unsigned i)
{
    static unsigned turn;
    put_holder(r->store, 1 + i % (r->nodes - 1), 1 + ++turn % 200);
}

static int held(struct host *host, unsigned n, unsigned nodes)
{
    struct plan_options options = plan_options_default;
    options.portmap = false;
    options.loadbalancer = true;
    options.overlay = OVERLAY_VXLAN;
    ip_prefix_parse(OVERLAY_SUBNET, &options.overlay_subnet);
    struct run r = {
        store_new(), planner_new(&options), { .node = "edge", .host = host, .now = 1000 }, 0, nodes
    };
    for (unsigned i = 0; i < nodes; i++)
        put_holder(r.store, i, 0);
    for (unsigned i = 0; i < n; i++) {
        put_held(r.store, i, nodes);
        put_held_slice(r.store, i, nodes, 0);
    }
    once(&r, "first pass");
    put_holder(r.store, 0, 0);
    once(&r, "its own Node again");
    each(&r, n, "an endpoint of this holder moves", move_held_endpoint);
    each(&r, n, "an address of another node changes", move_address);
    planner_free(r.planner);
    store_free(r.store);
    return 0;
}

int main(int argc, char **argv)
{
    bool of_held = argc > 1 && !strcmp(argv[1], "held");
    unsigned n = argc > 1 ? (unsigned)atoi(argv[1]) : 10000;
    struct host_address addresses[2] = { { .ip = ip_v4(203, 0, 113, 9), .prefix_len = 24 },
                                         { .ip = ip_v4(100, 64, 0, 1), .prefix_len = 32 } };
    struct host_iface ifaces[2] = {
        { .name = "eth0",
          .mtu = 1500,
          .up = true,
          .default4 = true,
          .addresses = addresses,
          .n_addresses = 1 },
        { .name = "wt0", .mtu = 1400, .up = true, .addresses = addresses + 1, .n_addresses = 1 }
    };
    struct host host = { .ifaces = ifaces,
                         .n_ifaces = 2,
                         .forwarding4 = true,
                         .forwarding4_error = "",
                         .forwarding6_error = "" };
    if (of_held)
        return held(&host, argc > 2 ? (unsigned)atoi(argv[2]) : 1000,
                    argc > 3 ? (unsigned)atoi(argv[3]) : 50);
    struct run r = { store_new(),
                     planner_new(&plan_options_default),
                     { .node = "edge", .host = &host, .now = 1000 },
                     0,
                     0 };
    put_node(r.store, "edge", 1);
    for (unsigned i = 0; i < WORKERS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "w-%u", i);
        put_node(r.store, name, 10 + i);
    }
    put_class(r.store);
    for (unsigned i = 0; i < n; i++) {
        put_mapping(r.store, i);
        put_slice(r.store, i, 0);
    }
    once(&r, "first pass, all statuses due");
    put_node(r.store, "spare", 250);
    once(&r, "full pass again");
    each(&r, n, "an endpoint moves", move_endpoint);
    each(&r, n, "a mapping is added", replace_mapping);
    planner_free(r.planner);
    store_free(r.store);
    return 0;
}
