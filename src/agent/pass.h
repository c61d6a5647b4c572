/* One pass: observe the host if asked, take a snapshot, plan, apply the difference, write
 * statuses. Everything it keeps between passes is in struct pass. */
#pragma once

#include "agent/keep.h"
#include "agent/mesh.h"
#include "agent/metrics.h"
#include "agent/notes.h"
#include "agent/proxy.h"
#include "kernel/host.h"
#include "kernel/kernel.h"
#include "kernel/monitor.h"
#include "kernel/nft.h"
#include "kernel/rtnl.h"
#include "plan/plan.h"
#include "source/source.h"
#include "store/store.h"

/* What a pass must look at besides changed objects. */
enum pass_need {
    PASS_HOST = 1,       /* interfaces, addresses, sysctls */
    PASS_AUDIT_RTNL = 2, /* dump our links, addresses, routes, rules */
    PASS_AUDIT_NFT = 4,  /* dump our table */
    PASS_AUDIT_IPVS = 8, /* dump virtual servers, ipsets, rules of iptables */
    PASS_AUDITS = PASS_AUDIT_RTNL | PASS_AUDIT_NFT | PASS_AUDIT_IPVS,
    PASS_ALL = PASS_HOST | PASS_AUDITS,
    PASS_DRAINING = 16, /* destinations that drain */
};

struct pass_ipvs;

struct pass {
    const char *node, *state_dir;
    uint32_t cni_vxlan_port;
    const struct plan_options *options;
    enum iptables_mode iptables_mode;
    struct proxy *proxy; /* NULL: no service proxy */
    struct mesh *mesh;   /* NULL: no traffic classes */
    struct keep *keep;
    struct source *source;
    struct store *store;
    struct planner *planner;
    struct nl_port *route_port, *nft_port, *conntrack_port;
    struct nft *nft;        /* NULL: nothing is nftables' */
    struct pass_ipvs *ipvs; /* NULL: services are not IPVS' */
    bool other_mode_gone;
    struct rtnl *rtnl;
    struct monitor *monitor;

    struct arena host_mem[2]; /* the newest observation and the one before */
    struct host host[2];
    int host_now;
    bool host_observed;
    char forwarding4_error[200], forwarding6_error[200]; /* of the last sysctl_sync */

    struct report report;
    struct notes notes;
    VEC(struct flow_target) flows; /* UDP: conntrack entries to be looked for, and deleted */
    struct arena flow_mem;         /* what they point to */
    struct metrics metrics;
    bool statuses_wait; /* for another pass */
    bool held;          /* rules of the last pass waited for BIRD */
    bool anew;          /* the next pass plans as if everything had changed */
    bool unheard;       /* others changed the ruleset while the last pass did not listen */
    struct err failure; /* what the last pass left undone; no text when it was clean */
};

/* Opens the netlink ports. `options`, `source` and `store` are set by the caller before. */
int pass_open(struct pass *p, struct err *err);
void pass_close(struct pass *p);
/* After pass_open(): whether nothing of ours is in the kernel. */
int pass_is_fresh(const struct pass *p, bool *ret, struct err *err);

enum pass_result {
    PASS_CLEAN,
    PASS_AGAIN, /* something was refused or failed: try again later */
};
/* Destinations of IPVS that drain: PASS_DRAINING is due in a minute. */
size_t pass_draining(const struct pass *p);
/* Writes why the last pass left something undone; true when it did not. */
bool pass_ready(const struct pass *p, struct buf *out);
/* `needs` is a set of enum pass_need. */
enum pass_result pass_run(struct pass *p, unsigned needs);
