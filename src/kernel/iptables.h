/* kube-proxy's chains where iptables is iptables-legacy: xtables' own tables in the kernel, read and
 * replaced whole through socket options, as iptables itself does
 * (linux/netfilter_ipv4/ip_tables.h, linux/netfilter_ipv6/ip6_tables.h). Tables nobody has used are
 * not looked at: that would make them. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "kernel/kubeproxy.h"

/* Removes the chains and the jumps to them from base chains, under iptables' lock, and keeps all else
 * with its counters; lists them into `out` as kubeproxy_settle() does. `dry_run` only lists. 0, also
 * on a kernel without xtables, or -errno. */
int iptables_kubeproxy_cleanup(enum kubeproxy_whose whose, bool dry_run, struct buf *out,
                               struct err *err);
