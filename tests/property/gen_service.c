/* Services, as random as the rest: see gen.h. */
#include "gen_service.h"

#include <string.h>

#define COUNT(a)   ((uint32_t)(sizeof(a) / sizeof((a)[0])))
#define PICK(r, a) ((a)[rng_below((r), COUNT(a))])

/* Names whose affinity ids, in namespace a and with TCP, are the same: 1063255027. */
static const char *colliding(const char *service)
{
    return !strcmp(service, "s1") ? "pes73m" : !strcmp(service, "s2") ? "pctj1p" : "pzk3u";
}

const char *gen_port_name(struct rng *r, const char *service)
{
    static const char *const names[] = { "game", "web", "" };
    return rng_one_in(r, 4) ? colliding(service) : PICK(r, names);
}

static struct string_list some(struct rng *r, struct arena *a, const char *const *pool, uint32_t n,
                               uint32_t at_most)
{
    struct string_list l = { arena_new_array(a, at_most + 1, const char *), 0 };
    for (uint32_t k = rng_below(r, at_most + 1); l.n < k; l.n++)
        l.v[l.n] = pool[rng_below(r, n)];
    return l;
}
#define SOME(r, a, pool, at_most) some(r, a, pool, COUNT(pool), at_most)

static void gen_addresses(struct rng *r, enum gen_manner manner, struct service *s)
{
    static const char *const cluster4[] = { "10.96.0.1", "10.96.0.2", "10.96.0.3", "10.96.0.4" };
    static const char *const cluster6[] = { "fd00:96::1", "fd00:96::2", "fd00:96::3" };
    static const char *const outside[] = { "192.0.2.1", "192.0.2.2", "10.0.0.1", "192.0.0.1",
                                           "2001:db8::5" };
    static const char *const ranges[] = { "10.0.0.0/8", " 192.0.2.0/24", "192.0.2.0/25",
                                          "2001:db8::/32", "0.0.0.0/0" };
    static const char *const bad[] = { "", "nonsense", "127.0.0.1", "10.0.0.0/33", "None" };
    struct arena *a = &s->o.mem;
    s->cluster_ips.v = arena_new_array(a, 2, const char *);
    if (!rng_one_in(r, 4))
        s->cluster_ips.v[s->cluster_ips.n++] = rng_one_in(r, 12) ? "None" : PICK(r, cluster4);
    if (!rng_one_in(r, 3))
        s->cluster_ips.v[s->cluster_ips.n++] = PICK(r, cluster6);
    s->external_ips = SOME(r, a, outside, 2);
    if (rng_one_in(r, 2))
        s->source_ranges = SOME(r, a, ranges, 3);
    s->ingress = arena_new_array(a, 2, struct service_ingress);
    for (s->n_ingress = 0; s->n_ingress < 2 && !rng_one_in(r, 3); s->n_ingress++)
        s->ingress[s->n_ingress] =
            (struct service_ingress){ PICK(r, outside),
                                      rng_one_in(r, 5) ? IP_MODE_PROXY : IP_MODE_VIP };
    if (manner != GEN_WILD)
        return;
    if (s->cluster_ips.n && rng_one_in(r, 6))
        s->cluster_ips.v[0] = PICK(r, bad);
    if (s->external_ips.n && rng_one_in(r, 3))
        s->external_ips.v[0] = PICK(r, bad);
    if (s->source_ranges.n && rng_one_in(r, 3))
        s->source_ranges.v[0] = PICK(r, bad);
    if (s->n_ingress && rng_one_in(r, 3))
        s->ingress[0].ip = PICK(r, bad);
}

static void gen_ports(struct rng *r, enum gen_manner manner, struct service *s)
{
    static const uint16_t numbers[] = { 80, 53, 3000 };
    static const uint16_t node_ports[] = { 0, 3000, 3004, 30080, 30081 };
    static const enum l4proto protos[] = { L4_TCP, L4_TCP, L4_UDP, L4_SCTP };
    s->ports = arena_new_array(&s->o.mem, 4, struct service_port);
    s->n_ports = (manner == GEN_WILD ? 0 : 1) + rng_below(r, 3);
    for (uint32_t i = 0; i < s->n_ports; i++) {
        s->ports[i] = (struct service_port){ gen_port_name(r, s->o.meta.name), PICK(r, protos),
                                             PICK(r, numbers), PICK(r, node_ports) };
        if (s->ports[i].name[0] == 'p')
            s->ports[i].protocol = L4_TCP;
    }
}

void gen_service(struct rng *r, enum gen_manner manner, struct service *s)
{
    static const uint16_t health_ports[] = { 0, 30999, 30998 };
    s->type = (enum service_type)rng_below(r, rng_one_in(r, 8) ? 4 : 3);
    s->internal_policy = rng_one_in(r, 4) ? POLICY_LOCAL : POLICY_CLUSTER;
    s->external_policy = rng_one_in(r, 2) ? POLICY_LOCAL : POLICY_CLUSTER;
    if (rng_one_in(r, 2)) {
        s->affinity = AFFINITY_CLIENTIP;
        s->affinity_timeout = rng_one_in(r, 3) ? 60 : AFFINITY_TIMEOUT;
    }
    s->health_check_port = PICK(r, health_ports);
    s->other_proxy = rng_one_in(r, 20);
    s->headless = rng_one_in(r, 20);
    s->cluster_ip = "";
    gen_addresses(r, manner, s);
    gen_ports(r, manner, s);
}

void gen_service_cidr(struct rng *r, enum gen_manner manner, struct service_cidr *c)
{
    static const char *const cidrs[] = { "10.96.0.0/24", "10.96.0.0/16", "fd00:96::/112" };
    static const char *const bad[] = { "10.96.0.0", "", "10.96.0.0/33" };
    c->cidrs = SOME(r, &c->o.mem, cidrs, 2);
    if (manner == GEN_WILD && c->cidrs.n && rng_one_in(r, 3))
        c->cidrs.v[0] = PICK(r, bad);
}

void gen_endpoint(struct rng *r, struct arena *a, struct endpoint *e)
{
    static const char *const zones[] = { "west", "east" };
    e->terminating = rng_one_in(r, 4);
    e->serving = e->ready || rng_one_in(r, 2);
    if (rng_one_in(r, 4))
        return;
    e->hints = arena_new(a, struct endpoint_hints);
    if (!rng_one_in(r, 5))
        e->hints->zones = SOME(r, a, zones, 2);
    if (rng_one_in(r, 2))
        e->hints->nodes = some(r, a, gen_nodes, GEN_NODES, 2);
}

void gen_node_facts(struct rng *r, enum gen_manner manner, struct node *n)
{
    static const char *const zones[] = { "west", "east" };
    static const char *const ranges[] = { "10.244.0.0/24", "10.244.0.0/16", "fd00:10::/64" };
    if (!rng_one_in(r, 5)) {
        n->o.meta.labels = (struct label_list){ arena_new(&n->o.mem, struct label), 1 };
        n->o.meta.labels.v[0] = (struct label){ LABEL_ZONE, PICK(r, zones) };
    }
    n->pod_cidr = "";
    n->pod_cidrs = SOME(r, &n->o.mem, ranges, 2);
    if (manner == GEN_WILD && n->pod_cidrs.n && rng_one_in(r, 3))
        n->pod_cidrs.v[0] = "nonsense";
}
