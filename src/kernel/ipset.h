/* The ipsets that kube-proxy's ipvs mode leaves: KUBE-... for IPv4, KUBE-6-... for IPv6, by their
 * names, since others have sets that begin with KUBE- too. */
#pragma once

#include "base/buf.h"
#include "netlink/nl.h"

/* Destroys them and lists them into `out`, one "- ..." a line; one that a rule still uses stays
 * and is listed with "! ...". `dry_run` only lists. 0, also on a kernel without ipsets, or -errno. */
int ipset_kubeproxy_cleanup(struct nl_port *port, bool dry_run, struct buf *out, struct err *err);
