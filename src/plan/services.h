/* What the files of the service proxy and of the load balancer share: planner state of its own, beside
 * that of mappings.
 *
 * A pass (services.c) redoes the Services that changes can touch:
 *   1. claims     claims.c: which Service has an address and port, a cluster IP, an affinity id;
 *                 those for whom that changed are redone, too
 *   2. program    service.c, endpoints.c: elements, problems and health check of one Service
 *   3. shared     service_node.c, hairpins.c: what depends on this node alone; hairpins of all
 * A Service's claims depend on the Service and the node's addresses, never on endpoints. */
#pragma once

#include "base/map.h"
#include "plan/internal.h"

/* ---- this node: service_node.c ---- */

struct node_port_address {
    struct ip ip;
    int iface; /* index in host; -1: on none */
};

struct service_node {
    const char *zone;           /* "" when the Node has none; in mem, as is all the rest */
    struct ip primary[F_COUNT]; /* first InternalIP; family IP_NONE: none */
    struct node_port_address *node_ports; /* by address */
    size_t n_node_ports;
    bool knows_pods[F_COUNT];       /* a pod range of the family is known */
    struct nft_group *group;        /* owner "proxy": the ranges; NULL: none */
    struct service_node_ipvs *ipvs; /* NULL: not the mode; in mem */
    struct problem *problems;       /* of the Node and the ServiceCIDRs */
    size_t n_problems;
    struct arena mem;
};
void service_node_read(struct planner *p, struct service_node *ret);
void service_node_done(struct service_node *n);
/* What Services are programmed by is the same. */
bool service_node_same(const struct service_node *a, const struct service_node *b);

/* ---- service_ipvs_node.c: with --proxy-mode ipvs ---- */

struct service_node_ipvs {
    struct ipvs_group *group; /* owner "proxy": who is a pod */
    struct ip *owned;         /* addresses of machines, this one and others, sorted: never bound */
    size_t n_owned;
    struct ipvs_want want;
    struct buf rules[F_COUNT];
};
void service_ipvs_node_read(struct planner *p, struct service_node *node,
                            struct ipvs_group_builder *pods);
void service_ipvs_node_done(struct service_node_ipvs *n); /* accepts NULL */
bool service_ipvs_owned(const struct service_node_ipvs *n, const struct ip *ip);
/* This machine answers at the address, but for what IPVS itself has bound. */
bool service_ipvs_link(const struct host_iface *iface);
/* Programs anew who has an address that became a machine's, or is none any more. */
void service_ipvs_owned_changed(struct planner *p, const struct service_node_ipvs *before);
/* Adds to the pass. */
void service_ipvs_publish(const struct planner *p, struct pass *pass);

/* ---- claims.c ---- */

enum claim_kind { CLAIM_FLOW, CLAIM_CLUSTER_IP, CLAIM_HEALTH, CLAIM_AFFINITY };
/* A Service's addresses; of two that are the same the first counts. */
enum flow_role { ROLE_HELD, ROLE_CLUSTER, ROLE_LOAD_BALANCER, ROLE_EXTERNAL, ROLE_NODE_PORT };

struct claim_key { /* bytes: no padding */
    uint8_t kind;  /* enum claim_kind */
    uint8_t proto;
    uint16_t port;
    struct ip ip;
    uint8_t unused[3];
    uint32_t id;
};
_Static_assert(sizeof(struct claim_key) == 28, "compared as bytes");

struct claim {
    struct claim_key key;
    uint16_t port; /* index in the Service's ports */
    uint8_t role;
    bool holds;
    struct service_memo *memo;
    struct claim *next; /* of the same key, the holder first, by age */
};

/* A client, or all in a prefix, that would be answered past the translation. */
struct hairpin_pair { /* bytes: no padding */
    struct ip ep;
    struct ip_prefix
        client; /* masked; of full length: a pair of NFT_HAIRPIN4, else of NFT_HELDNEAR4 */
};
struct hairpin_vec {
    struct hairpin_pair *v;
    size_t n, cap;
};
/* To an endpoint of a held address, through its node's end of the overlay. */
struct held_route { /* bytes: no padding */
    struct ip ep, via;
};
struct held_route_vec {
    struct held_route *v;
    size_t n, cap;
};

struct service_problems { /* kept from pass to pass */
    struct arena mem;
    VEC(struct problem) v;
};

struct service_memo {
    const char *owner; /* "service/NS/NAME" */
    const char *ns, *name;
    const struct service *obj;
    int64_t creation;     /* of the object whose claims are in the index */
    struct claim *claims; /* CLAIM_FLOW by port and role, then the rest */
    size_t n_claims;
    VEC(struct claim *) ids; /* by port, then in the order they were tried: the last one holds */
    struct nft_group *group; /* NULL: nothing on this node */
    struct ipvs_group *ipvs; /* likewise */
    struct service_problems *problems;
    struct hairpin_pair *hairpins; /* sorted */
    size_t n_hairpins;
    struct held_route *routes; /* sorted */
    size_t n_routes;
    uint16_t health_port; /* listed in services.health; 0: not */
    uint32_t local_endpoints;
    bool due, gone, renew_ids;
    bool met_mapping; /* it has the problem PortMapFirst */
    bool held;        /* of the class of held addresses: listed in loadbalancer.memos */
    bool held_here;   /* this node forwards its address, held_ip */
    bool held_teller; /* this node tells its problems */
    struct ip held_ip;
    uint64_t held_hash; /* of what lb_decide() said */
    char text[];
};
struct service_memo_vec {
    struct service_memo **v;
    size_t n, cap;
};

static inline const char *service_key(const struct service_memo *m)
{
    return m->owner + sizeof("service/") - 1;
}
/* The service proxy serves it. */
bool service_is_proxied(const struct planner *p, const struct service *s);
/* Takes the place of the claims the Service had. */
void claims_take(struct planner *p, struct service_memo *m);
void claims_drop(struct planner *p, struct service_memo *m);
/* Gives affinity ids to all that wait for them. */
void claims_settle(struct planner *p);
/* The id of one of its ports that has affinity. */
uint32_t claims_id(const struct service_memo *m, uint16_t port);
/* The claim that holds what `c` asks for. */
const struct claim *claims_holder(const struct planner *p, const struct claim *c);

/* ---- endpoints.c ---- */

struct backend {
    struct ip ip;
    uint16_t port;
    bool local;
};
struct backend_vec {
    struct backend *v; /* by address and port */
    size_t n, cap;
};
struct candidate;
struct endpoint_choice { /* of one port in one family; reused from port to port */
    struct backend_vec cluster, local;
    bool any; /* somewhere is one that could serve */
    bool bad; /* some address is none: endpoints_check() tells; never reset here */
    VEC(struct candidate) candidates;
};
struct held_choice {              /* of one port of a held address, likewise */
    struct backend_vec endpoints; /* ready, and can be reached */
    bool routed;                  /* an endpoint, ready or not, is behind another node's overlay */
};
void endpoints_choose(const struct planner *p, const struct service_memo *m,
                      const struct service_port *port, uint8_t family, struct endpoint_choice *ret);
void endpoints_done(struct endpoint_choice *c);
/* Ready ones on this node, whatever port; of the family that has more. */
uint32_t endpoints_local_ready(const struct planner *p, const struct service_memo *m);
/* Problems of the Service's slices. */
void endpoints_check(const struct planner *p, const struct service_memo *m,
                     struct service_problems *ret);

/* ---- service.c ---- */

void service_program(struct planner *p, struct service_memo *m);
/* A mapping answers where one of its node ports, or its held address, would. */
bool service_meets_mapping(const struct planner *p, const struct service_memo *m);
/* `field` and the texts after `value` are borrowed. */
void service_problem(struct service_problems *s, const struct object *o, const char *field,
                     const char *value, const char *reason, const char *message);
/* NULL, or why nobody can be reached by that text: "no IP address". */
const char *address_parse(const char *text, struct ip *ret);
/* 0: none, or one of a type that has none. */
uint16_t service_node_port(const struct service *s, uint32_t port);
uint16_t service_health_port(const struct service *s);

/* ---- service_ipvs.c ---- */

/* One Service being programmed. */
struct service_ipvs {
    const struct planner *p;
    const struct service_memo *m;
    struct ipvs_group_builder *group;
    const struct ip_prefix *ranges; /* loadBalancerSourceRanges */
    size_t n_ranges;
    const bool *ranged; /* by family */
};
/* Of a claim that is held. */
void service_ipvs_flow(struct service_ipvs *g, const struct claim *c,
                       const struct endpoint_choice *choice);
void service_ipvs_cluster_ip(struct service_ipvs *g, const struct claim *c);
void service_ipvs_health(struct service_ipvs *g);

/* ---- services.c ---- */

#define HAIRPIN_SHARDS 64
struct hairpin {
    struct hairpin_pair pair;
    uint32_t uses; /* Services */
};
struct hairpin_shard {     /* by endpoint, so that one more does not rebuild all */
    VEC(struct hairpin) v; /* by endpoint, client */
    struct nft_group *group;
    bool changed;
};

/* ---- hairpins.c ---- */

/* Those of the Service, in any order, some perhaps twice. */
void service_set_hairpins(struct planner *p, struct service_memo *m, struct hairpin_pair *v,
                          size_t n);
/* The groups of those that came or went. */
void hairpins_build(struct planner *p);

struct ipvs_group_vec {
    struct ipvs_group **v;
    size_t n, cap;
};

struct services {
    struct service_node node, node_before; /* the plan before may show its problems */
    struct service_memo_vec memos;         /* by owner */
    struct service_memo_vec due;           /* to be programmed anew in this pass */
    struct service_memo_vec renew;         /* affinity ids to give anew */
    struct service_memo_vec troubled;      /* by owner */
    struct service_memo_vec health;        /* by port */
    struct service_memo_vec removed;       /* in this pass: the plan before shows their names */
    struct map claims;       /* key: struct claim_key, value: the struct claim that holds it */
    struct group_vec groups; /* by owner */
    struct ipvs_group_vec ipvs, old_ipvs; /* by owner; replaced in this pass */
    struct hairpin_shard hairpins[HAIRPIN_SHARDS];
    VEC(struct service_problems *) old_problems; /* replaced in this pass, likewise */
    struct endpoint_choice choice;               /* memory to choose in */
    struct held_choice held_choice;
};

struct services *services_new(void);
void services_free(struct services *x);
/* After the mappings: where one answers, a node port does not. */
void services_build(struct planner *p);
/* A pass begins: nobody can look at the plan before the last one any more. */
void services_free_old(struct services *x);
/* Adds to the pass's groups, problems and health checks. */
void services_publish(const struct services *x, struct pass *pass);
/* Its ports are, or were, answered otherwise than before. */
void services_mapping_changed(struct planner *p, const struct memo *mapping);
void service_due(struct planner *p, struct service_memo *m);
/* What programming a Service gives. Takes ownership of the group. */
void service_set_group(struct planner *p, struct service_memo *m, struct nft_group *g);
void service_set_ipvs(struct planner *p, struct service_memo *m, struct ipvs_group *g);
/* In any order, some perhaps twice. */
void service_set_routes(struct planner *p, struct service_memo *m, struct held_route *v, size_t n);
void service_set_health(struct planner *p, struct service_memo *m, uint16_t port);
/* Takes what is in `s`. */
void service_set_problems(struct planner *p, struct service_memo *m, struct service_problems *s);
