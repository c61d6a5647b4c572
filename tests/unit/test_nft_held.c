/* The table with held addresses in a real kernel, against nft as the witness. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "netns.h"
#include "nft_world.h"

static const struct plan_options options = { .loadbalancer = true,
                                             .masquerade_bit = MASQUERADE_BIT };

static const uint8_t mac_a[6] = { 0x02, 0x6b, 0xa9, 0xfe, 0x60, 0x01 };
static const uint8_t mac_b[6] = { 0x02, 0x6b, 0xa9, 0xfe, 0x60, 0x02 };

static struct nft_group *holders(uint8_t a, uint8_t b)
{
    struct nft_group_builder *g = nft_group_begin("node");
    if (a)
        nft_put_holder(g, mac_a, a);
    if (b)
        nft_put_holder(g, mac_b, b);
    return nft_group_end(g);
}

static struct nft_group *held_service(void)
{
    struct nft_group_builder *g = nft_group_begin("service/a/b");
    struct ip dialled = ip_of("203.0.113.9"), pod = ip_of("10.244.2.7"),
              node = ip_of("203.0.113.20");
    struct nft_class pick = { .family = IP_V4, .kind = NFT_CLASS_PICK, .n = 1 };
    struct ip_prefix overlay = prefix_of("10.32.0.0/12");
    nft_put_service(g, &dialled, L4_TCP, 80, &pick);
    nft_put_endpoint(g, &dialled, L4_TCP, 80, 0, &pod, 8080);
    nft_put_flow(g, NFT_HELD4, &dialled, L4_TCP, 80, 80);
    nft_put_flow(g, NFT_HELDROUTE4, &dialled, L4_TCP, 80, 80);
    nft_put_pair(g, NFT_HAIRPIN4, &node, &pod);
    nft_put_near(g, &overlay, &pod);
    return nft_group_end(g);
}

struct state {
    struct nft *nft;
    struct nft_group *g[2];
};

static struct state begin(void)
{
    struct state s = { .g = { holders(200, 7), held_service() } };
    run("nft flush ruleset");
    renew_port();
    s.nft = nft_new(port, plan_ruleset(&options));
    return s;
}

static void end(struct state *s)
{
    nft_group_unref(s->g[0]);
    nft_group_unref(s->g[1]);
    nft_free(s->nft);
}

static size_t sync_once(struct state *s, bool audit)
{
    report_reset(&report);
    if (nft_sync(s->nft, s->g, 2, audit, &report, &err))
        fail_msg("%s", err.text);
    assert_int_equal(report.refusals.n, 0);
    return report.adds + report.changes + report.deletes;
}

static void have_holders(struct state *s, uint8_t a, uint8_t b)
{
    nft_group_unref(s->g[0]);
    s->g[0] = holders(a, b);
}

static void what_is_installed_lists_like_its_text(void **state)
{
    (void)state;
    struct state s = begin();
    assert_true(sync_once(&s, false) > 0);
    char *ours = xstrdup(listing());
    run("nft list ruleset | nft -c -f -");
    load_listing();
    assert_string_equal(listing(), ours);
    load_text(plan_ruleset(&options), s.g, 2);
    assert_string_equal(listing(), ours);
    assert_non_null(strstr(ours, "02:6b:a9:fe:60:02 : goto holder-7"));
    assert_non_null(strstr(ours, "0xc8000000 : goto reply-200"));
    /* What nft loaded is ours as well, but for the numbers of the classes. */
    end(&s);
    free(ours);
}

static void a_successor_finds_nothing_to_do(void **state)
{
    (void)state;
    struct state s = begin();
    sync_once(&s, false);
    assert_int_equal(sync_once(&s, true), 0);
    nft_free(s.nft);
    s.nft = nft_new(port, plan_ruleset(&options));
    assert_int_equal(sync_once(&s, false), 0);
    assert_int_equal(report.bytes, 0);
    end(&s);
}

static void chains_come_and_go_with_their_holder(void **state)
{
    (void)state;
    struct state s = begin();
    sync_once(&s, false);
    /* Marks moved: the maps follow, and nothing is left of the old ones. */
    have_holders(&s, 201, 7);
    sync_once(&s, false);
    assert_true(kernel_has("02:6b:a9:fe:60:01 : goto holder-201"));
    assert_true(kernel_has("ct mark set ct mark & 0xc9ffffff | 0xc9000000"));
    assert_true(kernel_has("meta mark set meta mark & 0xc9ffffff | 0xc9000000"));
    assert_false(kernel_has("-200"));
    /* Two change places. */
    have_holders(&s, 7, 201);
    sync_once(&s, false);
    assert_true(kernel_has("02:6b:a9:fe:60:02 : goto holder-201"));
    assert_true(kernel_has("02:6b:a9:fe:60:01 : goto holder-7"));
    have_holders(&s, 0, 0);
    sync_once(&s, false);
    assert_false(kernel_has("holder-"));
    assert_false(kernel_has("reply-"));
    assert_int_equal(sync_once(&s, true), 0);
    end(&s);
}

static void what_others_edit_is_put_back(void **state)
{
    (void)state;
#define T "inet portolan "
    static const char *const edits[] = {
        "nft delete element " T "holders '{ 02:6b:a9:fe:60:01 }'",
        "nft add element " T "holders '{ 02:00:00:00:00:09 : goto holder-7 }'",
        "nft 'delete element " T "holders { 02:6b:a9:fe:60:01 }; "
        "add element " T "holders { 02:6b:a9:fe:60:01 : goto holder-7 }'",
        "nft add element " T "holdermarks '{ 0x11000000 : accept }'",
        "nft delete element " T "holderclaims '{ 0xc8000000 }'",
        "nft add element " T "heldnear4 '{ 192.0.2.0/24 . 10.244.2.7 }'",
        "nft flush chain " T "holder-7",
        "nft add rule " T "reply-200 meta mark set 7",
        "nft flush set " T "heldroute4",
        "nft insert rule " T "hold counter accept",
        "nft add rule " T "heldsource counter masquerade",
        "nft flush chain " T "answer",
    };
    struct state s = begin();
    sync_once(&s, false);
    char *want = xstrdup(listing());
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        run("%s", edits[i]);
        if (!strcmp(listing(), want))
            fail_msg("changes nothing: %s", edits[i]);
        sync_once(&s, true);
        const char *mended = listing();
        if (strcmp(mended, want))
            fail_msg("after %s:\n%s", edits[i], mended);
    }
    free(want);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_installed_lists_like_its_text),
        cmocka_unit_test(a_successor_finds_nothing_to_do),
        cmocka_unit_test(chains_come_and_go_with_their_holder),
        cmocka_unit_test(what_others_edit_is_put_back),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
