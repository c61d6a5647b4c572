/* Our half of rtnetlink in a kernel of its own, for the tests of rtnl.h. The witnesses are ip,
 * bridge, and packets. Needs root. */
#pragma once

#include "kernel/rtnl.h"
#include "want.h"

struct world {
    struct nl_port *port; /* a fake one before the real one */
    struct rtnl *rtnl;
    struct report report; /* of the last sync */
    struct want want;     /* the test's, to fill; let go with the world */
    int ns;
};

/* A device u0 with two addresses that links may be sent from. Nothing of it changes by itself any more:
 * the kernel notices a peer some time after it is up, and tries link-local addresses for a second. */
#define UNDERLAY                                                                   \
    "ip link add u0 type veth peer name u1;"                                       \
    "for l in u0 u1; do ip link set $l addrgenmode none; ip link set $l up; done;" \
    "ip addr add 192.0.2.1/24 dev u0; ip addr add 192.0.2.11/24 dev u0;"           \
    "timeout 5 sh -c 'until [ $(ip -o link | grep -c \"state UP\") = 2 ]; do sleep 0.01; done'"

/* A new namespace becomes the process's; the shell command makes its links. */
struct world world_new(const char *links);
void world_done(struct world *w);
/* As after a restart: what was known of the kernel is forgotten. */
void restart(struct world *w);

/* Adds and removes; how much was added, changed and removed. */
size_t sync_with(struct world *w, const struct desired *d, bool audit);
/* The same, and nothing may be refused. */
size_t sync_fully(struct world *w, const struct desired *d, bool audit);
void assert_no_refusals(const struct world *w);
/* rtnl_diff(), a line for each; a scratch that the next call takes. */
const char *difference(struct world *w, const struct desired *d);
void assert_no_difference(struct world *w, const struct desired *d);

/* One datagram from `from` to `to` and back, both in their namespaces. */
bool echo(int from_ns, const struct ip *from, int to_ns, const struct ip *to);
