#include "model/ipvs.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/vec.h"

#define CMP(a, b) (((a) > (b)) - ((a) < (b)))

/* ---- names ---- */

#define SET(name, type, comment)                        \
    {                                                   \
        "KUBE-" name, "KUBE-6-" name, (type), (comment) \
    }

/* A name has 31 letters at most. */
const struct ipvs_set_def ipvs_set_defs[KUBE_SET_COUNT] = {
    [KUBE_LOOP_BACK] = SET("LOOP-BACK", IPSET_HASH_IP_PORT_IP,
                           "Kubernetes endpoints dst ip:port, source ip for solving hairpin "
                           "purpose"),
    [KUBE_CLUSTER_IP] = SET("CLUSTER-IP", IPSET_HASH_IP_PORT,
                            "Kubernetes service cluster ip + port for masquerade purpose"),
    [KUBE_EXTERNAL_IP] =
        SET("EXTERNAL-IP", IPSET_HASH_IP_PORT,
            "Kubernetes service external ip + port for masquerade and filter purpose"),
    [KUBE_EXTERNAL_IP_LOCAL] =
        SET("EXTERNAL-IP-LOCAL", IPSET_HASH_IP_PORT,
            "Kubernetes service external ip + port with externalTrafficPolicy=local"),
    [KUBE_LOAD_BALANCER] = SET("LOAD-BALANCER", IPSET_HASH_IP_PORT, "Kubernetes service lb portal"),
    [KUBE_LOAD_BALANCER_FW] =
        SET("LOAD-BALANCER-FW", IPSET_HASH_IP_PORT,
            "Kubernetes service load balancer ip + port for load balancer with sourceRange"),
    [KUBE_LOAD_BALANCER_LOCAL] =
        SET("LOAD-BALANCER-LOCAL", IPSET_HASH_IP_PORT,
            "Kubernetes service load balancer ip + port with externalTrafficPolicy=local"),
    [KUBE_LOAD_BALANCER_SOURCE_IP] =
        SET("LOAD-BALANCER-SOURCE-IP", IPSET_HASH_IP_PORT_IP,
            "Kubernetes service load balancer ip + port + source IP for packet filter purpose"),
    [KUBE_LOAD_BALANCER_SRC_CIDR] =
        SET("LOAD-BALANCER-SRC-CIDR", IPSET_HASH_IP_PORT_NET,
            "Kubernetes service load balancer ip + port + source cidr for packet filter purpose"),
    [KUBE_NODE_PORT_TCP] = SET("NODE-PORT-TCP", IPSET_BITMAP_PORT,
                               "Kubernetes nodeport TCP port for masquerade purpose"),
    [KUBE_NODE_PORT_LOCAL_TCP] =
        SET("NODE-PORT-LOCAL-TCP", IPSET_BITMAP_PORT,
            "Kubernetes nodeport TCP port with externalTrafficPolicy=local"),
    [KUBE_NODE_PORT_UDP] = SET("NODE-PORT-UDP", IPSET_BITMAP_PORT,
                               "Kubernetes nodeport UDP port for masquerade purpose"),
    [KUBE_NODE_PORT_LOCAL_UDP] =
        SET("NODE-PORT-LOCAL-UDP", IPSET_BITMAP_PORT,
            "Kubernetes nodeport UDP port with externalTrafficPolicy=local"),
    [KUBE_NODE_PORT_SCTP] = SET("NODE-PORT-SCTP", IPSET_HASH_IP_PORT,
                                "Kubernetes nodeport SCTP port for masquerade purpose"),
    [KUBE_NODE_PORT_LOCAL_SCTP] =
        SET("NODE-PORT-LOCAL-SCTP", IPSET_HASH_IP_PORT,
            "Kubernetes nodeport SCTP port with externalTrafficPolicy=local"),
    [KUBE_HEALTH_CHECK_NODE_PORT] =
        SET("HEALTH-CHECK-NODE-PORT", IPSET_BITMAP_PORT, "Kubernetes health check node port"),
    [KUBE_IPVS_IPS] = SET("IPVS-IPS", IPSET_HASH_IP, "Kubernetes service addresses bound here"),
    [KUBE_DROP] = SET("DROP", IPSET_HASH_IP_PORT,
                      "Kubernetes service ip + port that endpoints of other nodes alone serve"),
    [KUBE_REJECT] =
        SET("REJECT", IPSET_HASH_IP_PORT, "Kubernetes service ip + port that has no endpoints"),
    [KUBE_DROP_OUTSIDE] = SET("DROP-OUTSIDE", IPSET_HASH_IP_PORT,
                              "Kubernetes service ip + port that is not served here from outside"),
    [KUBE_POD_RANGE] = SET("POD-RANGE", IPSET_HASH_NET, "Kubernetes pods"),
};

const char *ipvs_set_name(enum ipvs_set set, uint8_t family)
{
    return family == IP_V6 ? ipvs_set_defs[set].name6 : ipvs_set_defs[set].name4;
}

const char *ipvs_set_type_name(enum ipvs_set_type type)
{
    switch (type) {
    case IPSET_HASH_IP:
        return "hash:ip";
    case IPSET_HASH_NET:
        return "hash:net";
    case IPSET_HASH_IP_PORT:
        return "hash:ip,port";
    case IPSET_HASH_IP_PORT_IP:
        return "hash:ip,port,ip";
    case IPSET_HASH_IP_PORT_NET:
        return "hash:ip,port,net";
    case IPSET_BITMAP_PORT:
        return "bitmap:port";
    }
    return "";
}

static const char *const schedulers[IPVS_SCHEDULER_COUNT] = {
    [IPVS_RR] = "rr",     [IPVS_WRR] = "wrr",     [IPVS_LC] = "lc", [IPVS_WLC] = "wlc",
    [IPVS_LBLC] = "lblc", [IPVS_LBLCR] = "lblcr", [IPVS_DH] = "dh", [IPVS_SH] = "sh",
    [IPVS_SED] = "sed",   [IPVS_NQ] = "nq",
};

const char *ipvs_scheduler_name(enum ipvs_scheduler s)
{
    return schedulers[s];
}

bool ipvs_scheduler_parse(const char *name, enum ipvs_scheduler *ret)
{
    if (!strcmp(name, "seq"))
        name = schedulers[IPVS_SED];
    for (enum ipvs_scheduler s = 0; s < IPVS_SCHEDULER_COUNT; s++)
        if (!strcmp(name, schedulers[s])) {
            *ret = s;
            return true;
        }
    return false;
}

#define NAT    "nat"
#define FILTER "filter"

const struct iptables_chain ipvs_chains[] = {
    { NAT, "KUBE-SERVICES" },
    { NAT, "KUBE-LOAD-BALANCER" },
    { NAT, "KUBE-FIREWALL" },
    { NAT, "KUBE-NODE-PORT" },
    { NAT, "KUBE-MARK-MASQ" },
    { NAT, "KUBE-MARK-DROP" },
    { NAT, "KUBE-POSTROUTING" },
    { FILTER, "KUBE-FORWARD" },
    { FILTER, "KUBE-NODE-PORT" },
    { FILTER, "KUBE-PROXY-FIREWALL" },
    { FILTER, "KUBE-SOURCE-RANGES-FIREWALL" },
    { FILTER, "KUBE-IPVS-FILTER" },
    { FILTER, "KUBE-IPVS-OUT-FILTER" },
};
_Static_assert(sizeof(ipvs_chains) / sizeof(ipvs_chains[0]) == IPVS_CHAIN_COUNT, "in ipvs.h");

const struct iptables_jump ipvs_jumps[] = {
    { NAT, "OUTPUT", "KUBE-SERVICES", "kubernetes service portals" },
    { NAT, "PREROUTING", "KUBE-SERVICES", "kubernetes service portals" },
    { NAT, "POSTROUTING", "KUBE-POSTROUTING", "kubernetes postrouting rules" },
    { FILTER, "FORWARD", "KUBE-FORWARD", "kubernetes forwarding rules" },
    { FILTER, "INPUT", "KUBE-NODE-PORT", "kubernetes health check rules" },
    { FILTER, "INPUT", "KUBE-PROXY-FIREWALL", "kube-proxy firewall rules" },
    { FILTER, "FORWARD", "KUBE-PROXY-FIREWALL", "kube-proxy firewall rules" },
    { FILTER, "INPUT", "KUBE-IPVS-FILTER", "kubernetes ipvs access filter" },
    { FILTER, "OUTPUT", "KUBE-IPVS-OUT-FILTER", "kubernetes ipvs access filter" },
};
_Static_assert(sizeof(ipvs_jumps) / sizeof(ipvs_jumps[0]) == IPVS_JUMP_COUNT, "in ipvs.h");

/* ---- keys ---- */

int ipvs_key_cmp(const struct ipvs_key *a, const struct ipvs_key *b)
{
    int c = CMP(a->kind, b->kind);
    if (!c)
        c = CMP(a->set, b->set);
    if (!c)
        c = CMP(a->family, b->family);
    if (!c)
        c = ip_cmp(&a->ip, &b->ip);
    if (!c)
        c = CMP(a->proto, b->proto);
    if (!c)
        c = CMP(a->port, b->port);
    if (!c)
        c = ip_cmp(&a->other, &b->other);
    if (!c)
        c = CMP(a->dest_port, b->dest_port);
    return c ? c : CMP(a->prefix_len, b->prefix_len);
}

bool ipvs_entry_equal(const struct ipvs_entry *a, const struct ipvs_entry *b)
{
    return !memcmp(a, b, sizeof(*a));
}

struct ipvs_key ipvs_server_of(const struct ipvs_key *dest)
{
    return (struct ipvs_key){ .kind = IPVS_SERVER,
                              .family = dest->family,
                              .proto = dest->proto,
                              .port = dest->port,
                              .ip = dest->ip };
}

/* ---- groups ---- */

struct ipvs_group_builder {
    char *owner;
    VEC(struct ipvs_entry) v;
};

struct ipvs_group_builder *ipvs_group_begin(const char *owner)
{
    struct ipvs_group_builder *b = xcalloc(1, sizeof(*b));
    b->owner = xstrdup(owner);
    return b;
}

struct numbered {
    struct ipvs_entry e;
    size_t order; /* of arrival */
};

static int by_key_and_arrival(const void *x, const void *y)
{
    const struct numbered *a = x, *b = y;
    int c = ipvs_key_cmp(&a->e.key, &b->e.key);
    return c ? c : CMP(a->order, b->order);
}

static size_t sort(struct ipvs_entry *v, size_t n)
{
    struct numbered *all = xmalloc((n + !n) * sizeof(*all));
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        all[i] = (struct numbered){ v[i], i };
    if (n > 1)
        qsort(all, n, sizeof(*all), by_key_and_arrival);
    for (size_t i = 0; i < n; i++)
        if (!kept || ipvs_key_cmp(&v[kept - 1].key, &all[i].e.key))
            v[kept++] = all[i].e;
    free(all);
    return kept;
}

struct ipvs_group *ipvs_group_end(struct ipvs_group_builder *b)
{
    size_t n = sort(b->v.v, b->v.n), bytes = n * sizeof(b->v.v[0]), owner = strlen(b->owner) + 1;
    struct ipvs_group *g = xmalloc(sizeof(*g) + bytes + owner);
    char *text = (char *)g + sizeof(*g) + bytes;
    g->refs = 1;
    g->n = (uint32_t)n;
    g->owner = memcpy(text, b->owner, owner);
    if (n)
        memcpy(g->entries, b->v.v, bytes);
    vec_done(&b->v);
    free(b->owner);
    free(b);
    return g;
}

/* Assigned byte by byte: entries are compared as bytes. */
static struct ipvs_entry *put(struct ipvs_group_builder *b, enum ipvs_kind kind, uint8_t family)
{
    static const struct ipvs_entry none;
    vec_push(&b->v, none);
    struct ipvs_entry *e = &b->v.v[b->v.n - 1];
    e->key.kind = (uint8_t)kind;
    e->key.family = family;
    return e;
}

static struct ipvs_entry *put_flow(struct ipvs_group_builder *b, enum ipvs_kind kind,
                                   const struct ip *ip, enum l4proto proto, uint16_t port)
{
    struct ipvs_entry *e = put(b, kind, ip->family);
    e->key.ip = *ip;
    e->key.proto = (uint8_t)proto;
    e->key.port = port;
    return e;
}

void ipvs_put_server(struct ipvs_group_builder *b, const struct ip *ip, enum l4proto proto,
                     uint16_t port, enum ipvs_scheduler scheduler, uint32_t timeout)
{
    struct ipvs_entry *e = put_flow(b, IPVS_SERVER, ip, proto, port);
    e->scheduler = (uint8_t)scheduler;
    e->timeout = timeout;
}

void ipvs_put_dest(struct ipvs_group_builder *b, const struct ip *ip, enum l4proto proto,
                   uint16_t port, const struct ip *dest, uint16_t dest_port, uint32_t weight)
{
    struct ipvs_entry *e = put_flow(b, IPVS_DEST, ip, proto, port);
    e->key.other = *dest;
    e->key.dest_port = dest_port;
    e->weight = weight;
}

void ipvs_put_bound(struct ipvs_group_builder *b, const struct ip *ip)
{
    put(b, IPVS_BOUND, ip->family)->key.ip = *ip;
    struct ipvs_entry *e = put(b, IPVS_SET_ENTRY, ip->family);
    e->key.set = KUBE_IPVS_IPS;
    e->key.ip = *ip;
}

void ipvs_put_address_port(struct ipvs_group_builder *b, enum ipvs_set set, const struct ip *ip,
                           enum l4proto proto, uint16_t port)
{
    put_flow(b, IPVS_SET_ENTRY, ip, proto, port)->key.set = (uint8_t)set;
}

void ipvs_put_address_port_address(struct ipvs_group_builder *b, enum ipvs_set set,
                                   const struct ip *ip, enum l4proto proto, uint16_t port,
                                   const struct ip *other)
{
    struct ipvs_entry *e = put_flow(b, IPVS_SET_ENTRY, ip, proto, port);
    e->key.set = (uint8_t)set;
    e->key.other = *other;
}

/* As it is, or as its two halves. */
static size_t nets_of(const struct ip_prefix *net, struct ip_prefix ret[static 2])
{
    ret[0] = ret[1] = ip_prefix_masked(net);
    if (net->len)
        return 1;
    ret[0].len = ret[1].len = 1;
    ret[1].ip.bytes[0] = 0x80;
    return 2;
}

void ipvs_put_address_port_net(struct ipvs_group_builder *b, enum ipvs_set set, const struct ip *ip,
                               enum l4proto proto, uint16_t port, const struct ip_prefix *net)
{
    struct ip_prefix nets[2];
    size_t n = nets_of(net, nets);
    for (size_t i = 0; i < n; i++) {
        struct ipvs_entry *e = put_flow(b, IPVS_SET_ENTRY, ip, proto, port);
        e->key.set = (uint8_t)set;
        e->key.other = nets[i].ip;
        e->key.prefix_len = nets[i].len;
    }
}

void ipvs_put_net(struct ipvs_group_builder *b, enum ipvs_set set, const struct ip_prefix *net)
{
    struct ip_prefix nets[2];
    size_t n = nets_of(net, nets);
    for (size_t i = 0; i < n; i++) {
        struct ipvs_entry *e = put(b, IPVS_SET_ENTRY, nets[i].ip.family);
        e->key.set = (uint8_t)set;
        e->key.ip = nets[i].ip;
        e->key.prefix_len = nets[i].len;
    }
}

void ipvs_put_port(struct ipvs_group_builder *b, enum ipvs_set set, uint8_t family, uint16_t port)
{
    struct ipvs_entry *e = put(b, IPVS_SET_ENTRY, family);
    e->key.set = (uint8_t)set;
    e->key.port = port;
}

struct ipvs_group *ipvs_group_ref(struct ipvs_group *g)
{
    g->refs++;
    return g;
}

void ipvs_group_unref(struct ipvs_group *g)
{
    if (g && !--g->refs)
        free(g);
}

bool ipvs_group_equal(const struct ipvs_group *a, const struct ipvs_group *b)
{
    return a == b || (a->n == b->n && !strcmp(a->owner, b->owner) &&
                      !memcmp(a->entries, b->entries, a->n * sizeof(a->entries[0])));
}
