/* Services in a real kernel: each leads by a number to the chain of its class, and chains come and
 * go with the services that need them. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "netns.h"
#include "nft_world.h"

static const struct plan_options options = { .serviceproxy = true, .masquerade_bit = 14 };

/* At 10.96.0.1, with n endpoints; 0: it rejects. */
static struct nft_group *service(const char *owner, uint16_t tcp_port, uint16_t n)
{
    struct nft_group_builder *b = nft_group_begin(owner);
    struct ip vip = ip_of("10.96.0.1"), pod = ip_of("10.244.1.7");
    struct nft_class c = { .family = IP_V4, .kind = n ? NFT_CLASS_PICK : NFT_CLASS_REJECT, .n = n };
    nft_put_service(b, &vip, L4_TCP, tcp_port, &c);
    for (uint16_t i = 0; i < n; i++)
        nft_put_endpoint(b, &vip, L4_TCP, tcp_port, i, &pod, (uint16_t)(8080 + i));
    return nft_group_end(b);
}

static struct nft *back_end(void)
{
    run("nft flush ruleset");
    renew_port();
    return nft_new(port, plan_ruleset(&options));
}

static void sync_with(struct nft *n, struct nft_group *const *groups, size_t n_groups, bool audit)
{
    report_reset(&report);
    if (nft_sync(n, groups, n_groups, audit, &report, &err))
        fail_msg("%s", err.text);
    assert_int_equal(report.refusals.n, 0);
}

/* What nft lists, on one line, of a map's elements. */
static const char *map_elements(const char *map)
{
    return output("nft list map inet portolan %s | tr -d '\\n\\t' | sed 's/.*elements = //; "
                  "s/ *}}*$//'",
                  map);
}

static void a_new_class_has_a_new_number(void **state)
{
    (void)state;
    struct nft *n = back_end();
    static const uint16_t sizes[] = { 2, 3, 2, 0, 2 };
    static const char *const chains[] = { "{ 0:1 : goto pick4-2", "{ 0:2 : goto pick4-3",
                                          "{ 0:3 : goto pick4-2", "{ 0:4 : goto reject4",
                                          "{ 0:5 : goto pick4-2" };
    for (size_t i = 0; i < 5; i++) {
        if (i == 4) /* no class is there to count on from */
            sync_with(n, NULL, 0, false);
        struct nft_group *g = service("service/a/b", 80, sizes[i]);
        sync_with(n, &g, 1, false);
        assert_string_equal(map_elements("classes"), chains[i]);
        char want[64];
        snprintf(want, sizeof(want), "{ 10.96.0.1 . tcp . 80 : 0:%zu", i + 1);
        assert_string_equal(map_elements("service4"), want);
        assert_string_equal(output("nft list table inet portolan | grep -c 'chain [pr][ie][cj]'"),
                            "1\n");
        nft_group_unref(g);
    }
    nft_free(n);
}

static void services_of_one_class_share_it(void **state)
{
    (void)state;
    struct nft *n = back_end();
    struct nft_group *g[] = { service("service/a/a", 80, 2), service("service/a/b", 81, 2) };
    sync_with(n, g, 2, false);
    assert_string_equal(map_elements("classes"), "{ 0:1 : goto pick4-2");
    sync_with(n, g, 1, false);
    assert_string_equal(map_elements("classes"), "{ 0:1 : goto pick4-2");
    assert_string_equal(map_elements("service4"), "{ 10.96.0.1 . tcp . 80 : 0:1");
    nft_group_unref(g[0]);
    nft_group_unref(g[1]);
    nft_free(n);
}

static void a_successor_reads_the_numbers(void **state)
{
    (void)state;
    struct nft *n = back_end();
    struct nft_group *g[] = { service("service/a/a", 80, 3), service("service/a/b", 81, 0) };
    sync_with(n, g + 1, 1, false);
    sync_with(n, g, 2, false);
    nft_free(n);
    n = nft_new(port, plan_ruleset(&options));
    sync_with(n, g, 2, false);
    assert_int_equal(report.bytes, 0);
    nft_group_unref(g[0]);
    g[0] = service("service/a/a", 80, 4);
    sync_with(n, g, 2, false);
    assert_string_equal(
        output("nft list map inet portolan classes | grep -o '0:[0-9]* : goto pick4-4'"),
        "0:3 : goto pick4-4\n");
    nft_group_unref(g[0]);
    nft_group_unref(g[1]);
    nft_free(n);
}

static void what_others_do_to_classes_is_put_back(void **state)
{
    (void)state;
#define T "inet portolan "
    static const char *const edits[] = {
        "nft delete element " T "classes '{ 1 }'",
        "nft flush map " T "classes",
        "nft add element " T "classes '{ 7 : goto pick4-2 }'",
        "nft add element " T "classes '{ 7 : drop }'",
        "nft 'delete element " T "classes { 1 }; add element " T "classes { 1 : goto reject4 }'",
        "nft flush map " T "service4",
        "nft 'delete element " T "service4 { 10.96.0.1 . tcp . 80 }; "
        "add element " T "service4 { 10.96.0.1 . tcp . 80 : 9 }'",
        "nft 'delete element " T "service4 { 10.96.0.1 . tcp . 80 }; "
        "add element " T "service4 { 10.96.0.1 . tcp . 80 : 2 }'",
        "nft flush chain " T "pick4-2",
        "nft add chain " T "pick4-9",
    };
    struct nft_group *g[] = { service("service/a/a", 80, 2), service("service/a/b", 81, 0) };
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        struct nft *n = back_end();
        sync_with(n, g, 2, false);
        char *want = xstrdup(listing());
        run("%s", edits[i]);
        if (!strcmp(listing(), want))
            fail_msg("changes nothing: %s", edits[i]);
        sync_with(n, g, 2, true);
        /* The numbers may be others. */
        assert_true(kernel_has(": goto pick4-2") && kernel_has(": goto reject4"));
        const char *numbered = map_elements("classes");
        assert_true(strchr(numbered, ',') && strchr(numbered, ',') == strrchr(numbered, ','));
        sync_with(n, g, 2, true);
        if (report.bytes)
            fail_msg("not mended at once: %s", edits[i]);
        free(want);
        nft_free(n);
    }
    nft_group_unref(g[0]);
    nft_group_unref(g[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_class_has_a_new_number),
        cmocka_unit_test(services_of_one_class_share_it),
        cmocka_unit_test(a_successor_reads_the_numbers),
        cmocka_unit_test(what_others_do_to_classes_is_put_back),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
