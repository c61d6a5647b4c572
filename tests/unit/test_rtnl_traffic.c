/* Rules and routes of traffic classes in a real kernel: tables of their own, links of others. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "addr_help.h"
#include "base/buf.h"
#include "base/clock.h"
#include "netns.h"
#include "rtnl_world.h"

#define LINKS                                                                               \
    "ip link add ingress0 type veth peer name i1; ip link add pod0 type veth peer name p1;" \
    "for l in ingress0 i1 pod0 p1; do ip link set $l up; done;"                             \
    "ip addr add 10.47.0.1/24 dev ingress0; ip addr add fd00:47::1/64 dev ingress0 nodad;"  \
    "ip addr add 10.48.0.1/24 dev pod0; ip addr add fd00:48::1/64 dev pod0 nodad"

static void want_rule(struct world *w, uint32_t priority, const char *from, const char *to,
                      uint32_t table)
{
    struct desired_rule r = { .owner = "trafficclass/pods", .priority = priority, .table = table };
    if (from) {
        r.has_src = true;
        r.src = prefix_of(from);
    }
    if (to) {
        r.has_dst = true;
        r.dst = prefix_of(to);
    }
    r.family = from ? r.src.ip.family : r.dst.ip.family;
    vec_push(&w->want.rules, r);
}

static void want_route(struct world *w, enum route_type type, const char *dst, const char *via)
{
    struct desired_route r = { .owner = "trafficclass/pods",
                               .type = type,
                               .table = 47,
                               .dst = prefix_of(dst),
                               .ifname = type == ROUTE_UNICAST ? "ingress0" : "",
                               .metric = type == ROUTE_UNICAST ? 0 : 8192 };
    if (via)
        r.via = ip_of(via);
    vec_push(&w->want.routes, r);
}

/* As the hybrid design has it, in both families. */
static const struct desired *hybrid(struct world *w)
{
    want_done(&w->want);
    want_rule(w, 1000, "fd00:244::/32", NULL, 47);
    want_rule(w, 1001, "10.244.0.0/16", NULL, 47);
    want_rule(w, 990, NULL, "fd00::/8", 254);
    want_rule(w, 980, "10.244.0.0/16", "10.244.0.0/16", 4294967295);
    want_route(w, ROUTE_THROW, "10.244.0.0/16", NULL);
    want_route(w, ROUTE_THROW, "fd00:244::/32", NULL);
    want_route(w, ROUTE_UNREACHABLE, "10.96.0.0/16", NULL);
    want_route(w, ROUTE_UNREACHABLE, "fd00:96::/112", NULL);
    want_route(w, ROUTE_UNICAST, "0.0.0.0/0", "10.47.0.254");
    want_route(w, ROUTE_UNICAST, "::/0", "fd00:47::fe");
    return want_finish(&w->want);
}

static const char *routes(const char *family)
{
    return output("ip %s route show table 47 | sed 's/ *$//' | sort", family);
}

/* All rules, and table 47. */
static const char *everything(void)
{
    return output("ip -4 rule; ip -6 rule; ip -4 route show table 47 2>/dev/null | sort;"
                  "ip -6 route show table 47 2>/dev/null | sort");
}

static void the_kernel_has_what_is_wanted(void **state)
{
    (void)state;
    struct world w = world_new(LINKS);
    assert_int_equal(sync_fully(&w, hybrid(&w), false), 10);
    assert_string_equal(routes("-4"), "default via 10.47.0.254 dev ingress0 proto 107\n"
                                      "throw 10.244.0.0/16 proto 107 metric 8192\n"
                                      "unreachable 10.96.0.0/16 proto 107 metric 8192\n");
    assert_string_equal(routes("-6"),
                        "default via fd00:47::fe dev ingress0 proto 107 metric 1024 pref medium\n"
                        "throw fd00:244::/32 dev lo proto 107 metric 8192 pref medium\n"
                        "unreachable fd00:96::/112 dev lo proto 107 metric 8192 pref medium\n");
    assert_string_equal(output("ip -4 rule show | grep 'proto 107' | tr '\\t' ' ' | sed 's/ *$//'"),
                        "980: from 10.244.0.0/16 to 10.244.0.0/16 lookup 4294967295 proto 107\n"
                        "1001: from 10.244.0.0/16 lookup 47 proto 107\n");
    assert_string_equal(output("ip -6 rule show | grep 'proto 107' | tr '\\t' ' ' | sed 's/ *$//'"),
                        "990: from all to fd00::/8 lookup main proto 107\n"
                        "1000: from fd00:244::/32 lookup 47 proto 107\n");
    assert_int_equal(sync_with(&w, hybrid(&w), true), 0);
    world_done(&w);
}

static void a_restart_adopts_all(void **state)
{
    (void)state;
    struct world w = world_new(LINKS);
    sync_with(&w, hybrid(&w), false);
    char *before = strdup(everything());
    restart(&w);
    assert_int_equal(sync_with(&w, hybrid(&w), false), 0);
    assert_string_equal(everything(), before);
    free(before);
    world_done(&w);
}

static void what_is_not_ours_stays(void **state)
{
    (void)state;
    static const struct desired nothing;
    struct world w = world_new(LINKS);
    char *empty = strdup(everything());
    sync_with(&w, hybrid(&w), false);
    run("ip rule add pref 1001 from 10.244.0.0/16 lookup 47;"
        "ip rule add pref 1001 from 10.244.0.0/16 lookup 47 proto 99;"
        "ip -6 rule add pref 1000 from fd00:244::/32 lookup 48;"
        "ip route add 10.244.2.0/24 via 10.48.0.2 table 47 proto bird metric 32;"
        "ip route add 10.244.0.0/16 via 10.48.0.9 table 47 proto bird metric 32;"
        "ip -6 route add fd00:244::/32 via fd00:48::2 table 47 proto bird metric 32;"
        "ip -6 route add throw fd00:244::/32 table 47 proto 98 metric 8193");
    assert_int_equal(sync_with(&w, hybrid(&w), true), 0);
    assert_int_equal(sync_fully(&w, &nothing, true), 10);
    assert_string_equal(routes("-4"),
                        "10.244.0.0/16 via 10.48.0.9 dev pod0 proto bird metric 32\n"
                        "10.244.2.0/24 via 10.48.0.2 dev pod0 proto bird metric 32\n");
    assert_string_equal(routes("-6"),
                        "fd00:244::/32 via fd00:48::2 dev pod0 proto bird metric 32 pref medium\n"
                        "throw fd00:244::/32 dev lo proto 98 metric 8193 pref medium\n");
    assert_string_equal(output("ip -4 rule show | grep -c '^1001:'"), "2\n");
    assert_string_equal(output("ip -6 rule show | grep -c '^1000:'"), "1\n");
    run("ip rule del pref 1001; ip rule del pref 1001; ip -6 rule del pref 1000;"
        "ip route flush table 47; ip -6 route flush table 47");
    assert_string_equal(everything(), empty);
    free(empty);
    world_done(&w);
}

static void what_somebody_takes_away_comes_back(void **state)
{
    (void)state;
    struct world w = world_new(LINKS);
    const struct desired *d = hybrid(&w);
    sync_with(&w, d, false);
    char *before = strdup(everything());
    run("ip link set ingress0 down; ip link set ingress0 up;"
        "ip addr replace fd00:47::1/64 dev ingress0 nodad;"
        "ip rule del pref 1001; ip route del throw 10.244.0.0/16 table 47 metric 8192");
    assert_string_equal(output("ip -4 route show table 47 default"), "");
    sync_fully(&w, d, true);
    assert_true(within_ms(5000, (sync_with(&w, d, true), !strcmp(everything(), before))));
    free(before);
    world_done(&w);
}

static void a_route_waits_for_its_link(void **state)
{
    (void)state;
    struct world w = world_new(LINKS);
    run("ip link set ingress0 name elsewhere 2>&1 || "
        "{ ip link set ingress0 down; ip link set ingress0 name elsewhere; }");
    const struct desired *d = hybrid(&w);
    sync_with(&w, d, false);
    assert_int_equal(w.report.refusals.n, 2);
    assert_string_equal(w.report.refusals.v[0].text, "waits for link ingress0");
    assert_string_equal(w.report.refusals.v[0].owner, "trafficclass/pods");
    run("ip link set elsewhere down; ip link set elsewhere name ingress0; ip link set ingress0 up;"
        "ip addr replace 10.47.0.1/24 dev ingress0;"
        "ip addr replace fd00:47::1/64 dev ingress0 nodad");
    assert_true(within_ms(5000, (sync_with(&w, d, false), !w.report.refusals.n)));
    assert_non_null(strstr(routes("-4"), "default via 10.47.0.254 dev ingress0 proto 107\n"));
    world_done(&w);
}

static void another_gateway_takes_the_place_of_the_old(void **state)
{
    (void)state;
    struct world w = world_new(LINKS);
    sync_with(&w, hybrid(&w), false);
    hybrid(&w);
    for (size_t i = 0; i < w.want.routes.n; i++)
        if (w.want.routes.v[i].type == ROUTE_UNICAST && w.want.routes.v[i].via.family == IP_V4)
            w.want.routes.v[i].via = ip_of("10.47.0.253");
    assert_int_equal(sync_with(&w, want_finish(&w.want), false), 1);
    assert_non_null(strstr(routes("-4"), "default via 10.47.0.253 dev ingress0 proto 107\n"));
    world_done(&w);
}

/* Of the class that is gone, and of its table; everything else goes. */
static void what_a_class_left_to_stay_is_not_touched(void **state)
{
    (void)state;
    static const struct desired_keep kept[] = { { "pods", IP_V4, 1001, 47 },
                                                { "local", IP_V6, 990, 254 } };
    const struct desired gone = { .kept = kept, .n_kept = 2 };
    struct world w = world_new(LINKS);
    struct buf out = { 0 };
    sync_with(&w, hybrid(&w), false);
    char *table = strdup(output("ip -4 route show table 47; ip -6 route show table 47"));
    for (int restarts = 0; restarts < 2; restarts++) {
        assert_int_equal(sync_fully(&w, &gone, true), restarts ? 0 : 2);
        assert_string_equal(
            output("(ip -4 rule; ip -6 rule) | grep 'proto 107' | tr '\t' ' ' | sed 's/ *$//'"),
            "1001: from 10.244.0.0/16 lookup 47 proto 107\n"
            "990: from all to fd00::/8 lookup main proto 107\n");
        assert_string_equal(output("ip -4 route show table 47; ip -6 route show table 47"), table);
        restart(&w);
    }
    assert_int_equal(rtnl_diff(w.rtnl, &gone, &out, NULL), 0);
    assert_int_equal(out.n, 0);
    run("ip rule del pref 1001"); /* and what is gone does not come back */
    assert_int_equal(sync_with(&w, &gone, true), 0);
    assert_int_equal(rtnl_cleanup(w.rtnl, false, &out, NULL), 0);
    assert_non_null(strstr(out.p, "- rule inet6 990: to fd00::/8 lookup 254\n"));
    assert_string_equal(output("ip -4 route show table 47; ip -6 route show table 47"), "");
    free(table);
    buf_done(&out);
    world_done(&w);
}

static void rules_to_a_table_that_is_held_stay_as_they_are(void **state)
{
    (void)state;
    static const uint32_t held[] = { 47 };
    struct world w = world_new(LINKS);
    struct desired d = *hybrid(&w), less;
    d.held = held;
    d.n_held = 1;
    assert_int_equal(sync_with(&w, &d, false), 8); /* its routes, and rules to other tables */
    assert_string_equal(output("(ip -4 rule; ip -6 rule) | grep -c 'lookup 47'"), "0\n");
    d.n_held = 0;
    assert_int_equal(sync_with(&w, &d, false), 2);
    less = d;
    less.n_rules = 0;
    less.held = held;
    less.n_held = 1;
    assert_int_equal(sync_with(&w, &less, false), 2);
    assert_string_equal(output("(ip -4 rule; ip -6 rule) | grep -c 'lookup 47'"), "2\n");
    less.n_held = 0;
    assert_int_equal(sync_with(&w, &less, false), 2);
    world_done(&w);
}

/* One that differs only in that is another. */
static void a_rule_may_leave_default_routes_out(void **state)
{
    (void)state;
    struct world w = world_new(LINKS);
    struct desired_rule rule = { .owner = "node",
                                 .family = IP_V4,
                                 .priority = 102,
                                 .fwmark = 0x6b80002f,
                                 .mask = UINT32_MAX,
                                 .table = 254,
                                 .suppress_default = true };
    const struct desired d = { .rules = &rule, .n_rules = 1 };
    static const char shown[] =
        "102:\tfrom all fwmark 0x6b80002f lookup main suppress_prefixlength 0 proto 107\n";
    assert_int_equal(sync_fully(&w, &d, false), 1);
    assert_string_equal(output("ip -4 rule show prio 102"), shown);
    assert_int_equal(sync_fully(&w, &d, true), 0);
    run("ip rule del prio 102;"
        "ip rule add prio 102 fwmark 0x6b80002f lookup main proto 107;"
        "ip rule add prio 102 fwmark 0x6b80002f lookup main suppress_prefixlength 8 proto 107");
    assert_int_equal(sync_fully(&w, &d, true), 3);
    assert_string_equal(output("ip -4 rule show prio 102"), shown);
    rule.suppress_default = false;
    assert_int_equal(sync_fully(&w, &d, false), 2);
    assert_string_equal(output("ip -4 rule show prio 102"),
                        "102:\tfrom all fwmark 0x6b80002f lookup main proto 107\n");
    world_done(&w);
}

/* Nor does it stay with those of a class that led to the table of that number. */
static void a_rule_that_leads_on_to_another_leads_to_no_table(void **state)
{
    (void)state;
    static const uint32_t held[] = { 47 };
    static const struct desired_rule rules[] = {
        { "loadbalancer", .family = IP_V4, .priority = 46, .action = RULE_GOTO,
          .goto_priority = 47 },
        { "loadbalancer", .family = IP_V4, .priority = 47, .action = RULE_NOP },
    };
    static const struct desired_keep kept[] = { { "pods", IP_V4, 46, 47 } };
    const struct desired d = { .rules = rules, .n_rules = 2, .held = held, .n_held = 1 };
    const struct desired gone = { .kept = kept, .n_kept = 1 };
    struct world w = world_new(LINKS);
    assert_int_equal(sync_fully(&w, &d, false), 2);
    assert_string_equal(output("ip -4 rule | grep -c '^46:.*goto 47'"), "1\n");
    assert_int_equal(sync_fully(&w, &gone, true), 2);
    assert_string_equal(output("ip -4 rule | grep -c 'proto 107'"), "0\n");
    world_done(&w);
}

static void a_difference_is_told_in_words(void **state)
{
    (void)state;
    struct world w = world_new(LINKS);
    struct buf out = { 0 };
    assert_int_equal(rtnl_diff(w.rtnl, hybrid(&w), &out, NULL), 0);
    static const char *const lines[] = {
        "+ route default via 10.47.0.254 dev ingress0 table 47\n",
        "+ route throw fd00:244::/32 table 47 metric 8192\n",
        "+ route unreachable 10.96.0.0/16 table 47 metric 8192\n",
        "+ rule 980: from 10.244.0.0/16 to 10.244.0.0/16 lookup 4294967295\n",
        "+ rule inet6 990: to fd00::/8 lookup 254\n",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (!strstr(out.p, lines[i]))
            fail_msg("%s is not in\n%s", lines[i], out.p);
    buf_done(&out);
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_has_what_is_wanted),
        cmocka_unit_test(a_restart_adopts_all),
        cmocka_unit_test(what_is_not_ours_stays),
        cmocka_unit_test(what_somebody_takes_away_comes_back),
        cmocka_unit_test(a_route_waits_for_its_link),
        cmocka_unit_test(another_gateway_takes_the_place_of_the_old),
        cmocka_unit_test(what_a_class_left_to_stay_is_not_touched),
        cmocka_unit_test(rules_to_a_table_that_is_held_stay_as_they_are),
        cmocka_unit_test(a_rule_may_leave_default_routes_out),
        cmocka_unit_test(a_rule_that_leads_on_to_another_leads_to_no_table),
        cmocka_unit_test(a_difference_is_told_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
