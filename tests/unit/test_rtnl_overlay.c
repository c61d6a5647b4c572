/* The overlay in a real kernel: its device, its neighbours and forwarding entries, and the rules
 * that lead there. The witnesses are ip, bridge, and packets. */
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

static void put_rules(struct want *w)
{
    struct desired_rule outer = {
        .owner = "node",
        .family = IP_V4,
        .priority = RULE_PRIO_HELD_OUTER,
        .fwmark = HOLDER_MARK(200),
        .mask = HOLDER_MARK_MASK,
        .local = true,
        .has_dst = true,
        .dst = { .ip = ip_v4(192, 0, 2, 2), .len = 32 },
        .table = 254,
    };
    struct desired_rule reply = {
        .owner = "node",
        .family = IP_V4,
        .priority = RULE_PRIO_HOLDER,
        .fwmark = HOLDER_MARK(200),
        .mask = HOLDER_MARK_MASK,
        .table = HOLDER_TABLE(200),
    };
    struct desired_route route = {
        .owner = "node",
        .type = ROUTE_UNICAST,
        .table = HOLDER_TABLE(200),
        .dst = { .ip = { .family = IP_V4 } },
        .via = ip_v4(169, 254, 96, 2),
        .ifname = OVERLAY_LINK,
    };
    struct desired_rule skip = {
        .owner = "node",
        .family = IP_V4,
        .priority = RULE_PRIO_HELD_SKIP,
        .mask = HOLDER_MARK_MASK,
        .action = RULE_GOTO,
        .goto_priority = RULE_PRIO_HELD_END,
    };
    struct desired_rule end = {
        .owner = "node", .family = IP_V4, .priority = RULE_PRIO_HELD_END, .action = RULE_NOP
    };
    vec_push(&w->rules, skip);
    vec_push(&w->rules, end);
    vec_push(&w->rules, outer);
    vec_push(&w->rules, reply);
    vec_push(&w->routes, route);
}

/* Node 1 of three, where 2 is a holder. */
static const struct desired *usual(struct world *world)
{
    struct want *w = &world->want;
    want_overlay(w, 1, ip_v4(192, 0, 2, 1));
    want_peer(w, 2, ip_v4(192, 0, 2, 2));
    want_peer(w, 3, ip_v4(192, 0, 2, 3));
    put_rules(w);
    return want_finish(w);
}

static void a_second_sync_does_nothing(void **state)
{
    (void)state;
    struct world w = world_new(UNDERLAY);
    const struct desired *d = usual(&w);
    assert_int_equal(sync_fully(&w, d, false), 1 + 1 + 2 + 1 + 4);
    fake_forget_sent(w.port);
    assert_int_equal(sync_fully(&w, d, false), 0);
    assert_int_equal(fake_sent(w.port, 0), 0);
    assert_int_equal(sync_fully(&w, d, true), 0);
    restart(&w);
    assert_int_equal(sync_fully(&w, d, false), 0);
    assert_no_difference(&w, d);
    assert_string_equal(output("ip neigh show dev plo nud permanent | sort"),
                        "169.254.96.2 lladdr 02:6b:a9:fe:60:02 PERMANENT \n"
                        "169.254.96.3 lladdr 02:6b:a9:fe:60:03 PERMANENT \n");
    assert_string_equal(output("bridge fdb show dev plo | sort"),
                        "02:6b:a9:fe:60:02 dst 192.0.2.2 self permanent\n"
                        "02:6b:a9:fe:60:03 dst 192.0.2.3 self permanent\n");
    assert_string_equal(
        output(
            "ip rule show prio 101; ip rule show prio 103; ip rule show prio 104; ip rule show prio 105"),
        "101:\tfrom all fwmark 0/0xff000000 goto 105 proto 107\n"
        "103:\tfrom all to 192.0.2.2 fwmark 0xc8000000/0xff000000 iif lo lookup main proto 107\n"
        "104:\tfrom all fwmark 0xc8000000/0xff000000 lookup 131272 proto 107\n"
        "105:\tfrom all nop proto 107\n");
    assert_string_equal(
        output("ip -d -o link show plo | grep -o 'mtu 1400\\|vxlan id .* dstport 4790 "
               "nolearning\\|udpcsum noudp6\\|addrgenmode none\\|alias .*'"),
        "mtu 1400\nvxlan id 7012352 local 192.0.2.1 srcport 0 0 dstport 4790 "
        "nolearning\nudpcsum noudp6\naddrgenmode none\nalias portolan: overlay\n");
    world_done(&w);
}

static void what_others_delete_or_edit_is_mended(void **state)
{
    (void)state;
    static const char *const harms[] = {
        "ip link del plo",
        "ip link set plo down",
        "ip link set plo address 02:00:00:00:00:77",
        "ip link set plo type vxlan id 7012352 remote 192.0.2.77",
        "ip link set plo alias 'portolan: something'",
        "ip addr flush dev plo",
        "ip neigh del 169.254.96.2 dev plo",
        "ip neigh replace 169.254.96.2 lladdr 02:00:00:00:00:09 dev plo nud permanent",
        "ip neigh replace 169.254.96.2 lladdr 02:6b:a9:fe:60:02 dev plo nud reachable",
        "ip neigh add 169.254.96.9 lladdr 02:00:00:00:00:09 dev plo nud permanent",
        "bridge fdb del 02:6b:a9:fe:60:02 dev plo",
        "bridge fdb replace 02:6b:a9:fe:60:02 dev plo dst 192.0.2.66",
        "bridge fdb add 02:00:00:00:00:09 dev plo dst 192.0.2.66",
        "bridge fdb append 00:00:00:00:00:00 dev plo dst 192.0.2.66",
        "bridge fdb add 02:00:00:00:00:09 dev plo dst 192.0.2.66;"
        "ip neigh add 169.254.96.9 lladdr 02:00:00:00:00:09 dev plo nud permanent",
        "ip rule del prio 104",
        "ip rule del prio 103",
        "ip rule del prio 103; ip rule add prio 103 fwmark 0xc8000000/0xff000000 to 192.0.2.2 "
        "lookup main proto 107",
        "ip rule add prio 104 fwmark 0xc8000000 lookup 131272 proto 107",
        "ip rule add prio 104 fwmark 0xc8000000/0xff000000 iif u0 lookup 131272 proto 107",
        "ip route flush table 131272",
        "ip rule del prio 105",
        "ip rule del prio 101 fwmark 0/0xff000000",
        "ip rule del prio 101; ip rule add prio 101 fwmark 0/0xff000000 goto 32766 proto 107",
        "ip rule add prio 104 blackhole proto 107",
        "ip rule add prio 105 nop fwmark 3 proto 107",
    };
    struct world w = world_new(UNDERLAY);
    const struct desired *d = usual(&w);
    sync_fully(&w, d, false);
    char *before = strdup(output("ip neigh show dev plo nud permanent; bridge fdb show dev plo;"
                                 "ip rule; ip route show table 131272"));
    for (size_t i = 0; i < sizeof(harms) / sizeof(harms[0]); i++) {
        run("%s", harms[i]);
        if (!sync_fully(&w, d, true))
            fail_msg("nothing mended after: %s", harms[i]);
        /* What was orphaned by the first may be seen by the second. */
        sync_fully(&w, d, true);
        if (sync_fully(&w, d, true))
            fail_msg("not mended: %s", harms[i]);
        const char *after = output("ip neigh show dev plo nud permanent | sort;"
                                   "bridge fdb show dev plo | sort; ip rule;"
                                   "ip route show table 131272");
        if (i && strcmp(after, before))
            fail_msg("after %s:\n%s", harms[i], after);
        free(before);
        before = strdup(after);
    }
    free(before);
    world_done(&w);
}

static void peers_come_move_and_go(void **state)
{
    (void)state;
    struct world w = world_new(UNDERLAY);
    struct want b = { 0 };
    sync_fully(&w, usual(&w), false);
    want_overlay(&b, 1, ip_v4(192, 0, 2, 1));
    want_peer(&b, 3, ip_v4(192, 0, 2, 33));
    want_peer(&b, 4, ip_v4(192, 0, 2, 4));
    want_finish(&b);
    assert_non_null(strstr(difference(&w, &b.d),
                           "- neighbour 169.254.96.2 lladdr 02:6b:a9:fe:60:02 dev plo at "
                           "192.0.2.2\n"));
    assert_non_null(strstr(difference(&w, &b.d),
                           "+ neighbour 169.254.96.4 lladdr 02:6b:a9:fe:60:04 dev plo at "
                           "192.0.2.4\n"));
    sync_fully(&w, &b.d, false);
    assert_int_equal(w.report.changes, 1);
    assert_no_difference(&w, &b.d);
    assert_string_equal(output("bridge fdb show dev plo | sort"),
                        "02:6b:a9:fe:60:03 dst 192.0.2.33 self permanent\n"
                        "02:6b:a9:fe:60:04 dst 192.0.2.4 self permanent\n");
    /* One address for two neighbours: the entry stays as long as one of them does. */
    memcpy(b.neighs.v[1].mac, b.neighs.v[0].mac, 6);
    b.neighs.v[1].outer = b.neighs.v[0].outer;
    sync_fully(&w, &b.d, false);
    b.d.n_neighs = 1;
    sync_fully(&w, &b.d, false);
    assert_string_equal(output("bridge fdb show dev plo | sort"),
                        "02:6b:a9:fe:60:03 dst 192.0.2.33 self permanent\n");
    assert_no_difference(&w, &b.d);
    want_done(&b);
    world_done(&w);
}

static void cleanup_leaves_strangers_as_they_were(void **state)
{
    (void)state;
    struct world w = world_new(UNDERLAY);
    run("ip link add vx type vxlan id 9 dstport 999 local 192.0.2.1; ip link set vx up;"
        "ip neigh add 169.254.96.2 lladdr 02:6b:a9:fe:60:02 dev vx nud permanent;"
        "bridge fdb add 02:6b:a9:fe:60:02 dev vx dst 192.0.2.2;"
        "ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev u0 nud permanent;"
        "ip rule add prio 104 fwmark 0xc8000000/0xff000000 lookup 131272");
    static const char *const all = "ip neigh show nud permanent; bridge fdb show; ip rule; ip addr;"
                                   "ip route show table all";
    assert_true(within_ms(3000, !strstr(output("ip addr"), "tentative")));
    char *before = strdup(output("%s", all));
    const struct desired *d = usual(&w);
    sync_fully(&w, d, false);
    assert_string_not_equal(output("%s", all), before);
    struct buf out = { 0 };
    struct err err = { 0 };
    assert_int_equal(rtnl_cleanup(w.rtnl, true, &out, &err), 0);
    assert_non_null(strstr(buf_str(&out), "- link plo type vxlan id 7012352 local 192.0.2.1 "
                                          "dstport 4790 mtu 1400"));
    assert_non_null(strstr(buf_str(&out), "- rule 103: fwmark 0xc8000000/0xff000000 iif lo to "
                                          "192.0.2.2/32 lookup 254\n"));
    assert_int_equal(sync_fully(&w, d, true), 0);
    assert_int_equal(rtnl_cleanup(w.rtnl, false, &out, &err), 0);
    assert_string_equal(output("%s", all), before);
    buf_done(&out);
    free(before);
    world_done(&w);
}

static void a_refusal_stops_nothing_else(void **state)
{
    (void)state;
    static const uint16_t types[] = { RTM_NEWNEIGH, RTM_GETNEIGH };
    struct world w = world_new(UNDERLAY);
    const struct desired *d = usual(&w);
    struct err err = { 0 };
    fake_refuse_type(w.port, types[0], 0, 1, EBUSY, "Try later");
    report_reset(&w.report);
    assert_int_equal(rtnl_add(w.rtnl, d, false, &w.report, &err), 0);
    assert_int_equal(w.report.refusals.n, 1);
    assert_string_equal(w.report.refusals.v[0].owner, "node");
    assert_string_equal(w.report.refusals.v[0].object,
                        "neighbour 169.254.96.2 lladdr 02:6b:a9:fe:60:02 dev plo at 192.0.2.2");
    assert_int_equal(sync_fully(&w, d, false), 1);
    assert_no_difference(&w, d);
    fake_refuse_type(w.port, types[1], 0, 1, EPERM, "");
    assert_int_equal(rtnl_add(w.rtnl, d, true, &w.report, &err), -EPERM);
    sync_fully(&w, d, false);
    world_done(&w);
}

static void three_nodes_reach_each_other(void **state)
{
    (void)state;
    struct world w[3];
    int middle = netns_new();
    run("ip link add br0 type bridge; ip link set br0 up");
    for (unsigned i = 0; i < 3; i++) {
        w[i] = world_new(UNDERLAY);
        run("ip link del u0; ip link add u0 type veth peer name u1; ip link set u0 up;"
            "ip addr add 192.0.2.%u/24 dev u0; ip link set u1 netns /proc/%d/fd/%d",
            i + 1, getpid(), middle);
        netns_enter(middle);
        run("ip link set u1 name p%u; ip link set p%u master br0 up", i, i);
        netns_enter(w[i].ns);
        want_overlay(&w[i].want, (uint8_t)(i + 1), ip_v4(192, 0, 2, (uint8_t)(i + 1)));
        for (uint8_t j = 1; j <= 3; j++)
            if (j != i + 1)
                want_peer(&w[i].want, j, ip_v4(192, 0, 2, j));
        sync_fully(&w[i], want_finish(&w[i].want), false);
    }
    for (unsigned i = 0; i < 3; i++) {
        const struct ip from = ip_v4(169, 254, 96, (uint8_t)(i + 1));
        for (unsigned j = 0; j < 3; j++) {
            const struct ip to = ip_v4(169, 254, 96, (uint8_t)(j + 1));
            assert_true(i == j || echo(w[i].ns, &from, w[j].ns, &to));
        }
    }
    for (unsigned i = 0; i < 3; i++)
        world_done(&w[i]);
    close(middle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_sync_does_nothing),
        cmocka_unit_test(what_others_delete_or_edit_is_mended),
        cmocka_unit_test(peers_come_move_and_go),
        cmocka_unit_test(cleanup_leaves_strangers_as_they_were),
        cmocka_unit_test(a_refusal_stops_nothing_else),
        cmocka_unit_test(three_nodes_reach_each_other),
    };
    return cmocka_run_group_tests_name("rtnl_overlay", tests, NULL, NULL);
}
