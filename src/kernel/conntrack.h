/* Deletes UDP conntrack entries that still send the packets of a mapping or a service to where it
 * no longer points. TCP is never cut. */
#pragma once

#include "base/err.h"
#include "kernel/kernel.h"
#include "netlink/nl.h"

/* Deletes entries whose original destination matches a key and whose reply source is neither its
 * target nor one of the others, or is but not by the key's `nat`: IPVS translates by itself and only
 * tells conntrack where replies come from. Filtered in the kernel where it can: that it cannot is
 * noticed and remembered. Returns how many, or -errno. */
int conntrack_flush_udp(struct nl_port *port, const struct flow_target *keys, size_t n,
                        struct err *err);
