#include "test.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/clock.h"
#include "fake_port.h"
#include "kernel/host.h"
#include "netns.h"

struct view {
    struct nl_port *port;
    struct arena mem;
    struct host host;
    int ns;
};

static struct view view_new(void)
{
    struct view v = { .ns = netns_new() };
    struct err err;
    assert_int_equal(nl_open(NETLINK_ROUTE, NULL, &v.port, &err), 0);
    v.port = fake_port_new(v.port);
    return v;
}

static void look(struct view *v)
{
    struct err err = { 0 };
    if (host_observe(v->port, &v->mem, &v->host, &err))
        fail_msg("%s", err.text);
}

static void view_done(struct view *v)
{
    nl_close(v->port);
    arena_done(&v->mem);
    close(v->ns);
}

static const char *addresses(const struct host_iface *i)
{
    static char text[512];
    char ip[IP_TEXT_MAX];
    text[0] = '\0';
    for (uint32_t n = 0; n < i->n_addresses; n++) {
        const struct host_address *a = &i->addresses[n];
        size_t at = strlen(text);
        snprintf(text + at, sizeof(text) - at, "%s%s/%u%s%s", n ? " " : "", ip_format(&a->ip, ip),
                 a->prefix_len, a->temporary ? " temporary" : "",
                 a->deprecated ? " deprecated" : "");
    }
    return text;
}

static const struct host_iface *iface(const struct view *v, const char *name)
{
    const struct host_iface *i = host_iface_find(&v->host, name);
    if (!i)
        fail_msg("no interface %s", name);
    return i;
}

static void services_addresses_are_not_the_machines_own(void **state)
{
    (void)state;
    struct view v = view_new();
    run("ip link add kube-ipvs0 type bridge; ip addr add 10.96.0.1/32 dev kube-ipvs0");
    look(&v);
    assert_null(host_iface_find(&v.host, "kube-ipvs0"));
    view_done(&v);
}

static void an_empty_machine_has_lo(void **state)
{
    (void)state;
    struct view v = view_new();
    look(&v);
    assert_int_equal(v.host.n_ifaces, 1);
    assert_string_equal(v.host.ifaces[0].name, "lo");
    assert_true(v.host.ifaces[0].up);
    assert_string_equal(addresses(&v.host.ifaces[0]), "");
    assert_false(v.host.forwarding4);
    assert_false(v.host.forwarding6);
    assert_true(v.host.ipv6);
    assert_string_equal(v.host.forwarding4_error, "");
    assert_string_equal(v.host.forwarding6_error, "");
    view_done(&v);
}

static void interfaces_are_seen_as_they_are(void **state)
{
    (void)state;
    struct view v = view_new();
    run("ip link add eth0 type veth peer name eth0p; ip link set eth0 up mtu 1442;"
        "ip link set eth0p up; ip link add a.b type veth peer name down0; ip link set a.b up;"
        "ip addr add 2001:db8::1/64 dev eth0 nodad;"
        "ip addr add 192.0.2.1/24 dev eth0; ip addr add 192.0.2.2/24 dev eth0;"
        "ip addr add 198.51.100.1 peer 198.51.100.2/32 dev eth0;"
        "ip addr add 203.0.113.9/24 dev eth0 scope link;"
        "ip addr add 2001:db8::2/64 dev eth0 nodad preferred_lft 0;"
        "ip addr add fec0::1/64 dev eth0 nodad;"
        "ip addr add 2001:db8::3/64 dev down0;" /* stays tentative: down */
        "ip route add default via 192.0.2.254;"
        "ip -6 route add default nexthop via fe80::1 dev eth0 nexthop via fe80::2 dev a.b;"
        "ip route add default dev a.b table 7; ip route add unreachable default metric 99;"
        "ip route add 203.0.112.0/24 dev a.b;"
        "ip link add pl4242 type vxlan id 4242 remote 192.0.2.7 dstport 4790;"
        "ip link set pl4242 alias 'portolan: x' up; ip addr add 169.254.77.0/31 dev pl4242;"
        "ip link add pl4243 type vxlan id 4243 remote 192.0.2.7 dstport 4790");
    sysctl_put("net/ipv4/ip_forward", "1");
    sysctl_put("net/ipv6/conf/eth0/accept_ra", "2");
    look(&v);
    assert_int_equal(v.host.n_ifaces, 6); /* pl4243 is not ours */
    assert_string_equal(v.host.ifaces[0].name, "a.b");
    const struct host_iface *eth0 = iface(&v, "eth0");
    assert_int_equal(eth0->mtu, 1442);
    assert_int_equal(eth0->accept_ra, 2);
    assert_true(eth0->up && eth0->default4 && eth0->default6);
    assert_string_equal(addresses(eth0), "192.0.2.1/24 198.51.100.1/32 192.0.2.2/24 "
                                         "2001:db8::2/64 deprecated 2001:db8::1/64 fec0::1/64");
    assert_false(iface(&v, "a.b")->default4);
    assert_true(iface(&v, "a.b")->default6);
    assert_false(iface(&v, "down0")->up);
    assert_string_equal(addresses(iface(&v, "down0")), "");
    assert_true(v.host.forwarding4);
    assert_false(v.host.forwarding6);

    struct host before = v.host;
    for (unsigned at = 0; at < 12; at++) {
        fake_interrupt_dump(v.port, at);
        look(&v);
        assert_true(host_equal(&before, &v.host));
    }
    run("ip route replace default nexthop via 192.0.2.254 dev eth0 nexthop dev a.b");
    look(&v);
    assert_true(iface(&v, "eth0")->default4 && iface(&v, "a.b")->default4);
    view_done(&v);
}

static void an_unreadable_kernel_is_an_error(void **state)
{
    (void)state;
    static const uint16_t types[] = { RTM_GETLINK, RTM_GETADDR, RTM_GETROUTE };
    struct view v = view_new();
    struct err err;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        fake_refuse_type(v.port, types[i], 0, 1, EPERM, "No");
        assert_int_equal(host_observe(v.port, &v.mem, &v.host, &err), -EPERM);
        assert_string_equal(err.text,
                            "cannot read this machine's interfaces: Operation not permitted: No");
    }
    look(&v);
    view_done(&v);
}

static void a_switch_that_cannot_be_set_is_said(void **state)
{
    (void)state;
    struct view v = view_new();
    assert_int_equal(unshare(CLONE_NEWNS), 0);
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    assert_int_equal(mount("/proc/sys", "/proc/sys", NULL, MS_BIND, NULL), 0);
    assert_int_equal(mount(NULL, "/proc/sys", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
    look(&v);
    assert_string_equal(v.host.forwarding4_error,
                        "/proc/sys/net/ipv4/ip_forward cannot be written: Read-only file system");
    assert_string_equal(
        v.host.forwarding6_error,
        "/proc/sys/net/ipv6/conf/all/forwarding cannot be written: Read-only file system");
    view_done(&v);
}

static void an_overlay_bridge_is_seen(void **state)
{
    (void)state;
    struct view v = view_new();
    run("ip link add weave address 02:aa:00:00:00:01 type bridge; ip link set weave up;"
        "ip addr add 10.32.0.1/12 dev weave; ip link add t0 type veth peer name t1;"
        "ip link add plo type vxlan id 7012352 dstport 4790; ip link set plo alias 'portolan: x';"
        "ip addr add 169.254.96.1/19 dev plo");
    sysctl_put("net/bridge/bridge-nf-call-iptables", "0");
    look(&v);
    assert_null(host_iface_find(&v.host, "plo"));
    assert_true(iface(&v, "weave")->bridge);
    assert_false(iface(&v, "t0")->bridge);
    assert_memory_equal(iface(&v, "weave")->mac, ((uint8_t[]){ 0x02, 0xaa, 0, 0, 0, 1 }), 6);
    assert_memory_equal(iface(&v, "lo")->mac, ((uint8_t[6]){ 0 }), 6);
    assert_int_equal(v.host.bridge_nf_call_iptables, 0);
    struct host before = v.host;
    sysctl_put("net/bridge/bridge-nf-call-iptables", "1");
    look(&v);
    assert_int_equal(v.host.bridge_nf_call_iptables, 1);
    assert_false(host_equal(&before, &v.host));
    before = v.host;
    run("ip link set weave address 02:aa:00:00:00:02");
    look(&v);
    assert_false(host_equal(&before, &v.host));
    view_done(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_machine_has_lo),
        cmocka_unit_test(services_addresses_are_not_the_machines_own),
        cmocka_unit_test(interfaces_are_seen_as_they_are),
        cmocka_unit_test(an_overlay_bridge_is_seen),
        cmocka_unit_test(an_unreadable_kernel_is_an_error),
        cmocka_unit_test(a_switch_that_cannot_be_set_is_said),
    };
    return cmocka_run_group_tests_name("host", tests, NULL, NULL);
}
