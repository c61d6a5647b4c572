/* What the files of the load balancer share. A Service whose address a node holds is one more claim of
 * the service planner (plan/services.h, ROLE_HELD), so that what is served, refused, remembered and
 * forgotten is as for any service. What is its own:
 *   holders.c       what Nodes publish, and what this one has to
 *   loadbalancer.c  which node forwards an address, who writes the status, marks of the holders
 *   held.c          which endpoints a holder can reach, and how
 *   overlay.c       what the node needs as a whole: device, neighbours, routes, rules, sets of holders
 * Why it is so: docs/decisions/0008-held-addresses-are-services.md. */
#pragma once

#include "base/buf.h"
#include "plan/services.h"

/* ---- holders.c ---- */

struct lb_node {
    const char *name;
    struct ip *addresses; /* that it holds: sorted, each once */
    uint32_t n_addresses;
    struct ip overlay; /* IP_NONE: not published */
    uint8_t mac[6];
    const char
        *rival; /* before it by name, with the same address or hardware address; NULL: none */
    struct ip internal; /* IPv4; IP_NONE: none that a tunnel could end at */
    /* Whom its pods answer without us: itself, at each of its addresses, and its pods. */
    struct ip_prefix *near;
    uint32_t n_near;
    const char *bad_annotation, *bad_value, *bad_message; /* NULL: it can be read */

    bool forwards; /* loadbalancer.c: at least one address */
    uint8_t mark;  /* 0: none */
};

struct lb_overlay {     /* of this node */
    const char *device; /* NULL: there is none yet */
    bool vxlan, bridge;
    struct ip ip;
    uint8_t mac[6];
    struct ip_prefix *nets; /* what is directly behind it */
    size_t n_nets;
    const char *annotation;              /* to be published; "": none */
    const char *trouble_value, *trouble; /* NULL: nothing is wrong */
};

struct held_address {
    struct ip ip;
    uint32_t node; /* index */
};

/* All in `mem`, read anew when a Node or the host changes. */
struct lb_facts {
    struct arena mem;
    struct lb_node *nodes; /* by name */
    uint32_t n_nodes;
    struct lb_node *self;      /* NULL: there is no such Node */
    struct held_address *held; /* by address, node */
    size_t n_held;
    struct lb_overlay overlay;
    const char *addresses; /* to be published */
    struct buf bytes;      /* all of it that planning depends on, to compare */
};
/* IPv4 or IPv4-mapped text. */
bool lb_ip4_parse(const char *text, struct ip *ret);
uint32_t lb_name_hash(const char *name); /* FNV-1a */
void lb_facts_read(const struct planner *p, struct lb_facts *ret);
void lb_facts_done(struct lb_facts *f);
struct lb_node *lb_node_find(const struct lb_facts *f, const char *name);
/* The node's end can stand in a route through the overlay, and what comes from there is its own. */
bool lb_overlay_reaches(const struct lb_overlay *o, const struct lb_node *n);

/* ---- loadbalancer.c ---- */

enum held_state { HELD_INVALID, HELD_BY_NONE, HELD_BY_SEVERAL, HELD_BY_ONE };
struct held_decision {
    enum held_state state;
    struct ip ip;
    const struct held_address *holders;
    size_t n_holders;
    const char *writer; /* the node that may write the status and tells problems; "": none */
};

struct loadbalancer {
    struct lb_facts facts;
    struct service_memo_vec memos; /* Services of the class, by owner */
    bool changed;                  /* one of these came, went or changed in this pass */
    VEC(struct ip) addresses;      /* that this node forwards, sorted */
    struct buf outcome;            /* who forwards, to compare */
};
struct loadbalancer *loadbalancer_new(void);
void loadbalancer_free(struct loadbalancer *x); /* accepts NULL */
struct held_decision lb_decide(const struct lb_facts *f, const struct service *s);
/* A pass begins: true when nodes are other than before. */
bool lb_read(struct planner *p);
/* The Service's claims are about to be taken, or it goes (NULL). */
void lb_take(struct planner *p, struct service_memo *m, const struct service *s);
/* It has to be taken anew: its holder, or what its endpoints are reached by, is another. */
bool lb_moved(const struct planner *p, const struct service_memo *m);
/* When all Services are taken: who forwards what. */
void lb_settle(struct planner *p);
bool lb_forwards(const struct planner *p);       /* any address */
bool lb_others_forward(const struct planner *p); /* for pods of this node, which may be there */
bool lb_forwards_here(const struct planner *p, const struct ip *ip);
/* What arrives there is the overlay's, or a link's of PortMaps: led to a pod, it would cut this node off. */
bool lb_tunnel_ends_at(const struct planner *p, const struct ip *ip, uint8_t proto, uint16_t port);
/* Appends what this node owes its Node and the Services it holds. */
void lb_statuses(struct planner *p, const struct applied *applied);
/* Without the feature: takes back what an agent that had it published, so that the others do not
 * count on this node. Once: what is published after that is somebody else's. */
void lb_unpublish(struct planner *p);
/* The problem of a Service that is not served. */
void held_check(const struct planner *p, const struct service_memo *m,
                struct service_problems *ret);

/* ---- held.c ---- */

/* Adds to hairpins and routes those that its endpoints need, and problems. */
void held_choose(const struct planner *p, const struct service_memo *m, uint16_t port,
                 struct held_choice *ret, struct hairpin_vec *hairpins,
                 struct held_route_vec *routes, struct service_problems *problems);

/* ---- overlay.c ---- */

void overlay_put(struct planner *p, struct fabric *f);
