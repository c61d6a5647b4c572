/* The nftables back end with the elements of services: classes and their chains, what is deleted
 * late, what the kernel fills by itself. */
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "fake_port.h"
#include "netns.h"
#include "nft_world.h"

#define T "inet portolan "

static const char proxy_text[] = "podrange 10.0.0.0/9\n"
                                 "podrange 10.128.0.0/9\n" /* next to each other */
                                 "podrange 255.0.0.0/8\n"
                                 "podrange fd00:1::/48\n"
                                 "servicerange 10.96.0.0/12\n"
                                 "servicerange ::/0\n"
                                 "hairpin 10.244.1.7\n"
                                 "hairpin fd00:1::7\n";
static const char cluster_text[] = "clusterip 10.96.0.1\n"
                                   "service 10.96.0.1 tcp 80 pick4-2-outside\n"
                                   "endpoint 10.96.0.1 tcp 80 0 10.244.1.7 8080\n"
                                   "endpoint 10.96.0.1 tcp 80 1 10.244.2.7 8080\n"
                                   "service fd00:96::1 tcp 80 reject6\n"
                                   "service 203.0.113.9 tcp 30080 pick4-1-ranged-all2\n"
                                   "endpoint 203.0.113.9 tcp 30080 0 10.244.1.7 8080\n"
                                   "endpoint 203.0.113.9 tcp 30080 32768 10.244.1.7 8080\n"
                                   "endpoint 203.0.113.9 tcp 30080 32769 10.244.2.7 8080\n"
                                   "sourcerange 203.0.113.9 tcp 30080 198.51.100.0/24\n";
static const char sticky_text[] = "service 10.96.0.2 tcp 80 pick4-1-affinity30\n"
                                  "service fd00:96::2 tcp 80 pick6-1-always-affinity30\n"
                                  "endpoint 10.96.0.2 tcp 80 0 10.244.1.7 8080\n"
                                  "endpoint fd00:96::2 tcp 80 0 fd00:1::7 8080\n"
                                  "affinity 10.96.0.2 tcp 80 0xfefe1234\n"
                                  "affinity fd00:96::2 tcp 80 0xfefe1234\n"
                                  "stay 10.96.0.2 tcp 80 10.244.1.7 8080\n"
                                  "stay fd00:96::2 tcp 80 fd00:1::7 8080\n"
                                  "timeout 0xfefe1234 30\n";

/* What all services share, and two of them: "service/a/plain", "service/b/sticky". */
static void services_init(struct world *w)
{
    run("nft flush ruleset");
    *w = (struct world){ .n = 3, .nft = nft_new(port, plan_ruleset(&world_options)) };
    w->groups[0] = elements("proxy", proxy_text);
    w->groups[1] = elements("service/a/plain", cluster_text);
    w->groups[2] = elements("service/b/sticky", sticky_text);
    apply(w, false);
    assert_int_equal(report.refusals.n, 0);
}

/* A hash tells its elements in an order of its own, so whole listings compare line by line. */
static char *sorted_listing(void)
{
    return xstrdup(
        output("nft -s list table inet portolan 2>&1 | sed 's/elements = {/\\n/; s/ }$//; "
               "s/,$//; s/^[[:space:]]*//' | tr ',' '\\n' | sed 's/^ *//' | sort"));
}

static void assert_lists_as(const char *want, const char *after)
{
    char *now = sorted_listing();
    if (strcmp(now, want))
        fail_msg("after %s:\n%s\ninstead of\n%s", after, now, want);
    free(now);
}

static void services_list_like_their_text(void **state)
{
    (void)state;
    struct world w;
    services_init(&w);
    nft_group_unref(w.groups[--w.n]); /* nft 1.0.6 cannot load the chains of affinity: IPv6 */
    run("nft flush ruleset");         /* another agent gives numbers as the text does */
    restart(&w);
    apply(&w, false);
    char *ours = sorted_listing();
    run("nft list ruleset | nft -c -f -");
    load_listing();
    assert_lists_as(ours, "loading the listing");
    load_text(plan_ruleset(&world_options), w.groups, w.n);
    assert_lists_as(ours, "loading the text");
    free(ours);
    world_done(&w);
}

static void a_successor_adopts_services_and_their_chains(void **state)
{
    (void)state;
    struct world w;
    services_init(&w);
    assert_successor_idle(&w);
    world_done(&w);
}

static void what_others_edit_of_services_is_put_back(void **state)
{
    (void)state;
    static const char *const edits[] = {
        "nft flush chain " T "pick4-2-outside",
        "nft insert rule " T "pick4-2-outside counter accept",
        "nft flush chain " T "reject6",
        "nft flush chain " T "remember-30",
        "nft add chain " T "pick4-9",
        "nft add chain " T "pick4-9-all3",
        "nft 'add chain " T "reject4; add rule " T "reject4 counter accept'",
        "nft flush map " T "service4",
        "nft flush map " T "endpoint4",
        "nft delete element " T "service4 '{ 10.96.0.1 . tcp . 80 }'",
        "nft 'delete element " T "service4 { 10.96.0.1 . tcp . 80 }; "
        "add element " T "service4 { 10.96.0.1 . tcp . 80 : 99 }'",
        "nft add element " T "service4 '{ 10.96.0.1 . tcp . 81 : 1 }'",
        "nft add element " T "classes '{ 99 : goto unserved }'",
        "nft add element " T "classes '{ 99 : jump reject6 }'",
        "nft add element " T "classes '{ 99 : accept }'",
        "nft 'add chain " T "mine; add element " T "classes { 99 : goto mine }'",
        "nft add element " T "endpoint4 '{ 10.96.0.1 . tcp . 80 . 0:2 : 10.9.9.9 . 80 }'",
        "nft add element " T "podrange4 '{ 172.16.0.0/12 }'",
        "nft delete element " T "podrange4 '{ 10.128.0.0/9 }'",
        "nft 'delete element " T "podrange4 { 10.0.0.0/9 }; "
        "add element " T "podrange4 { 10.0.0.0/10 }'",
        "nft flush set " T "podrange4",
        "nft add element " T "servicerange4 '{ 240.0.0.0/4 }'",
        "nft flush set " T "servicerange6",
        "nft delete element " T "sourcerange4 '{ 203.0.113.9 . tcp . 30080 . 198.51.100.0/24 }'",
        "nft delete element " T "affinitytimeout '{ fefe:1234 }'",
        "nft flush chain " T "services",
        "nft add chain " T "pick4-9 '{ type filter hook input priority 0; }'",
        "nft delete table inet portolan",
    };
    struct world w;
    services_init(&w);
    char *want = sorted_listing();
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        run("%s", edits[i]);
        assert_true(nft_foreign_change(w.nft));
        char *edited = sorted_listing();
        if (!strcmp(edited, want))
            fail_msg("changes nothing: %s", edits[i]);
        free(edited);
        apply(&w, true);
        assert_int_equal(report.refusals.n, 0);
        assert_lists_as(want, edits[i]);
        apply(&w, true);
        assert_int_equal(report.bytes, 0);
    }
    free(want);
    world_done(&w);
}

static void what_the_kernel_learnt_stays(void **state)
{
    (void)state;
    static const char four[] = "10.1.1.1 . fefe:1234 timeout 1h";
    struct world w;
    services_init(&w);
    run("nft add element " T "affinity4 '{ 10.1.1.1 . 0xfefe1234 timeout 1h : 10.244.1.7 }'");
    run("nft add element " T "affinity6 '{ fd00::1 . 0xfefe1234 timeout 1h : fd00:1::7 }'");
    apply(&w, true);
    assert_int_equal(report.bytes, 0);
    assert_successor_idle(&w);
    /* A chain that was edited is mended alone. */
    run("nft flush chain " T "pick4-1-affinity30");
    apply(&w, true);
    assert_in_kernel(w.groups, w.n);
    nft_group_unref(w.groups[--w.n]);
    apply(&w, false);
    assert_true(kernel_has(four));
    assert_true(kernel_has("fd00::1 . fefe:1234 timeout 1h"));
    assert_false(kernel_has("chain remember-30"));
    world_done(&w);
}

static void replace_text(struct world *w, size_t i, const char *text)
{
    replace(w, i, elements(w->groups[i]->owner, text));
}

static void a_chain_lives_as_long_as_a_service_of_its_class(void **state)
{
    (void)state;
    struct world w;
    services_init(&w);
    w.groups[w.n++] = elements("service/c/x", "service 10.96.0.3 tcp 80 pick4-2-outside\n"
                                              "service 10.96.0.3 tcp 81 pick4-2-offset-always\n");
    fake_forget_sent(port);
    apply(&w, false);
    assert_int_equal(fake_sent(port, NEWCHAIN), 0); /* both are there: the second by an -all2 */
    assert_int_equal(fake_sent(port, NFNL_MSG_BATCH_BEGIN), 1);
    replace_text(&w, 1, "");
    apply(&w, false);
    assert_true(kernel_has("chain pick4-2-outside"));
    assert_true(kernel_has("chain pick4-2-offset-always"));
    assert_false(kernel_has("chain pick4-2-offset {"));
    assert_false(kernel_has("chain pick4-1-ranged-all2"));
    assert_false(kernel_has("chain reject6"));
    assert_in_kernel(w.groups, w.n);
    nft_group_unref(w.groups[--w.n]);
    apply(&w, false);
    assert_false(kernel_has("chain pick4-2"));
    assert_in_kernel(w.groups, w.n);
    world_done(&w);
}

static const char one_left[] = "clusterip 10.96.0.1\n"
                               "service 10.96.0.1 tcp 80 pick4-1-outside\n"
                               "endpoint 10.96.0.1 tcp 80 0 10.244.2.7 8080\n";

static bool leads_to(const char *service, const char *chain)
{
    const char *number = output(
        "nft list table inet portolan | sed -n 's/.*\\(0:[0-9a-f]*\\) : goto %s[ ,].*/\\1/p; "
        "s/.*\\(0:[0-9a-f]*\\) : goto %s$/\\1/p'",
        chain, chain);
    char want[128];
    snprintf(want, sizeof(want), "%s : %.*s", service, (int)strcspn(number, "\n"), number);
    return *number && kernel_has(want);
}

/* The packet that was sent to the chain of two still finds two. */
static void the_last_endpoint_goes_one_batch_later(void **state)
{
    (void)state;
    static const char first[] = "10.96.0.1 . tcp . 80 . none : 10.244.2.7 . 8080",
                      last[] = "10.96.0.1 . tcp . 80 . 0:1 : 10.244.2.7 . 8080";
    struct world w;
    services_init(&w);
    replace_text(&w, 1, one_left);
    fake_refuse_type(port, NFNL_MSG_BATCH_BEGIN, 2, 100, ERESTART, ""); /* the first: chains */
    report_reset(&report);
    assert_int_equal(nft_sync(w.nft, w.groups, w.n, false, &report, &err), -EAGAIN);
    restart(&w);
    assert_true(leads_to("10.96.0.1 . tcp . 80", "pick4-1-outside"));
    assert_true(kernel_has("chain pick4-2-outside"));
    assert_true(kernel_has(first));
    assert_true(kernel_has(last));
    /* It ended here: the next one finishes. */
    apply(&w, false);
    assert_true(kernel_has(first));
    assert_false(kernel_has(last));
    assert_false(kernel_has("chain pick4-2-outside"));
    assert_in_kernel(w.groups, w.n);
    world_done(&w);
}

/* As where the kernel has no expression of that name. */
static void what_the_kernel_says_each_time_is_told(void **state)
{
    (void)state;
    struct world w;
    services_init(&w);
    replace_text(&w, 1, one_left);
    fake_refuse_type(port, NEWCHAIN, 0, 100, ENOENT, "");
    report_reset(&report);
    assert_int_equal(nft_sync(w.nft, w.groups, w.n, false, &report, &err), -EAGAIN);
    assert_string_equal(err.text, "table inet portolan: 8 attempts failed, the last one: "
                                  "No such file or directory");
    restart(&w);
    apply(&w, false);
    assert_in_kernel(w.groups, w.n);
    world_done(&w);
}

/* In the batch that makes it, a chain is empty for a packet that began before. */
static void a_chain_is_there_one_batch_before_its_elements(void **state)
{
    (void)state;
    struct world w;
    services_init(&w);
    replace_text(&w, 1, one_left);
    fake_refuse_type(port, NFNL_MSG_BATCH_BEGIN, 1, 100, ERESTART, "");
    report_reset(&report);
    assert_int_equal(nft_sync(w.nft, w.groups, w.n, false, &report, &err), -EAGAIN);
    restart(&w);
    assert_true(kernel_has("chain pick4-1-outside"));
    assert_true(leads_to("10.96.0.1 . tcp . 80", "pick4-2-outside"));
    assert_false(leads_to("10.96.0.1 . tcp . 80", "pick4-1-outside"));
    apply(&w, false);
    assert_in_kernel(w.groups, w.n);
    world_done(&w);
}

static void a_replaced_endpoint_is_one_batch(void **state)
{
    (void)state;
    struct world w;
    services_init(&w);
    replace_text(&w, 1, one_left);
    apply(&w, false);
    replace_text(&w, 1,
                 "clusterip 10.96.0.1\n"
                 "service 10.96.0.1 tcp 80 pick4-1-outside\n"
                 "endpoint 10.96.0.1 tcp 80 0 10.244.3.7 8080\n");
    fake_forget_sent(port);
    apply(&w, false);
    assert_int_equal(report.changes, 1);
    assert_int_equal(report.adds + report.deletes, 0);
    assert_int_equal(fake_sent(port, NFNL_MSG_BATCH_BEGIN), 1);
    assert_int_equal(fake_sent(port, DELSETELEM), 1);
    assert_int_equal(fake_sent(port, NEWSETELEM), 1);
    assert_in_kernel(w.groups, w.n);
    world_done(&w);
}

static void a_chain_that_is_busy_is_deleted_next_time(void **state)
{
    (void)state;
    struct world w;
    services_init(&w);
    replace_text(&w, 1, one_left);
    fake_refuse_type(port, DELCHAIN, 0, 1, EBUSY, "");
    apply(&w, false);
    assert_true(kernel_has("chain pick4-2-outside"));
    assert_false(kernel_has("10.96.0.1 . tcp . 80 . 0:1 :"));
    apply(&w, false);
    assert_in_kernel(w.groups, w.n);
    fake_forget_sent(port);
    apply(&w, false);
    assert_int_equal(fake_sent(port, 0), 0);
    world_done(&w);
}

/* Old kernels let go of a chain a while after the elements that lead to it. */
static void a_chain_that_stays_busy_holds_up_nothing(void **state)
{
    (void)state;
    struct world w;
    services_init(&w);
    char *always = xstrdup(cluster_text), *outside = strstr(always, "outside");
    memcpy(outside, "always ", sizeof("always ") - 1);
    replace_text(&w, 1, always);
    fake_refuse_type(port, DELCHAIN, 0, 1000, EBUSY, "");
    fake_forget_sent(port);
    apply(&w, false);
    assert_int_equal(fake_sent(port, DELCHAIN), 1);
    assert_true(kernel_has("chain pick4-2-outside"));
    assert_true(kernel_has("goto pick4-2-always"));
    restart(&w);
    apply(&w, false);
    assert_in_kernel(w.groups, w.n);
    free(always);
    world_done(&w);
}

/* Faults of the second batch alone: the first one and its answer pass. */
static void faults_of_the_second_batch_are_survived(void **state)
{
    (void)state;
    static const int errors[] = { ERESTART, ENOENT, EAGAIN, EINTR };
    struct world w;
    services_init(&w);
    for (size_t i = 0; i < 4; i++) {
        replace_text(&w, 1, one_left);
        fake_refuse_type(port, NFNL_MSG_BATCH_BEGIN, 1, 1, errors[i], "");
        apply(&w, false);
        restart(&w);
        assert_in_kernel(w.groups, w.n);
        replace_text(&w, 1, cluster_text);
        apply(&w, false);
        assert_in_kernel(w.groups, w.n);
    }
    world_done(&w);
}

static void a_full_set_refuses_one_service_and_no_other(void **state)
{
    (void)state;
    run("nft flush ruleset");
    struct world w = { .n = 2, .nft = nft_new(port, table_with_limit(NFT_SERVICE4, 1)) };
    w.groups[0] = elements("service/a/1", "service 10.96.0.1 tcp 80 drop4\n");
    w.groups[1] = elements("service/a/2", "service 10.96.0.2 tcp 80 reject4\nclusterip 10.96.0.2");
    apply(&w, false);
    assert_int_equal(report.refusals.n, 1);
    assert_string_equal(report.refusals.v[0].owner, "service/a/2");
    assert_string_equal(report.refusals.v[0].object,
                        "element inet portolan service4 { 10.96.0.2 . tcp . 80 : goto reject4 }");
    assert_string_equal(report.refusals.v[0].text, "the set holds its limit of 1 elements");
    assert_true(kernel_has("goto drop4"));
    assert_false(kernel_has("10.96.0.2"));
    assert_false(kernel_has("chain reject4"));
    world_done(&w);
}

static void assert_ends(const struct flow_target *f, const char *dialled, const char *const *ends)
{
    char text[IP_TEXT_MAX];
    size_t n = 0;
    assert_string_equal(ip_format(&f->dialled, text), dialled);
    for (; ends[n]; n++) {
        assert_true(n < f->n_others);
        assert_string_equal(ip_format(&f->others[n].ip, text), ends[n]);
        assert_int_equal(f->others[n].port, 53);
    }
    assert_int_equal(f->n_others, n);
    assert_int_equal(f->target.family != IP_NONE, n > 0);
}

static void conntrack_hears_where_udp_services_lead_now(void **state)
{
    (void)state;
    static const char *const both[] = { "10.244.1.7", "10.244.2.7", NULL },
                             *const second[] = { "10.244.2.7", NULL },
                             *const six[] = { "fd00:1::7", NULL }, *const none[] = { NULL };
    static const char dns6[] = "service fd00:96::1 udp 53 pick6-1\n"
                               "endpoint fd00:96::1 udp 53 0 fd00:1::7 53\n";
    const struct flow_target *f;
    struct world w;
    services_init(&w);
    assert_int_equal(nft_udp_changes(w.nft, &f), 0); /* TCP is none of it */
    w.groups[w.n++] = elements("service/c/dns", "service 10.96.0.1 udp 53 pick4-2\n"
                                                "endpoint 10.96.0.1 udp 53 0 10.244.2.7 53\n"
                                                "endpoint 10.96.0.1 udp 53 1 10.244.1.7 53\n");
    w.groups[w.n++] = elements("service/c/dns6", dns6);
    apply(&w, false);
    assert_int_equal(nft_udp_changes(w.nft, &f), 2);
    assert_ends(&f[0], "10.96.0.1", both);
    assert_ends(&f[1], "fd00:96::1", six);
    /* A successor has nothing to tell, since there is no difference. */
    struct nft *successor = nft_new(port, plan_ruleset(&world_options));
    assert_int_equal(nft_sync(successor, w.groups, w.n, false, &report, &err), 0);
    assert_int_equal(nft_udp_changes(successor, &f), 0);
    nft_free(successor);

    replace_text(&w, 3,
                 "service 10.96.0.1 udp 53 pick4-1\n"
                 "endpoint 10.96.0.1 udp 53 0 10.244.2.7 53\n");
    apply(&w, false);
    assert_int_equal(nft_udp_changes(w.nft, &f), 1);
    assert_ends(&f[0], "10.96.0.1", second);
    /* What a predecessor left of it is a difference. */
    run("nft add element " T "endpoint4 '{ 10.96.0.1 . udp . 53 . 1 : 10.244.1.7 . 53 }'");
    apply(&w, true);
    assert_int_equal(nft_udp_changes(w.nft, &f), 1);
    assert_ends(&f[0], "10.96.0.1", second);
    replace_text(&w, 3, "service 10.96.0.1 udp 53 reject4\n");
    apply(&w, false);
    assert_int_equal(nft_udp_changes(w.nft, &f), 1);
    assert_ends(&f[0], "10.96.0.1", none);
    nft_group_unref(w.groups[--w.n]);
    apply(&w, false);
    assert_int_equal(nft_udp_changes(w.nft, &f), 1);
    assert_ends(&f[0], "fd00:96::1", none);
    world_done(&w);
}

static void the_difference_of_services_is_told_without_making_it(void **state)
{
    (void)state;
    struct world w;
    services_init(&w);
    replace_text(&w, 1, cluster_text);
    run("nft flush chain " T "reject6");
    nft_group_unref(w.groups[--w.n]);
    replace_text(&w, 1, "service fd00:96::1 tcp 80 reject6\nservice fd00:96::1 tcp 81 drop6\n");
    struct buf out = { 0 };
    char *before = sorted_listing();
    assert_int_equal(nft_diff(w.nft, w.groups, w.n, &out, &err), 0);
    assert_non_null(strstr(buf_str(&out), "- chain inet portolan reject6\n"
                                          "+ chain inet portolan reject6\n"));
    assert_non_null(strstr(buf_str(&out), "+ chain inet portolan drop6\n"));
    assert_non_null(strstr(buf_str(&out), "- chain inet portolan pick4-2-outside\n"));
    assert_non_null(strstr(buf_str(&out), "- element inet portolan endpoint4 { 10.96.0.1 . tcp . "
                                          "80 . 1 : 10.244.2.7 . 8080 }\n"));
    assert_non_null(strstr(buf_str(&out), "+ element inet portolan service6 { fd00:96::1 . tcp . "
                                          "81 : goto drop6 }\n"));
    assert_lists_as(before, "telling the difference");
    free(before);
    buf_done(&out);
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(services_list_like_their_text),
        cmocka_unit_test(a_successor_adopts_services_and_their_chains),
        cmocka_unit_test(what_others_edit_of_services_is_put_back),
        cmocka_unit_test(what_the_kernel_learnt_stays),
        cmocka_unit_test(a_chain_lives_as_long_as_a_service_of_its_class),
        cmocka_unit_test(the_last_endpoint_goes_one_batch_later),
        cmocka_unit_test(what_the_kernel_says_each_time_is_told),
        cmocka_unit_test(a_chain_is_there_one_batch_before_its_elements),
        cmocka_unit_test(a_replaced_endpoint_is_one_batch),
        cmocka_unit_test(a_chain_that_is_busy_is_deleted_next_time),
        cmocka_unit_test(a_chain_that_stays_busy_holds_up_nothing),
        cmocka_unit_test(faults_of_the_second_batch_are_survived),
        cmocka_unit_test(a_full_set_refuses_one_service_and_no_other),
        cmocka_unit_test(conntrack_hears_where_udp_services_lead_now),
        cmocka_unit_test(the_difference_of_services_is_told_without_making_it),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
