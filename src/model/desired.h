/* What this node's kernel should hold, as values. Built by plan/, compared and applied by
 * kernel/. All arrays are sorted by the key named in their comment; strings belong to the
 * planner as long as the plan does (groups keep their own). `owner` names the cause for messages:
 * "portmap/NS/NAME", "class/NAME link A/B", "node", or "node ipv6" for what IPv4 does not need. */
#pragma once

#include "model/bird.h"
#include "model/ipvs.h"
#include "model/nft.h"

struct desired_link { /* VXLAN; key: name */
    const char *name;
    const char *owner;
    const char *alias; /* IFLA_IFALIAS, "portolan: class public edge-a/worker-b" */
    uint32_t vni;
    uint16_t port;
    struct ip local, remote; /* outer, IPv4; remote IP_NONE: to whom desired_neigh says */
    uint32_t mtu;
    uint8_t mac[6]; /* derived from VNI and end: a rebuilt link keeps its neighbours' caches true */
};
struct desired_addr { /* key: ifname, ip */
    const char *ifname;
    const char *owner;
    struct ip ip;
    uint8_t prefix_len;
};
/* THROW: this table has no answer, the rules after it are asked. */
enum route_type { ROUTE_UNICAST, ROUTE_UNREACHABLE, ROUTE_THROW };
struct desired_route { /* key: family, table, dst, type, metric */
    const char *owner;
    enum route_type type;
    uint32_t table;
    struct ip_prefix dst; /* len 0: default */
    struct ip via;        /* IP_NONE: none */
    const char *ifname;   /* "" unless unicast */
    uint32_t metric;      /* 0: what the kernel makes of none */
};
/* GOTO: the rules between are not asked; NOP: where such a one leads. */
enum rule_action { RULE_LOOKUP, RULE_GOTO, RULE_NOP };
struct desired_rule { /* key: all of it */
    const char *owner;
    uint8_t family;
    uint32_t priority;
    uint32_t fwmark, mask; /* mask 0: any mark */
    bool local;            /* of the node itself, outer packets of tunnels included: iif lo */
    bool has_src, has_dst;
    struct ip_prefix src, dst;
    enum rule_action action;
    uint32_t table;         /* LOOKUP; 0 otherwise */
    bool suppress_default;  /* LOOKUP: a default route there is no answer */
    uint32_t goto_priority; /* GOTO: of the rule to go on at; 0 otherwise */
};
/* A neighbour on a link of ours that never ages. With `outer`, frames to `mac` go there, which is an
 * entry in the link's forwarding database. */
struct desired_neigh { /* key: ifname, ip */
    const char *ifname;
    const char *owner;
    struct ip ip;
    uint8_t mac[6];
    struct ip outer; /* IPv4; IP_NONE: none */
};
struct desired_sysctl { /* key: path */
    const char *owner;
    const char *path; /* below /proc/sys: "net/ipv4/ip_forward" */
    const char *value;
    bool restore; /* cleanup puts the old value back (false: it goes with its device) */
};

/* A rule of a traffic class that stays, with the routes of its table unless that is main, when the
 * class is deleted; key: class, family, priority */
struct desired_keep {
    const char *traffic_class;
    uint8_t family;
    uint32_t priority, table;
};

/* A service's health-check node port, answered over HTTP; key: port */
struct health_check {
    uint16_t port;
    const char *ns, *name;
    uint32_t local_endpoints; /* ready ones on this node */
};

struct desired {
    struct nft_group *const *groups; /* by owner */
    size_t n_groups;
    const struct desired_link *links;
    size_t n_links;
    const struct desired_addr *addrs;
    size_t n_addrs;
    const struct desired_neigh *neighs;
    size_t n_neighs;
    const struct desired_route *routes;
    size_t n_routes;
    const struct desired_rule *rules;
    size_t n_rules;
    const struct desired_sysctl *sysctls;
    size_t n_sysctls;
    const struct health_check *health_checks;
    size_t n_health_checks;
    const struct bird_config *bird; /* NULL: no class needs BIRD */
    /* Classes that are there; those that were: their rules and routes are left alone. */
    const struct desired_keep *keeps, *kept;
    size_t n_keeps, n_kept;
    const uint32_t *held; /* tables: rules that lead to them stay as they are for now */
    size_t n_held;
    struct ipvs_group *const *ipvs; /* by owner */
    size_t n_ipvs;
    const struct ipvs_want *ipvs_node; /* NULL: services are not proxied by IPVS */
};

int desired_link_cmp(const struct desired_link *a, const struct desired_link *b);
int desired_addr_cmp(const struct desired_addr *a, const struct desired_addr *b);
int desired_neigh_cmp(const struct desired_neigh *a, const struct desired_neigh *b);
int desired_route_cmp(const struct desired_route *a, const struct desired_route *b);
int desired_rule_cmp(const struct desired_rule *a, const struct desired_rule *b);
int desired_sysctl_cmp(const struct desired_sysctl *a, const struct desired_sysctl *b);

/* One thing the kernel refused in the last apply. */
struct refusal {
    const char *owner;  /* as in the desired object */
    const char *object; /* "element target4 { ... }", "link pl4242" */
    int error;          /* errno */
    const char *text;   /* strerror and the kernel's extended ACK */
};
/* How BIRD stands to desired.bird. */
struct bird_sessions {
    uint32_t table, established;
};
struct bird_applied {
    const char *reason, *message; /* "" when it has acknowledged what is desired; else why not */
    const struct bird_sessions *tables; /* by number */
    size_t n_tables;
};

struct applied {
    const struct refusal *refusals; /* by owner */
    size_t n_refusals;
    bool acknowledged;               /* false: nothing of this plan has been acknowledged yet */
    const struct bird_applied *bird; /* NULL: nobody asked BIRD */
};
