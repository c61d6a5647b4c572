#include "rawbatch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

double raw_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

_Noreturn void raw_fail(const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
    exit(1);
}

void raw_open(struct raw_batch *b, size_t bytes)
{
    int room = 256 << 20;
    *b = (struct raw_batch){ .start = malloc(bytes), .sock = mnl_socket_open(NETLINK_NETFILTER) };
    if (!b->start || !b->sock || mnl_socket_bind(b->sock, 0, MNL_SOCKET_AUTOPID) ||
        setsockopt(mnl_socket_get_fd(b->sock), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)))
        raw_fail("netlink socket");
}

void raw_close(struct raw_batch *b)
{
    free(b->start);
    mnl_socket_close(b->sock);
}

static struct nlmsghdr *message(struct raw_batch *b, uint16_t type, uint16_t flags, uint8_t family,
                                uint16_t res_id)
{
    struct nlmsghdr *m = mnl_nlmsg_put_header(b->end);
    m->nlmsg_type = type;
    m->nlmsg_flags = NLM_F_REQUEST | flags;
    m->nlmsg_seq = ++b->seq;
    struct nfgenmsg *g = mnl_nlmsg_put_extra_header(m, sizeof(*g));
    g->nfgen_family = family;
    g->res_id = htons(res_id);
    return m;
}

struct nlmsghdr *raw_message(struct raw_batch *b, uint16_t type, uint16_t flags)
{
    return message(b, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags, NFPROTO_INET, 0);
}

void raw_finish(struct raw_batch *b, const struct nlmsghdr *m)
{
    b->end += (m->nlmsg_len + 3) & ~3u;
}

void raw_begin(struct raw_batch *b)
{
    b->end = b->start;
    raw_finish(b, message(b, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES));
}

/* The commit is done, or refused, when sendto returns: the answer lies there already. */
void raw_commit(struct raw_batch *b)
{
    raw_finish(b, message(b, NFNL_MSG_BATCH_END, NLM_F_ACK, AF_UNSPEC, NFNL_SUBSYS_NFTABLES));
    if (mnl_socket_sendto(b->sock, b->start, (size_t)(b->end - b->start)) < 0)
        raw_fail("send");
    char buf[65536];
    ssize_t n = mnl_socket_recvfrom(b->sock, buf, sizeof(buf));
    if (n < 0 || mnl_cb_run(buf, (size_t)n, b->seq, mnl_socket_get_portid(b->sock), NULL, NULL) < 0)
        raw_fail("batch");
}

void raw_put_value(struct nlmsghdr *m, uint16_t type, const void *value, size_t n)
{
    struct nlattr *nest = mnl_attr_nest_start(m, type);
    mnl_attr_put(m, NFTA_DATA_VALUE, n, value);
    mnl_attr_nest_end(m, nest);
}
