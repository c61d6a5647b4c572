/* Netlink transport behind a seam. kernel/ speaks only through struct nl_port, so that a
 * test can refuse an element, return EINTR, ENOBUFS or EBUSY, or cut a reply short, without
 * a kernel (tests/unit/fake_port.h).
 *
 * A port is one socket of one netlink family. Requests are built with libmnl into any
 * buffer; nl_talk(), nl_dump() and nl_batch() send them and collect the answers. Extended
 * ACK is on (NETLINK_EXT_ACK, NETLINK_CAP_ACK), strict checking of dump requests too
 * (NETLINK_GET_STRICT_CHK, routes only). Sequence numbers are the port's: talk and dump
 * write the next one into the message, a batch takes them with nl_seq().
 *
 * Decoding: netlink/nl_attr.h. */
#pragma once

#include <libmnl/libmnl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct nl_port;

struct nl_port_ops {
    /* Sends the bytes as one datagram. 0 or -errno. */
    int (*send)(struct nl_port *p, const void *buf, size_t len);
    /* One datagram into buf; its length, or -errno (-EAGAIN when none came in time,
     * -ENOBUFS when the kernel dropped messages, -EMSGSIZE when it was truncated).
     * `timeout_ms` < 0 waits for ever, 0 not at all. */
    ssize_t (*recv)(struct nl_port *p, void *buf, size_t len, int timeout_ms);
    void (*close)(struct nl_port *p);
};

struct nl_port {
    const struct nl_port_ops *ops;
    int fd; /* to poll; -1 in tests */
    uint32_t portid;
    uint32_t seq;
    int64_t batch_us; /* the kernel's time for all batches so far */
};

/* `bus` is NETLINK_ROUTE, NETLINK_NETFILTER or NETLINK_GENERIC; `groups` are multicast group numbers to join,
 * ended by 0, or NULL. A port with groups is for listening: talk over another one. */
int nl_open(int bus, const uint32_t *groups, struct nl_port **ret, struct err *err);
void nl_close(struct nl_port *p); /* accepts NULL */

/* The next sequence number. */
uint32_t nl_seq(struct nl_port *p);

/* One error answer. */
struct nl_error {
    uint32_t seq;
    int error;      /* errno or what the subsystem adds to it, positive */
    char text[160]; /* extended ACK message, "" when none */
};

/* Sends one message with NLM_F_ACK and waits for the answer. 0, or -errno with the sentence
 * from strerror and the extended ACK. EINTR, EAGAIN and ENOBUFS are retried a few times. */
int nl_talk(struct nl_port *p, struct nlmsghdr *msg, struct err *err);

/* The same for a request that has a reply before the acknowledgement. */
int nl_get(struct nl_port *p, struct nlmsghdr *msg, int (*cb)(const struct nlmsghdr *m, void *user),
           void *user, struct err *err);

/* Sends a dump request and calls cb for each message. An interrupted dump (NLM_F_DUMP_INTR)
 * or ENOBUFS restarts it: `restart` (may be NULL) is called first so that the caller drops
 * what it has. A negative return of cb ends the dump with that error. */
int nl_dump(struct nl_port *p, struct nlmsghdr *msg,
            int (*cb)(const struct nlmsghdr *m, void *user), void (*restart)(void *user),
            void *user, struct err *err);

/* Sends a batch (one datagram) and collects every error answer, storing up to `max`. The
 * message with `last_seq` carries NLM_F_ACK: its answer is what proves the batch arrived.
 * Returns 0 when the batch was acknowledged whole, the first -errno otherwise; *ret_n says
 * how many answers were errors, and is written always. -ENOBUFS with *ret_n 0: answers were
 * lost, so ask the kernel what it holds now. */
int nl_batch(struct nl_port *p, const void *buf, size_t len, uint32_t last_seq,
             struct nl_error *errors, size_t max, size_t *ret_n, struct err *err);

/* The message after `before` (NULL: the first) of the n bytes at p; NULL at the end, or where
 * what follows is not a whole message. libmnl's own walk trusts lengths of 2 GiB and more. */
struct nlmsghdr *nl_walk(const void *p, size_t n, const struct nlmsghdr *before);

/* A growing buffer of netlink messages. After the header there is room for NL_MSG_ROOM bytes,
 * so that libmnl's and libnftnl's puts cannot fail; a message that may become longer must
 * be divided. Offsets, not pointers, survive growth: always use the header returned last.
 * A zeroed struct is an empty buffer. */
#define NL_MSG_ROOM (128u * 1024)
struct nl_buf {
    uint8_t *p;
    size_t n, cap; /* n: bytes of the finished messages */
    size_t last;   /* where the message under construction starts */
    bool open;
};
/* Finishes the message before and begins one; `extra` is the family's own header. */
struct nlmsghdr *nl_msg(struct nl_buf *b, uint16_t type, uint16_t flags, uint32_t seq,
                        const void *extra, size_t extra_len);
/* Finishes the last message; the bytes of all of them. */
size_t nl_end(struct nl_buf *b);
void nl_buf_clear(struct nl_buf *b);
void nl_buf_done(struct nl_buf *b);
