/* Batches of nftables messages put together by hand, for the bounds: no more than the kernel
 * needs. Every function ends the program with a message when something fails. */
#pragma once

#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <stdint.h>

#define RAW_MESSAGE_BYTES 60000 /* a list of elements is an attribute: below 64 KiB */

struct raw_batch {
    char *start, *end;
    uint32_t seq;
    struct mnl_socket *sock;
};

double raw_now_us(void);
_Noreturn void raw_fail(const char *what);

/* Room for `bytes`, and a socket that takes them at once. */
void raw_open(struct raw_batch *b, size_t bytes);
void raw_close(struct raw_batch *b);

void raw_begin(struct raw_batch *b);
struct nlmsghdr *raw_message(struct raw_batch *b, uint16_t type, uint16_t flags);
void raw_finish(struct raw_batch *b, const struct nlmsghdr *m);
/* Returns when the kernel has acknowledged. */
void raw_commit(struct raw_batch *b);

void raw_put_value(struct nlmsghdr *m, uint16_t type, const void *value, size_t n);
