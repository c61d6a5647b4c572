/* A set that cannot be had holds up nothing but what depends on it. The rules are those the planner
 * writes, in iptables-legacy. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "addr_help.h"
#include "ipvs_world.h"
#include "netns.h"
#include "plan/ipvs_rules.h"

static const struct plan_options options = { .serviceproxy = true, .masquerade_bit = 14 };
static struct ipvs_world *world;
static struct ipvs *agent;
static struct ipvs_group *groups[2];
static struct buf rules4, rules6;
static struct report report;
static struct err err;

/* The i-th Service, at a load balancer's address, to all or to some. */
static void balancer(size_t i, const char *ip, bool ranges)
{
    struct ipvs_group_builder *b = ipvs_group_begin(i ? "service/a/two" : "service/a/one");
    struct ip vip = ip_of(ip), endpoint = ip_of("10.244.0.1");
    ipvs_put_bound(b, &vip);
    ipvs_put_address_port(b, KUBE_LOAD_BALANCER, &vip, L4_TCP, 80);
    if (ranges)
        ipvs_put_address_port(b, KUBE_LOAD_BALANCER_FW, &vip, L4_TCP, 80);
    ipvs_put_server(b, &vip, L4_TCP, 80, IPVS_RR, 0);
    ipvs_put_dest(b, &vip, L4_TCP, 80, &endpoint, 8080, 1);
    ipvs_group_unref(groups[i]);
    groups[i] = ipvs_group_end(b);
}

static int setup(void **state)
{
    (void)state;
    const struct ipvs_settings settings = { .iptables = IPTABLES_LEGACY };
    world = ipvs_world_new();
    struct ipvs_ports ports = ipvs_world_ports(world);
    agent = ipvs_new(&ports, &settings);
    ipvs_rules(&options, IP_V4, true, &rules4);
    ipvs_rules(&options, IP_V6, true, &rules6);
    balancer(0, "192.0.2.1", false);
    balancer(1, "192.0.2.2", true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ipvs_free(agent);
    for (size_t i = 0; i < 2; i++) {
        ipvs_group_unref(groups[i]);
        groups[i] = NULL;
    }
    report_done(&report);
    buf_done(&rules4);
    buf_done(&rules6);
    ipvs_world_free(world);
    return 0;
}

/* How many objects were refused. */
static size_t sync_now(void)
{
    const struct ipvs_want rules = { .rules4 = buf_str(&rules4), .rules6 = buf_str(&rules6) };
    const struct desired d = { .ipvs = groups, .n_ipvs = 2, .ipvs_node = &rules };
    report_reset(&report);
    if (ipvs_sync(agent, &d, 0, &report, &err))
        fail_msg("%s", err.text);
    return report.refusals.n;
}

static bool in_rules(const char *family, const char *text)
{
    return strstr(output("ip%stables-legacy-save 2>/dev/null", family), text);
}

#define ONE "tcp 192.0.2.1:80 rr 0: 10.244.0.1:8080/1\n"
#define TWO "tcp 192.0.2.2:80 rr 0: 10.244.0.1:8080/1\n"

static void it_holds_up_nothing_else(void **state)
{
    (void)state;
    run("ipset create KUBE-EXTERNAL-IP hash:net");
    for (int i = 0; i < 2; i++) { /* as long as it is there */
        assert_int_equal(sync_now(), 1);
        assert_string_equal(report.refusals.v[0].object, "ipset KUBE-EXTERNAL-IP");
        assert_string_equal(report.refusals.v[0].text,
                            "ipset KUBE-EXTERNAL-IP is of type hash:net, where hash:ip,port of "
                            "inet is needed; destroy it, together with the rules that use it");
    }
    assert_string_equal(ipvs_world_text(world), ONE TWO);
    assert_non_null(strstr(output("ip -o addr show dev kube-ipvs0"), "192.0.2.1/32"));
    assert_non_null(strstr(output("ipset list KUBE-LOAD-BALANCER-FW"), "192.0.2.2,tcp:80"));
    assert_true(in_rules("", "-j KUBE-SERVICES") && in_rules("", "KUBE-LOAD-BALANCER-FW dst,dst"));
    assert_false(in_rules("", "KUBE-EXTERNAL-IP "));
    assert_true(in_rules("6", "KUBE-6-EXTERNAL-IP ") && in_rules("6", "KUBE-6-IPVS-IPS "));
    /* It would refuse what external IPs serve. */
    assert_false(in_rules("", "KUBE-IPVS-IPS "));
    run("ipset destroy KUBE-EXTERNAL-IP"); /* no rule of ours uses it */
    assert_int_equal(sync_now(), 0);
    assert_true(in_rules("", "KUBE-EXTERNAL-IP dst,dst") && in_rules("", "KUBE-IPVS-IPS dst"));
}

/* Without the rules that drop, everybody would be admitted. */
static void servers_wait_whose_source_ranges_nobody_keeps(void **state)
{
    (void)state;
    static const char *const sets[] = { "KUBE-LOAD-BALANCER", "KUBE-LOAD-BALANCER-FW" };
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        run("ipset create %s bitmap:port range 1-9", sets[i]);
        assert_int_equal(sync_now(), 1);
        assert_string_equal(ipvs_world_text(world), ONE);
        balancer(0, "192.0.2.1", true);
        assert_int_equal(sync_now(), 1);
        assert_string_equal(ipvs_world_text(world), "");
        balancer(0, "192.0.2.1", false);
        assert_int_equal(sync_now(), 1);
        assert_string_equal(ipvs_world_text(world), ONE);
        run("ipset destroy %s", sets[i]);
        assert_int_equal(sync_now(), 0);
        assert_string_equal(ipvs_world_text(world), ONE TWO);
        teardown(NULL);
        setup(NULL);
    }
}

/* Who is admitted is not known then: nobody is. */
static void servers_of_source_ranges_without_the_ranges_are_there_for_nobody(void **state)
{
    (void)state;
    run("ipset create KUBE-LOAD-BALANCER-SRC-CIDR hash:ip");
    assert_int_equal(sync_now(), 1);
    assert_string_equal(ipvs_world_text(world), ONE TWO);
    assert_false(in_rules("", "KUBE-LOAD-BALANCER-SRC-CIDR"));
    assert_true(in_rules("", "KUBE-LOAD-BALANCER-FW dst,dst -j KUBE-SOURCE-RANGES-FIREWALL") &&
                in_rules("", "-A KUBE-SOURCE-RANGES-FIREWALL -j DROP"));
}

static void a_negated_match_is_left_out_not_its_rule(void **state)
{
    (void)state;
    static const char rule[] = "--match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ";
    run("ipset create KUBE-POD-RANGE hash:ip");
    assert_int_equal(sync_now(), 1);
    assert_true(in_rules("", rule) && !in_rules("", "KUBE-POD-RANGE"));
    run("ipset destroy KUBE-POD-RANGE");
    assert_int_equal(sync_now(), 0);
    assert_true(!in_rules("", rule) && in_rules("", "! --match-set KUBE-POD-RANGE src"));
}

/* ---- sets that an earlier version, or kube-proxy, made otherwise ---- */

static const struct {
    const char *name, *create, *add, *option, *now;
} otherwise[] = {
    { "KUBE-LOAD-BALANCER", "hash:ip,port maxelem 1", "192.0.2.9,tcp:80", "maxelem",
      "maxelem 1048576" },
    { "KUBE-6-POD-RANGE", "hash:net family inet6 timeout 300 maxelem 1048576", "fd00::/8",
      "timeout", "" },
    { "KUBE-IPVS-IPS", "hash:ip netmask 24 maxelem 1048576", "192.0.2.0", "netmask", "" },
    { "KUBE-LOAD-BALANCER-FW", "hash:ip,port forceadd maxelem 1048576", "192.0.2.9,tcp:80",
      "forceadd", "" },
    { "KUBE-NODE-PORT-TCP", "bitmap:port range 30000-32767", "30080", "range", "range 0-65535" },
};
#define N_OTHERWISE (sizeof(otherwise) / sizeof(otherwise[0]))

static void make_otherwise(void)
{
    for (size_t i = 0; i < N_OTHERWISE; i++)
        run("ipset create %s %s; ipset add %s %s", otherwise[i].name, otherwise[i].create,
            otherwise[i].name, otherwise[i].add);
}

static bool is_mended(size_t i)
{
    const char *text = output("ipset list %s", otherwise[i].name);
    return strstr(text, otherwise[i].now) &&
           (*otherwise[i].now || !strstr(text, otherwise[i].option));
}

static void one_made_otherwise_is_replaced_under_its_rules(void **state)
{
    (void)state;
    make_otherwise();
    for (size_t i = 0; i < N_OTHERWISE; i++)
        run("ip%stables-legacy -w -A INPUT -m set --match-set %s src,src -j ACCEPT",
            strstr(otherwise[i].name, "-6-") ? "6" : "", otherwise[i].name);
    assert_int_equal(sync_now(), 0);
    for (size_t i = 0; i < N_OTHERWISE; i++)
        assert_true(is_mended(i));
    assert_string_equal(output("ipset list -n | grep SPARE"), "");
    assert_non_null(strstr(output("ipset list KUBE-LOAD-BALANCER"), "192.0.2.2,tcp:80"));
    assert_non_null(strstr(output("ipset list KUBE-IPVS-IPS"), "192.0.2.1\n"));
    assert_null(strstr(output("ipset save"), "192.0.2.9")); /* nobody wants it */
    assert_true(in_rules("", "match-set KUBE-LOAD-BALANCER src"));
    ipvs_world_writes(world);
    const struct desired d = { .ipvs = groups, .n_ipvs = 2, .ipvs_node = &(struct ipvs_want){ 0 } };
    assert_int_equal(ipvs_sync(agent, &d, IPVS_LOOK_AUDIT, &report, &err), 0);
    assert_int_equal(ipvs_world_writes(world), 0);
}

/* Whenever it is killed: what was in the set is in it, or in its place. */
static void one_that_is_being_replaced_has_all_it_had(void **state)
{
    (void)state;
    const struct desired d = { .ipvs = groups, .n_ipvs = 2, .ipvs_node = &(struct ipvs_want){ 0 } };
    struct ipvs_ports ports = ipvs_world_ports(world);
    bool died = true;
    for (unsigned k = 0; died; k++) {
        run("ipset flush; ipset destroy; ipset create KUBE-LOAD-BALANCER hash:ip,port maxelem 2;"
            "ipset add KUBE-LOAD-BALANCER 192.0.2.1,tcp:80;"
            "ipset add KUBE-LOAD-BALANCER 192.0.2.9,tcp:80");
        ipvs_free(agent);
        agent = ipvs_new(&ports, &(struct ipvs_settings){ 0 });
        ipvs_world_die_after(world, k);
        died = ipvs_sync(agent, &d, 0, &report, &err);
        ipvs_world_revive(world);
        assert_non_null(strstr(output("ipset list KUBE-LOAD-BALANCER"), "192.0.2.1,tcp:80"));
        ipvs_free(agent);
        agent = ipvs_new(&ports, &(struct ipvs_settings){ 0 });
        report_reset(&report);
        assert_int_equal(ipvs_sync(agent, &d, 0, &report, &err), 0);
        assert_int_equal(report.refusals.n, 0);
        assert_non_null(strstr(output("ipset list KUBE-LOAD-BALANCER"), "maxelem 1048576"));
        assert_string_equal(output("ipset list -n | grep SPARE"), "");
    }
}

static void one_that_cannot_be_replaced_stays_and_is_named(void **state)
{
    (void)state;
    run("ipset create KUBE-LOAD-BALANCER hash:ip,port maxelem 2;"
        "ipset create KUBE-PORTOLAN-SPARE hash:ip;"
        "iptables-legacy -w -A INPUT -m set --match-set KUBE-PORTOLAN-SPARE src -j ACCEPT");
    for (int i = 0; i < 2; i++) { /* as long as it is so */
        assert_int_equal(sync_now(), 1);
        assert_string_equal(report.refusals.v[0].object, "ipset KUBE-LOAD-BALANCER");
        assert_string_equal(report.refusals.v[0].text,
                            "it was made with another maxelem than is needed, and cannot be "
                            "replaced: File exists");
    }
    assert_string_equal(ipvs_world_text(world), ONE TWO); /* it does for these two */
    run("iptables-legacy -w -D INPUT -m set --match-set KUBE-PORTOLAN-SPARE src -j ACCEPT");
    assert_int_equal(sync_now(), 0);
    assert_non_null(strstr(output("ipset list KUBE-LOAD-BALANCER"), "maxelem 1048576"));
}

static void one_that_holds_more_stays(void **state)
{
    (void)state;
    run("ipset create KUBE-LOAD-BALANCER hash:ip,port hashsize 64 maxelem 2000000 counters comment");
    assert_int_equal(sync_now(), 0);
    assert_non_null(strstr(output("ipset list KUBE-LOAD-BALANCER"), "maxelem 2000000"));
}

static void a_difference_names_those_made_otherwise(void **state)
{
    (void)state;
    const struct desired d = { .ipvs = groups, .n_ipvs = 2, .ipvs_node = &(struct ipvs_want){ 0 } };
    struct buf out = { 0 };
    make_otherwise();
    assert_int_equal(ipvs_diff(agent, &d, &out, &err), 0);
    for (size_t i = 0; i < N_OTHERWISE; i++) {
        char line[200];
        snprintf(line, sizeof(line), "- ipset %s (another %s)\n+ ipset %s\n", otherwise[i].name,
                 otherwise[i].option, otherwise[i].name);
        assert_non_null(strstr(buf_str(&out), line));
    }
    buf_done(&out);
}

static void a_difference_names_it(void **state)
{
    (void)state;
    const struct ipvs_want rules = { .rules4 = buf_str(&rules4), .rules6 = buf_str(&rules6) };
    const struct desired d = { .ipvs = groups, .n_ipvs = 2, .ipvs_node = &rules };
    struct buf out = { 0 };
    run("ipset create KUBE-6-DROP hash:net");
    assert_int_equal(ipvs_diff(agent, &d, &out, &err), 0);
    assert_non_null(strstr(buf_str(&out), "! ipset KUBE-6-DROP is of type hash:net, where"));
    assert_non_null(strstr(buf_str(&out), "+ TCP 192.0.2.1:80 rr\n"));
    sync_now();
    buf_clear(&out);
    assert_int_equal(ipvs_diff(agent, &d, &out, &err), 0);
    assert_int_equal(strchr(buf_str(&out), '\n') + 1 - buf_str(&out), out.n);
    buf_done(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_holds_up_nothing_else, setup, teardown),
        cmocka_unit_test_setup_teardown(servers_wait_whose_source_ranges_nobody_keeps, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            servers_of_source_ranges_without_the_ranges_are_there_for_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(a_negated_match_is_left_out_not_its_rule, setup, teardown),
        cmocka_unit_test_setup_teardown(one_made_otherwise_is_replaced_under_its_rules, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(one_that_is_being_replaced_has_all_it_had, setup, teardown),
        cmocka_unit_test_setup_teardown(one_that_cannot_be_replaced_stays_and_is_named, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(one_that_holds_more_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(a_difference_names_those_made_otherwise, setup, teardown),
        cmocka_unit_test_setup_teardown(a_difference_names_it, setup, teardown),
    };
    return cmocka_run_group_tests_name("ipvs_sets", tests, NULL, NULL);
}
