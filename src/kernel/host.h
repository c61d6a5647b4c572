/* Reads what the planner needs to know of this machine. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "model/host.h"
#include "netlink/nl.h"

/* Fills *ret from links, addresses, default routes of table main, and /proc/sys. */
int host_observe(struct nl_port *port, struct arena *mem, struct host *ret, struct err *err);
