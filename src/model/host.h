/* What the planner is told of the machine it plans for. Made by kernel/host.c from
 * rtnetlink and /proc/sys, or read from a file (`plan --host FILE`, goldens). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/ip.h"

struct host_address {
    struct ip ip;
    uint8_t prefix_len;
    bool temporary;  /* IPv6 privacy address: answers, but is not published first */
    bool deprecated; /* likewise */
};

struct host_iface {
    const char *name;
    uint32_t mtu;
    bool up;                 /* IFF_UP */
    bool default4, default6; /* table main has a default route through this interface */
    /* Global scope only, neither tentative nor failed; IPv4 before IPv6, in kernel order. */
    struct host_address *addresses;
    uint32_t n_addresses;
    uint8_t accept_ra; /* net.ipv6.conf.IFACE.accept_ra */
    uint8_t mac[6];    /* zero: it has none */
    bool bridge;
    uint8_t rp_filter; /* net.ipv4.conf.IFACE.rp_filter, or that of all where it is larger */
};

/* What policy routing is there besides ours; read only where traffic classes are planned, and rules
 * where held addresses are. */
struct host_rule { /* of anybody else, without those that look up table local */
    uint8_t family;
    uint32_t priority;
    bool has_src, has_dst;
    struct ip_prefix src, dst;
    bool selective;   /* by mark, interface, port...: it may match nothing */
    const char *text; /* for people: "from all lookup main suppress_prefixlength 0" */
};
struct host_table { /* with routes that are neither ours nor BIRD's; without main, local, default */
    uint32_t table;
    uint8_t protocol; /* of one such route, as the kernel numbers it */
};

struct host {
    struct host_iface *ifaces; /* sorted by name; without our own links */
    uint32_t n_ifaces;
    bool forwarding4, forwarding6; /* net.ipv4.ip_forward, net.ipv6.conf.all.forwarding */
    int bridge_nf_call_iptables;   /* net.bridge.bridge-nf-call-iptables; -1: it is not there */
    bool ipv6;                     /* the kernel has IPv6 at all */
    struct host_rule *rules;       /* by family, priority */
    uint32_t n_rules;
    struct host_table *foreign_tables; /* by number */
    uint32_t n_foreign_tables;
    const char *forwarding4_error, *forwarding6_error; /* "" or why it could not be switched on */
};

const struct host_iface *host_iface_find(const struct host *h, const char *name);
/* The interface that holds the address, or NULL. */
const struct host_iface *host_address_owner(const struct host *h, const struct ip *ip);
bool host_equal(const struct host *a, const struct host *b);
