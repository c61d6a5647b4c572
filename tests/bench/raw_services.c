/* What the kernel alone costs for S services of E endpoints: the elements of the service proxy,
 * put together by hand, in a table that is there already (and empty: as `nft -t list table` tells
 * of the agent's own).
 *
 *   bench-raw-services TABLE CHAIN S E CHANGES
 *       `inet TABLE` has the maps `service4`, `endpoint4`, `classes` and the set `clusterip4`
 *       (docs/datapath.md), and every service is of one class, with CHAIN. Prints "load US BYTES", then for each
 *       of CHANGES rounds "replace US", "add US", "delete US" and "scale US": one endpoint
 *       replaced, one service added and deleted again, one endpoint more for a service.
 *
 * Addresses are those of tests/bench/services.py. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rawbatch.h"

#define FIRST_SERVICE 0x0a60000au /* 10.96.0.10 */
#define FIRST_POD     0x0a800000u /* 10.128.0.0 */
#define PER_SLOT      65536u      /* endpoint number k of all services */
#define MOVED_SLOT    127u
#define SERVICE_PORT  80
#define POD_PORT      8080

struct flow {
    uint32_t address;
    uint8_t proto, pad[3];
    uint16_t port, pad2;
};
struct indexed_flow {
    struct flow flow;
    uint32_t index;
};
struct target {
    uint32_t address;
    uint16_t port, pad;
};

static const char *table, *chain;
static const uint32_t class = 1;

static struct flow flow_of(uint32_t service)
{
    return (struct flow){ .address = htonl(FIRST_SERVICE + service),
                          .proto = IPPROTO_TCP,
                          .port = htons(SERVICE_PORT) };
}

static void put_verdict(struct nlmsghdr *m)
{
    struct nlattr *data = mnl_attr_nest_start(m, NFTA_SET_ELEM_DATA);
    struct nlattr *verdict = mnl_attr_nest_start(m, NFTA_DATA_VERDICT);
    mnl_attr_put_u32(m, NFTA_VERDICT_CODE, htonl((uint32_t)NFT_GOTO));
    mnl_attr_put_strz(m, NFTA_VERDICT_CHAIN, chain);
    mnl_attr_nest_end(m, verdict);
    mnl_attr_nest_end(m, data);
}

enum what { SERVICE, ENDPOINT, CLUSTERIP, CLASS };
static const char *const set_names[] = { "service4", "endpoint4", "clusterip4", "classes" };

/* Element i of the set; endpoint number i % n of service i / n, on the pods of `slot` if not 0. */
static void put_element(struct nlmsghdr *m, enum what what, bool data, uint32_t i, uint32_t n,
                        uint32_t slot)
{
    struct flow flow = flow_of(what == ENDPOINT ? i / n : i);
    struct indexed_flow indexed = { flow, i % n };
    uint32_t pod = FIRST_POD + (slot ? slot : i % n) * PER_SLOT + i / n;
    struct target to = { .address = htonl(pod), .port = htons(POD_PORT) };
    switch (what) {
    case SERVICE:
        raw_put_value(m, NFTA_SET_ELEM_KEY, &flow, sizeof(flow));
        if (data)
            raw_put_value(m, NFTA_SET_ELEM_DATA, &class, sizeof(class));
        return;
    case ENDPOINT:
        raw_put_value(m, NFTA_SET_ELEM_KEY, &indexed, sizeof(indexed));
        if (data)
            raw_put_value(m, NFTA_SET_ELEM_DATA, &to, sizeof(to));
        return;
    case CLUSTERIP:
        raw_put_value(m, NFTA_SET_ELEM_KEY, &flow.address, sizeof(flow.address));
        return;
    case CLASS:
        raw_put_value(m, NFTA_SET_ELEM_KEY, &class, sizeof(class));
        put_verdict(m);
        return;
    }
}

/* Elements first .. end-1. */
static void put(struct raw_batch *b, uint16_t type, enum what what, uint32_t first, uint32_t end,
                uint32_t n, uint32_t slot)
{
    bool add = type == NFT_MSG_NEWSETELEM;
    while (first < end) {
        struct nlmsghdr *m = raw_message(b, type, add ? NLM_F_CREATE : 0);
        mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_TABLE, table);
        mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_SET, set_names[what]);
        struct nlattr *list = mnl_attr_nest_start(m, NFTA_SET_ELEM_LIST_ELEMENTS);
        for (; first < end && m->nlmsg_len < RAW_MESSAGE_BYTES; first++) {
            struct nlattr *elem = mnl_attr_nest_start(m, NFTA_LIST_ELEM);
            put_element(m, what, add, first, n, slot);
            mnl_attr_nest_end(m, elem);
        }
        mnl_attr_nest_end(m, list);
        raw_finish(b, m);
    }
}

static void load(struct raw_batch *b, uint32_t services, uint32_t n)
{
    double start = raw_now_us();
    raw_begin(b);
    put(b, NFT_MSG_NEWSETELEM, CLASS, 0, 1, n, 0);
    put(b, NFT_MSG_NEWSETELEM, ENDPOINT, 0, services * n, n, 0);
    put(b, NFT_MSG_NEWSETELEM, SERVICE, 0, services, n, 0);
    put(b, NFT_MSG_NEWSETELEM, CLUSTERIP, 0, services, n, 0);
    raw_commit(b);
    printf("load %.1f %zu\n", raw_now_us() - start, (size_t)(b->end - b->start));
}

static void replace(struct raw_batch *b, uint32_t i, uint32_t n)
{
    put(b, NFT_MSG_DELSETELEM, ENDPOINT, i * n, i * n + 1, n, 0);
    put(b, NFT_MSG_NEWSETELEM, ENDPOINT, i * n, i * n + 1, n, MOVED_SLOT);
}

static void whole(struct raw_batch *b, uint16_t type, uint32_t i, uint32_t n)
{
    put(b, type, ENDPOINT, i * n, i * n + n, n, 0);
    put(b, type, SERVICE, i, i + 1, n, 0);
    put(b, type, CLUSTERIP, i, i + 1, n, 0);
}

/* The new index, and the service anew as if it were of another class. */
static void scale(struct raw_batch *b, uint32_t i, uint32_t n)
{
    put(b, NFT_MSG_DELSETELEM, SERVICE, i, i + 1, n, 0);
    put(b, NFT_MSG_NEWSETELEM, ENDPOINT, i * (n + 1) + n, i * (n + 1) + n + 1, n + 1, 0);
    put(b, NFT_MSG_NEWSETELEM, SERVICE, i, i + 1, n, 0);
}

static void timed(struct raw_batch *b, const char *name, double start)
{
    raw_commit(b);
    printf("%s %.1f\n", name, raw_now_us() - start);
}

static void change(struct raw_batch *b, uint32_t services, uint32_t i, uint32_t n)
{
    double start = raw_now_us();
    raw_begin(b);
    replace(b, i, n);
    timed(b, "replace", start);
    start = raw_now_us();
    raw_begin(b);
    whole(b, NFT_MSG_NEWSETELEM, services, n);
    timed(b, "add", start);
    start = raw_now_us();
    raw_begin(b);
    whole(b, NFT_MSG_DELSETELEM, services, n);
    timed(b, "delete", start);
    start = raw_now_us();
    raw_begin(b);
    scale(b, i, n);
    timed(b, "scale", start);
}

int main(int argc, char **argv)
{
    uint32_t services = argc == 6 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    uint32_t n = argc == 6 ? (uint32_t)strtoul(argv[4], NULL, 10) : 0;
    uint32_t changes = argc == 6 ? (uint32_t)strtoul(argv[5], NULL, 10) : 0;
    if (!services || !n || n >= MOVED_SLOT || changes > services) {
        fputs(
            "usage: bench-raw-services TABLE CHAIN S E CHANGES (E below 127, CHANGES at most S)\n",
            stderr);
        return 2;
    }
    table = argv[1];
    chain = argv[2];
    struct raw_batch b;
    raw_open(&b, 65536 + (size_t)services * (n + 3) * 160);
    load(&b, services, n);
    for (uint32_t i = 0; i < changes; i++)
        change(&b, services, (uint32_t)((uint64_t)i * 7919u % services), n);
    raw_close(&b);
    return 0;
}
