#include "test.h"

#include <net/if.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "kernel/monitor.h"
#include "kernel/nft.h"
#include "kernel/rtnl.h"
#include "model/ipvs.h"
#include "netns.h"
#include "plan/plan.h"
#include "want.h"

#define OWN_PORTID 0xfffffff0u /* nobody's */

static struct monitor *open_in_new_world(void)
{
    struct monitor *m;
    struct err err = { 0 };
    close(netns_new());
    /* Without link-local addresses, whose tests end in events a second later. */
    run("ip link add u0 type veth peer name u1; ip link set u0 addrgenmode none;"
        "ip link set u1 addrgenmode none; ip link set u0 up; ip link set u1 up;"
        "ip addr add 192.0.2.1/24 dev u0");
    assert_true(
        within_ms(5000, !strcmp(output("ip link show type veth | grep -c 'state UP'"), "2\n")));
    if (monitor_open(OWN_PORTID, false, &m, &err))
        fail_msg("%s", err.text);
    return m;
}

static bool readable(const struct monitor *m)
{
    struct pollfd fds[] = { { .fd = monitor_fd_route(m), .events = POLLIN },
                            { .fd = monitor_fd_nft(m), .events = POLLIN } };
    return poll(fds, 2, 0) > 0;
}

/* The kernel announces some things a little after the command is done. */
static void assert_events(struct monitor *m, const char *command, unsigned want)
{
    run("%s", command);
    assert_true(want || !readable(m));
    unsigned got = 0;
    if (!within_ms(3000, (got |= monitor_read(m)) == want))
        fail_msg("%s: events %u, not %u", command, got, want);
}

static void events_are_told_apart(void **state)
{
    (void)state;
    struct monitor *m = open_in_new_world();
    assert_events(m, "true", 0);
    assert_events(m, "ip addr add 192.0.2.5/24 dev u0", MONITOR_HOST);
    assert_events(m, "ip addr add 2001:db8::5/64 dev u0 nodad", MONITOR_HOST);
    assert_events(m, "ip link set u0 mtu 1400", MONITOR_HOST);
    assert_events(m, "ip route add default via 192.0.2.9", MONITOR_HOST);
    assert_events(m, "ip -6 route add default via 2001:db8::9", MONITOR_HOST);
    assert_events(m, "ip route del default", MONITOR_HOST);
    assert_events(m, "ip rule add prio 101 fwmark 7 lookup 200 proto 107", MONITOR_OURS);
    assert_events(m, "ip rule del prio 101", MONITOR_OURS);
    assert_events(m, "ip -6 rule add prio 101 fwmark 7 lookup 200 proto 107", MONITOR_OURS);
    assert_events(m, "ip route add unreachable 198.51.100.0/24 proto 107", MONITOR_OURS);
    assert_events(m, "ip -6 route add unreachable 2001:db8:9::/64 proto 107", MONITOR_OURS);
    assert_events(m, "ip route del unreachable 198.51.100.0/24 proto 107", MONITOR_OURS);
    assert_events(m, "ip link add pl4242 type vxlan id 4242 remote 192.0.2.2 dstport 4790",
                  MONITOR_OURS);
    run("ip link set pl4242 addrgenmode none"); /* or an event comes a second later */
    monitor_read(m);
    assert_events(m, "ip link set pl4242 up", MONITOR_OURS);
    assert_events(m, "ip addr add 169.254.77.0/31 dev pl4242", MONITOR_OURS);
    assert_events(m, "ip addr del 169.254.77.0/31 dev pl4242", MONITOR_OURS);
    assert_events(m, "ip link set pl4242 alias 'portolan: x'", MONITOR_OURS);
    assert_events(m, "ip link set pl4242 down; ip link set pl4242 name stolen", MONITOR_OURS);
    assert_events(m, "ip link del stolen", MONITOR_OURS);
    assert_events(m, "ip link add plo type vxlan id 7012352 dstport 4790", MONITOR_OURS);
    assert_events(m, "ip addr add 169.254.96.1/19 dev plo", MONITOR_OURS);
    assert_events(m, "ip addr del 169.254.96.1/19 dev plo", MONITOR_OURS);
    assert_events(m, "ip neigh add 169.254.96.2 lladdr 02:00:00:00:00:02 nud permanent dev plo",
                  MONITOR_OURS);
    assert_events(m, "ip neigh del 169.254.96.2 dev plo", MONITOR_OURS);
    assert_events(m, "bridge fdb add 02:00:00:00:00:02 dev plo dst 192.0.2.2 self permanent",
                  MONITOR_OURS);
    assert_events(m, "bridge fdb del 02:00:00:00:00:02 dev plo self", MONITOR_OURS);
    assert_events(m, "ip link del plo", MONITOR_OURS);
    monitor_close(m);
}

static void what_does_not_concern_us_wakes_nobody(void **state)
{
    (void)state;
    struct monitor *m = open_in_new_world();
    assert_events(m, "ip route add 198.51.100.0/24 via 192.0.2.9", 0);
    assert_events(m, "ip route add default via 192.0.2.9 table 7", 0);
    assert_events(m, "ip -6 route add 2001:db8:7::/48 dev u0", 0);
    assert_events(m, "ip route del 198.51.100.0/24", 0);
    assert_events(m, "ip neigh add 192.0.2.7 lladdr 02:00:00:00:00:07 nud reachable dev u0", 0);
    monitor_close(m);
}

/* A bridge of its name: not every kernel has dummies. */
static void the_device_of_services_is_heard_when_it_goes(void **state)
{
    (void)state;
    struct monitor *m = open_in_new_world();
    struct err err = { 0 };
    run("ip link add kube-ipvs0 type bridge; ip link set kube-ipvs0 addrgenmode none up");
    monitor_read(m);
    run("ip addr add 192.0.2.77/32 dev kube-ipvs0");
    assert_true(monitor_read(m) & MONITOR_HOST);
    assert_int_equal(monitor_ignore_addresses(m, if_nametoindex(IPVS_LINK), &err), 0);
    assert_events(m, "ip addr add 10.96.0.1/32 dev kube-ipvs0", 0);
    assert_events(m, "ip addr add fd00::1/128 dev kube-ipvs0 nodad", 0);
    assert_events(m, "ip addr del 10.96.0.1/32 dev kube-ipvs0", 0);
    assert_events(m, "ip addr add 192.0.2.5/24 dev u0", MONITOR_HOST);
    assert_events(m, "ip route add default via 192.0.2.9", MONITOR_HOST);
    assert_events(m, "ip route add unreachable 198.51.100.0/24 proto 107", MONITOR_OURS);
    assert_events(m, "ip route add unreachable 198.51.101.0/24", 0);
    assert_events(m, "ip link del kube-ipvs0", MONITOR_IPVS);
    monitor_close(m);
}

static void strangers_rules_are_told_apart(void **state)
{
    (void)state;
    struct monitor *m = open_in_new_world();
    assert_events(m, "ip rule add prio 105 lookup 7", MONITOR_POLICY);
    assert_events(m, "ip -6 rule add prio 105 lookup 7 proto 98", MONITOR_POLICY);
    run("ip addr add fe80::77/64 dev u0 nodad"); /* every pod's interface gets one */
    assert_int_equal(monitor_read(m), 0);
    monitor_close(m);
}

static void what_others_do_in_tables_of_their_own_is_heard_if_asked_for(void **state)
{
    (void)state;
    struct monitor *m;
    struct err err;
    monitor_close(open_in_new_world());
    assert_int_equal(monitor_open(OWN_PORTID, true, &m, &err), 0);
    assert_events(m, "ip route add 198.51.100.0/24 via 192.0.2.9", 0);
    assert_events(m, "ip route add 198.51.100.0/24 via 192.0.2.9 table 7", MONITOR_POLICY);
    assert_events(m, "ip route add 198.51.100.0/24 via 192.0.2.9 table 700", MONITOR_POLICY);
    assert_events(m, "ip -6 route add 2001:db8:7::/48 dev u0 table 7", MONITOR_POLICY);
    assert_events(m, "ip route del 198.51.100.0/24 table 7", MONITOR_POLICY);
    assert_events(m, "ip route add 198.51.100.0/24 via 192.0.2.9 table 7 proto bird", 0);
    assert_events(m, "ip route add default via 192.0.2.9", MONITOR_HOST);
    assert_events(m, "ip route add local 198.51.100.7 dev lo table local", 0);
    monitor_close(m);
}

static void a_switch_of_rp_filter_is_seen(void **state)
{
    (void)state;
    struct monitor *m = open_in_new_world();
    assert_events(
        m, "sysctl -qw net.ipv4.conf.u0.rp_filter=0; sysctl -qw net.ipv4.conf.u0.rp_filter=1",
        MONITOR_RP_FILTER);
    assert_events(m, "sysctl -qw net.ipv4.conf.u0.forwarding=0", 0);
    monitor_close(m);
}

static void a_switch_of_forwarding_is_seen(void **state)
{
    (void)state;
    struct monitor *m = open_in_new_world();
    assert_events(m, "sysctl -qw net.ipv4.ip_forward=0; sysctl -qw net.ipv4.ip_forward=1",
                  MONITOR_HOST);
    assert_events(m, "sysctl -qw net.ipv6.conf.all.forwarding=1", MONITOR_HOST);
    monitor_close(m);
}

static void a_change_of_our_table_is_told_from_others(void **state)
{
    (void)state;
    struct monitor *m = open_in_new_world();
    assert_events(m, "nft add table inet other", MONITOR_GEN);
    assert_events(m, "nft 'add set inet other s { type ipv4_addr; elements = { 192.0.2.1 } }'",
                  MONITOR_GEN);
    assert_events(m, "nft add table ip portolan", MONITOR_GEN);
    assert_events(m, "nft add table inet portolan", MONITOR_GEN | MONITOR_NFT);
    assert_events(m, "nft 'add set inet portolan s { type ipv4_addr; }'",
                  MONITOR_GEN | MONITOR_NFT);
    assert_events(m, "nft add element inet portolan s { 192.0.2.1 }", MONITOR_GEN | MONITOR_NFT);
    /* In a commit of several tables ours may come last. */
    assert_events(m,
                  "nft 'add rule inet other c counter' 2>&1 | grep -q . ; "
                  "nft 'add chain inet other c; add element inet portolan s { 192.0.2.2 }'",
                  MONITOR_GEN | MONITOR_NFT);
    assert_events(m, "nft flush ruleset", MONITOR_GEN | MONITOR_NFT);
    assert_events(m, "nft list ruleset", 0);
    monitor_close(m);
}

static void own_batches_are_not_heard(void **state)
{
    (void)state;
    struct monitor *m;
    struct nl_port *port;
    struct err err;
    monitor_close(open_in_new_world());
    assert_int_equal(nl_open(NETLINK_NETFILTER, NULL, &port, &err), 0);
    assert_int_equal(monitor_open(port->portid, false, &m, &err), 0);
    struct nft *nft = nft_new(port, plan_ruleset(&plan_options_default));
    struct report report = { 0 };
    assert_int_equal(nft_sync(nft, NULL, 0, true, &report, &err), 0);
    assert_true(report.bytes > 0);
    assert_int_equal(monitor_read(m), 0);
    /* What others do to other tables costs no reading of ours. */
    run("nft add table inet other");
    assert_int_equal(monitor_read(m), MONITOR_GEN);
    nft_accept_generation(nft);
    assert_false(nft_foreign_change(nft));
    nft_free(nft);
    report_done(&report);
    nl_close(port);
    monitor_close(m);
}

static void unheard_changes_show_in_the_generation(void **state)
{
    (void)state;
    struct monitor *m = open_in_new_world();
    struct nl_port *port;
    struct err err;
    struct report report = { 0 };
    assert_int_equal(nl_open(NETLINK_NETFILTER, NULL, &port, &err), 0);
    struct nft *nft = nft_new(port, plan_ruleset(&plan_options_default));
    assert_int_equal(monitor_hear_nft(m, false, &err), 0);
    assert_int_equal(nft_sync(nft, NULL, 0, true, &report, &err), 0);
    assert_false(nft_foreign_change(nft));
    run("nft add table inet other");
    assert_int_equal(monitor_hear_nft(m, true, &err), 0);
    assert_true(nft_foreign_change(nft));
    assert_int_equal(monitor_read(m), 0);
    assert_events(m, "nft delete table inet other", MONITOR_GEN);
    nft_free(nft);
    report_done(&report);
    nl_close(port);
    monitor_close(m);
}

static void an_audit_that_changes_nothing_is_silent(void **state)
{
    (void)state;
    struct monitor *m = open_in_new_world();
    struct nl_port *port;
    struct err err;
    struct want w = { 0 };
    struct report report = { 0 };
    want_slot(&w, (struct want_slot){ .local = ip_v4(192, 0, 2, 1),
                                      .remote = ip_v4(192, 0, 2, 2),
                                      .mtu = 1400,
                                      .ipv6 = true });
    const struct desired *d = want_finish(&w);
    assert_int_equal(nl_open(NETLINK_ROUTE, NULL, &port, &err), 0);
    struct rtnl *r = rtnl_new(port);
    assert_int_equal(rtnl_add(r, d, true, &report, &err), 0);
    assert_int_equal(report.refusals.n, 0);
    assert_int_equal(monitor_read(m), MONITOR_OURS);
    assert_int_equal(rtnl_add(r, d, true, &report, &err), 0);
    rtnl_remove(r, d, &report);
    assert_false(readable(m));
    assert_int_equal(monitor_read(m), 0);
    report_done(&report);
    rtnl_free(r);
    nl_close(port);
    want_done(&w);
    monitor_close(m);
}

static void lost_events_are_said(void **state)
{
    (void)state;
    struct monitor *m = open_in_new_world();
    int small = 1;
    assert_int_equal(setsockopt(monitor_fd_route(m), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)),
                     0);
    run("for i in 1 2 3 4 5 6 7 8 9; do ip link set u0 mtu 130$i; done");
    assert_true(monitor_read(m) & MONITOR_LOST);
    assert_int_equal(monitor_read(m), 0);
    assert_events(m, "ip link set u0 mtu 1399", MONITOR_HOST); /* it goes on */
    monitor_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_told_apart),
        cmocka_unit_test(what_does_not_concern_us_wakes_nobody),
        cmocka_unit_test(the_device_of_services_is_heard_when_it_goes),
        cmocka_unit_test(strangers_rules_are_told_apart),
        cmocka_unit_test(what_others_do_in_tables_of_their_own_is_heard_if_asked_for),
        cmocka_unit_test(a_switch_of_rp_filter_is_seen),
        cmocka_unit_test(a_switch_of_forwarding_is_seen),
        cmocka_unit_test(a_change_of_our_table_is_told_from_others),
        cmocka_unit_test(own_batches_are_not_heard),
        cmocka_unit_test(unheard_changes_show_in_the_generation),
        cmocka_unit_test(an_audit_that_changes_nothing_is_silent),
        cmocka_unit_test(lost_events_are_said),
    };
    return cmocka_run_group_tests_name("monitor", tests, NULL, NULL);
}
