/* Links, addresses, neighbours, routes and rules through rtnetlink: one file each (link.c, addr.c,
 * neigh.c, route.c, rule.c), one dump of everything ours, one ordered apply (rtnl.c).
 *
 * Ours: links as model/names.h says; addresses on our links; permanent neighbours of OVERLAY_LINK
 * with its forwarding database; routes and rules with RTPROT_PORTOLAN. Order when adding: links,
 * addresses, neighbours, routes, rules; when removing the reverse, of rules the highest priority
 * first. A route may lead over a link of anybody's; the link is then found by name when the route is
 * added, and when it is down or gone the kernel has taken the route away. A VNI or port change
 * rebuilds the link; MTU, MAC, alias and both outer addresses change in place.
 * A rebuilt link gets its addresses and routes again in the same call.
 * To a link with IPv6 addresses belongs a link-local one, which desired states leave out.
 *
 * After a refusal the next rtnl_add() dumps, audit or not. */
#pragma once

#include "kernel/kernel.h"
#include "netlink/nl.h"

struct rtnl;
struct buf;

struct rtnl *rtnl_new(struct nl_port *port);
void rtnl_free(struct rtnl *r); /* accepts NULL; the port stays open */

/* Makes the kernel match; two halves, so that the agent can put the nft batch between
 * them: rtnl_add() before elements exist, rtnl_remove() after they are gone. `audit` dumps
 * first; without it only differences to what is known are sent. 0 or -errno when nothing
 * could be done at all. */
int rtnl_add(struct rtnl *r, const struct desired *d, bool audit, struct report *report,
             struct err *err);
void rtnl_remove(struct rtnl *r, const struct desired *d, struct report *report);

/* As text lines "+ link ..." / "- rule ...". Dumps. */
int rtnl_diff(struct rtnl *r, const struct desired *d, struct buf *out, struct err *err);
/* Removes everything ours; lists it into `out` first. */
int rtnl_cleanup(struct rtnl *r, bool dry_run, struct buf *out, struct err *err);
