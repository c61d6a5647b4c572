/* bird.conf, for BIRD 2.0.12 to 3.1. The same values give the same bytes, and a node that joins or
 * leaves changes the lines of its own sessions only, so BIRD leaves all others alone.
 *
 * Names in it: tcTABLE_4 is a routing table of BIRD's, tcTABLE_kernel_4 writes it to the kernel's
 * TABLE, tcTABLE_own_4 announces this node's pods, tcTABLE_NODE_HASH_4 is a session. BIRD's own
 * preference for its routes in the kernel is metric 32. Next: bird/control.h. */
#pragma once

#include "base/buf.h"
#include "model/bird.h"

#define BIRD_SYMBOL_MAX 65 /* BIRD takes 64 characters */
/* How the file begins. */
#define BIRD_CONF_HEAD "# Written by portolan; it will be written again.\n"

/* The whole file. */
void bird_render(const struct bird_config *config, struct buf *out);
/* "tc47_k8s_1_a1b2c3d4e5f60718_4": letters, digits and _ of the node's name, and a hash of all of
 * it, which keeps names apart that differ in what is left out. Returns `out`. */
const char *bird_session_name(uint32_t table, const char *node, uint8_t family,
                              char out[static BIRD_SYMBOL_MAX]);
