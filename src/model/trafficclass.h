/* net.renner.uno/v1alpha1 TrafficClass: one kind of traffic gets a routing table of its own.
 * Fields, defaults and limits: deploy/crds/trafficclasses.yaml. Next: model/object.h, which has
 * the rules of ownership for all objects. */
#pragma once

#include "model/object.h"

/* Names that stand for several prefixes, wherever a prefix may stand. */
#define PREFIXES_PODS     "PodCIDRs"         /* spec.podCIDRs of all Nodes */
#define PREFIXES_OWN_PODS "NodePodCIDR"      /* of this Node */
#define PREFIXES_SERVICES "ServiceCIDRs"     /* spec.cidrs of all ServiceCIDRs */
#define PREFIXES_ATTACHED "AttachedNetworks" /* of this node's addresses */

enum { FAMILIES_V4 = 1, FAMILIES_V6 = 2 };

struct traffic_rule {
    enum ip_family family;
    uint32_t priority;
    struct string_list from, to; /* prefixes or names of several, as written; not both empty */
};

/* Keys of a Node's annotations; "": none in this family. */
struct address_annotations {
    const char *ipv4, *ipv6;
};

struct traffic_mesh {
    const char *link;
    struct address_annotations annotations;
    uint32_t asn;
    uint32_t hold_time; /* seconds */
    bool bfd, graceful_restart;
};

enum gateway_manager { GATEWAY_AGENT, GATEWAY_BIRD };
struct traffic_gateway {
    const char *link;
    struct address_annotations annotations;
    enum gateway_manager manager;
};

struct traffic_routes {
    struct string_list attached;     /* links whose networks BIRD writes */
    const char *pod_device;          /* behind which BIRD says this node's pods are; "": none */
    struct traffic_mesh *mesh;       /* NULL: none */
    struct traffic_gateway *gateway; /* NULL: none */
    struct string_list fall_through; /* as in a rule */
    struct string_list reject;       /* as in a rule */
};

enum cleanup_policy { CLEANUP_DELETE, CLEANUP_KEEP };

struct traffic_row {
    const char *name;
    bool ready;
    const char *reason, *message; /* "" when ready */
    uint32_t sessions, sessions_expected;
};
struct traffic_status {
    struct traffic_row *nodes; /* sorted by name */
    uint32_t n_nodes;
    uint32_t nodes_desired, nodes_ready;
    const char *ready; /* "2/3" */
    int64_t observed_generation;
    struct condition_list conditions;
};

struct traffic_class {
    struct object o;
    bool has_selector;
    struct label_selector selector;
    uint8_t families; /* FAMILIES_* */
    uint32_t table;
    struct traffic_rule *rules;
    uint32_t n_rules;
    struct traffic_routes *routes; /* NULL: none */
    enum cleanup_policy cleanup;   /* when the class is deleted */
    struct traffic_status status;
};

bool traffic_class_equal(const struct traffic_class *a, const struct traffic_class *b);
bool traffic_row_equal(const struct traffic_row *a, const struct traffic_row *b);
