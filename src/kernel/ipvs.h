/* Services on IPVS: makes the kernel's virtual servers, destinations, ipsets, addresses of kube-ipvs0
 * and rules of iptables match what is wanted.
 *
 * The first call, and an audit, read all of it; then every call sends what the changed groups want
 * otherwise. What is new comes first: elements of sets, rules, addresses, servers, destinations; then
 * goes what is not wanted, in the opposite order. A destination that goes drains (weight 0) as long as
 * it has connections, unless it is of UDP.
 *
 * Ours is: every address of kube-ipvs0; every set of our names; the chains and jumps of
 * model/ipvs.h; and a virtual server that is wanted, or whose address is on kube-ipvs0, or whose
 * address and port, or node port, is in one of our sets. Elements are there before a server is, and
 * go after it, so that a predecessor's servers are known by them whenever it was killed. Servers of
 * marks and those at `exclude` are others', and so is every other. */
#pragma once

#include "kernel/iptables_restore.h"
#include "kernel/kernel.h"
#include "netlink/nl.h"

struct ipvs;

struct ipvs_ports {
    struct nl_port *route, *generic, *netfilter;
};

struct ipvs_settings {
    const struct ip_prefix *exclude; /* borrowed */
    size_t n_exclude;
    enum iptables_mode iptables;
};

/* Ports are borrowed. */
struct ipvs *ipvs_new(const struct ipvs_ports *ports, const struct ipvs_settings *settings);
void ipvs_free(struct ipvs *v); /* accepts NULL */

/* Whether this kernel can: IPVS with the scheduler, ipsets. Modules are loaded where that is possible.
 * 0, or -errno with what lacks. */
int ipvs_check(const struct ipvs_ports *ports, enum ipvs_scheduler scheduler, struct err *err);

enum ipvs_look {
    IPVS_LOOK_AUDIT = 1,    /* read the kernel first, rules too */
    IPVS_LOOK_DRAINING = 2, /* at the destinations that drain */
};
/* 0, or -errno when nothing could be done at all; the next call then reads the kernel. Refused entries
 * are in the report, and tried again by the next call. */
int ipvs_sync(struct ipvs *v, const struct desired *d, unsigned look, struct report *report,
              struct err *err);
/* iptables_stand() of its rules. */
bool ipvs_rules_stand(const struct ipvs *v, enum iptables_mode *ret);
/* Makes kube-ipvs0, where it lacks: for who wants its index before it has addresses. */
int ipvs_make_device(struct ipvs *v, struct report *report, struct err *err);
/* The UDP flows that the syncs since the last call added, changed or deleted, with where they lead
 * now: for conntrack. The first call tells all, and so does one after rules were written: a flow that
 * began without them would never be masqueraded. Then those that conntrack does not translate begin
 * anew, and IPVS leads them where they went. Valid until the next. */
size_t ipvs_udp_changes(struct ipvs *v, const struct flow_target **ret);
/* Destinations that drain: to be looked at again in a minute. */
size_t ipvs_draining(const struct ipvs *v);
/* kube-ipvs0, 0: not there yet. */
uint32_t ipvs_device_index(const struct ipvs *v);

/* Differences without applying, as text lines "+ ..." / "- ...". */
int ipvs_diff(struct ipvs *v, const struct desired *d, struct buf *out, struct err *err);

/* Removes everything ours, when kube-ipvs0 is; lists it into `out`, one "- ..." a line. `dry_run` only
 * lists. 0, also on a kernel without IPVS, or -errno. */
int ipvs_cleanup(const struct ipvs_ports *ports, bool dry_run, struct buf *out, struct err *err);
/* An agent of this mode made what there is, be it running or not. */
int ipvs_is_ours(struct nl_port *route, bool *ret, struct err *err);

/* What kube-proxy's ipvs mode leaves beside its ipsets and chains: the device, and IPVS services at
 * its addresses. IPVS services elsewhere may be anybody's, node ports among them: they stay and are
 * named. Removes both and lists them into `out`, one a line: "- ..." for what goes, "! ..." for what
 * stays. `dry_run` only lists. Without the device nothing is touched. 0 or -errno. */
int ipvs_kubeproxy_cleanup(struct nl_port *route, struct nl_port *generic, bool dry_run,
                           struct buf *out, struct err *err);
