/* What the files of plan/ share.
 *
 * A pass (planner.c) walks every mapping it has to redo through three stages:
 *   1. resolve   portmap.c, selection.c: class, endpoint, serving node, own merits
 *      standing  conflict.c: who holds the range (and the way over a link), in order of age
 *   2. links     links.c: what each pair of nodes needs, and whether it can be used
 *   3. program   portmap.c: this node's nftables elements of the mapping
 * and then collects what the whole node needs (fabric.c). Statuses (status.c,
 * class_status.c) are computed afterwards from the same memos.
 *
 * Stages 1 and 2 read shared objects only, except struct link_state.local: that is how all
 * nodes agree. Pointers into the snapshot's objects are kept between passes; they stay good
 * because an object that is replaced is listed in the changes, which redoes whatever holds
 * a pointer to it. */
#pragma once

#include "base/vec.h"
#include "model/names.h"
#include "plan/plan.h"

enum family_index { F4, F6, F_COUNT };

/* Reason and message of a condition; field and value of the object, for a problem. */
struct verdict {
    const char *reason, *message, *field, *value;
};

/* ---- classes: classes.c, rebuilt on every full pass ---- */

struct accepting {
    const char *name;
    const struct class_node *spec;
    const struct node_row *row; /* of the class status; NULL: not reported */
};

struct class_view {
    const struct portmap_class *obj;
    size_t rank;                 /* by creation, then name: the lower one was first */
    struct accepting *accepting; /* sorted by name */
    size_t n_accepting;
    int self;         /* index of this node in accepting, or -1 */
    int *self_ifaces; /* for each interface of the class on this node: index in host, or -1 */
    bool selector_ok;
    struct ip_prefix subnet[F_COUNT]; /* masked; family IP_NONE: unusable */
    uint32_t slots[F_COUNT];          /* how many the subnet and the VNI leave */
    const char *subnet6_trouble;      /* NULL, or why links carry no IPv6 */
    struct verdict blocked;           /* reason NULL, or that of Ready which forbids links */
};

void classes_build(struct planner *p);
/* NULL when there is none. */
const struct class_view *class_find(const struct planner *p, const char *name);
/* NULL when interface i of this node in the class is fit to answer on. */
const char *class_iface_trouble(const struct host *h, const struct class_view *v, uint32_t i);
int class_accepting(const struct class_view *cls, const char *node);
/* The first IPv4 InternalIP; family IP_NONE when the node is missing or has none. */
struct ip node_internal_ip(const struct snapshot *s, const char *node);
/* NULL, or why it cannot be the end of a tunnel to that node: "a loopback address". */
const char *node_ip_trouble(const struct planner *p, const struct ip *ip);

/* ---- mappings ---- */

struct target {
    bool wanted; /* the mapping answers in this family, or refuses */
    bool found;
    struct ip ip;
    uint16_t port;
};

struct choice {
    const char *node, *pod, *address; /* NULL: no candidate; of the family that chose */
    struct target t[F_COUNT];
};

/* A longer range is an interval, and intervals keep their ports. */
#define EXPANDED_PORTS 1024

enum admission {
    ADMIT_VALID,
    ADMIT_NO_CLASS,
    ADMIT_END_BELOW_PORT,
    ADMIT_TARGET_BEYOND,
    ADMIT_LARGE_SHIFT,
    ADMIT_NAMESPACE,
    ADMIT_OUT_OF_RANGE,
    ADMIT_RESERVED,
    ADMIT_INTERFACE,
    ADMIT_CONFLICT,
};

struct answers {                   /* what a mapping adds to the node's counts */
    bool any[F_COUNT];             /* elements of the family, of any kind: planner.programs */
    VEC(uint16_t) ifaces[F_COUNT]; /* of the host: planner.answers */
};

struct pair;
struct pair_use {
    struct pair *pair;
    uint8_t pod_side; /* index of the pod's node in pair->peer */
    bool v6;
};

struct problem_box;

struct memo {
    char *owner; /* "portmap/NS/NAME" */
    const struct portmap *pm;
    int64_t creation;
    uint8_t proto_index; /* 0 TCP, 1 UDP, 2 anything else */
    uint16_t port, end;  /* end below port: refused */

    /* resolve */
    const struct class_view *cls; /* NULL: none of that name */
    struct choice choice;
    int serving; /* index in cls->accepting, or -1 */
    enum admission merits;
    uint16_t reserved_port; /* ADMIT_RESERVED: which */

    /* standing */
    struct memo *holder; /* accepted earlier, holds part of the range */
    struct memo *lane;   /* accepted earlier, holds the same ports on the same link */
    bool in_contenders, in_accepted, waiting;
    VEC(struct pair_use) pairs;

    /* program */
    struct nft_group *group; /* NULL: nothing on this node */
    struct answers answers;
    struct problem_box *problem;

    bool gone;    /* in planner.removed */
    bool due;     /* in planner.due, for this pass */
    bool resolve; /* the pass began with it */
    bool queued;  /* in the status queue */
};
struct memo_vec {
    struct memo **v;
    size_t n, cap;
};

static inline const char *memo_key(const struct memo *m)
{
    return m->owner + sizeof("portmap/") - 1;
}
static inline bool memo_accepted(const struct memo *m)
{
    return m->merits == ADMIT_VALID && !m->holder;
}
/* An earlier mapping wins: creation, then namespace/name. */
bool memo_before(const struct memo *a, const struct memo *b);

/* selection.c */
bool selector_valid(const struct label_selector *s);
bool selector_matches(const struct label_selector *s, const struct label_list *labels);
/* `cls` may be NULL. */
struct choice selection_choose(const struct snapshot *s, const struct portmap *pm,
                               const struct class_view *cls);
/* Why it found no candidate. */
struct verdict selection_trouble(const struct snapshot *s, const struct memo *m, struct arena *a);

/* portmap.c */
void portmap_resolve(struct planner *p, struct memo *m);
void portmap_program(struct planner *p, struct memo *m);
/* Takes it out of what the node counts. */
void portmap_withdraw(struct planner *p, struct memo *m);
void answers_done(struct answers *a);
bool portmap_has_interface(const struct memo *m, size_t i);
bool portmap_asks_for(const struct portmap *pm, const char *interface);
/* Whether accepting node i answers for the mapping, given that it is accepted. */
bool portmap_programs(const struct memo *m, size_t i);
/* The programming node holds the pod. */
bool portmap_is_local(const struct memo *m, size_t i);
/* This node, which programs it, sends the family on rather than refusing it. */
bool portmap_delivers(const struct planner *p, const struct memo *m, enum family_index f);
/* Mode None, and some programming node would need a link. *ret_node is that node. */
bool portmap_is_refused_by_none(const struct memo *m, const char **ret_node);

/* admission.c */
enum admission admission_merits(const struct snapshot *s, struct memo *m);
/* For the Accepted condition. */
struct verdict admission_verdict(const struct memo *m, struct arena *a);
const char *names_text(struct arena *a, const struct string_list *l); /* "eth0, wt0" */

/* conflict.c: an index of mappings by protocol and port */
#define PROTO_COUNT  3
#define BUCKET_PORTS 64
struct port_index {
    struct memo_vec bucket[PROTO_COUNT][65536 / BUCKET_PORTS];
};
void conflict_done(struct planner *p);
/* Forgets the standing of all. */
void conflict_reset(struct planner *p);
/* Takes the mapping out of both indexes; what it may have stood in the way of has to wait. */
void conflict_forget(struct planner *p, struct memo *m);
void conflict_enqueue(struct planner *p, struct memo *m);
/* Settles the standing of all that wait, oldest first; those it changes are due. */
void conflict_settle(struct planner *p);

/* ---- links.c ---- */

struct link_state { /* compared with memcmp: zeroed before it is filled */
    bool landed;    /* a usable claim is recorded: slot and end are set */
    bool pending;   /* no trouble but that an agent is to record the claim yet */
    bool local;     /* this node is one of the two: mtu and v6 are set */
    bool v6;
    uint32_t slot;
    struct ip node_ip[2];
    struct ip end[2][F_COUNT]; /* by peer */
    uint32_t mtu;
    char trouble[640]; /* "": usable */
};

struct pair {
    char *class_name;
    char *key; /* "edge-a/worker-b" */
    char *peer[2];
    const struct class_view *cls;
    uint32_t uses[2], uses6[2]; /* mappings with the pod on peer[i]; of these, over IPv6 */
    struct link_state state;
    bool changed; /* in this pass */
};

/* Counts the mapping's pairs anew. */
void links_count(struct planner *p, struct memo *m);
void links_uncount(struct planner *p, struct memo *m);
/* Drops unused pairs and finds the state of all others, if pairs_changed; true when any
 * state is another than before. */
bool links_resolve(struct planner *p);
void links_done(struct planner *p);
struct pair *links_find(const struct planner *p, const char *class_name, const char *key);
int pair_side(const struct pair *pair, const char *node);
bool pair_used(const struct pair *pair);
const char *link_owner(struct arena *a, const struct pair *pair);
const char *link_device(struct arena *a, const struct class_view *cls, uint32_t slot);
uint32_t link_table(uint32_t slot);
/* The two addresses of a slot, by peer; false when the slot has none in this family. */
bool link_ends(const struct class_view *cls, enum family_index f, uint32_t slot,
               struct ip ret_end[2]);
/* The /31 of the slot as a claim records it. */
const char *link_subnet_text(struct arena *a, const struct class_view *cls, uint32_t slot);

/* ---- fabric.c: what the whole node needs, rebuilt when it may have changed ---- */

struct fabric {
    uint32_t refs;
    struct arena mem;
    struct nft_group *node, *loadbalancer; /* NULL: empty */
    VEC(struct desired_link) links;
    VEC(struct desired_addr) addrs;
    VEC(struct desired_neigh) neighs;
    VEC(struct desired_route) routes;
    VEC(struct desired_rule) rules;
    VEC(struct desired_sysctl) sysctls;
    VEC(struct problem) problems;
};
struct fabric *fabric_build(struct planner *p);
/* What the builder made, or `old`, which may be NULL, if that is the same; NULL when empty. */
struct nft_group *fabric_group(struct nft_group_builder *b, struct nft_group *old);
void fabric_unref(struct fabric *f);

/* ---- groups.c ---- */

struct group_vec {
    struct nft_group **v;
    size_t n, cap;
};
/* `g` takes the place of the owner's group *now in `v`, which is sorted by owner; NULL, or without
 * elements: none does. Takes ownership of it. False when the two are equal: the old one stays. */
bool groups_set(struct planner *p, struct group_vec *v, const char *owner, struct nft_group **now,
                struct nft_group *g);

/* ---- problems ---- */

struct problem_box { /* a mapping's problem, kept from pass to pass */
    struct arena mem;
    struct problem problem;
};
int problem_cmp(const void *a, const void *b);

/* ---- host facts: classes.c ---- */

/* The address counts for this interface: of two with the same address the first by name. */
bool host_owns(const struct planner *p, size_t iface, uint32_t address);
/* NULL: IPv4 can be sent on to other machines and pods. */
const char *host_v4_trouble(const struct host *h);
const char *host_v6_trouble(const struct host *h); /* NULL: IPv6 can be delivered */

struct pass {
    struct fabric *fabric;
    struct traffic_result *traffic; /* with these, of its own and of the fabric: */
    VEC(struct desired_route) routes;
    VEC(struct desired_rule) rules;
    VEC(struct nft_group *) groups;
    VEC(struct problem) problems;
    VEC(struct health_check) health_checks;
    VEC(struct ipvs_group *) ipvs;
    VEC(struct desired_sysctl) sysctls; /* the fabric's and those of IPVS */
    struct plan plan;
};

struct services;     /* plan/services.h */
struct loadbalancer; /* plan/loadbalancer.h */
struct traffic;      /* plan/traffic.h */

struct planner {
    const struct plan_options *options;
    struct services *services;         /* NULL without the service proxy and the load balancer */
    struct loadbalancer *loadbalancer; /* NULL without it */
    bool unpublished;                  /* without it: our Node was seen with nothing of it */
    struct traffic *traffic;           /* NULL without traffic classes */
    struct snapshot
        masked; /* the last one without mappings and classes, where they are not wanted */
    const struct snapshot *snap; /* of the last pass */
    uint64_t n_passes;
    bool full;

    struct arena class_mem;
    struct class_view *classes; /* as in the snapshot: by name */
    struct class_view **by_rank;
    size_t n_classes;
    uint32_t underlay_mtu; /* of the interface that holds this node's InternalIP; 0: none */
    struct ip *shared_ips; /* IPv4 InternalIPs of more than one Node; in class_mem */
    size_t n_shared_ips;
    bool **owned; /* by host interface and address; in class_mem */

    struct memo_vec memos;      /* by owner */
    struct memo_vec by_service; /* by namespace, service, owner */
    struct memo_vec due;        /* to be programmed anew in this pass */
    struct memo_vec removed;    /* freed at the end of the pass */
    struct port_index contenders, accepted;
    struct memo_vec waiting; /* standing to settle */
    bool settling;

    VEC(struct pair *) pairs; /* by class name, key */
    bool pairs_changed;       /* a use began or ended */

    uint32_t programs[F_COUNT];     /* mappings with elements of the family on this node */
    VEC(uint32_t) answers[F_COUNT]; /* by host interface: mappings that answer on it */
    bool answers_changed;           /* one of the two began or ended, or what held addresses need */
    struct group_vec groups;        /* all memos' groups, by owner */
    struct memo_vec troubled;       /* memos with a problem, by owner */
    VEC(struct nft_group *) old_groups; /* replaced in this pass: the plan before shows them */
    VEC(struct problem_box *) old_problems;

    struct pass pass[2];
    struct fabric *fabric; /* the newest */

    struct memo_vec status_queue;
    bool classes_due;       /* the class statuses have to be looked at */
    uint64_t refusals_seen; /* hash of the last ones */
    struct arena status_mem;
    VEC(struct status_write) writes;
};

/* trafficclass.c */
struct traffic *traffic_new(void);
void traffic_free(struct traffic *t); /* accepts NULL */
void traffic_build(struct planner *p);
/* The table of a class whose gateway of the family is behind the link, the lowest; 0: none. What looks
 * it up while it has no default, since its link is down, falls through. */
uint32_t traffic_gateway_table(const struct planner *p, const char *link, enum family_index f);
/* Adds its part to pass->plan. */
void traffic_publish(struct planner *p, struct pass *pass);
void traffic_pass_done(struct pass *pass);
/* traffic_status.c: appends the writes of all classes. */
void traffic_statuses(struct planner *p, const struct applied *applied);

/* planner.c */
/* What of the snapshot is planned for. */
const struct snapshot *planner_view(struct planner *p, const struct snapshot *snap);
void memo_due(struct planner *p, struct memo *m);
/* Takes ownership of the group (NULL: none); keeps the old one when they are equal. */
void memo_set_group(struct planner *p, struct memo *m, struct nft_group *g);

/* status.c: why an accepted mapping is not programmed, as far as objects and host tell; without
 * a reason: nothing; without a field: what the class or the node reports as its own problem, or
 * what mends itself. */
struct verdict programmed_verdict(const struct planner *p, const struct memo *m, struct arena *a);
/* One of that owner's; NULL: the kernel refused nothing of it. */
const struct refusal *refusal_of(const struct applied *applied, const char *owner);
void status_enqueue(struct planner *p, struct memo *m);
void status_forget(struct planner *p, struct memo *m);
/* The name of the node whose agent writes the mapping's status, or NULL. */
const char *status_writer(const struct planner *p, const struct memo *m);
/* Appends a write of the object's status, for the caller to fill in. */
struct status_write *status_add(struct planner *p, enum status_write_kind kind,
                                const struct meta *meta);
/* class_status.c: appends the writes of all classes. */
void class_statuses(struct planner *p);
/* The node whose agent writes the class's conditions, or NULL. */
const char *class_writer(const struct planner *p, const struct class_view *cls);
/* Sets status, reason, message and generation; last_transition moves when status does. */
struct condition condition_make(struct arena *a, const struct condition_list *old, const char *type,
                                bool status, const char *reason, const char *message,
                                int64_t generation, int64_t now);
/* Where the name belongs in a vector sorted by owner. */
size_t memo_lower_bound(const struct memo_vec *v, const char *owner);
