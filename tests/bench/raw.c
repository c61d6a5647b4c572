/* What the kernel alone costs: the same elements as N mappings have, put together by hand.
 *
 *   bench-raw N CHANGES
 *       one batch with a table, the set `open4`, the map `target4` with counters, and N
 *       elements in each; then CHANGES batches that replace one element of the map. Prints
 *       the time of the first batch from first byte to acknowledgement, then of each change, in
 *       us. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "rawbatch.h"

#define TABLE       "bench"
#define FLOW_TYPE   (7 << 12 | 12 << 6 | 13) /* ipv4_addr . inet_proto . inet_service */
#define TARGET_TYPE (7 << 6 | 13)
#define DIALLED     0xcb007109u
#define FIRST_POD   0x0af40002u
#define MOVED_POD   0x0af50002u

struct flow {
    uint32_t address;
    uint8_t proto, pad[3];
    uint16_t port, pad2;
};
struct target {
    uint32_t address;
    uint16_t port, pad;
};

static void put_set(struct raw_batch *b, const char *name, uint32_t id, bool map, uint32_t size)
{
    struct nlmsghdr *m = raw_message(b, NFT_MSG_NEWSET, NLM_F_CREATE);
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
    raw_finish(b, m);
}

/* Elements first .. end-1; `pod` 0: keys alone. */
static void put_elements(struct raw_batch *b, uint16_t type, const char *set, uint32_t first,
                         uint32_t end, uint32_t pod)
{
    while (first < end) {
        struct nlmsghdr *m = raw_message(b, type, type == NFT_MSG_NEWSETELEM ? NLM_F_CREATE : 0);
        mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_TABLE, TABLE);
        mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_SET, set);
        struct nlattr *list = mnl_attr_nest_start(m, NFTA_SET_ELEM_LIST_ELEMENTS);
        for (; first < end && m->nlmsg_len < RAW_MESSAGE_BYTES; first++) {
            struct flow key = { .address = htonl(DIALLED),
                                .proto = first % 2 ? IPPROTO_UDP : IPPROTO_TCP,
                                .port = htons((uint16_t)(10000 + first / 2)) };
            struct target to = { .address = htonl(pod + first / 2), .port = htons(3000) };
            struct nlattr *elem = mnl_attr_nest_start(m, NFTA_LIST_ELEM);
            raw_put_value(m, NFTA_SET_ELEM_KEY, &key, sizeof(key));
            if (pod)
                raw_put_value(m, NFTA_SET_ELEM_DATA, &to, sizeof(to));
            mnl_attr_nest_end(m, elem);
        }
        mnl_attr_nest_end(m, list);
        raw_finish(b, m);
    }
}

static void load(struct raw_batch *b, uint32_t n)
{
    double start = raw_now_us();
    raw_begin(b);
    struct nlmsghdr *m = raw_message(b, NFT_MSG_NEWTABLE, NLM_F_CREATE);
    mnl_attr_put_strz(m, NFTA_TABLE_NAME, TABLE);
    raw_finish(b, m);
    put_set(b, "open4", 1, false, n);
    put_set(b, "target4", 2, true, n);
    put_elements(b, NFT_MSG_NEWSETELEM, "open4", 0, n, 0);
    put_elements(b, NFT_MSG_NEWSETELEM, "target4", 0, n, FIRST_POD);
    raw_commit(b);
    printf("%.1f\n", raw_now_us() - start);
}

static void change(struct raw_batch *b, uint32_t i)
{
    double start = raw_now_us();
    raw_begin(b);
    put_elements(b, NFT_MSG_DELSETELEM, "target4", i, i + 1, 0);
    put_elements(b, NFT_MSG_NEWSETELEM, "target4", i, i + 1, MOVED_POD);
    raw_commit(b);
    printf("%.1f\n", raw_now_us() - start);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: bench-raw N CHANGES\n", stderr);
        return 2;
    }
    uint32_t n = (uint32_t)strtoul(argv[1], NULL, 10);
    struct raw_batch b;
    raw_open(&b, 65536 + (size_t)n * 256);
    load(&b, n);
    for (int i = 0; i < atoi(argv[2]); i++)
        change(&b, (uint32_t)i * 7919u % n);
    raw_close(&b);
    return 0;
}
