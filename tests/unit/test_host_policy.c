/* Policy routing of others, in a namespace of the test's own. */
#include "test.h"

#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "kernel/host.h"
#include "netns.h"

/* All of it, a line each. */
static char *observed(void)
{
    struct nl_port *port;
    struct arena mem = { 0 };
    struct host h;
    struct err err = { 0 };
    struct buf out = { 0 };
    assert_int_equal(nl_open(NETLINK_ROUTE, NULL, &port, &err), 0);
    if (host_observe(port, &mem, &h, &err) || host_observe_policy(port, &mem, true, &h, &err))
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < h.n_rules; i++)
        buf_printf(&out, "%u %u: %s%s\n", h.rules[i].family, h.rules[i].priority, h.rules[i].text,
                   h.rules[i].selective ? " (selective)" : "");
    for (uint32_t i = 0; i < h.n_foreign_tables; i++)
        buf_printf(&out, "table %u protocol %u\n", h.foreign_tables[i].table,
                   h.foreign_tables[i].protocol);
    for (uint32_t i = 0; i < h.n_ifaces; i++)
        buf_printf(&out, "%s rp_filter %u\n", h.ifaces[i].name, h.ifaces[i].rp_filter);
    nl_close(port);
    arena_done(&mem);
    return out.p;
}

#define PLAIN4 "4 32766: from all lookup main\n4 32767: from all lookup default\n"
#define PLAIN6 "6 32766: from all lookup main\n"

static void a_fresh_machine_has_the_kernels_rules(void **state)
{
    (void)state;
    int ns = netns_new();
    char *text = observed();
    assert_non_null(strstr(text, PLAIN4 PLAIN6));
    assert_null(strstr(text, "table"));
    assert_null(strstr(text, "lookup 255"));
    free(text);
    close(ns);
}

static void rules_of_others_are_told_apart(void **state)
{
    (void)state;
    int ns = netns_new();
    run("ip rule add pref 50 lookup main suppress_prefixlength 0;"
        "ip rule add pref 60 from 192.0.2.0/24 to 10.0.0.0/8 lookup 9;"
        "ip rule add pref 70 fwmark 1 lookup 9;"
        "ip rule add pref 71 iif lo lookup 9;"
        "ip rule add pref 72 not from 10.0.0.0/8 lookup 9;"
        "ip rule add pref 80 from 10.0.0.0/8 unreachable;"
        "ip rule add pref 90 from 10.0.0.0/8 lookup 47 proto 107;"
        "ip -6 rule add pref 55 to fd00::/8 lookup 9");
    char *text = observed();
    assert_int_equal(strncmp(text, "4 50: from all lookup main suppress_prefixlength 0\n", 51), 0);
    const char *const lines[] = { "4 60: from 192.0.2.0/24 to 10.0.0.0/8 lookup 9\n",
                                  "4 70: from all and more lookup 9 (selective)\n",
                                  "4 71: from all and more lookup 9 (selective)\n",
                                  "4 72: from 10.0.0.0/8 and more lookup 9 (selective)\n",
                                  "4 80: from 10.0.0.0/8 action 7\n",
                                  "6 55: from all to fd00::/8 lookup 9\n" };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (!strstr(text, lines[i]))
            fail_msg("%s is not in\n%s", lines[i], text);
    assert_null(strstr(text, "90:"));
    free(text);
    close(ns);
}

static void tables_of_others_are_known_by_their_routes(void **state)
{
    (void)state;
    int ns = netns_new();
    run("ip link add d0 type veth peer name d1; ip link set d0 up; ip link set d1 up;"
        "ip addr add 10.0.0.1/24 dev d0;"
        "ip route add 10.1.0.0/24 via 10.0.0.2 table 47 proto bird metric 32;"
        "ip route add throw 10.2.0.0/16 table 47 proto 107 metric 8192;"
        "ip route add 10.3.0.0/24 via 10.0.0.2 table 4294967290 proto static;"
        "ip route add 10.4.0.0/24 via 10.0.0.2 table 4294967290;"
        "ip route add 10.5.0.0/24 via 10.0.0.2 proto static;"
        "ip -6 route add unreachable fd00::/8 table 48 proto 98");
    char *text = observed();
    if (!strstr(text, "table 48 protocol 98\ntable 4294967290 protocol 4\nd0"))
        fail_msg("%s", text);
    free(text);
    close(ns);
}

static void the_stricter_rp_filter_counts(void **state)
{
    (void)state;
    int ns = netns_new();
    run("ip link add d0 type veth peer name d1");
    sysctl_put("net/ipv4/conf/all/rp_filter", "0");
    sysctl_put("net/ipv4/conf/d0/rp_filter", "1");
    sysctl_put("net/ipv4/conf/d1/rp_filter", "0");
    char *text = observed();
    assert_non_null(strstr(text, "d0 rp_filter 1\nd1 rp_filter 0\n"));
    free(text);
    sysctl_put("net/ipv4/conf/all/rp_filter", "2");
    text = observed();
    assert_non_null(strstr(text, "d0 rp_filter 2\nd1 rp_filter 2\n"));
    free(text);
    close(ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fresh_machine_has_the_kernels_rules),
        cmocka_unit_test(rules_of_others_are_told_apart),
        cmocka_unit_test(tables_of_others_are_known_by_their_routes),
        cmocka_unit_test(the_stricter_rp_filter_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
