/* The planner: a pure function from a snapshot to what the kernel should hold, what this
 * node owes the API, and what is wrong with the objects. It never fails, never reads a
 * clock, never logs and makes no system call. The same snapshot gives the same bytes.
 *
 * Two stages, because "Programmed" may only be said after the kernel has acknowledged:
 * plan_build() before the apply, plan_statuses() after it.
 *
 * A struct planner remembers what it found for each mapping; with snapshot.changes_known it
 * redoes only what the changes can touch, and keeps pointers into the objects that did not
 * change: objects replaced or removed must stay readable until plan_build() returns.
 * Incremental and full give the same bytes (tests/property). Behaviour: docs/api.md. Next:
 * plan/internal.h, which tells the stages of a pass. */
#pragma once

#include "model/desired.h"
#include "model/nft_rule.h"
#include "model/snapshot.h"
#include "model/status.h"

struct planner;

enum proxy_mode { PROXY_NFT, PROXY_IPVS };

struct ipvs_options {
    enum ipvs_scheduler scheduler;
    uint32_t weight; /* of every destination, not 0 */
    bool strict_arp; /* the node answers ARP for no service's address */
    /* Node ports answer on all of this node's addresses, unless these are named, or
     * nodeport_addresses, or nodeport_primary. */
    const struct ip *node_addresses;
    size_t n_node_addresses;
    bool nodeport_primary; /* on its first InternalIP of each family */
    /* Virtual servers at these addresses are other people's. */
    const struct ip_prefix *exclude_cidrs;
    size_t n_exclude_cidrs;
};

/* What the node was started with. */
struct plan_options {
    bool portmap, serviceproxy, trafficclass, loadbalancer; /* which features plan for it */
    /* Service proxy. Who is a pod, for the masquerade of cluster IPs: these ranges, or with
     * node_cidr those of this Node's spec.podCIDRs. Neither: nobody is asked. */
    const struct ip_prefix *cluster_cidrs;
    size_t n_cluster_cidrs;
    bool node_cidr;
    /* Node ports answer on this node's addresses inside; none: on its first InternalIP of each
     * family. */
    const struct ip_prefix *nodeport_addresses;
    size_t n_nodeport_addresses;
    bool masquerade_all;    /* every connection to a cluster IP */
    uint8_t masquerade_bit; /* of the packet's mark, 0 to 31 and with the load balancer to 23: this
                               connection is masqueraded */
    enum proxy_mode proxy_mode;
    struct ipvs_options ipvs; /* of PROXY_IPVS */
    /* Load balancer. An L2 overlay's bridge, or "vxlan" for one of our own; NULL: none given. */
    const char *overlay;
    struct ip_prefix overlay_subnet;    /* IPv4, /30 or larger; of "vxlan" */
    const char *const *address_exclude; /* fnmatch() patterns of interfaces not published */
    size_t n_address_exclude;
};
#define MASQUERADE_BIT 14 /* what kube-proxy takes unless told otherwise */
#define OVERLAY_VXLAN  "vxlan"
#define OVERLAY_SUBNET "169.254.96.0/19"
/* What a program without options of its own plans with: PortMaps alone. */
extern const struct plan_options plan_options_default;

struct plan {
    struct desired desired;
    struct problems problems;
};

/* `options` is borrowed and has to outlive the planner. */
struct planner *planner_new(const struct plan_options *options);
void planner_free(struct planner *p); /* accepts NULL */

/* The result belongs to the planner and is valid until the second next call. */
const struct plan *plan_build(struct planner *p, const struct snapshot *snap);

/* The status writes due after `applied`. Call with the snapshot of the last plan_build().
 * The result is valid until the next call of either function. */
struct status_writes plan_statuses(struct planner *p, const struct snapshot *snap,
                                   const struct applied *applied);

/* host.rules are asked for. */
bool plan_needs_rules(const struct plan_options *options);
/* The nftables table of these options, whose overlay it borrows: see model/nft_rule.h and
 * plan/ruleset.c. */
/* False: nothing of these options is nftables'. */
bool plan_needs_nft(const struct plan_options *options);
struct nft_table plan_ruleset(const struct plan_options *options);
