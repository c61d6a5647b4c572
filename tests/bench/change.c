/* Watches, from outside the agent, when a change has reached the kernel.
 *
 *   bench-change wait SET COUNT SECONDS
 *       until `inet portolan SET` holds COUNT elements; prints the monotonic time in us.
 *   bench-change rename SET GAP_MS < lines "FROM TO"
 *       renames FROM to TO, or removes FROM when TO is "-", and waits for the commit that brought an
 *       element into SET or took one out; prints us for each. GAP_MS lies between two changes: the
 *       agent has written its statuses then.
 *
 * Waiting asks for the element count instead of subscribing, because a subscription slows
 * the kernel's big commits down; with single elements that does not show. */
#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TABLE      "portolan"
#define SET_COUNT  20 /* NFTA_SET_COUNT, Linux 6.14 */
#define MS         1000
#define DEADLINE   (5000 * MS)
#define POLL_EVERY 200 /* us */

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void pause_us(int64_t us)
{
    struct timespec t = { us / 1000000, us % 1000000 * 1000 };
    nanosleep(&t, NULL);
}

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "bench-change: %s: %s\n", what, strerror(errno));
    exit(1);
}

static struct mnl_socket *open_socket(unsigned groups)
{
    struct mnl_socket *s = mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC);
    if (!s || mnl_socket_bind(s, groups, MNL_SOCKET_AUTOPID))
        fail("netlink socket");
    return s;
}

/* The attribute, or NULL. */
static const struct nlattr *attr_find(const struct nlmsghdr *m, uint16_t type)
{
    const char *end = mnl_nlmsg_get_payload_tail(m);
    const struct nlattr *attr = mnl_nlmsg_get_payload_offset(m, sizeof(struct nfgenmsg));
    for (; mnl_attr_ok(attr, (int)(end - (const char *)attr)); attr = mnl_attr_next(attr))
        if (mnl_attr_get_type(attr) == type)
            return attr;
    return NULL;
}

static bool attr_is(const struct nlmsghdr *m, uint16_t type, const char *want)
{
    const struct nlattr *attr = attr_find(m, type);
    return attr && !strcmp(mnl_attr_get_str(attr), want);
}

/* Elements in the set; 0 while there is no such set. */
static uint32_t count_elements(struct mnl_socket *s, const char *set)
{
    char buf[8192];
    struct nlmsghdr *m = mnl_nlmsg_put_header(buf);
    m->nlmsg_type = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETSET;
    m->nlmsg_flags = NLM_F_REQUEST;
    struct nfgenmsg *g = mnl_nlmsg_put_extra_header(m, sizeof(*g));
    g->nfgen_family = NFPROTO_INET;
    mnl_attr_put_strz(m, NFTA_SET_TABLE, TABLE);
    mnl_attr_put_strz(m, NFTA_SET_NAME, set);
    if (mnl_socket_sendto(s, m, m->nlmsg_len) < 0)
        fail("GETSET");
    ssize_t n = mnl_socket_recvfrom(s, buf, sizeof(buf));
    if (n < 0)
        fail("GETSET");
    m = (struct nlmsghdr *)buf;
    if (m->nlmsg_type == NLMSG_ERROR)
        return 0;
    const struct nlattr *count = attr_find(m, SET_COUNT);
    if (!count) {
        errno = ENOTSUP;
        fail("the kernel does not tell how many elements a set holds");
    }
    return ntohl(mnl_attr_get_u32(count));
}

static int wait_elements(const char *set, uint32_t want, int64_t seconds)
{
    struct mnl_socket *s = open_socket(0);
    int64_t deadline = now_us() + seconds * 1000000;
    uint32_t have;
    while ((have = count_elements(s, set)) < want) {
        if (now_us() > deadline) {
            fprintf(stderr, "bench-change: %s holds %u elements, not %u, after %lld s\n", set, have,
                    want, (long long)seconds);
            return 1;
        }
        pause_us(POLL_EVERY);
    }
    printf("%lld\n", (long long)now_us());
    mnl_socket_close(s);
    return 0;
}

/* One datagram: notes elements that came into the set or left it; true when it ends their commit. */
static bool read_commit(struct mnl_socket *s, const char *set, bool *in_set)
{
    char buf[65536];
    ssize_t n = mnl_socket_recvfrom(s, buf, sizeof(buf));
    if (n < 0)
        fail("netlink receive");
    int left = (int)n;
    for (struct nlmsghdr *m = (struct nlmsghdr *)buf; mnl_nlmsg_ok(m, left);
         m = mnl_nlmsg_next(m, &left)) {
        if (m->nlmsg_type == (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWSETELEM) ||
            m->nlmsg_type == (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELSETELEM))
            *in_set |= attr_is(m, NFTA_SET_ELEM_LIST_TABLE, TABLE) &&
                       attr_is(m, NFTA_SET_ELEM_LIST_SET, set);
        else if (m->nlmsg_type == (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWGEN) && *in_set)
            return true;
    }
    return false;
}

static bool readable(struct mnl_socket *s, int64_t us)
{
    struct pollfd fd = { .fd = mnl_socket_get_fd(s), .events = POLLIN };
    return poll(&fd, 1, us > 0 ? (int)((us + MS - 1) / MS) : 0) > 0;
}

static int rename_all(const char *set, int64_t gap_us)
{
    struct mnl_socket *s = open_socket(1 << (NFNLGRP_NFTABLES - 1));
    char from[4096], to[4096];
    bool ignored;
    while (scanf("%4095s %4095s", from, to) == 2) {
        pause_us(gap_us);
        while (readable(s, 0))
            read_commit(s, set, &ignored);
        bool in_set = false, done = false;
        int64_t start = now_us(), deadline = start + DEADLINE;
        if (strcmp(to, "-") ? rename(from, to) : unlink(from))
            fail(from);
        while (!done && readable(s, deadline - now_us()))
            done = read_commit(s, set, &in_set);
        if (!done) {
            fprintf(stderr, "bench-change: %s: no element of %s changed within %d ms\n", from, set,
                    DEADLINE / MS);
            return 1;
        }
        printf("%lld\n", (long long)(now_us() - start));
    }
    mnl_socket_close(s);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "wait"))
        return wait_elements(argv[2], (uint32_t)strtoul(argv[3], NULL, 10), atoll(argv[4]));
    if (argc == 4 && !strcmp(argv[1], "rename"))
        return rename_all(argv[2], atoll(argv[3]) * MS);
    fputs("usage: bench-change wait SET COUNT SECONDS | rename SET GAP_MS\n", stderr);
    return 2;
}
