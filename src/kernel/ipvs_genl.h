/* IPVS over generic netlink (linux/ip_vs.h): virtual servers and their destinations, as messages
 * and back. Everything in it is per network namespace. Sending is the caller's. */
#pragma once

#include <stdbool.h>

#include "netlink/nl.h"
#include "netlink/nl_attr.h"

/* A virtual server; key: family, protocol, ip, port, or family and mark. */
struct ipvs_service {
    uint8_t family; /* enum ip_family */
    uint8_t protocol;
    uint16_t port;
    struct ip ip; /* IP_NONE: by mark */
    uint32_t mark;
    char scheduler[16];
    uint32_t persistence; /* seconds a client stays; 0: does not */
    bool odd;             /* has an engine or a mask that none of ours has */
};

struct ipvs_dest { /* key: ip, port */
    struct ip ip;
    uint16_t port;
    uint32_t weight;
    bool odd;             /* not by NAT, or with a threshold */
    uint32_t connections; /* active and inactive ones */
};

/* The family's message type, 0 on a kernel without IPVS; loads the module where that is possible.
 * 0 or -errno. */
int ipvs_genl_family(struct nl_port *generic, uint16_t *ret, struct err *err);

/* Begins a message of the family with one of IPVS_CMD_*. */
struct nlmsghdr *ipvs_genl_msg(struct nl_buf *b, struct nl_port *generic, uint16_t family,
                               uint8_t command, uint16_t flags);
/* `whole`: with what NEW and SET need; otherwise its key alone. */
void ipvs_genl_put_service(struct nlmsghdr *m, const struct ipvs_service *s, bool whole);
/* The same of a destination, NATed. The server's key stands before it. */
void ipvs_genl_put_dest(struct nlmsghdr *m, const struct ipvs_dest *d, bool whole);

/* 0 or -EBADMSG. */
int ipvs_genl_service(const struct nlmsghdr *m, struct ipvs_service *ret);
int ipvs_genl_dest(const struct nlmsghdr *m, struct ipvs_dest *ret);

/* Whether the kernel has the scheduler, whose module it loads where it can. Makes no server: what
 * is asked for is refused for another reason. 0, -ENOENT or -errno. */
int ipvs_genl_probe(struct nl_port *generic, uint16_t family, const char *scheduler,
                    struct err *err);
