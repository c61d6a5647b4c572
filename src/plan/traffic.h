/* What the files of traffic classes share: planner state of its own, beside that of mappings.
 *
 * A pass (trafficclass.c) redoes all classes when one of them, a Node, a ServiceCIDR or the host is
 * another:
 *   1. prefixes   traffic_prefix.c: what PodCIDRs and the other names stand for
 *   2. accept     trafficclass.c: which classes hold, cluster-wide: all nodes find the same
 *   3. program    traffic_routes.c: this node's rules and routes; traffic_mesh.c: its BIRD
 * Statuses (traffic_status.c) come afterwards from the same result. */
#pragma once

#include "plan/internal.h"

struct prefix_list {
    struct ip_prefix *v; /* masked, sorted, none within or beside another it could be one with */
    size_t n, cap;
};

/* ---- traffic_prefix.c ---- */

/* What the names stand for, by family; built once a pass. */
struct prefix_sets {
    struct prefix_list pods[F_COUNT], own_pods[F_COUNT], services[F_COUNT], attached[F_COUNT];
};
void prefix_sets_build(const struct snapshot *s, struct prefix_sets *ret);
void prefix_sets_done(struct prefix_sets *s);
/* The prefixes of one family that a list of a class means; vec_done() them. */
struct prefix_list prefixes_of(const struct prefix_sets *sets, const struct string_list *l,
                               enum family_index f);
/* Masks, sorts, and makes as few of them as say the same. */
void prefixes_aggregate(struct prefix_list *l);
/* Every one of `inner` is within one of `outer`. */
bool prefixes_cover(const struct prefix_list *outer, const struct prefix_list *inner);
/* Appends the Node's pod ranges of the family; what cannot be read is left out. False, and none, when
 * they are every address together: what is for the world would be led to that node. */
bool node_pod_cidrs(const struct node *n, enum family_index f, struct prefix_list *into);

/* ---- trafficclass.c ---- */

struct traffic_view {
    const struct traffic_class *obj;
    struct verdict refused; /* reason NULL: accepted */
    bool uncovered;         /* refused for what its routes lack, whatever other classes do */
    bool here;              /* this node is selected */
    uint32_t n_selected;

    bool leads_out[F_COUNT]; /* on this node, to a gateway that is fit */

    /* On this node; reason NULL: nothing is wrong. */
    struct verdict gateway;  /* of GatewayValid */
    struct verdict conflict; /* of Conflict */
    struct verdict trouble;  /* anything else that keeps it from being whole */
    uint32_t sessions;       /* expected */
};

/* One result, kept as long as a pass shows it. */
struct traffic_result {
    uint32_t refs;
    struct arena mem;
    struct traffic_view *views; /* as in the snapshot: by name */
    size_t n_views;
    VEC(struct desired_route) routes;
    VEC(struct desired_rule) rules;
    VEC(struct problem) problems;
    VEC(struct desired_keep) keeps;
    struct bird_config bird;
    bool has_bird;
};
struct traffic {
    struct traffic_result *now; /* NULL before the first pass */
};

/* A pass in progress. */
struct traffic_pass {
    const struct snapshot *snap;
    const struct host *host;
    const struct node *node; /* this one; NULL: there is none */
    struct prefix_sets sets;
    struct traffic_result *out;
};

bool traffic_selects(const struct traffic_class *c, const struct node *n);
const char *traffic_owner(struct traffic_pass *t, const struct traffic_class *c);
/* Adds a problem; `subject` NULL: of the class. Value and message are copied. */
void traffic_problem(struct traffic_pass *t, const struct traffic_class *c,
                     const struct node *subject, struct verdict v);
bool traffic_has_family(const struct traffic_class *c, enum family_index f);

/* ---- traffic_routes.c ---- */
/* The gateway of this node in the family, when it is fit; family IP_NONE: none, and v->gateway may
 * say why. */
struct ip traffic_gateway_ip(struct traffic_pass *t, struct traffic_view *v, enum family_index f);
void traffic_routes_build(struct traffic_pass *t, struct traffic_view *v);
void traffic_rules_build(struct traffic_pass *t, struct traffic_view *v);
/* A link of the class is missing, down, or drops what comes another way than it would go. */
void traffic_links_check(struct traffic_pass *t, struct traffic_view *v);

/* ---- traffic_mesh.c ---- */
bool traffic_needs_bird(const struct traffic_class *c);
void traffic_mesh_build(struct traffic_pass *t, struct traffic_view *v, struct bird_table *ret);
