/* What the nftables back end alone takes: all mappings from cold, adopting them, and one
 * endpoint that moves. In a network namespace of its own, as root:
 *
 *   bench_nft [MAPPINGS [ROUNDS]]        10000 and 2000 */
#include <linux/netlink.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/vec.h"
#include "kernel/nft.h"
#include "plan/plan.h"

static struct nft_group *mapping(unsigned i, uint8_t generation)
{
    char owner[64];
    snprintf(owner, sizeof(owner), "portmap/bench/m%06u", i);
    struct nft_group_builder *b = nft_group_begin(owner);
    struct ip pod = ip_v4(10, generation, (uint8_t)(i >> 8), (uint8_t)i);
    for (uint8_t nic = 1; nic <= 2; nic++) {
        struct ip dialled = ip_v4(203, 0, 113, nic);
        uint16_t port = (uint16_t)(1024 + i % 60000);
        enum l4proto proto = i & 1 ? L4_TCP : L4_UDP;
        nft_put_flow(b, NFT_OPEN4, &dialled, proto, port, port);
        nft_put_target(b, NFT_TARGET4, &dialled, proto, port, port, &pod, 8080);
    }
    return nft_group_end(b);
}

static int by_number(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

static int64_t sync_us(struct nft *n, struct nft_group **groups, size_t n_groups)
{
    struct report report = { 0 };
    struct err err;
    int64_t start = clock_mono_us();
    if (nft_sync(n, groups, n_groups, false, &report, &err) || report.refusals.n) {
        fprintf(stderr, "bench_nft: %s\n",
                report.refusals.n ? report.refusals.v[0].text : err.text);
        exit(1);
    }
    int64_t took = clock_mono_us() - start;
    report_done(&report);
    return took;
}

int main(int argc, char **argv)
{
    size_t mappings = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
    size_t rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 2000;
    struct nl_port *port;
    struct err err;
    if (!mappings || !rounds || unshare(CLONE_NEWNET) ||
        nl_open(NETLINK_NETFILTER, NULL, &port, &err)) {
        fprintf(stderr, "bench_nft: needs root, a number of mappings and of rounds\n");
        return 1;
    }
    struct nft_group **groups = xcalloc(mappings, sizeof(struct nft_group *));
    for (size_t i = 0; i < mappings; i++)
        groups[i] = mapping((unsigned)i, 1);
    struct nft *n = nft_new(port, plan_ruleset(&plan_options_default));
    printf("cold, %zu mappings, %zu elements: %lld us\n", mappings, 4 * mappings,
           (long long)sync_us(n, groups, mappings));
    struct nft *successor = nft_new(port, plan_ruleset(&plan_options_default));
    printf("adopted by a successor: %lld us\n", (long long)sync_us(successor, groups, mappings));
    nft_free(successor);

    int64_t *took = xcalloc(rounds, sizeof(*took));
    for (size_t i = 0; i < rounds; i++) {
        size_t at = i * 7919 % mappings;
        struct nft_group *old = groups[at];
        groups[at] = mapping((unsigned)at, (uint8_t)(2 + i % 200));
        took[i] = sync_us(n, groups, mappings);
        nft_group_unref(old);
    }
    qsort(took, rounds, sizeof(*took), by_number);
    printf("an endpoint moved: p50 %lld us, p99 %lld us\n", (long long)took[rounds / 2],
           (long long)took[rounds * 99 / 100]);
    for (size_t i = 0; i < mappings; i++)
        nft_group_unref(groups[i]);
    free(groups);
    free(took);
    nft_free(n);
    nl_close(port);
    return 0;
}
