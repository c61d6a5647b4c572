/* Notices that somebody else touched what we depend on. Subscribes to rtnetlink (links,
 * addresses, routes, rules) and to nftables changes. A socket filter leaves out our own
 * nftables batches by their port id; on a node where a service proxy rewrites its table all
 * the time, only what names our table means work. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct monitor;

enum monitor_event {
    MONITOR_HOST = 1, /* links, addresses, default routes of table main, or forwarding: observe the
                            host again */
    MONITOR_OURS = 2, /* one of our links, addresses, routes or rules: audit rtnl */
    MONITOR_NFT = 4,  /* somebody else changed our table: audit it */
    MONITOR_GEN = 16, /* somebody else changed the ruleset: nft_accept_generation() unless NFT */
    MONITOR_POLICY = 32, /* somebody else's policy rule, and when tables are heard a route in one
                            that is not the kernel's */
    MONITOR_IPVS = 64,   /* the device of services' addresses went */
    MONITOR_RP_FILTER = 128, /* of an interface: it may be one that we set */
    MONITOR_LOST = 8,        /* the kernel dropped messages (ENOBUFS): audit everything */
};

/* `own_portid`: the port our nftables batches are sent from. `tables`: hear routes in all tables but
 * main and local; BIRD's are not heard. */
int monitor_open(uint32_t own_portid, bool tables, struct monitor **ret, struct err *err);
void monitor_close(struct monitor *m);
/* nftables is heard at first. While somebody listens, the kernel puts every element of a commit into
 * a message, for whoever filters it away, too: a big commit takes several times as long. What
 * others change while it is not heard, nft_foreign_change() tells. */
int monitor_hear_nft(struct monitor *m, bool on, struct err *err);
/* Addresses of this interface that come and go are not told of. */
int monitor_ignore_addresses(struct monitor *m, uint32_t ifindex, struct err *err);
/* Two fds to poll for reading. */
int monitor_fd_route(const struct monitor *m);
int monitor_fd_nft(const struct monitor *m);
/* Drains both; a set of enum monitor_event. */
unsigned monitor_read(struct monitor *m);
