/* What the kernel alone costs: the same elements as N mappings have, put together by hand.
 *
 *   bench-raw N CHANGES
 *       one batch with a table, the set `open4`, the map `target4` with counters, and N
 *       elements in each; then CHANGES batches that replace one element of the map. Prints
 *       the time of the first batch from first byte to acknowledgement, then of each change, in
 *       us. */
#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define TABLE         "bench"
#define FLOW_TYPE     (7 << 12 | 12 << 6 | 13) /* ipv4_addr . inet_proto . inet_service */
#define TARGET_TYPE   (7 << 6 | 13)
#define MESSAGE_BYTES 60000 /* a list of elements is an attribute: below 64 KiB */
#define DIALLED       0xcb007109u
#define FIRST_POD     0x0af40002u
#define MOVED_POD     0x0af50002u

struct flow {
    uint32_t address;
    uint8_t proto, pad[3];
    uint16_t port, pad2;
};
struct target {
    uint32_t address;
    uint16_t port, pad;
};

struct batch {
    char *start, *end;
    uint32_t seq;
};

static struct mnl_socket *sock;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "bench-raw: %s: %s\n", what, strerror(errno));
    exit(1);
}

static struct nlmsghdr *message(struct batch *b, uint16_t type, uint16_t flags, uint8_t family,
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

static struct nlmsghdr *nft(struct batch *b, uint16_t type, uint16_t flags)
{
    return message(b, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags, NFPROTO_INET, 0);
}

static void finish(struct batch *b, const struct nlmsghdr *m)
{
    b->end += (m->nlmsg_len + 3) & ~3u;
}

static void begin(struct batch *b)
{
    b->end = b->start;
    finish(b, message(b, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES));
}

/* The commit is done, or refused, when sendto returns: the answer lies there already. */
static void commit(struct batch *b)
{
    finish(b, message(b, NFNL_MSG_BATCH_END, NLM_F_ACK, AF_UNSPEC, NFNL_SUBSYS_NFTABLES));
    if (mnl_socket_sendto(sock, b->start, (size_t)(b->end - b->start)) < 0)
        fail("send");
    char buf[65536];
    ssize_t n = mnl_socket_recvfrom(sock, buf, sizeof(buf));
    if (n < 0 || mnl_cb_run(buf, (size_t)n, b->seq, mnl_socket_get_portid(sock), NULL, NULL) < 0)
        fail("batch");
}

static void put_set(struct batch *b, const char *name, uint32_t id, bool map, uint32_t size)
{
    struct nlmsghdr *m = nft(b, NFT_MSG_NEWSET, NLM_F_CREATE);
    mnl_attr_put_strz(m, NFTA_SET_TABLE, TABLE);
    mnl_attr_put_strz(m, NFTA_SET_NAME, name);
    mnl_attr_put_u32(m, NFTA_SET_ID, htonl(id));
    mnl_attr_put_u32(m, NFTA_SET_FLAGS, htonl(map ? NFT_SET_MAP : 0));
    mnl_attr_put_u32(m, NFTA_SET_KEY_TYPE, htonl(FLOW_TYPE));
    mnl_attr_put_u32(m, NFTA_SET_KEY_LEN, htonl(sizeof(struct flow)));
    struct nlattr *desc = mnl_attr_nest_start(m, NFTA_SET_DESC);
    mnl_attr_put_u32(m, NFTA_SET_DESC_SIZE, htonl(size));
    mnl_attr_nest_end(m, desc);
    if (map) {
        mnl_attr_put_u32(m, NFTA_SET_DATA_TYPE, htonl(TARGET_TYPE));
        mnl_attr_put_u32(m, NFTA_SET_DATA_LEN, htonl(sizeof(struct target)));
        struct nlattr *expr = mnl_attr_nest_start(m, NFTA_SET_EXPR);
        mnl_attr_put_strz(m, NFTA_EXPR_NAME, "counter");
        mnl_attr_nest_end(m, expr);
    }
    finish(b, m);
}

static void put_value(struct nlmsghdr *m, uint16_t type, const void *value, size_t n)
{
    struct nlattr *nest = mnl_attr_nest_start(m, type);
    mnl_attr_put(m, NFTA_DATA_VALUE, n, value);
    mnl_attr_nest_end(m, nest);
}

/* Elements first .. end-1; `pod` 0: keys alone. */
static void put_elements(struct batch *b, uint16_t type, const char *set, uint32_t first,
                         uint32_t end, uint32_t pod)
{
    while (first < end) {
        struct nlmsghdr *m = nft(b, type, type == NFT_MSG_NEWSETELEM ? NLM_F_CREATE : 0);
        mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_TABLE, TABLE);
        mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_SET, set);
        struct nlattr *list = mnl_attr_nest_start(m, NFTA_SET_ELEM_LIST_ELEMENTS);
        for (; first < end && m->nlmsg_len < MESSAGE_BYTES; first++) {
            struct flow key = { .address = htonl(DIALLED),
                                .proto = first % 2 ? IPPROTO_UDP : IPPROTO_TCP,
                                .port = htons((uint16_t)(10000 + first / 2)) };
            struct target to = { .address = htonl(pod + first / 2), .port = htons(3000) };
            struct nlattr *elem = mnl_attr_nest_start(m, NFTA_LIST_ELEM);
            put_value(m, NFTA_SET_ELEM_KEY, &key, sizeof(key));
            if (pod)
                put_value(m, NFTA_SET_ELEM_DATA, &to, sizeof(to));
            mnl_attr_nest_end(m, elem);
        }
        mnl_attr_nest_end(m, list);
        finish(b, m);
    }
}

static void load(struct batch *b, uint32_t n)
{
    double start = now_us();
    begin(b);
    struct nlmsghdr *m = nft(b, NFT_MSG_NEWTABLE, NLM_F_CREATE);
    mnl_attr_put_strz(m, NFTA_TABLE_NAME, TABLE);
    finish(b, m);
    put_set(b, "open4", 1, false, n);
    put_set(b, "target4", 2, true, n);
    put_elements(b, NFT_MSG_NEWSETELEM, "open4", 0, n, 0);
    put_elements(b, NFT_MSG_NEWSETELEM, "target4", 0, n, FIRST_POD);
    commit(b);
    printf("%.1f\n", now_us() - start);
}

static void change(struct batch *b, uint32_t i)
{
    double start = now_us();
    begin(b);
    put_elements(b, NFT_MSG_DELSETELEM, "target4", i, i + 1, 0);
    put_elements(b, NFT_MSG_NEWSETELEM, "target4", i, i + 1, MOVED_POD);
    commit(b);
    printf("%.1f\n", now_us() - start);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: bench-raw N CHANGES\n", stderr);
        return 2;
    }
    uint32_t n = (uint32_t)strtoul(argv[1], NULL, 10);
    struct batch b = { .start = malloc(65536 + (size_t)n * 256) };
    sock = mnl_socket_open(NETLINK_NETFILTER);
    int bytes = 64 << 20;
    if (!b.start || !sock || mnl_socket_bind(sock, 0, MNL_SOCKET_AUTOPID) ||
        setsockopt(mnl_socket_get_fd(sock), SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)))
        fail("netlink socket");
    load(&b, n);
    for (int i = 0; i < atoi(argv[2]); i++)
        change(&b, (uint32_t)i * 7919u % n);
    free(b.start);
    mnl_socket_close(sock);
    return 0;
}
