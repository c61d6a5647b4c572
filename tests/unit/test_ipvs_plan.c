/* IPVS entries as values, and what a golden cannot show of them: what one pass keeps of the last, and
 * entries that move. That the short way and the long way agree: tests/property. */
#include "test.h"

#include <string.h>

#include "addr_help.h"
#include "plan/ipvs_rules.h"
#include "services_bench.h"

/* "; " after each entry. */
static struct buf text_of(const struct ipvs_group *g)
{
    struct buf b = { 0 };
    for (uint32_t i = 0; i < g->n; i++) {
        ipvs_text_entry(&b, &g->entries[i]);
        buf_puts(&b, "; ");
    }
    return b;
}

static void assert_text(const struct ipvs_group *g, const char *want)
{
    struct buf b = text_of(g);
    assert_string_equal(buf_str(&b), want);
    buf_done(&b);
}

/* ---- names ---- */

static void names_fit_the_kernel_and_differ(void **state)
{
    (void)state;
    for (enum ipvs_set i = 0; i < KUBE_SET_COUNT; i++) {
        assert_true(strlen(ipvs_set_name(i, IP_V4)) <= 31 && strlen(ipvs_set_name(i, IP_V6)) <= 31);
        assert_true(strlen(ipvs_set_defs[i].comment) <= 255 && *ipvs_set_defs[i].comment);
        assert_true(!strncmp(ipvs_set_name(i, IP_V4), "KUBE-", 5));
        assert_true(!strncmp(ipvs_set_name(i, IP_V6), "KUBE-6-", 7));
        assert_string_equal(ipvs_set_name(i, IP_V4) + 5, ipvs_set_name(i, IP_V6) + 7);
        for (enum ipvs_set j = 0; j < i; j++)
            assert_string_not_equal(ipvs_set_name(i, IP_V4), ipvs_set_name(j, IP_V4));
    }
}

static void schedulers_have_the_kernels_names_and_one_more(void **state)
{
    (void)state;
    static const char *const names[] = { "rr",    "wrr", "lc", "wlc", "lblc",
                                         "lblcr", "dh",  "sh", "sed", "nq" };
    enum ipvs_scheduler s;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_true(ipvs_scheduler_parse(names[i], &s));
        assert_string_equal(ipvs_scheduler_name(s), names[i]);
    }
    assert_true(ipvs_scheduler_parse("seq", &s));
    assert_string_equal(ipvs_scheduler_name(s), "sed");
    assert_false(ipvs_scheduler_parse("", &s) || ipvs_scheduler_parse("RR", &s) ||
                 ipvs_scheduler_parse("mh", &s));
}

/* ---- groups ---- */

static void entries_are_sorted_and_the_first_of_a_key_stays(void **state)
{
    (void)state;
    const struct ip vip = ip_of("10.96.0.1"), six = ip_of("fd00::1"), a = ip_of("10.1.0.10"),
                    b = ip_of("10.1.0.9");
    struct ipvs_group_builder *x = ipvs_group_begin("service/a/web");
    ipvs_put_dest(x, &vip, L4_TCP, 80, &a, 8080, 1);
    ipvs_put_dest(x, &vip, L4_TCP, 80, &b, 8080, 1);
    ipvs_put_dest(x, &vip, L4_TCP, 80, &b, 80, 1);
    ipvs_put_dest(x, &vip, L4_TCP, 80, &a, 8080, 9);
    ipvs_put_server(x, &vip, L4_UDP, 80, IPVS_RR, 0);
    ipvs_put_server(x, &vip, L4_TCP, 443, IPVS_SED, 60);
    ipvs_put_server(x, &vip, L4_TCP, 80, IPVS_RR, 0);
    ipvs_put_server(x, &six, L4_SCTP, 80, IPVS_RR, 0);
    ipvs_put_bound(x, &six);
    ipvs_put_port(x, KUBE_NODE_PORT_TCP, IP_V6, 30080);
    ipvs_put_port(x, KUBE_NODE_PORT_TCP, IP_V4, 30080);
    ipvs_put_port(x, KUBE_NODE_PORT_TCP, IP_V4, 30080);
    struct ipvs_group *g = ipvs_group_end(x);
    assert_string_equal(g->owner, "service/a/web");
    assert_text(g, "KUBE-NODE-PORT-TCP 30080; KUBE-6-NODE-PORT-TCP 30080; KUBE-6-IPVS-IPS fd00::1; "
                   "kube-ipvs0 fd00::1; "
                   "TCP 10.96.0.1:80 rr; TCP 10.96.0.1:443 sed persistent 60; UDP 10.96.0.1:80 rr; "
                   "SCTP [fd00::1]:80 rr; "
                   "TCP 10.96.0.1:80 -> 10.1.0.9:80 weight 1; "
                   "TCP 10.96.0.1:80 -> 10.1.0.9:8080 weight 1; "
                   "TCP 10.96.0.1:80 -> 10.1.0.10:8080 weight 1; ");
    ipvs_group_unref(g);
}

static void everything_that_tells_entries_apart_is_in_the_key(void **state)
{
    (void)state;
    const struct ip vip = ip_of("10.96.0.1"), other = ip_of("10.1.0.1");
    const struct ip_prefix net = { other, 24 }, narrow = { other, 32 };
    struct ipvs_group_builder *x = ipvs_group_begin("service/a/web");
    ipvs_put_address_port(x, KUBE_EXTERNAL_IP, &vip, L4_TCP, 80);
    ipvs_put_address_port(x, KUBE_EXTERNAL_IP_LOCAL, &vip, L4_TCP, 80);
    ipvs_put_address_port(x, KUBE_EXTERNAL_IP, &vip, L4_UDP, 80);
    ipvs_put_address_port(x, KUBE_EXTERNAL_IP, &vip, L4_TCP, 81);
    ipvs_put_address_port_address(x, KUBE_LOOP_BACK, &vip, L4_TCP, 80, &vip);
    ipvs_put_address_port_address(x, KUBE_LOOP_BACK, &vip, L4_TCP, 80, &other);
    ipvs_put_address_port_net(x, KUBE_LOAD_BALANCER_SRC_CIDR, &vip, L4_TCP, 80, &net);
    ipvs_put_address_port_net(x, KUBE_LOAD_BALANCER_SRC_CIDR, &vip, L4_TCP, 80, &narrow);
    ipvs_put_port(x, KUBE_NODE_PORT_UDP, IP_V4, 80);
    ipvs_put_port(x, KUBE_NODE_PORT_LOCAL_UDP, IP_V4, 80);
    struct ipvs_group *g = ipvs_group_end(x);
    assert_text(g, "KUBE-LOOP-BACK 10.96.0.1,tcp:80,10.1.0.1; "
                   "KUBE-LOOP-BACK 10.96.0.1,tcp:80,10.96.0.1; "
                   "KUBE-EXTERNAL-IP 10.96.0.1,tcp:80; KUBE-EXTERNAL-IP 10.96.0.1,tcp:81; "
                   "KUBE-EXTERNAL-IP 10.96.0.1,udp:80; KUBE-EXTERNAL-IP-LOCAL 10.96.0.1,tcp:80; "
                   "KUBE-LOAD-BALANCER-SRC-CIDR 10.96.0.1,tcp:80,10.1.0.0/24; "
                   "KUBE-LOAD-BALANCER-SRC-CIDR 10.96.0.1,tcp:80,10.1.0.1/32; "
                   "KUBE-NODE-PORT-UDP 80; KUBE-NODE-PORT-LOCAL-UDP 80; ");
    ipvs_group_unref(g);
}

static void a_net_of_all_becomes_its_halves(void **state)
{
    (void)state;
    const struct ip six = ip_of("2001:db8::1");
    const struct ip_prefix all4 = { ip_of("10.1.2.3"), 0 }, all6 = { ip_of("::"), 0 };
    struct ipvs_group_builder *x = ipvs_group_begin("proxy");
    ipvs_put_net(x, KUBE_POD_RANGE, &all4);
    ipvs_put_address_port_net(x, KUBE_LOAD_BALANCER_SRC_CIDR, &six, L4_TCP, 80, &all6);
    struct ipvs_group *g = ipvs_group_end(x);
    assert_text(g, "KUBE-6-LOAD-BALANCER-SRC-CIDR 2001:db8::1,tcp:80,::/1; "
                   "KUBE-6-LOAD-BALANCER-SRC-CIDR 2001:db8::1,tcp:80,8000::/1; "
                   "KUBE-POD-RANGE 0.0.0.0/1; KUBE-POD-RANGE 128.0.0.0/1; ");
    ipvs_group_unref(g);
}

/* ---- a node's view of a few Services ---- */

static const struct plan_options options = { .serviceproxy = true,
                                             .proxy_mode = PROXY_IPVS,
                                             .ipvs = { .weight = 1 } };

#define EXTERNAL(policy)                                                             \
    "clusterIP: 10.96.0.1, externalIPs: [192.0.2.7], externalTrafficPolicy: " policy \
    ", ports: [{port: 80}]"

static const struct ipvs_group *group_of(const struct plan *p, const char *owner)
{
    for (size_t i = 0; i < p->desired.n_ipvs; i++)
        if (!strcmp(p->desired.ipvs[i]->owner, owner))
            return p->desired.ipvs[i];
    return NULL;
}

static bool has(const struct ipvs_group *g, const char *entry)
{
    struct buf b = text_of(g), want = { 0 };
    buf_printf(&want, "; %s; ", entry);
    bool found = strstr(buf_str(&b), want.p) || !strncmp(buf_str(&b), want.p + 2, want.n - 2);
    buf_done(&b);
    buf_done(&want);
    return found;
}
#define HAS(b, owner, entry) has(group_of((b).plan, owner), entry)

static void without_nftables_features_there_is_no_element_of_it(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, &options);
    put(&b, SERVICE("web", "1", EXTERNAL("Cluster")) SLICE("web", "10.1.0.1", "n", ""));
    assert_int_equal(b.plan->desired.n_groups, 0);
    assert_int_equal(b.plan->desired.n_ipvs, 1);
    assert_non_null(b.plan->desired.ipvs_node);
    assert_false(plan_needs_nft(&options));
    assert_false(plan_needs_nft(&(struct plan_options){ .trafficclass = true }));
    assert_true(plan_needs_nft(&(struct plan_options){ .loadbalancer = true }));
    assert_true(plan_needs_nft(&plan_options_default));
    end(&b);
}

static void only_what_changed_is_made_anew(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, &options);
    put(&b, SERVICE("one", "1", "ports: [{port: 80}], clusterIP: 10.96.0.2")
                SLICE("one", "10.1.0.1", "n", "") SERVICE("web", "1", EXTERNAL("Cluster"))
                    SLICE("web", "10.1.0.2", "n", ""));
    const struct ipvs_group *one = group_of(b.plan, "service/a/one"),
                            *web = group_of(b.plan, "service/a/web");
    put(&b, SLICE("web", "10.1.0.9", "n", ""));
    assert_ptr_equal(group_of(b.plan, "service/a/one"), one);
    assert_ptr_not_equal(group_of(b.plan, "service/a/web"), web);
    assert_true(HAS(b, "service/a/web", "TCP 10.96.0.1:80 -> 10.1.0.9:8080 weight 1"));
    web = group_of(b.plan, "service/a/web");
    put(&b, NODE("m", "10.0.0.2", "")
                SERVICE("web", "1", "internalTrafficPolicy: Local, " EXTERNAL("Cluster")));
    assert_ptr_equal(group_of(b.plan, "service/a/one"), one);
    assert_ptr_equal(group_of(b.plan, "service/a/web"), web);
    end(&b);
}

static void another_policy_moves_entries(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, &options);
    put(&b, SERVICE("web", "1", EXTERNAL("Cluster")) SLICE("web", "10.1.0.1", "m", ""));
    assert_true(HAS(b, "service/a/web", "KUBE-EXTERNAL-IP 192.0.2.7,tcp:80"));
    assert_false(HAS(b, "service/a/web", "KUBE-EXTERNAL-IP-LOCAL 192.0.2.7,tcp:80"));
    put(&b, SERVICE("web", "1", EXTERNAL("Local")));
    assert_true(HAS(b, "service/a/web", "KUBE-EXTERNAL-IP 192.0.2.7,tcp:80"));
    assert_true(HAS(b, "service/a/web", "KUBE-EXTERNAL-IP-LOCAL 192.0.2.7,tcp:80"));
    assert_true(HAS(b, "service/a/web", "KUBE-DROP-OUTSIDE 192.0.2.7,tcp:80"));
    assert_true(HAS(b, "service/a/web", "TCP 192.0.2.7:80 -> 10.1.0.1:8080 weight 1"));
    put(&b, SLICE("web", "10.1.0.2", "n", ""));
    assert_false(HAS(b, "service/a/web", "KUBE-DROP-OUTSIDE 192.0.2.7,tcp:80"));
    put(&b, SERVICE("web", "1", EXTERNAL("Cluster")));
    assert_false(HAS(b, "service/a/web", "KUBE-EXTERNAL-IP-LOCAL 192.0.2.7,tcp:80"));
    end(&b);
}

static void a_machines_address_is_bound_nowhere_as_long_as_it_is_one(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, &options);
    put(&b, SERVICE("web", "1", EXTERNAL("Cluster")) SLICE("web", "10.1.0.1", "n", ""));
    assert_true(HAS(b, "service/a/web", "kube-ipvs0 192.0.2.7"));
    b.iface.n_addresses = 2; /* an interface of this node gets it */
    plan(&b, true);
    assert_false(HAS(b, "service/a/web", "kube-ipvs0 192.0.2.7"));
    assert_true(HAS(b, "service/a/web", "TCP 192.0.2.7:80 rr"));
    b.iface.n_addresses = 1;
    plan(&b, true);
    assert_true(HAS(b, "service/a/web", "kube-ipvs0 192.0.2.7"));
    put(&b, NODE("m", "192.0.2.7", "")); /* another node */
    assert_false(HAS(b, "service/a/web", "kube-ipvs0 192.0.2.7"));
    assert_false(HAS(b, "service/a/web", "KUBE-IPVS-IPS 192.0.2.7"));
    take_away(&b, KIND_NODE, "m");
    assert_true(HAS(b, "service/a/web", "kube-ipvs0 192.0.2.7"));
    end(&b);
}

static void the_next_oldest_takes_over(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, &options);
    put(&b,
        SERVICE("new", "2", "ports: [{port: 80}], externalIPs: [192.0.2.7], clusterIP: 10.96.0.2")
            SERVICE("old", "1", EXTERNAL("Cluster")));
    assert_true(HAS(b, "service/a/old", "TCP 192.0.2.7:80 rr"));
    assert_false(HAS(b, "service/a/new", "TCP 192.0.2.7:80 rr"));
    assert_false(HAS(b, "service/a/new", "kube-ipvs0 192.0.2.7"));
    assert_int_equal(b.plan->problems.n, 1);
    take_away(&b, KIND_SERVICE, "old");
    assert_null(group_of(b.plan, "service/a/old"));
    assert_true(HAS(b, "service/a/new", "TCP 192.0.2.7:80 rr"));
    assert_true(HAS(b, "service/a/new", "kube-ipvs0 192.0.2.7"));
    end(&b);
}

static void a_plan_can_be_read_until_the_second_next(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, &options);
    const struct plan *before =
        put(&b, SERVICE("web", "1", EXTERNAL("Cluster")) SLICE("web", "10.1.0.1", "n", ""));
    assert_true(store_remove(b.store, KIND_SERVICE, "a", "web"));
    b.iface.n_addresses = 2;
    const struct plan *after = plan(&b, true);
    assert_null(group_of(after, "service/a/web"));
    assert_true(has(group_of(before, "service/a/web"), "TCP 192.0.2.7:80 rr"));
    assert_true(!strncmp(before->desired.ipvs_node->rules4, "*nat\n", 5));
    end(&b);
}

/* ---- rules ---- */

/* Every chain a rule is in, or leads to, is declared in the rule's table, or is a target. */
static void assert_chains(char *rules)
{
    static const char *const targets[] = { "ACCEPT", "DROP",       "RETURN",
                                           "MARK",   "MASQUERADE", "REJECT" };
    char declared[4096] = "", *save;
    for (char *l = strtok_r(rules, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        char chain[64], want[72];
        if (*l == '*')
            *declared = 0;
        else if (sscanf(l, ":%63s", chain) == 1)
            snprintf(strchr(declared, 0), 72, " %s ", chain);
        if (sscanf(l, "-A %63s", chain) != 1)
            continue;
        snprintf(want, sizeof(want), " %s ", chain);
        assert_non_null(strstr(declared, want));
        assert_int_equal(sscanf(strstr(l, " -j ") + 4, "%63s", chain), 1);
        snprintf(want, sizeof(want), " %s ", chain);
        bool known = strstr(declared, want);
        for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++)
            known |= !strcmp(chain, targets[i]);
        if (!known)
            fail_msg("nobody declares %s", chain);
    }
}

static void rules_lead_to_chains_that_are_there(void **state)
{
    (void)state;
    for (int pods = 0; pods < 2; pods++) {
        struct buf four = { 0 }, six = { 0 };
        ipvs_rules(&options, IP_V4, pods, &four);
        ipvs_rules(&options, IP_V6, pods, &six);
        assert_null(strstr(four.p, "KUBE-6-"));
        for (const char *s = six.p; (s = strstr(s, "--match-set ")); s++)
            assert_int_equal(strncmp(s, "--match-set KUBE-6-", 19), 0);
        assert_chains(four.p);
        assert_chains(six.p);
        buf_done(&four);
        buf_done(&six);
    }
    for (size_t i = 0; i < IPVS_JUMP_COUNT; i++) {
        size_t j = 0;
        while (j < IPVS_CHAIN_COUNT && (strcmp(ipvs_chains[j].table, ipvs_jumps[i].table) ||
                                        strcmp(ipvs_chains[j].name, ipvs_jumps[i].target)))
            j++;
        assert_true(j < IPVS_CHAIN_COUNT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_fit_the_kernel_and_differ),
        cmocka_unit_test(schedulers_have_the_kernels_names_and_one_more),
        cmocka_unit_test(entries_are_sorted_and_the_first_of_a_key_stays),
        cmocka_unit_test(everything_that_tells_entries_apart_is_in_the_key),
        cmocka_unit_test(a_net_of_all_becomes_its_halves),
        cmocka_unit_test(without_nftables_features_there_is_no_element_of_it),
        cmocka_unit_test(only_what_changed_is_made_anew),
        cmocka_unit_test(another_policy_moves_entries),
        cmocka_unit_test(a_machines_address_is_bound_nowhere_as_long_as_it_is_one),
        cmocka_unit_test(the_next_oldest_takes_over),
        cmocka_unit_test(a_plan_can_be_read_until_the_second_next),
        cmocka_unit_test(rules_lead_to_chains_that_are_there),
    };
    return cmocka_run_group_tests_name("ipvs plan", tests, NULL, NULL);
}
