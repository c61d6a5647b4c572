/* What this node owes the API, as values. One struct status_write per piece that one writer
 * owns; the source turns it into a compare-and-swap (dir) or a patch (kube). */
#pragma once

#include "model/trafficclass.h"

enum status_write_kind {
    WRITE_PORTMAP_STATUS,   /* whole PortMap status; compared with resource_version */
    WRITE_CLASS_ROW,        /* this node's row of status.nodes; merged, no version needed */
    WRITE_CLASS_LINKS,      /* status.links whole; compared with resource_version */
    WRITE_CLASS_CONDITION,  /* conditions, observedGeneration, and removal of the rows in
                              drop_rows; compared with resource_version */
    WRITE_TRAFFIC_ROW,      /* this node's row of a TrafficClass; merged, no version needed */
    WRITE_TRAFFIC_STATUS,   /* all else of its status, and of its rows only those given; compared
                              with resource_version */
    WRITE_NODE_ANNOTATIONS, /* ANNOTATION_ADDRESSES and ANNOTATION_OVERLAY of this node's Node;
                               merged, no version needed */
    WRITE_SERVICE_STATUS,   /* status.loadBalancer.ingress whole; compared with
                               resource_version */
};
/* The kind of the object that is written to. */
enum object_kind status_write_target(enum status_write_kind kind);
/* Has no condition but that the object is there. */
bool status_write_merges(enum status_write_kind kind);

struct status_write {
    enum status_write_kind kind;
    const char *ns, *name;         /* the object; ns "" for a class */
    const char *resource_version;  /* the version it was decided on */
    struct portmap_status portmap; /* WRITE_PORTMAP_STATUS */
    struct node_row row;           /* WRITE_CLASS_ROW */
    struct link_claim *links;      /* WRITE_CLASS_LINKS */
    uint32_t n_links;
    struct condition_list conditions; /* WRITE_CLASS_CONDITION */
    int64_t observed_generation;
    struct string_list drop_rows;
    struct traffic_row traffic_row;  /* WRITE_TRAFFIC_ROW */
    struct traffic_status traffic;   /* WRITE_TRAFFIC_STATUS */
    const char *addresses, *overlay; /* WRITE_NODE_ANNOTATIONS: the values; "": to be removed */
    bool optional;                   /* who has no right to it goes on without */
    const char *ingress; /* WRITE_SERVICE_STATUS: its only address, mode Proxy; "": none */
};

struct status_writes {
    const struct status_write
        *v; /* by kind, namespace, name; only what differs from the snapshot */
    size_t n;
};

/* Something wrong in an object that the planner worked around. */
struct problem {
    enum object_kind kind;
    const char *ns, *name;
    const char *field;   /* "spec.interfaces[0]" */
    const char *value;   /* as given */
    const char *reason;  /* CamelCase, as in conditions */
    const char *message; /* what is wrong and what would be right */
    bool event; /* people hear of it by an Event, and this node's agent is the one to write it */
};
struct problems {
    const struct problem *v; /* sorted */
    size_t n;
};
