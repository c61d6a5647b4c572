/* One kind of rtnetlink object (link.c, addr.c, neigh.c, route.c, rule.c), as rtnl.c sees it: how to
 * dump, compare, add, change and delete. What is known of the kernel is an array per kind,
 * sorted by key; its elements begin with the desired form of the object, so that the two
 * compare, and add what only the kernel tells. All strings in them are rtnl_word()s. */
#pragma once

#include "base/buf.h"
#include "base/map.h"
#include "kernel/kernel.h"
#include "model/names.h"
#include "netlink/nl_attr.h"

#include "netlink/nl.h"

enum rtnl_kind_id { RTNL_LINK, RTNL_ADDR, RTNL_NEIGH, RTNL_ROUTE, RTNL_RULE, RTNL_KINDS };

struct rtnl_link {
    struct desired_link d;
    int ifindex;
    bool up;
    bool odd;         /* learns, or lacks checksums: no change in place mends it */
    uint8_t gen_mode; /* of IPv6 addresses; IN6_ADDR_GEN_MODE_NONE when the link has no IPv6 */
};
struct rtnl_addr {
    struct desired_addr d;
    int ifindex;
    bool odd; /* ends by itself, or waits for duplicate detection */
};
struct rtnl_neigh {
    struct desired_neigh
        d; /* ip IP_NONE: an entry of the forwarding database without a neighbour */
    int ifindex;
    bool odd; /* its frames go where no address says */
};
struct rtnl_route {
    struct desired_route d;
    uint8_t kernel_type; /* RTN_*: more than the model knows */
    uint8_t tos;
    uint32_t metric;
    int ifindex; /* 0: none, or several */
};
struct rtnl_rule {
    struct desired_rule d;
    const struct nlmsghdr *odd; /* as dumped, when it selects by more than the model knows */
};

union rtnl_any {
    struct rtnl_link link;
    struct rtnl_addr addr;
    struct rtnl_neigh neigh;
    struct rtnl_route route;
    struct rtnl_rule rule;
};

/* Known objects of one kind. */
struct rtnl_known {
    void *v;
    size_t n, cap;
};

struct rtnl {
    struct nl_port *port;
    struct nl_buf msg;
    struct arena words_mem;
    struct map words;
    struct rtnl_known known[RTNL_KINDS];
    bool dumped; /* `known` is what the kernel acknowledged; false: dump before anything else */
    bool addrs_moved;      /* the kernel changed addresses of our links by itself: dump them */
    struct report *report; /* of the call in progress */
};

struct rtnl_kind {
    size_t have_size;
    size_t owner_at; /* offset of the owner, in both forms */
    int (*cmp)(const void *have, const void *want);
    bool (*equal)(const void *have, const void *want);
    /* Has nothing the desired form cannot say: of several with one key, such a one counts.
     * NULL: always. */
    bool (*plain)(const void *have);
    /* Changed in place, leaving alone what belongs to the object? Otherwise, or when NULL,
     * deleted and added. */
    bool (*in_place)(const void *have, const void *want);
    /* "route default via 169.254.77.3 dev pl4242 table 200" */
    void (*text)(const void *want, struct buf *out);
    /* The same, short, for refusals; NULL: the same. */
    void (*label)(const void *want, struct buf *out);
    /* What of the kernel's object the desired form cannot say, in parentheses, or nothing.
     * May be NULL. */
    void (*note)(const void *have, struct buf *out);

    int (*dump)(struct rtnl *r, struct rtnl_known *into, struct err *err);
    /* *ret_have is what is known after success. */
    int (*add)(struct rtnl *r, const void *want, void *ret_have, struct err *err);
    /* When in_place() said so. */
    int (*change)(struct rtnl *r, const void *have, const void *want, void *ret_have,
                  struct err *err);
    /* What is already gone counts as deleted. */
    int (*del)(struct rtnl *r, const void *have, struct err *err);
};
extern const struct rtnl_kind rtnl_link_kind, rtnl_addr_kind, rtnl_neigh_kind, rtnl_route_kind,
    rtnl_rule_kind;

/* The same text, or bytes, at an address that stays as long as `r`. */
const char *rtnl_word(struct rtnl *r, const char *s);
const void *rtnl_bytes(struct rtnl *r, const void *p, size_t len);
void rtnl_known_push(struct rtnl_known *k, const void *object, size_t size);
/* Starts the one message under construction. */
struct nlmsghdr *rtnl_msg(struct rtnl *r, uint16_t type, uint16_t flags, const void *header,
                          size_t len);
int rtnl_talk(struct rtnl *r, struct nlmsghdr *m, struct err *err);
/* True when -error says that the object to delete is not there. */
bool rtnl_gone(int error);
/* The kernel removes a link's addresses, neighbours and routes with it: so does what is known. IPv4 ones
 * stay when `only6`. */
void rtnl_forget_device(struct rtnl *r, const char *ifname, bool only6);
void rtnl_forget_neighs(struct rtnl *r, const char *ifname);
const struct rtnl_link *rtnl_link_by_name(const struct rtnl *r, const char *name);
const struct rtnl_link *rtnl_link_by_index(const struct rtnl_known *links, int ifindex);
