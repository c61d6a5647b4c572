/* Notices that somebody else touched what we depend on. Subscribes to rtnetlink (links,
 * addresses, routes, rules) and to nftables generations (NEWGEN only, by socket filter:
 * a full subscription slows big commits up to tenfold). */
#pragma once

#include "base/err.h"
#include <stdbool.h>

struct monitor;

enum monitor_event {
    MONITOR_HOST = 1, /* links, addresses or main default routes: observe the host again */
    MONITOR_OURS = 2, /* one of our links, addresses, routes or rules: audit rtnl */
    MONITOR_NFT = 4,  /* the ruleset generation moved: ask nft_foreign_change() */
    MONITOR_LOST = 8, /* the kernel dropped messages (ENOBUFS): audit everything */
};

int monitor_open(struct monitor **ret, struct err *err);
void monitor_close(struct monitor *m);
/* Two fds to poll for reading. */
int monitor_fd_route(const struct monitor *m);
int monitor_fd_nft(const struct monitor *m);
/* Drains both; a set of enum monitor_event. */
unsigned monitor_read(struct monitor *m);
