/* Everything one planner pass reads. A borrowed view: the store owns the objects, the
 * agent owns the host facts; all of it stays put until the pass is over. */
#pragma once

#include "model/host.h"
#include "model/object.h"
#include "model/trafficclass.h"

/* What differs from the snapshot before, so that a memoised planner can skip the rest. */
struct change {
    enum object_kind kind;
    const char *ns;
    const char *name;
    const char *service; /* EndpointSlice: the service it belongs (or belonged) to; else "" */
};

struct snapshot {
    const char *node; /* this node's name */
    int64_t now;      /* Unix seconds */
    const struct host *host;
    uint32_t cni_vxlan_port; /* the CNI's own VXLAN port, 8472 unless configured */

    /* Sorted bytewise by name, or by namespace then name. */
    const struct node *const *nodes;
    size_t n_nodes;
    const struct namespace *const *namespaces;
    size_t n_namespaces;
    const struct service *const *services;
    size_t n_services;
    const struct endpoint_slice *const *slices; /* by namespace, service, name */
    size_t n_slices;
    const struct portmap *const *portmaps;
    size_t n_portmaps;
    const struct portmap_class *const *classes;
    size_t n_classes;
    const struct service_cidr *const *service_cidrs;
    size_t n_service_cidrs;
    const struct traffic_class *const *traffic_classes;
    size_t n_traffic_classes;

    /* When `changes_known` is false (first pass, test) everything may differ; otherwise exactly
     * the listed objects were added, replaced or removed, and `host` differs if host_changed. */
    bool changes_known;
    bool host_changed;
    const struct change *changes;
    size_t n_changes;
};

const struct node *snapshot_node(const struct snapshot *s, const char *name);
const struct namespace *snapshot_namespace(const struct snapshot *s, const char *name);
const struct service *snapshot_service(const struct snapshot *s, const char *ns, const char *name);
const struct portmap *snapshot_portmap(const struct snapshot *s, const char *ns, const char *name);
/* The slices of one service; NULL when there is none. */
const struct endpoint_slice *const *snapshot_slices(const struct snapshot *s, const char *ns,
                                                    const char *service, size_t *ret_n);
