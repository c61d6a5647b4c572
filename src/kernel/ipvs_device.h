/* The device kube-ipvs0: a dummy that holds the addresses of services, so that packets to them are
 * this machine's own. All of its addresses but link-local ones belong to whoever made it; ours has
 * an alias that begins with LINK_ALIAS_PREFIX. */
#pragma once

#include <stdbool.h>

#include "base/vec.h"
#include "netlink/nl.h"
#include "netlink/nl_attr.h"

struct ipvs_device {
    uint32_t index; /* 0: there is none */
    char other[32]; /* the kind of a link that has the name, but neither the alias nor is a dummy */
    bool up, ours;
    VEC(struct ip) addresses; /* in no order */
};

/* Reads all of it. 0 or -errno. */
int ipvs_device_read(struct nl_port *route, struct ipvs_device *ret, struct err *err);
/* Makes what lacks: the device, its alias, up. The addresses are not touched. */
int ipvs_device_make(struct nl_port *route, struct ipvs_device *d, struct err *err);
int ipvs_device_delete(struct nl_port *route, const struct ipvs_device *d, struct err *err);
void ipvs_device_done(struct ipvs_device *d);

/* A message that adds (RTM_NEWADDR) an address, which may be there already, or deletes it. */
void ipvs_device_put_address(struct nl_buf *b, struct nl_port *route, uint16_t type, uint32_t index,
                             const struct ip *ip);
