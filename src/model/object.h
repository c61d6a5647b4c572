/* The cluster's objects as the planner reads them: plain structs, one arena per object.
 *
 * Who owns what: an object is made by a source (decode), given to the store, and never
 * changed after that; a newer version replaces it whole. All strings are NUL-terminated,
 * never NULL ("" when absent) and live in the object's arena, as do its arrays. Ports are
 * host order. Times are Unix seconds, 0 when absent.
 *
 * Field names, defaults and limits: the API page of kuport.wlz.li/v1alpha1 for PortMap and
 * PortMapClass, the Kubernetes API reference (v1, discovery.k8s.io/v1) for the rest.
 * A decoder has applied every default and refused every value outside the schema before
 * the planner sees an object. Next: model/snapshot.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/ip.h"

enum object_kind {
    KIND_NODE,
    KIND_NAMESPACE,
    KIND_SERVICE,
    KIND_ENDPOINTSLICE,
    KIND_PORTMAP,
    KIND_PORTMAPCLASS,
    KIND_SERVICECIDR,
    KIND_TRAFFICCLASS, /* model/trafficclass.h */
    KIND_COUNT
};

struct kind_info {
    const char *kind;        /* "PortMap" */
    const char *plural;      /* "portmaps" */
    const char *api_version; /* "kuport.wlz.li/v1alpha1" */
    bool namespaced;
};
extern const struct kind_info kind_info[KIND_COUNT];

struct string_list {
    const char **v;
    uint32_t n;
};

struct label {
    const char *key, *value;
};

struct label_list {
    struct label *v; /* sorted by key, bytewise */
    uint32_t n;
};

/* EndpointSlice, ServiceCIDR: only kind, ns and name; Service: and creation, and where the class is
 * NODE_ADDRESS_CLASS resource_version; nobody reads the rest */
struct meta {
    enum object_kind kind;
    const char *ns; /* "" for cluster-scoped kinds */
    const char *name;
    const char *uid;
    const char *resource_version; /* opaque; what a status write compares */
    int64_t generation;
    int64_t creation; /* creationTimestamp */
    struct label_list labels;
    struct label_list annotations;
};

/* Every object starts with this, so that a struct object * can be cast by its kind. */
struct object {
    struct meta meta;
    struct arena mem; /* owns the object itself too: see object_new */
};

/* ---- v1 Node ---- */
struct node {
    struct object o;
    struct ip *internal_ips; /* status.addresses of type InternalIP, in order */
    uint32_t n_internal_ips;
    struct string_list no_ips;    /* addresses of that type that are none, as written */
    struct string_list pod_cidrs; /* as written; spec.podCIDR when there is no spec.podCIDRs */
    const char *pod_cidr;
    int64_t deletion;   /* deletionTimestamp */
    bool to_be_deleted; /* taint ToBeDeletedByClusterAutoscaler */
};
/* Annotations by which nodes tell each other who holds which address, and where its holder is. */
#define ANNOTATION_ADDRESSES "reweave.levk.dev/addresses" /* "192.0.2.1,203.0.113.9" */
#define ANNOTATION_OVERLAY   "reweave.levk.dev/weave"     /* "10.32.0.1,9e:1c:3f:00:a2:07" */
/* Where endpoints' hints for zones are compared with. */
#define LABEL_ZONE "topology.kubernetes.io/zone"

/* ---- v1 Namespace: only its labels ---- */
struct namespace
{
    struct object o;
};

enum l4proto { L4_TCP = 6, L4_UDP = 17, L4_SCTP = 132 }; /* IANA protocol numbers */

/* ---- v1 Service ---- */
enum service_type {
    SERVICE_CLUSTERIP,
    SERVICE_NODEPORT,
    SERVICE_LOADBALANCER,
    SERVICE_EXTERNALNAME
};
enum traffic_policy { POLICY_CLUSTER, POLICY_LOCAL };
enum session_affinity { AFFINITY_NONE, AFFINITY_CLIENTIP };
enum ip_mode { IP_MODE_VIP, IP_MODE_PROXY };

struct service_port {
    const char *name;
    enum l4proto protocol;
    uint16_t port;
    uint16_t node_port; /* 0: none */
};
struct service_ingress {
    const char *ip; /* "" when the load balancer has a name only */
    enum ip_mode mode;
};
struct service { /* addresses and ranges as written */
    struct object o;
    struct service_port *ports;
    uint32_t n_ports;
    uint32_t affinity_timeout;      /* seconds; 0 without ClientIP affinity */
    struct string_list cluster_ips; /* spec.clusterIP when there is no spec.clusterIPs */
    struct string_list external_ips;
    struct string_list source_ranges; /* loadBalancerSourceRanges */
    struct service_ingress *ingress;  /* status.loadBalancer.ingress */
    uint32_t n_ingress;
    enum service_type type;
    enum traffic_policy internal_policy, external_policy;
    enum session_affinity affinity;
    const char *cluster_ip;
    uint16_t health_check_port;                         /* healthCheckNodePort, 0: none */
    const char *load_balancer_class, *load_balancer_ip; /* as written; "": none */
    bool other_proxy; /* label service.kubernetes.io/service-proxy-name, whatever it says */
    bool headless;    /* label service.kubernetes.io/headless, likewise */
};
#define AFFINITY_TIMEOUT   10800
#define NODE_ADDRESS_CLASS "reweave.levk.dev/node-address"
/* Its load balancer is the node that holds its address. */
bool service_is_held(const struct service *s);

/* ---- discovery.k8s.io/v1 EndpointSlice ---- */
struct endpoint_port {
    const char *name; /* "" is the unnamed port */
    enum l4proto protocol;
    uint16_t port; /* 0: the slice names none */
};
struct endpoint_hints {
    struct string_list zones, nodes;
};
struct endpoint {
    struct string_list addresses;
    bool ready, serving, terminating; /* absent: true, true, false */
    const char *node_name;
    const char *target_kind, *target_ns, *target_name; /* targetRef */
    struct endpoint_hints *hints;                      /* NULL: none */
};
struct endpoint_slice {
    struct object o;
    const char *service;   /* label kubernetes.io/service-name */
    enum ip_family family; /* addressType; IP_NONE for FQDN */
    struct endpoint_port *ports;
    uint32_t n_ports;
    struct endpoint *endpoints;
    uint32_t n_endpoints;
    /* Annotation endpoints.kubernetes.io/last-change-trigger-time, 0 when it cannot be read: what
     * caused this version. Alone it is no change (object_equal). */
    int64_t trigger;
};

/* ---- networking.k8s.io/v1 ServiceCIDR ---- */
struct service_cidr {
    struct object o;
    struct string_list cidrs; /* as written */
};

/* ---- metav1.Condition ---- */
enum tristate { TRI_UNKNOWN, TRI_FALSE, TRI_TRUE };
struct condition {
    const char *type;
    enum tristate status;
    const char *reason;
    const char *message;
    int64_t observed_generation;
    int64_t last_transition;
};
struct condition_list {
    struct condition *v; /* sorted by type */
    uint32_t n;
};

/* ---- kuport.wlz.li/v1alpha1 PortMap ---- */
struct published {
    const char *node, *interface;
    const char *address; /* "" while the interface has none */
};
struct portmap_status {
    bool has_endpoint;
    const char *endpoint_node, *endpoint_address;
    struct published *published;
    uint32_t n_published;
    int64_t observed_generation;
    struct condition_list conditions;
};
struct portmap {
    struct object o;
    const char *class_name;
    enum l4proto protocol; /* TCP or UDP */
    uint16_t port;
    uint16_t end_port; /* equal to port when the manifest gives none */
    bool has_end_port;
    struct string_list interfaces; /* empty: every interface the class gives the node */
    const char *service_name, *service_port;
    struct portmap_status status;
};

/* ---- kuport.wlz.li/v1alpha1 PortMapClass ---- */
struct selector_requirement {
    const char *key;
    const char *op; /* as written; an unknown one makes the selector invalid */
    struct string_list values;
};
struct label_selector {
    struct label_list match_labels;
    struct selector_requirement *expressions;
    uint32_t n_expressions;
};
struct class_node {
    const char *name;
    struct string_list interfaces; /* in the class's order, without duplicates */
};
enum serving_mode { SERVING_SINGLE, SERVING_MULTI };
enum return_mode { RETURN_VXLAN, RETURN_NONE };

struct link_claim {
    const char *key;     /* "edge-a/worker-b", the two names sorted */
    const char *peer[2]; /* the same two names */
    const char *subnet;  /* "169.254.77.2/31" */
    uint32_t slot;
    int64_t unused_since; /* 0: in use */
};
struct node_row_address {
    const char *interface, *address;
};
struct node_row {
    const char *name;
    bool ready;
    const char *message;
    uint32_t underlay_mtu, link_mtu;    /* 0: not reported */
    struct node_row_address *addresses; /* sorted by interface */
    uint32_t n_addresses;
};
struct class_status {
    struct link_claim *links; /* sorted by key */
    uint32_t n_links;
    struct node_row *nodes; /* sorted by name */
    uint32_t n_nodes;
    int64_t observed_generation;
    struct condition_list conditions;
};
struct portmap_class {
    struct object o;
    struct class_node *nodes; /* sorted by name */
    uint32_t n_nodes;
    enum serving_mode serving_mode;
    uint16_t port_min, port_max;
    uint16_t *reserved;
    uint32_t n_reserved;
    bool has_selector;
    struct label_selector selector;
    enum return_mode return_mode;
    uint32_t vni;        /* default 4242 */
    uint16_t vxlan_port; /* default 4790 */
    const char *subnet;  /* as written, default 169.254.77.0/24; may be unparsable */
    const char *subnet6; /* as written, default fd64:f5ac:e961::/112; may be unparsable */
    struct class_status status;
};

/* Allocates a zeroed object of the kind, its own arena inside; all strings of meta are "". */
void *object_new(enum object_kind kind);
/* The same with room for `bytes` in one piece, the object itself included. */
void *object_new_sized(enum object_kind kind, size_t bytes);
/* Accepts NULL. */
void object_free(struct object *o);
/* Same content in every field the planner can see, uid too; resource_version only for the kinds
 * whose status we write. */
bool object_equal(const struct object *a, const struct object *b);

bool portmap_status_equal(const struct portmap_status *a, const struct portmap_status *b);
bool node_row_equal(const struct node_row *a, const struct node_row *b);
bool link_claim_equal(const struct link_claim *a, const struct link_claim *b);
bool strings_equal(const struct string_list *a, const struct string_list *b);
bool selector_equal(const struct label_selector *a, const struct label_selector *b);
bool conditions_equal(const struct condition_list *a, const struct condition_list *b);

const char *l4proto_name(enum l4proto p); /* "TCP", "UDP", "SCTP" */
const struct condition *condition_find(const struct condition_list *l, const char *type);
/* "" when absent. */
const char *label_value(const struct label_list *l, const char *key);
bool label_present(const struct label_list *l, const char *key);
