#include "test.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "fake_port.h"
#include "model/names.h"
#include "netns.h"
#include "rtnl_world.h"

static void clean(struct world *w)
{
    struct buf out = { 0 };
    struct err err = { 0 };
    if (rtnl_cleanup(w->rtnl, false, &out, &err))
        fail_msg("%s", err.text);
    buf_done(&out);
}

static struct want_slot slot(unsigned n)
{
    return (struct want_slot){ .slot = n,
                               .local = ip_v4(192, 0, 2, 1),
                               .remote = ip_v4(192, 0, 2, 2),
                               .mtu = 1400,
                               .ipv6 = true };
}

static const struct desired *usual(struct world *world)
{
    struct want *w = &world->want;
    want_slot(w, slot(0));
    want_slot(w, slot(3));
    want_unreachable(w, STANDIN4_NET);
    want_unreachable(w, STANDIN6_NET);
    return want_finish(w);
}

static int ifindex_of(const char *name)
{
    return atoi(output("ip -o link show %s | cut -d: -f1", name));
}

static void a_second_sync_does_nothing(void **state)
{
    (void)state;
    struct world w = world_new(UNDERLAY);
    const struct desired *d = usual(&w);
    /* 2 links, 4 addresses and 2 link-local ones, 4 routes and 2 unreachable, 6 rules */
    assert_int_equal(sync_fully(&w, d, false), 2 + 6 + 6 + 6);
    assert_true(w.report.bytes > 0);
    fake_forget_sent(w.port);
    assert_int_equal(sync_with(&w, d, false), 0);
    assert_int_equal(fake_sent(w.port, 0), 0); /* what is known needs no question */
    assert_int_equal(sync_with(&w, d, true), 0);
    assert_int_equal(w.report.bytes, 0);
    restart(&w);
    assert_int_equal(sync_with(&w, d, false), 0);
    assert_no_difference(&w, d);
    assert_string_equal(output("ip -o addr show dev pl4242 | grep -c inet"), "3\n");
    assert_string_equal(output("ip route show table 203"),
                        "default via 169.254.77.7 dev pl4245 proto 107 \n");
    assert_string_equal(output("ip rule show prio 101 | head -n1"),
                        "101:\tfrom all to 192.0.2.2 fwmark 0x6b700000 lookup main proto 107\n");
    assert_string_equal(
        output("ip -d -o link show pl4242 | grep -o 'mtu 1400\\|remote .* dstport 4790 "
               "nolearning\\|udpcsum noudp6\\|addrgenmode none\\|alias .*'"),
        "mtu 1400\nremote 192.0.2.2 local 192.0.2.1 srcport 0 0 dstport 4790 "
        "nolearning\nudpcsum noudp6\naddrgenmode none\nalias portolan: class public link 0\n");
    world_done(&w);
}

static void what_others_delete_or_edit_is_mended(void **state)
{
    (void)state;
    static const char *const harms[] = {
        "ip link del pl4242",
        "ip addr del 169.254.77.0/31 dev pl4242",
        "ip addr flush dev pl4242",
        "ip -6 addr flush dev pl4242",
        "ip addr add 198.51.100.1/32 dev pl4242",
        "ip addr del 169.254.77.0/31 dev pl4242; ip addr add 169.254.77.0/30 dev pl4242",
        "ip addr change 169.254.77.0/31 dev pl4242 valid_lft 500 preferred_lft 400",
        "ip -6 addr del fd64:f5ac:e961::/127 dev pl4242;"
        "ip -6 addr add fd64:f5ac:e961::/127 dev pl4242",
        "ip route del default table 200",
        "ip -6 route del default table 200",
        "ip route del unreachable 169.254.76.0/24",
        "ip rule del prio 102 fwmark 0x6b700000",
        "ip -6 rule del prio 102 fwmark 0x6b700000",
        "ip rule add prio 102 fwmark 0x6b700000/0xff lookup 200 proto 107",
        "ip rule add prio 102 fwmark 0x6b700000 iif lo lookup 200 proto 107",
        "ip rule add prio 700 fwmark 0x12 lookup 200 proto 107",
        "ip route add 198.51.100.0/24 via 192.0.2.9 proto 107",
        "ip route add blackhole 198.51.100.0/24 proto 107 table 9",
        "ip route add default via 192.0.2.9 metric 7 proto 107 table 200",
        "ip route replace default via 192.0.2.9 proto 107 table 200",
        "ip -6 route add unreachable 2001:db8::/32 proto 107 metric 9",
        "ip link set pl4242 down",
        "ip link set pl4242 mtu 1300",
        "ip link set pl4242 mtu 1200",
        "ip link set pl4242 address 02:00:00:00:00:77",
        "ip link set pl4242 addrgenmode eui64",
        "ip link set pl4242 down; ip link set pl4242 addrgenmode eui64; ip link set pl4242 up",
        "ip link set pl4242 alias 'portolan: something'",
        "ip link set pl4242 type vxlan id 4242 remote 192.0.2.77",
        "ip link del pl4242; ip link add pl4242 type vxlan id 9 remote 192.0.2.7 dstport 4790;"
        "ip link set pl4242 alias 'portolan: x' up; ip addr add 198.51.100.1/24 dev pl4242",
        "ip link add pl77 type vxlan id 77 remote 192.0.2.7 dstport 4790;"
        "ip link set pl77 alias portolan: up",
    };
    struct world w = world_new(UNDERLAY);
    const struct desired *d = usual(&w);
    sync_fully(&w, d, false);
    for (size_t i = 0; i < sizeof(harms) / sizeof(harms[0]); i++) {
        run("%s", harms[i]);
        assert_int_equal(sync_with(&w, d, false), 0); /* nobody told us */
        if (!sync_fully(&w, d, true))
            fail_msg("nothing mended after: %s", harms[i]);
        if (sync_with(&w, d, true))
            fail_msg("not mended at once: %s", harms[i]);
        assert_no_difference(&w, d);
    }
    world_done(&w);
}

static void a_link_changes_in_place(void **state)
{
    (void)state;
    struct world w = world_new(UNDERLAY);
    struct want b = { 0 };
    sync_with(&w, usual(&w), false);
    int ifindex = ifindex_of("pl4242");
    struct want_slot s = slot(0);
    s.mtu = 1320;
    s.local = ip_v4(192, 0, 2, 11);
    s.remote = ip_v4(192, 0, 2, 12);
    want_slot(&b, s);
    want_slot(&b, slot(3));
    b.links.v[0].alias = "portolan: other";
    b.links.v[0].mac[5] ^= 0x40;
    want_unreachable(&b, STANDIN4_NET);
    want_unreachable(&b, STANDIN6_NET);
    want_finish(&b);
    sync_fully(&w, &b.d, false);
    assert_int_equal(w.report.changes, 1);
    assert_int_equal(w.report.adds, 2); /* the rule towards the new remote, the new link-local */
    assert_int_equal(w.report.deletes, 2);
    assert_int_equal(ifindex_of("pl4242"), ifindex);
    assert_no_difference(&w, &b.d);
    assert_string_equal(output("bridge fdb show dev pl4242"),
                        "00:00:00:00:00:00 dst 192.0.2.12 self permanent\n");
    want_done(&b);
    world_done(&w);
}

static void a_small_link_loses_ipv6_and_gets_it_back(void **state)
{
    (void)state;
    struct world w = world_new(UNDERLAY);
    struct want small = { 0 }, big = { 0 };
    struct want_slot s = slot(0);
    want_slot(&big, s);
    s.ipv6 = false;
    s.mtu = 1279;
    want_slot(&small, s);
    want_finish(&big);
    want_finish(&small);
    for (int round = 0; round < 2; round++) {
        sync_fully(&w, &big.d, false);
        assert_no_difference(&w, &big.d);
        sync_fully(&w, &small.d, false);
        assert_no_difference(&w, &small.d);
    }
    want_done(&big);
    want_done(&small);
    world_done(&w);
}

static void another_port_is_another_link(void **state)
{
    (void)state;
    struct world w = world_new(UNDERLAY);
    struct want b = { 0 };
    sync_with(&w, usual(&w), false);
    struct want_slot s = slot(0);
    s.port = 8080;
    want_slot(&b, s);
    want_finish(&b);
    sync_with(&w, &b.d, false);
    /* The same table and the same addresses on the new device while the old one goes. */
    assert_no_refusals(&w);
    assert_no_difference(&w, &b.d);
    assert_string_equal(output("ip -o link show type vxlan | cut -d: -f2"), " pl4242p1f90\n");
    assert_string_equal(output("ip route show table 200"),
                        "default via 169.254.77.1 dev pl4242p1f90 proto 107 \n");
    want_done(&b);
    world_done(&w);
}

static void assert_refused(const struct world *w, size_t i, const char *owner, const char *object,
                           int error, const char *text)
{
    assert_true(i < w->report.refusals.n);
    const struct refusal *r = &w->report.refusals.v[i];
    assert_string_equal(r->owner, owner);
    assert_int_equal(strncmp(r->object, object, strlen(object)), 0);
    assert_int_equal(r->error, error);
    assert_non_null(strstr(r->text, text));
}

static void a_strangers_device_is_in_the_way(void **state)
{
    (void)state;
    static const char *const strangers[][2] = {
        { "ip link add pl4242 type veth peer name other", "that is not Portolan's" },
        { "ip link add pl4242 type vxlan id 9 remote 192.0.2.7 dstport 999; ip link set pl4242 up",
          "that is not Portolan's" },
        { "ip link add flannel type vxlan id 4242 remote 192.0.2.7 dstport 4790;"
          "ip link set flannel up",
          "the device flannel has VNI 4242 and port 4790; remove it" },
        { "ip link add flannel type vxlan id 4242 remote 192.0.2.7 dstport 4790;"
          "ip link set flannel alias 'portolan: class/public link 0';"
          "ip link add other type vxlan id 4242 remote 192.0.2.7 dstport 999",
          "the device flannel has VNI 4242 and port 4790, and was Portolan's until it was renamed" },
        { "ip link add pl4242 type vxlan id 4242 remote 192.0.2.7 dstport 4790 nolearning;"
          "ip link set pl4242 alias mine",
          "exist" },
    };
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        struct world w = world_new(UNDERLAY);
        const struct desired *d = usual(&w);
        run("%s", strangers[i][0]);
        char *before = strdup(witness());
        sync_with(&w, d, false);
        assert_refused(&w, 0, "class/public link 0", "link pl4242", EEXIST, strangers[i][1]);
        /* Its two addresses, the link-local one and two routes wait: one line each. */
        assert_int_equal(w.report.refusals.n, 6);
        for (size_t j = 1; j < 6; j++)
            assert_refused(&w, j, "class/public link 0", j < 4 ? "address " : "route ", ENODEV,
                           "waits for link pl4242");
        assert_string_equal(output("ip -o link show pl4245 | wc -l"), "1\n");
        clean(&w);
        assert_string_equal(witness(), before);
        /* Gone: no audit is asked for, and it works. */
        sync_with(&w, d, false);
        run("ip link del %s", i == 2 || i == 3 ? "flannel" : "pl4242");
        sync_fully(&w, d, false);
        assert_no_difference(&w, d);
        free(before);
        world_done(&w);
    }
}

static void a_creation_cut_short_is_finished(void **state)
{
    (void)state;
    struct world w = world_new(UNDERLAY);
    const struct desired *d = usual(&w);
    run("ip link add pl4242 type vxlan id 4242 local 192.0.2.1 remote 192.0.2.2 dstport 4790 "
        "nolearning udpcsum");
    sync_fully(&w, d, false);
    assert_no_difference(&w, d);
    world_done(&w);
}

static void strangers_stay_byte_for_byte(void **state)
{
    (void)state;
    struct world w = world_new(UNDERLAY);
    run("ip link add vxlan0 type vxlan id 4300 remote 192.0.2.9 dstport 4790;"
        "ip link set vxlan0 alias 'portolan: no, but named otherwise' up;"
        "ip link add pl9 type veth peer name pl9p1; ip link set pl9 alias 'portolan: a veth' up;"
        "ip addr add 169.254.99.1/24 dev vxlan0; ip addr add 2001:db8::1/64 dev u0 nodad;"
        "ip link add link u0 name u0.7 type vlan id 7 2>/dev/null || true;"
        "ip route add 198.51.100.0/24 via 192.0.2.77; ip route add default via 192.0.2.254;"
        "ip route add unreachable 203.0.113.0/24 table 200 proto static metric 5;"
        "ip -6 route add 2001:db8:7::/48 via 2001:db8::9 table 200;"
        "ip rule add prio 101 fwmark 0x6b700000 to 192.0.2.2 lookup main;"
        "ip rule add prio 102 fwmark 0x6b700000 lookup 200 proto static;"
        "ip -6 rule add prio 102 fwmark 0x6b700000 lookup 200;"
        "ip rule add prio 105 lookup 7; ip rule add prio 110 fwmark 0x1 lookup 8");
    assert_true(within_ms(3000, !strstr(output("ip addr"), "tentative")));
    char *before = strdup(witness());
    const struct desired *d = usual(&w);
    sync_fully(&w, d, false);
    assert_string_not_equal(witness(), before);
    assert_int_equal(sync_with(&w, d, true), 0);
    /* The same rule twice: one is a stranger's. */
    assert_string_equal(output("ip rule show prio 102 fwmark 0x6b700000 | wc -l"), "2\n");
    struct buf out = { 0 };
    struct err err;
    assert_int_equal(rtnl_cleanup(w.rtnl, true, &out, &err), 0);
    assert_non_null(strstr(buf_str(&out), "- link pl4242 "));
    assert_non_null(strstr(buf_str(&out), "- address 169.254.77.0/31 dev pl4242\n"));
    assert_non_null(
        strstr(buf_str(&out), "- route default via 169.254.77.1 dev pl4242 table 200\n"));
    assert_non_null(strstr(buf_str(&out), "- route unreachable 169.254.76.0/24 table 254\n"));
    assert_non_null(strstr(buf_str(&out), "- rule 102: fwmark 0x6b700000 lookup 200\n"));
    assert_int_equal(sync_with(&w, d, true), 0); /* a dry run removes nothing */
    buf_clear(&out);
    restart(&w);
    clean(&w);
    assert_string_equal(witness(), before);
    assert_int_equal(rtnl_cleanup(w.rtnl, false, &out, &err), 0);
    assert_string_equal(buf_str(&out), "");
    buf_done(&out);
    free(before);
    world_done(&w);
}

static void a_refusal_stops_nothing_else(void **state)
{
    (void)state;
    static const uint16_t types[] = { RTM_NEWLINK, RTM_SETLINK, RTM_NEWADDR, RTM_NEWROUTE,
                                      RTM_NEWRULE };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct world w = world_new(UNDERLAY);
        const struct desired *d = usual(&w);
        fake_refuse_type(w.port, types[i], 0, 1, EBUSY, "Try later");
        sync_with(&w, d, false);
        assert_true(w.report.refusals.n >= 1);
        assert_int_equal(w.report.refusals.v[0].error, EBUSY);
        assert_string_equal(w.report.refusals.v[0].text, "Device or resource busy: Try later");
        assert_string_equal(output("ip -o link show pl4245 | wc -l"), "1\n");
        size_t n = sync_with(&w, d, false);
        assert_true(n >= 1);
        assert_no_refusals(&w);
        assert_no_difference(&w, d);
        fake_refuse_type(w.port, (uint16_t)(types[i] == RTM_SETLINK ? RTM_DELLINK : types[i] + 1),
                         0, 1, EPERM, "");
        static const struct desired nothing;
        sync_with(&w, &nothing, false);
        assert_int_equal(w.report.refusals.n, 1);
        assert_int_equal(w.report.refusals.v[0].error, EPERM);
        if (types[i] != RTM_NEWRULE)
            assert_string_not_equal(w.report.refusals.v[0].owner, "");
        sync_fully(&w, &nothing, false);
        assert_no_difference(&w, &nothing);
        world_done(&w);
    }
}

static void noise_on_the_wire_changes_nothing(void **state)
{
    (void)state;
    for (unsigned at = 0; at < 24; at++) {
        struct world w = world_new(UNDERLAY);
        const struct desired *d = usual(&w);
        fake_fail_send(w.port, at % 4, EINTR);
        fake_fail_recv(w.port, at, 1, at % 2 ? EINTR : ENOBUFS);
        fake_interrupt_dump(w.port, at % 5);
        sync_with(&w, d, true);
        sync_fully(&w, d, false);
        assert_no_difference(&w, d);
        world_done(&w);
    }
}

static void an_unreadable_kernel_is_an_error(void **state)
{
    (void)state;
    struct world w = world_new(UNDERLAY);
    const struct desired *d = usual(&w);
    static const uint16_t types[] = { RTM_GETLINK, RTM_GETADDR, RTM_GETROUTE, RTM_GETRULE };
    struct err err = { 0 };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        fake_refuse_type(w.port, types[i], 0, 1, EPERM, "");
        assert_int_equal(rtnl_add(w.rtnl, d, true, &w.report, &err), -EPERM);
        assert_string_equal(
            err.text,
            "cannot read links, addresses, neighbours, routes and rules: Operation not permitted");
    }
    sync_fully(&w, d, false);
    assert_no_difference(&w, d);
    world_done(&w);
}

static const struct desired *at_random(struct want *w)
{
    *w = (struct want){ 0 };
    for (unsigned n = 0; n < 6; n++) {
        if (rand() % 2)
            continue;
        struct want_slot s = slot(n);
        s.ipv6 = rand() % 2;
        s.mtu = s.ipv6 || rand() % 2 ? 1400 + (uint32_t)(rand() % 2) : 1200;
        s.side = (unsigned)rand() % 2;
        s.port = rand() % 4 ? 0 : 8080;
        s.local.bytes[3] = rand() % 2 ? 1 : 11;
        s.remote.bytes[3] = (uint8_t)(2 + rand() % 2);
        want_slot(w, s);
    }
    if (rand() % 2)
        want_unreachable(w, STANDIN4_NET);
    if (rand() % 2)
        want_unreachable(w, STANDIN6_NET);
    return want_finish(w);
}

/* What `ip` says of a namespace, but for the numbers of devices, and for the routes of table
 * local, which the kernel makes of IPv6 addresses a little later. */
static char *fingerprint(void)
{
    return strdup(output("(ip -d -o link show type vxlan; ip -o addr; ip rule; ip -6 rule;"
                         "ip route show table all; ip -6 route show table all) |"
                         "grep -v 'u[01]\\|table local' | sed 's/^[0-9]*: //' | sort"));
}

static void from_any_state_to_any_other(void **state)
{
    (void)state;
    srand(11);
    for (int round = 0; round < 25; round++) {
        struct world w = world_new(UNDERLAY);
        struct want a, b;
        sync_fully(&w, at_random(&a), false);
        if (rand() % 2)
            restart(&w);
        sync_fully(&w, at_random(&b), rand() % 2);
        assert_no_difference(&w, &b.d);
        assert_int_equal(sync_with(&w, &b.d, false), 0);
        char *via_a = fingerprint();
        world_done(&w);
        w = world_new(UNDERLAY);
        sync_with(&w, &b.d, false);
        char *straight = fingerprint();
        assert_string_equal(via_a, straight);
        free(via_a);
        free(straight);
        want_done(&a);
        want_done(&b);
        world_done(&w);
    }
}

/* Two nodes joined by an underlay, a client behind the first: its packets are forwarded into
 * the link, so that neighbour discovery must work for a source that is not the link's. */
static void links_carry_both_families_both_ways(void **state)
{
    (void)state;
    struct world a = world_new(UNDERLAY), b = world_new(UNDERLAY);
    run("ip link del u0");
    int client = netns_new();
    netns_enter(a.ns);
    run("ip link del u0; ip link add u0 type veth peer name u1");
    sysctl_put("net/ipv4/ip_forward", "1");
    sysctl_put("net/ipv6/conf/all/forwarding", "1");
    run("ip link set u1 netns /proc/%d/fd/%d", getpid(), b.ns);
    run("ip link add c0 type veth peer name c1; ip link set c1 netns /proc/%d/fd/%d;"
        "ip link set u0 up; ip addr add 192.0.2.1/24 dev u0; ip link set c0 up;"
        "ip addr add 198.51.100.1/24 dev c0; ip addr add 2001:db8:c::1/64 dev c0 nodad",
        getpid(), client);
    struct want_slot s = slot(0);
    want_slot(&a.want, s);
    sync_fully(&a, want_finish(&a.want), false);
    netns_enter(client);
    run("ip link set c1 up; ip addr add 198.51.100.2/24 dev c1;"
        "ip addr add 2001:db8:c::2/64 dev c1 nodad; ip route add default via 198.51.100.1;"
        "ip -6 route add default via 2001:db8:c::1");
    netns_enter(b.ns);
    run("ip link set u1 up; ip addr add 192.0.2.2/24 dev u1");
    s.side = 1;
    s.local = ip_v4(192, 0, 2, 2);
    s.remote = ip_v4(192, 0, 2, 1);
    want_slot(&b.want, s);
    sync_fully(&b, want_finish(&b.want), false);
    run("ip route add 198.51.100.0/24 via 169.254.77.0;"
        "ip -6 route add 2001:db8:c::/64 via fd64:f5ac:e961::");
    for (int v6 = 0; v6 < 2; v6++) {
        struct ip ends[2] = { want_end(0, 0, v6), want_end(0, 1, v6) }, far;
        assert_true(ip_parse(v6 ? "2001:db8:c::2" : "198.51.100.2", &far));
        assert_true(echo(client, &far, b.ns, &ends[1]));
        assert_true(echo(b.ns, &ends[1], client, &far));
        assert_true(echo(a.ns, &ends[0], b.ns, &ends[1]));
        assert_true(echo(b.ns, &ends[1], a.ns, &ends[0]));
    }
    close(client);
    world_done(&a);
    world_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_sync_does_nothing),
        cmocka_unit_test(what_others_delete_or_edit_is_mended),
        cmocka_unit_test(a_link_changes_in_place),
        cmocka_unit_test(a_small_link_loses_ipv6_and_gets_it_back),
        cmocka_unit_test(another_port_is_another_link),
        cmocka_unit_test(a_strangers_device_is_in_the_way),
        cmocka_unit_test(a_creation_cut_short_is_finished),
        cmocka_unit_test(strangers_stay_byte_for_byte),
        cmocka_unit_test(a_refusal_stops_nothing_else),
        cmocka_unit_test(noise_on_the_wire_changes_nothing),
        cmocka_unit_test(an_unreadable_kernel_is_an_error),
        cmocka_unit_test(from_any_state_to_any_other),
        cmocka_unit_test(links_carry_both_families_both_ways),
    };
    return cmocka_run_group_tests_name("rtnl", tests, NULL, NULL);
}
