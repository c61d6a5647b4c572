/* Routes that BIRD left behind. While it runs they are its own affair. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "netlink/nl.h"

/* Deletes the routes with BIRD's protocol number in these tables, and no others. How many, or
 * -errno when they cannot be read or one cannot be deleted; the others are gone then, too. */
int bird_flush_routes(struct nl_port *port, const uint32_t *tables, size_t n, struct err *err);
/* How many there are in each; ret_counts has room for n. */
int bird_count_routes(struct nl_port *port, const uint32_t *tables, size_t n, uint32_t *ret_counts,
                      struct err *err);
