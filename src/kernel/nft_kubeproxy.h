/* What kube-proxy leaves in nftables when it ends: the tables `ip kube-proxy` and `ip6 kube-proxy`
 * of its nftables mode; and of its iptables and ipvs modes, where iptables is iptables-nft, chains
 * KUBE-... in the tables nat, filter and mangle, with jumps to them from the base chains.
 *
 * Chains of the kubelet (KUBE-FIREWALL in filter, KUBE-MARK-DROP, the canary and the hint) and of
 * others that begin with KUBE- are not its own and stay. So does a chain that a chain of somebody
 * else's jumps to. */
#pragma once

#include "base/buf.h"
#include "kernel/kubeproxy.h"
#include "netlink/nl.h"

/* Removes them, in one batch for each table, and lists them into `out`, one a line: "- ..." for
 * what goes, "! ..." for what has to stay, with the reason. `dry_run` only lists. 0 or -errno. */
int nft_kubeproxy_cleanup(struct nl_port *port, enum kubeproxy_whose whose, bool dry_run,
                          struct buf *out, struct err *err);
