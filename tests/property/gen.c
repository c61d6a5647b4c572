#include "gen_service.h"

#include <stdio.h>
#include <string.h>

const char *const gen_nodes[GEN_NODES] = { "edge-a", "edge-b", "w-1", "w-2", "w-3" };
static const char *const node_ips[GEN_NODES] = { "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4",
                                                 "10.0.0.5" };
static const char *const namespaces[] = { "a", "a-b" };
static const char *const classes[] = { "one", "two", "three" };
static const char *const services[] = { "s1", "s2", "s3" };
static const char *const portmaps[] = { "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8" };
static const char *const ifaces[] = { "eth0", "eth1", "wt0", "gone0" };
static const char *const port_names[] = { "game", "web", "" };

#define COUNT(a)   ((uint32_t)(sizeof(a) / sizeof((a)[0])))
#define PICK(r, a) ((a)[rng_below((r), COUNT(a))])

uint32_t rng_below(struct rng *r, uint32_t n)
{
    r->state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = r->state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) % n);
}

bool rng_one_in(struct rng *r, uint32_t n)
{
    return !rng_below(r, n);
}

static void name_it(struct object *o, const char *ns, const char *name, struct rng *r)
{
    o->meta.ns = arena_strdup(&o->mem, ns);
    o->meta.name = arena_strdup(&o->mem, name);
    o->meta.uid = "";
    o->meta.resource_version = arena_printf(&o->mem, "%u", rng_below(r, 1000000));
    o->meta.generation = 1 + rng_below(r, 3);
    o->meta.creation = 1000 + rng_below(r, 6);
}

static struct string_list some_ifaces(struct rng *r, struct arena *a, uint32_t at_least)
{
    struct string_list l = { arena_new_array(a, COUNT(ifaces), const char *), 0 };
    uint32_t first = rng_below(r, COUNT(ifaces)), n = at_least + rng_below(r, 3 - at_least + 1);
    for (uint32_t i = 0; i < n; i++)
        l.v[l.n++] = ifaces[(first + i) % COUNT(ifaces)];
    return l;
}

static void gen_node(struct rng *r, enum gen_manner manner, struct node *n)
{
    uint32_t i = rng_below(r, GEN_NODES);
    name_it(&n->o, "", gen_nodes[i], r);
    gen_node_facts(r, manner, n);
    if (rng_one_in(r, 20))
        return;
    n->internal_ips = arena_new_array(&n->o.mem, 2, struct ip);
    if (rng_one_in(r, 4) && ip_parse("fd00::1", &n->internal_ips[0]))
        n->n_internal_ips++;
    if (ip_parse(rng_one_in(r, 12) ? "10.0.0.99" : node_ips[i],
                 &n->internal_ips[n->n_internal_ips]))
        n->n_internal_ips++;
}

static void gen_slice(struct rng *r, enum gen_manner manner, struct endpoint_slice *s)
{
    struct arena *a = &s->o.mem;
    s->service = PICK(r, services);
    s->family = rng_one_in(r, 2) ? IP_V6 : IP_V4;
    if (manner == GEN_WILD && rng_one_in(r, 6))
        s->family = IP_NONE;
    char name[32];
    snprintf(name, sizeof(name), "%s-%d%u", s->service, s->family == IP_V6 ? 6 : 4,
             rng_below(r, 2));
    name_it(&s->o, PICK(r, namespaces), name, r);
    s->ports = arena_new_array(a, 3, struct endpoint_port);
    s->n_ports = 1 + rng_below(r, 3);
    for (uint32_t i = 0; i < s->n_ports; i++) {
        static const uint16_t numbers[] = { 3000, 3001, 8080, 65530, 0 };
        s->ports[i] =
            (struct endpoint_port){ gen_port_name(r, s->service),
                                    rng_one_in(r, 3) ? L4_TCP : L4_UDP, PICK(r, numbers) };
    }
    s->n_endpoints = rng_one_in(r, 6) ? 0 : 1 + rng_below(r, 4);
    s->endpoints = arena_new_array(a, s->n_endpoints, struct endpoint);
    for (uint32_t i = 0; i < s->n_endpoints; i++) {
        uint32_t pod = rng_below(r, 3);
        const char *text = s->family == IP_V6 ? arena_printf(a, "fd00:10::%u", pod + 1)
                                              : arena_printf(a, "10.244.0.%u", pod + 1);
        if (manner == GEN_WILD && rng_one_in(r, 8))
            text = "not an address";
        struct endpoint *e = &s->endpoints[i];
        *e =
            (struct endpoint){ .ready = !rng_one_in(r, 5),
                               .node_name = gen_nodes[rng_one_in(r, 12) ? pod % 2 : 2 + pod],
                               .target_kind = "Pod",
                               .target_ns = s->o.meta.ns,
                               .target_name = rng_one_in(r, 9) ? "" : arena_printf(a, "p%u", pod) };
        gen_endpoint(r, a, e);
        if (s->family == IP_V4 && rng_one_in(r, 4)) { /* in its node's own network */
            e->node_name = gen_nodes[pod];
            text = arena_printf(a, "192.0.0.%u", pod + 1);
        }
        if (rng_one_in(r, 10))
            e->node_name = "";
        e->addresses = (struct string_list){ arena_new_array(a, 1, const char *), 1 };
        e->addresses.v[0] = text;
        if (manner == GEN_WILD && rng_one_in(r, 8))
            e->addresses.n = 0;
    }
}

static void gen_portmap(struct rng *r, enum gen_manner manner, struct portmap *m)
{
    static const uint16_t ports[] = { 80, 3000, 3001, 3002, 3004, 3006, 3008, 20000, 65530 };
    static const uint16_t spans[] = { 0, 0, 0, 0, 0, 1, 3, 40, 1200 };
    name_it(&m->o, PICK(r, namespaces), PICK(r, portmaps), r);
    m->class_name = rng_one_in(r, 20) ? "missing" : PICK(r, classes);
    m->protocol = rng_one_in(r, 4) ? L4_TCP : L4_UDP;
    m->port = PICK(r, ports);
    uint32_t end = m->port + PICK(r, spans);
    m->has_end_port = rng_one_in(r, 2);
    m->end_port = m->has_end_port && end <= 65535 ? (uint16_t)end : m->port;
    if (!rng_one_in(r, 3))
        m->interfaces = some_ifaces(r, &m->o.mem, 0);
    if (m->interfaces.n && !rng_one_in(r, 4))
        m->interfaces.n = 1;
    m->service_name = PICK(r, services);
    m->service_port = rng_one_in(r, 4) ? PICK(r, port_names) : port_names[0];
    if (manner == GEN_WILD && rng_one_in(r, 3)) {
        m->end_port = (uint16_t)rng_below(r, 65536);
        m->port = (uint16_t)rng_below(r, 65536);
        m->protocol = rng_one_in(r, 2) ? L4_SCTP : L4_UDP;
    }
}

static void spoil_claim(struct rng *r, struct link_claim *l)
{
    if (rng_one_in(r, 2))
        l->slot = rng_below(r, 0xffffffffu);
    if (rng_one_in(r, 2))
        l->peer[rng_below(r, 2)] = "";
    if (rng_one_in(r, 2))
        l->key = "";
}

static void gen_status(struct rng *r, enum gen_manner manner, struct portmap_class *c)
{
    struct arena *a = &c->o.mem;
    uint32_t slot = 0;
    c->status.links = arena_new_array(a, GEN_NODES * GEN_NODES, struct link_claim);
    for (uint32_t x = 0; x < GEN_NODES; x++) {
        for (uint32_t y = x + 1; y < GEN_NODES; y++) {
            if (!rng_one_in(r, 2))
                continue;
            struct link_claim *l = &c->status.links[c->status.n_links++];
            *l = (struct link_claim){ .key = arena_printf(a, "%s/%s", gen_nodes[x], gen_nodes[y]),
                                      .peer = { gen_nodes[x], gen_nodes[y] },
                                      .subnet = "169.254.77.0/31",
                                      .slot = slot };
            slot += !rng_one_in(r, 9);
            if (rng_one_in(r, 3))
                l->unused_since = 1 + rng_below(r, 1000000);
            if (manner == GEN_WILD && rng_one_in(r, 4))
                spoil_claim(r, l);
        }
    }
    c->status.nodes = arena_new_array(a, GEN_NODES, struct node_row);
    for (uint32_t i = 0; i < GEN_NODES; i++) {
        if (rng_one_in(r, 2))
            continue;
        uint32_t mtu = rng_one_in(r, 3) ? 1300 : manner == GEN_WILD ? rng_below(r, 70000) : 1400;
        c->status.nodes[c->status.n_nodes++] = (struct node_row){
            .name = gen_nodes[i], .ready = !rng_one_in(r, 4), .message = "", .underlay_mtu = mtu
        };
    }
}

static void gen_class(struct rng *r, enum gen_manner manner, struct portmap_class *c)
{
    static const char *const subnets[] = { "169.254.77.0/24",  "169.254.77.0/24", "169.254.78.0/24",
                                           "169.254.77.64/27", "169.254.80.0/30", "10.9.0.0/16" };
    static const char *const bad[] = { "",           "x",         "169.254.76.0/24",
                                       "fd00::/64",  "0.0.0.0/0", "255.255.255.254/31",
                                       "10.0.0.0/32" };
    static const char *const subnets6[] = { "fd64:f5ac:e961::/112", "fd64:f5ac:e961::/112",
                                            "fd00:9::/120", "fd00:9::/126", "nonsense" };
    struct arena *a = &c->o.mem;
    static const char *const own_subnet[] = { "169.254.77.0/24", "169.254.78.0/24", "10.9.0.0/16" };
    uint32_t which = rng_below(r, COUNT(classes));
    name_it(&c->o, "", classes[which], r);
    c->nodes = arena_new_array(a, GEN_NODES, struct class_node);
    for (uint32_t i = 0; i < GEN_NODES; i++)
        if (rng_one_in(r, i < 2 ? 2 : 6) || (i == GEN_NODES - 1 && !c->n_nodes))
            c->nodes[c->n_nodes++] = (struct class_node){ gen_nodes[i], some_ifaces(r, a, 2) };
    c->serving_mode = rng_one_in(r, 3) ? SERVING_MULTI : SERVING_SINGLE;
    c->return_mode = rng_one_in(r, 10) ? RETURN_NONE : RETURN_VXLAN;
    c->port_min = rng_one_in(r, 3) ? 1000 : 1;
    c->port_max = rng_one_in(r, 3) ? 40000 : 65535;
    c->reserved = arena_new_array(a, 2, uint16_t);
    c->n_reserved = rng_below(r, 2);
    c->reserved[0] = 3005;
    c->has_selector = rng_one_in(r, 8);
    if (c->has_selector) {
        static const char *const ops[] = { "In", "NotIn", "Exists", "DoesNotExist", "Near" };
        c->selector.expressions = arena_new_array(a, 1, struct selector_requirement);
        c->selector.n_expressions = 1;
        struct string_list values = { arena_new_array(a, 1, const char *), rng_below(r, 2) };
        values.v[0] = "gold";
        c->selector.expressions[0] = (struct selector_requirement){ "tier", PICK(r, ops), values };
    }
    c->vni = rng_one_in(r, 4) ? 4243 : 4242 + which * 1000;
    c->vxlan_port = rng_one_in(r, 30) ? 8472 : rng_one_in(r, 6) ? 4791 : 4790;
    c->subnet = rng_one_in(r, 3) ? PICK(r, subnets) : own_subnet[which];
    if (rng_one_in(r, manner == GEN_WILD ? 3 : 30))
        c->subnet = PICK(r, bad);
    c->subnet6 = PICK(r, subnets6);
    if (manner == GEN_WILD && rng_one_in(r, 4))
        c->vni = 0xfffff0 + rng_below(r, 40);
    gen_status(r, manner, c);
}

struct object *gen_object(struct rng *r, enum gen_manner manner, enum object_kind kind)
{
    struct object *o = object_new(kind);
    switch (kind) {
    case KIND_NODE:
        gen_node(r, manner, (struct node *)(void *)o);
        break;
    case KIND_NAMESPACE:
        name_it(o, "", PICK(r, namespaces), r);
        if (rng_one_in(r, 2)) {
            o->meta.labels = (struct label_list){ arena_new(&o->mem, struct label), 1 };
            o->meta.labels.v[0] = (struct label){ "tier", rng_one_in(r, 2) ? "gold" : "tin" };
        }
        break;
    case KIND_SERVICE:
        name_it(o, PICK(r, namespaces), PICK(r, services), r);
        gen_service(r, manner, (struct service *)(void *)o);
        break;
    case KIND_ENDPOINTSLICE:
        gen_slice(r, manner, (struct endpoint_slice *)(void *)o);
        break;
    case KIND_PORTMAP:
        gen_portmap(r, manner, (struct portmap *)(void *)o);
        break;
    case KIND_SERVICECIDR:
        name_it(o, "", rng_one_in(r, 2) ? "kubernetes" : "more", r);
        gen_service_cidr(r, manner, (struct service_cidr *)(void *)o);
        break;
    case KIND_TRAFFICCLASS:
        name_it(o, "", "pods", r);
        break;
    case KIND_PORTMAPCLASS:
    case KIND_COUNT:
        gen_class(r, manner, (struct portmap_class *)(void *)o);
        break;
    }
    return o;
}

void gen_host(struct rng *r, enum gen_manner manner, unsigned i, struct arena *a, struct host *h)
{
    *h = (struct host){ .forwarding4 = true,
                        .forwarding6 = !rng_one_in(r, 3),
                        .ipv6 = !rng_one_in(r, 6),
                        .forwarding4_error = "",
                        .forwarding6_error = rng_one_in(r, 8) ? "Read-only file system" : "" };
    h->ifaces = arena_new_array(a, 3, struct host_iface);
    static const char *const names[] = { "eth0", "eth1", "wt0" };
    for (unsigned j = 0; j < 3; j++) {
        if (j == 1 && rng_one_in(r, 3))
            continue;
        struct host_iface *f = &h->ifaces[h->n_ifaces++];
        *f = (struct host_iface){ .name = names[j],
                                  .mtu = rng_one_in(r, 5) ? 1300 : 1400,
                                  .up = !rng_one_in(r, 12),
                                  .default4 = j == 0,
                                  .default6 = rng_one_in(r, 2),
                                  .accept_ra = (uint8_t)rng_below(r, 3) };
        f->addresses = arena_new_array(a, 2, struct host_address);
        const char *text = j == 2 ? node_ips[i] : arena_printf(a, "192.0.%u.%u", j, i + 1);
        if (j < 2 && rng_one_in(r, 6))
            text = "192.0.2.7"; /* perhaps on two interfaces */
        if (ip_parse(text, &f->addresses[0].ip))
            f->addresses[f->n_addresses++].prefix_len = 24;
        if (rng_one_in(r, 2) && ip_parse(arena_printf(a, "2001:db8:%u::%u", j, i + 1),
                                         &f->addresses[f->n_addresses].ip))
            f->addresses[f->n_addresses++].temporary = rng_one_in(r, 3);
        if (manner == GEN_WILD && rng_one_in(r, 5))
            f->n_addresses = 0;
    }
}
