/* What kube-proxy's ipvs mode leaves beside its ipsets and chains: the device kube-ipvs0, which
 * holds the addresses of services, and IPVS services at these addresses.
 *
 * IPVS services elsewhere may be anybody's, node ports among them: they stay and are named. */
#pragma once

#include "base/buf.h"
#include "netlink/nl.h"

/* Removes both and lists them into `out`, one a line: "- ..." for what goes, "! ..." for what stays.
 * `dry_run` only lists. Without the device nothing is touched. `generic` is a port of
 * NETLINK_GENERIC. 0 or -errno. */
int ipvs_kubeproxy_cleanup(struct nl_port *route, struct nl_port *generic, bool dry_run,
                           struct buf *out, struct err *err);
