/* Whatever the history, the kernel holds what is wanted: random groups follow each other, keys
 * change their data and their owner, ranges are cut anew over the old ones, others interfere. */
#include "unit/test.h"

#include <stdlib.h>

#include "base/buf.h"
#include "gen.h"
#include "unit/netns.h"
#include "unit/nft_world.h"

#define OWNERS 6
#define PORTS  24
#define STEPS  400

/* Each key has one owner at most, as the planner sees to. */
static void put_ports(struct rng *r, struct nft_group_builder **b)
{
    for (unsigned i = 0; i < PORTS; i++) {
        if (rng_one_in(r, 4))
            continue;
        struct nft_group_builder *owner = b[rng_below(r, OWNERS)];
        struct ip dialled = ip_of(i % 3 ? "203.0.113.9" : "2001:db8:113::9");
        struct ip pod = ip_of(i % 3 ? "10.244.0.1" : "fd00:1::1");
        pod.bytes[3] = (uint8_t)(1 + rng_below(r, 3));
        enum l4proto proto = i & 1 ? L4_TCP : L4_UDP;
        uint16_t number = (uint16_t)(80 + i);
        if (rng_one_in(r, 4)) {
            nft_put_flow(owner, NFT_REFUSE4, &dialled, proto, number, number);
        } else {
            nft_put_flow(owner, NFT_OPEN4, &dialled, proto, number, number);
            nft_put_target(owner, NFT_TARGET4, &dialled, proto, number, number, &pod,
                           (uint16_t)(8080 + rng_below(r, 2)));
        }
    }
}

static void put_ranges(struct rng *r, struct nft_group_builder **b)
{
    struct ip dialled = ip_of("203.0.113.9"), pod = ip_of("10.244.0.1");
    for (uint32_t from = 1000; from < 2000;) {
        uint32_t to = from + rng_below(r, 300);
        struct nft_group_builder *owner = b[rng_below(r, OWNERS)];
        pod.bytes[3] = (uint8_t)(1 + rng_below(r, 2));
        if (!rng_one_in(r, 3))
            nft_put_target(owner, NFT_TARGETRANGE4, &dialled, L4_UDP, (uint16_t)from, (uint16_t)to,
                           &pod, 0);
        if (!rng_one_in(r, 3))
            nft_put_flow(owner, NFT_OPENRANGE4, &dialled, L4_UDP, (uint16_t)from, (uint16_t)to);
        from = to + 1;
    }
}

/* Services of all classes, and pod ranges that touch each other. */
static void put_services(struct rng *r, struct nft_group_builder **b)
{
    for (unsigned i = 0; i < 8; i++) {
        struct nft_group_builder *owner = b[rng_below(r, OWNERS)];
        struct ip vip = ip_of(i & 1 ? "10.96.0.1" : "fd00:96::1"),
                  pod = ip_of(i & 1 ? "10.244.0.1" : "fd00:1::1");
        uint16_t number = (uint16_t)(80 + i);
        struct nft_class c = {
            .family = vip.family,
            .kind = (uint8_t)rng_below(r, NFT_CLASS_REMEMBER),
            .masquerade = (uint8_t)rng_below(r, 3),
            .ranged = rng_one_in(r, 3),
            .n = (uint16_t)rng_below(r, 4),
            .n_all = rng_one_in(r, 3) ? (uint16_t)(1 + rng_below(r, 2)) : 0,
            .timeout = rng_one_in(r, 3) ? 10 * (1 + rng_below(r, 2)) : 0,
        };
        if (rng_one_in(r, 4))
            continue;
        nft_put_service(owner, &vip, L4_UDP, number, &c);
        for (uint16_t j = 0; j < c.n; j++) {
            pod.bytes[3] = (uint8_t)rng_below(r, 3);
            nft_put_endpoint(owner, &vip, L4_UDP, number, j, &pod, 53);
        }
        if (c.timeout)
            nft_put_affinity_timeout(owner, number, c.timeout);
    }
    for (uint8_t i = 0; i < 8; i++) {
        struct ip_prefix p = { ip_v4(10, i, 0, 0), 16 };
        if (rng_one_in(r, 2))
            nft_put_prefix(b[0], NFT_PODRANGE4, &p);
    }
}

static void drop_groups(struct world *w)
{
    while (w->n)
        nft_group_unref(w->groups[--w->n]);
}

/* New groups for all owners but some; those that did not change keep their pointer. */
static void next_groups(struct rng *r, struct world *w)
{
    static const char *const owners[OWNERS] = { "node",        "portmap/a/b", "portmap/a/c",
                                                "portmap/b/a", "portmap/c/x", "portmap/z/z" };
    struct nft_group_builder *b[OWNERS];
    struct world next = { .nft = w->nft };
    for (int i = 0; i < OWNERS; i++)
        b[i] = nft_group_begin(owners[i]);
    put_ports(r, b);
    put_ranges(r, b);
    put_services(r, b);
    for (int i = 0; i < OWNERS; i++) {
        struct nft_group *g = nft_group_end(b[i]);
        if (!g->n && rng_one_in(r, 2)) {
            nft_group_unref(g);
            continue;
        }
        for (size_t j = 0; j < w->n; j++)
            if (nft_group_equal(w->groups[j], g)) {
                nft_group_unref(g);
                g = nft_group_ref(w->groups[j]);
                break;
            }
        next.groups[next.n++] = g;
    }
    drop_groups(w);
    *w = next;
}

static void interfere(struct rng *r)
{
    static const char *const edits[] = {
        "nft flush set inet portolan open4",
        "nft flush map inet portolan targetrange4",
        "nft add element inet portolan refuse4 '{ 203.0.113.9 . tcp . 81 }'",
        "nft add element inet portolan openrange4 '{ 203.0.113.1-203.0.113.8 . udp . 1-60000 }'",
        "nft flush chain inet portolan reply",
        "nft flush map inet portolan service4",
        "nft flush set inet portolan podrange4",
        "nft add chain inet portolan pick4-9-all3",
        "nft flush ruleset",
        "nft add table inet other",
    };
    run("%s", edits[rng_below(r, sizeof(edits) / sizeof(edits[0]))]);
}

static void the_kernel_holds_what_is_wanted_after_any_history(void **state)
{
    (void)state;
    const char *given = getenv("SEED");
    struct rng r = { given ? strtoull(given, NULL, 10) : 1 };
    struct world w;
    world_init(&w);
    for (int step = 0; step < STEPS; step++) {
        uint64_t seed = r.state;
        next_groups(&r, &w);
        if (rng_one_in(&r, 10))
            interfere(&r);
        apply(&w, rng_one_in(&r, 5));
        struct buf out = { 0 };
        struct nft *other = nft_new(port, plan_ruleset(&world_options));
        if (report.refusals.n || nft_diff(other, w.groups, w.n, &out, &err) || out.n)
            fail_msg("step %d, SEED=%llu: %s\n%s", step, (unsigned long long)seed,
                     report.refusals.n ? report.refusals.v[0].object : err.text, buf_str(&out));
        buf_done(&out);
        nft_free(other);
        apply(&w, false);
        assert_int_equal(report.bytes, 0);
    }
    drop_groups(&w);
    nft_free(w.nft);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_holds_what_is_wanted_after_any_history),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
