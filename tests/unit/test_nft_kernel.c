/* The nftables back end against a real kernel: what it installs, adopts, mends and tells. */
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "fake_port.h"
#include "netns.h"
#include "nft_world.h"

static void what_is_installed_lists_like_its_text(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    const char *ours = listing();
    assert_non_null(strstr(ours, "203.0.113.9 . tcp . 80 counter : 10.244.1.7 . 81"));
    run("nft list ruleset | nft -c -f -");
    load_text(plan_ruleset(&world_options), w.groups, w.n);
    const char *loaded = listing();
    assert_string_equal(ours, loaded);
    /* Again over what there is. */
    run("nft list ruleset | nft -c -f -");
    world_done(&w);
}

static void a_successor_finds_nothing_to_do(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    assert_successor_idle(&w);
    world_done(&w);
}

static void what_others_edit_is_put_back(void **state)
{
    (void)state;
#define T "inet portolan "
    static const char *const edits[] = {
        "nft flush ruleset",
        "nft delete table " T,
        "nft delete element " T "target4 '{ 203.0.113.9 . tcp . 80 }'",
        "nft 'delete element " T "target4 { 203.0.113.9 . tcp . 80 }; "
        "add element " T "target4 { 203.0.113.9 . tcp . 80 : 10.9.9.9 . 99 }'",
        "nft add element " T "open4 '{ 203.0.113.9 . tcp . 22 }'",
        "nft add element " T "openrange4 '{ 203.0.113.9 . tcp . 1-1000 }'",
        "nft 'delete element " T "openrange4 { 203.0.113.9 . udp . 27015-27115 }; "
        "add element " T "openrange4 { 203.0.113.0/24 . udp . 27000-27115 }'",
        "nft flush map " T "replymark4",
        "nft flush chain " T "refuse",
        "nft insert rule " T "arrive counter accept",
        "nft add rule " T "reply meta mark set 7",
        "nft flush chain " T "mss '; add rule " T "mss oifname \"wt0\" counter'",
        "nft add set " T "mine '{ type ipv4_addr; }'",
        "nft add chain " T "mine",
        "nft add counter " T "mine",
        "nft add chain " T "identity '{ policy drop; }'",
        "nft flush chain " T "mss '; delete chain " T "mss'",
        "nft flush chain " T "mss '; delete chain " T "mss; add chain " T
        "mss { type filter hook forward priority 5; }'",
        "nft flush chain " T "mss '; delete set " T "links'",
        "nft add table " T "'{ flags dormant; }'",
        "nft delete table " T "'; add table " T "; add set " T
        "links { type ipv4_addr; elements = { 1.2.3.4 }; }'",
    };
    struct world w;
    world_init(&w);
    char *want = xstrdup(listing());
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        run("%s", edits[i]);
        assert_true(nft_foreign_change(w.nft));
        const char *edited = listing();
        if (!strcmp(edited, want))
            fail_msg("changes nothing: %s", edits[i]);
        apply(&w, true);
        assert_true(report.adds + report.changes + report.deletes > 0);
        assert_false(nft_foreign_change(w.nft));
        const char *mended = listing();
        if (strcmp(mended, want))
            fail_msg("after %s:\n%s", edits[i], mended);
    }
    free(want);
    world_done(&w);
}

static void the_element_for_all_other_keys_is_removed(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    run("nft add element inet portolan replymark4 '{ * : 7 }'");
    assert_true(kernel_has("* : 0x00000007"));
    apply(&w, true);
    assert_false(kernel_has("* :"));
    assert_in_kernel(w.groups, w.n);
    world_done(&w);
}

static void tables_of_others_stay(void **state)
{
    (void)state;
    static const char others[] = "nft -a list table ip portolan; nft -a list table inet other";
    struct world w;
    run("nft flush ruleset");
    world_init(&w);
    run("nft 'add table ip portolan; add set ip portolan links { type ipv4_addr; }; "
        "add table inet other; add chain inet other mss; add rule inet other mss counter'");
    const char *before = output("%s", others);
    apply(&w, true);
    assert_int_equal(report.bytes, 0); /* and they are not taken for ours */
    run("nft add chain inet portolan strange");
    apply(&w, true);
    bool existed = false;
    assert_int_equal(nft_cleanup(port, false, &existed, &err), 0);
    assert_true(existed);
    const char *after = output("%s", others);
    assert_string_equal(before, after);
    world_done(&w);
}

static void a_moved_endpoint_is_one_change(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    replace(&w, 1, mapping("portmap/a/tcp", L4_TCP, 80, 80, "10.244.2.2"));
    fake_forget_sent(port);
    apply(&w, false);
    assert_int_equal(report.changes, 1);
    assert_int_equal(report.adds + report.deletes, 0);
    assert_int_equal(fake_sent(port, DELSETELEM), 1);
    assert_int_equal(fake_sent(port, NEWSETELEM), 1);
    assert_true(kernel_has("203.0.113.9 . tcp . 80 counter : 10.244.2.2 . 81"));
    assert_in_kernel(w.groups, w.n);
    fake_forget_sent(port);
    apply(&w, false);
    assert_int_equal(fake_sent(port, 0), 0); /* nothing to do, nothing to ask */
    world_done(&w);
}

static void a_key_may_change_its_owner(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    /* Same flow and pod: it stays; another pod: it changes in one batch. */
    replace(&w, 1, mapping("portmap/a/renamed", L4_TCP, 80, 80, "10.244.1.7"));
    apply(&w, false);
    assert_int_equal(report.bytes, 0);
    assert_in_kernel(w.groups, w.n);
    replace(&w, 1, mapping("portmap/a/again", L4_TCP, 80, 80, "10.244.1.9"));
    apply(&w, false);
    assert_int_equal(report.changes, 1);
    assert_in_kernel(w.groups, w.n);
    /* From a range to ports, from a target to refusal. */
    replace(&w, 2, mapping("portmap/b/udp", L4_UDP, 27020, 27021, "10.244.1.8"));
    replace(&w, 1, mapping("portmap/a/again", L4_TCP, 80, 80, NULL));
    apply(&w, false);
    assert_in_kernel(w.groups, w.n);
    world_done(&w);
}

static void assert_flow(const struct flow_target *f, uint16_t first, uint16_t last,
                        const char *target, uint16_t target_port)
{
    char text[IP_TEXT_MAX];
    assert_string_equal(ip_format(&f->target, text), target);
    assert_int_equal(f->port, first);
    assert_int_equal(f->end, last);
    assert_int_equal(f->target_port, target_port);
}

static void conntrack_hears_where_udp_flows_lead_now(void **state)
{
    (void)state;
    const struct flow_target *f;
    struct world w;
    world_init(&w);
    /* The first call tells all: the refused in both families, and the range. */
    assert_int_equal(nft_udp_changes(w.nft, &f), 3);
    assert_flow(&f[0], 3000, 3000, "", 0);
    assert_flow(&f[1], 27015, 27115, "10.244.1.8", 0);
    assert_flow(&f[2], 3000, 3000, "", 0);
    assert_int_equal(f[2].dialled.family, IP_V6);
    apply(&w, false);
    assert_int_equal(nft_udp_changes(w.nft, &f), 0);

    replace(&w, 1, mapping("portmap/a/tcp", L4_TCP, 80, 80, "10.244.2.2"));
    replace(&w, 2, mapping("portmap/b/udp", L4_UDP, 27015, 27115, "10.244.2.8"));
    replace(&w, 3, mapping("portmap/c/none", L4_UDP, 3000, 3000, "10.244.2.3"));
    apply(&w, false);
    assert_int_equal(nft_udp_changes(w.nft, &f), 3);
    assert_flow(&f[0], 3000, 3000, "10.244.2.3", 3001);
    assert_flow(&f[1], 27015, 27115, "10.244.2.8", 0);
    assert_flow(&f[2], 3000, 3000, "", 0);

    nft_group_unref(w.groups[--w.n]);
    apply(&w, false);
    assert_int_equal(nft_udp_changes(w.nft, &f), 1);
    assert_flow(&f[0], 3000, 3000, "", 0);

    /* A foreign edit that is mended may have left entries behind. */
    run("nft delete element inet portolan targetrange4 '{ 203.0.113.9 . udp . 27015-27115 }'");
    apply(&w, true);
    assert_int_equal(nft_udp_changes(w.nft, &f), 1);
    assert_flow(&f[0], 27015, 27115, "10.244.2.8", 0);

    /* When the answer is lost, so is what changed: everything is told. */
    nft_group_unref(w.groups[--w.n]);
    fake_fail_recv(port, 0, 1, ENOBUFS);
    apply(&w, false);
    assert_int_equal(nft_udp_changes(w.nft, &f), 1);
    assert_flow(&f[0], 27015, 27115, "", 0);
    world_done(&w);
}

static void the_difference_is_told_without_making_it(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    const char *before = listing();
    replace(&w, 1, mapping("portmap/a/tcp", L4_TCP, 80, 80, "10.244.2.2"));
    struct buf out = { 0 };
    assert_int_equal(nft_diff(w.nft, w.groups, w.n, &out, &err), 0);
    assert_string_equal(
        buf_str(&out),
        "- element inet portolan target4 { 203.0.113.9 . tcp . 80 : 10.244.1.7 . 81 }\n"
        "+ element inet portolan target4 { 203.0.113.9 . tcp . 80 : 10.244.2.2 . 81 }\n");
    const char *after = listing();
    assert_string_equal(before, after);
    run("nft flush chain inet portolan refuse");
    buf_clear(&out);
    assert_int_equal(nft_diff(w.nft, NULL, 0, &out, &err), 0);
    assert_string_equal(buf_str(&out), "- table inet portolan: rules of chain refuse\n"
                                       "+ table inet portolan\n");
    run("nft flush ruleset");
    buf_clear(&out);
    assert_int_equal(nft_diff(w.nft, NULL, 0, &out, &err), 0);
    assert_string_equal(buf_str(&out), "+ table inet portolan\n");
    buf_done(&out);
    world_done(&w);
}

static void cleanup_removes_the_table_once(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    bool existed = false;
    assert_int_equal(nft_cleanup(port, true, &existed, &err), 0);
    assert_true(existed);
    assert_true(kernel_has("chain arrive"));
    assert_int_equal(nft_cleanup(port, false, &existed, &err), 0);
    assert_true(existed);
    assert_string_equal(output("nft list ruleset"), "");
    assert_int_equal(nft_cleanup(port, false, &existed, &err), 0);
    assert_false(existed);
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_installed_lists_like_its_text),
        cmocka_unit_test(a_successor_finds_nothing_to_do),
        cmocka_unit_test(what_others_edit_is_put_back),
        cmocka_unit_test(the_element_for_all_other_keys_is_removed),
        cmocka_unit_test(tables_of_others_stay),
        cmocka_unit_test(a_moved_endpoint_is_one_change),
        cmocka_unit_test(a_key_may_change_its_owner),
        cmocka_unit_test(conntrack_hears_where_udp_flows_lead_now),
        cmocka_unit_test(the_difference_is_told_without_making_it),
        cmocka_unit_test(cleanup_removes_the_table_once),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
