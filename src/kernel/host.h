/* Reads what the planner needs to know of this machine. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "model/host.h"
#include "netlink/nl.h"

/* Fills *ret from links, addresses, default routes of table main, and /proc/sys. */
int host_observe(struct nl_port *port, struct arena *mem, struct host *ret, struct err *err);
/* Adds what is known of others' policy routing: rules, and when asked for tables foreign_tables and
 * rp_filter of the interfaces, for which it reads every route there is. */
int host_observe_policy(struct nl_port *port, struct arena *mem, bool tables, struct host *h,
                        struct err *err);
