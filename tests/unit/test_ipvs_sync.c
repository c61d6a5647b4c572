/* Services on IPVS: what is sent, in which order, and what is found again after a start. */
#include "test.h"

#include <errno.h>
#include <linux/ip_vs.h>
#include <stdlib.h>
#include <string.h>

#include "addr_help.h"
#include "ipvs_world.h"
#include "kernel/ipset.h"
#include "netns.h"

#define GROUPS_MAX 4

static struct ipvs_world *world;
static struct ipvs *agent;
static struct ipvs_group *groups[GROUPS_MAX];
static size_t n_groups;
static struct report report;
static struct err err;
static struct ip_prefix exclude;
static const struct ipvs_want no_rules;

static void start_agent(void)
{
    struct ipvs_ports ports = ipvs_world_ports(world);
    struct ipvs_settings settings = { .exclude = &exclude, .n_exclude = exclude.len != 0 };
    ipvs_free(agent);
    agent = ipvs_new(&ports, &settings);
}

static int setup(void **state)
{
    (void)state;
    world = ipvs_world_new();
    exclude = (struct ip_prefix){ 0 };
    start_agent();
    return 0;
}

static void forget_groups(void)
{
    while (n_groups)
        ipvs_group_unref(groups[--n_groups]);
}

static int teardown(void **state)
{
    (void)state;
    ipvs_free(agent);
    agent = NULL;
    forget_groups();
    report_done(&report);
    ipvs_world_free(world);
    return 0;
}

static int sync_now(unsigned look)
{
    struct desired d = { .ipvs = groups, .n_ipvs = n_groups, .ipvs_node = &no_rules };
    report_reset(&report);
    return ipvs_sync(agent, &d, look, &report, &err);
}

static void apply(unsigned look)
{
    if (sync_now(look))
        fail_msg("%s", err.text);
    if (report.refusals.n)
        fail_msg("%s: %s", report.refusals.v[0].object, report.refusals.v[0].text);
}

/* The i-th group: a cluster IP with endpoints of one port, several with blanks. */
static void service(size_t i, const char *owner, const char *ip, enum l4proto proto,
                    const char *endpoints)
{
    struct ipvs_group_builder *b = ipvs_group_begin(owner);
    struct ip vip = ip_of(ip);
    char text[200];
    ipvs_put_bound(b, &vip);
    ipvs_put_address_port(b, KUBE_CLUSTER_IP, &vip, proto, 80);
    ipvs_put_server(b, &vip, proto, 80, IPVS_RR, 0);
    snprintf(text, sizeof(text), "%s", endpoints);
    for (char *save, *e = strtok_r(text, " ", &save); e; e = strtok_r(NULL, " ", &save)) {
        struct ip ep = ip_of(e);
        ipvs_put_dest(b, &vip, proto, 80, &ep, 8080, 1);
    }
    if (i < n_groups)
        ipvs_group_unref(groups[i]);
    else
        n_groups++;
    groups[i] = ipvs_group_end(b);
}

/* The usual one. */
static void web(const char *endpoints)
{
    service(0, "service/a/web", "10.96.0.1", L4_TCP, endpoints);
}

static bool bound(const char *ip)
{
    return strstr(output("ip -o addr show dev kube-ipvs0"), ip);
}

static bool in_set(const char *set, const char *element)
{
    return strstr(output("ipset list %s", set), element);
}

/* ---- order ---- */

static void what_is_new_comes_from_the_bottom_up(void **state)
{
    (void)state;
    web("10.244.0.1 10.244.0.2");
    service(1, "service/a/web6", "fd00::1", L4_TCP, "fd00:1::1");
    apply(IPVS_LOOK_AUDIT);
    assert_string_equal(ipvs_world_text(world),
                        "tcp 10.96.0.1:80 rr 0: 10.244.0.1:8080/1 10.244.0.2:8080/1\n"
                        "tcp fd00::1:80 rr 0: fd00:1::1:8080/1\n");
    assert_string_equal(ipvs_world_commands(world), "+server +server +dest +dest +dest ");
    assert_true(bound("10.96.0.1/32") && bound("fd00::1/128"));
    assert_true(in_set("KUBE-CLUSTER-IP", "10.96.0.1,tcp:80"));
    assert_true(in_set("KUBE-IPVS-IPS", "10.96.0.1"));
    assert_true(in_set("KUBE-6-CLUSTER-IP", "fd00::1,tcp:80"));
    assert_non_null(strstr(output("ip -o link show kube-ipvs0"), "alias portolan:"));
}

static void nothing_is_sent_when_nothing_changed(void **state)
{
    (void)state;
    web("10.244.0.1");
    apply(IPVS_LOOK_AUDIT);
    ipvs_world_writes(world);
    ipvs_world_die_after(world, 0); /* a pass does not even look */
    apply(0);
    ipvs_world_revive(world);
    apply(IPVS_LOOK_AUDIT);
    apply(IPVS_LOOK_DRAINING);
    start_agent();
    apply(IPVS_LOOK_AUDIT);
    assert_int_equal(ipvs_world_writes(world), 0);
}

static void an_endpoint_comes_before_another_goes(void **state)
{
    (void)state;
    web("10.244.0.1");
    apply(IPVS_LOOK_AUDIT);
    ipvs_world_commands(world);
    web("10.244.0.2");
    apply(0);
    assert_string_equal(ipvs_world_commands(world), "+dest =dest -dest ");
    assert_string_equal(ipvs_world_text(world), "tcp 10.96.0.1:80 rr 0: 10.244.0.2:8080/1\n");
}

static void what_goes_goes_from_the_top_down(void **state)
{
    (void)state;
    web("10.244.0.1");
    apply(IPVS_LOOK_AUDIT);
    ipvs_world_commands(world);
    forget_groups();
    /* Whatever it was killed after: who has no set's element any more has no server either. */
    ipvs_world_die_after(world, 1);
    assert_int_equal(sync_now(0), -EIO);
    assert_string_equal(ipvs_world_commands(world), "-server ");
    assert_true(bound("10.96.0.1/32") && in_set("KUBE-CLUSTER-IP", "10.96.0.1,tcp:80"));
    ipvs_world_revive(world);
    apply(0);
    assert_false(bound("10.96.0.1/32") || in_set("KUBE-CLUSTER-IP", "10.96.0.1,tcp:80"));
}

/* ---- what several want, and what looks alike ---- */

static void an_address_of_two_services_stays_for_the_other(void **state)
{
    (void)state;
    service(0, "service/a/tcp", "10.96.0.1", L4_TCP, "10.244.0.1");
    service(1, "service/a/udp", "10.96.0.1", L4_UDP, "10.244.0.1");
    apply(IPVS_LOOK_AUDIT);
    ipvs_group_unref(groups[--n_groups]);
    apply(0);
    assert_true(bound("10.96.0.1/32") && in_set("KUBE-IPVS-IPS", "10.96.0.1"));
    assert_string_equal(ipvs_world_text(world), "tcp 10.96.0.1:80 rr 0: 10.244.0.1:8080/1\n");
    forget_groups();
    apply(0);
    assert_false(bound("10.96.0.1/32"));
}

/* The same element of two sets, and a node port of both families, are four. */
static void elements_are_of_their_set_and_family(void **state)
{
    (void)state;
    struct ipvs_group_builder *b = ipvs_group_begin("service/a/web");
    struct ip ip = ip_of("192.0.2.1");
    ipvs_put_address_port(b, KUBE_EXTERNAL_IP, &ip, L4_TCP, 80);
    ipvs_put_address_port(b, KUBE_EXTERNAL_IP_LOCAL, &ip, L4_TCP, 80);
    ipvs_put_port(b, KUBE_NODE_PORT_TCP, IP_V4, 30080);
    ipvs_put_port(b, KUBE_NODE_PORT_TCP, IP_V6, 30080);
    groups[n_groups++] = ipvs_group_end(b);
    apply(IPVS_LOOK_AUDIT);
    assert_true(in_set("KUBE-EXTERNAL-IP", "192.0.2.1,tcp:80"));
    assert_true(in_set("KUBE-EXTERNAL-IP-LOCAL", "192.0.2.1,tcp:80"));
    assert_true(in_set("KUBE-NODE-PORT-TCP", "30080") && in_set("KUBE-6-NODE-PORT-TCP", "30080"));
    /* From Local to Cluster: out of one set, and in the other still. */
    ipvs_group_unref(groups[0]);
    b = ipvs_group_begin("service/a/web");
    ipvs_put_address_port(b, KUBE_EXTERNAL_IP, &ip, L4_TCP, 80);
    groups[0] = ipvs_group_end(b);
    apply(0);
    assert_true(in_set("KUBE-EXTERNAL-IP", "192.0.2.1,tcp:80"));
    assert_false(in_set("KUBE-EXTERNAL-IP-LOCAL", "192.0.2.1,tcp:80"));
    assert_false(in_set("KUBE-6-NODE-PORT-TCP", "30080"));
}

static void elements_of_every_type_are_read_as_they_were_written(void **state)
{
    (void)state;
    static const char *const ips[] = { "10.1.2.3", "fd00::3" };
    struct ipvs_group_builder *b = ipvs_group_begin("service/a/web");
    for (int i = 0; i < 2; i++) {
        struct ip ip = ip_of(ips[i]);
        struct ip_prefix whole = { ip, ip_bits(ip.family) }, all = { ip, 0 }, some = { ip, 9 };
        some = ip_prefix_masked(&some);
        ipvs_put_bound(b, &ip);
        ipvs_put_address_port(b, KUBE_EXTERNAL_IP, &ip, L4_SCTP, 65535);
        ipvs_put_address_port_address(b, KUBE_LOOP_BACK, &ip, L4_UDP, 53, &ip);
        ipvs_put_address_port_net(b, KUBE_LOAD_BALANCER_SRC_CIDR, &ip, L4_TCP, 80, &whole);
        ipvs_put_address_port_net(b, KUBE_LOAD_BALANCER_SRC_CIDR, &ip, L4_TCP, 80, &some);
        ipvs_put_address_port_net(b, KUBE_LOAD_BALANCER_SRC_CIDR, &ip, L4_TCP, 81, &all);
        ipvs_put_net(b, KUBE_POD_RANGE, &whole);
        ipvs_put_net(b, KUBE_POD_RANGE, &some);
        ipvs_put_port(b, KUBE_NODE_PORT_TCP, ip.family, 1);
        ipvs_put_port(b, KUBE_NODE_PORT_UDP, ip.family, 65535);
    }
    groups[n_groups++] = ipvs_group_end(b);
    apply(IPVS_LOOK_AUDIT);
    assert_true(in_set("KUBE-LOAD-BALANCER-SRC-CIDR", "10.1.2.3,tcp:80,10.0.0.0/9"));
    assert_true(in_set("KUBE-6-POD-RANGE", "fd00::/9"));
    ipvs_world_writes(world);
    start_agent();
    apply(IPVS_LOOK_AUDIT);
    assert_int_equal(ipvs_world_writes(world), 0);
    forget_groups();
    apply(0);
    assert_string_equal(output("ipset save | grep ^add"), "");
}

/* Many come and go: what is left is what is wanted, and what is known of it is true. */
static void a_crowd_comes_and_goes(void **state)
{
    (void)state;
    struct ipvs_group *all[300], *some[300];
    unsigned seed = 1;
    for (size_t i = 0; i < 300; i++) {
        char owner[40], ip[40];
        snprintf(owner, sizeof(owner), "service/a/%03zu", i);
        snprintf(ip, sizeof(ip), "10.96.%zu.%zu", i / 100, i % 100);
        service(0, owner, ip, i % 2 ? L4_TCP : L4_UDP, "10.244.0.1 10.244.0.2");
        all[i] = groups[0];
        n_groups = 0;
    }
    for (int round = 0; round < 20; round++) {
        size_t n = 0;
        for (size_t i = 0; i < 300; i++)
            if (rand_r(&seed) % 2)
                some[n++] = all[i];
        struct desired d = { .ipvs = some, .n_ipvs = n, .ipvs_node = &no_rules };
        report_reset(&report);
        assert_int_equal(ipvs_sync(agent, &d, 0, &report, &err), 0);
        assert_int_equal(report.refusals.n, 0);
        ipvs_world_writes(world);
        assert_int_equal(ipvs_sync(agent, &d, IPVS_LOOK_AUDIT, &report, &err), 0);
        assert_int_equal(ipvs_world_writes(world), 0);
        assert_int_equal(atoi(output("ipset list KUBE-IPVS-IPS | grep -c ^10.96")), n);
    }
    apply(0);
    assert_string_equal(ipvs_world_text(world), "");
    for (size_t i = 0; i < 300; i++)
        ipvs_group_unref(all[i]);
}

/* ---- draining ---- */

/* 10.244.0.1, which has a connection. */
static void one_of_two_drains(void)
{
    web("10.244.0.1 10.244.0.2");
    apply(IPVS_LOOK_AUDIT);
    ipvs_world_connect(world, "10.244.0.1", 1);
    web("10.244.0.2");
    apply(0);
}

static void a_destination_drains(void **state)
{
    (void)state;
    one_of_two_drains();
    assert_string_equal(ipvs_world_text(world),
                        "tcp 10.96.0.1:80 rr 0: 10.244.0.1:8080/0 10.244.0.2:8080/1\n");
    assert_int_equal(ipvs_draining(agent), 1);
    apply(IPVS_LOOK_DRAINING);
    service(1, "service/a/x", "10.96.0.2", L4_TCP, "10.244.0.3");
    apply(0); /* and while others come */
    assert_int_equal(ipvs_draining(agent), 1);
    apply(IPVS_LOOK_DRAINING);
    start_agent(); /* it drains on for another one */
    apply(IPVS_LOOK_AUDIT);
    assert_int_equal(ipvs_draining(agent), 1);
    ipvs_world_connect(world, "10.244.0.1", 0);
    ipvs_world_commands(world);
    apply(IPVS_LOOK_DRAINING);
    assert_string_equal(ipvs_world_commands(world), "-dest ");
    assert_int_equal(ipvs_draining(agent), 0);
}

static void one_that_returns_serves_again(void **state)
{
    (void)state;
    one_of_two_drains();
    web("10.244.0.1 10.244.0.2");
    apply(0);
    assert_string_equal(ipvs_world_text(world),
                        "tcp 10.96.0.1:80 rr 0: 10.244.0.1:8080/1 10.244.0.2:8080/1\n");
    apply(IPVS_LOOK_DRAINING);
    assert_int_equal(ipvs_draining(agent), 0);
    assert_non_null(strstr(ipvs_world_text(world), "10.244.0.1:8080/1"));
}

static void what_drains_goes_with_its_server(void **state)
{
    (void)state;
    one_of_two_drains();
    forget_groups();
    apply(0);
    assert_int_equal(ipvs_draining(agent), 0);
    web("10.244.0.1");
    apply(0);
    assert_string_equal(ipvs_world_text(world), "tcp 10.96.0.1:80 rr 0: 10.244.0.1:8080/1\n");
}

/* Wherever a pass breaks off, and the next one as well: it is found out anew. */
static void what_drained_is_forgotten_when_passes_fail(void **state)
{
    (void)state;
    bool died = true;
    unsigned k = 0;
    for (; died; k++) {
        forget_groups();
        web("10.244.0.1");
        start_agent();
        apply(IPVS_LOOK_AUDIT);
        ipvs_world_connect(world, "10.244.0.1", 1);
        web("");
        apply(0);
        forget_groups();
        service(0, "service/a/next", "10.96.0.2", L4_TCP, "");
        ipvs_world_die_after(world, k);
        died = sync_now(0);
        if (died)
            assert_int_not_equal(sync_now(0), 0);
        ipvs_world_revive(world);
        service(0, "service/a/next", "10.96.0.2", L4_TCP, "10.244.0.2 10.244.0.3");
        apply(0);
        assert_int_equal(ipvs_draining(agent), 0);
        assert_string_equal(ipvs_world_text(world),
                            "tcp 10.96.0.2:80 rr 0: 10.244.0.2:8080/1 10.244.0.3:8080/1\n");
    }
    assert_in_range(k, 3, 100);
}

static void udp_does_not_drain(void **state)
{
    (void)state;
    service(0, "service/a/dns", "10.96.0.1", L4_UDP, "10.244.0.1 10.244.0.2");
    apply(IPVS_LOOK_AUDIT);
    ipvs_world_connect(world, "10.244.0.1", 1);
    service(0, "service/a/dns", "10.96.0.1", L4_UDP, "10.244.0.2");
    ipvs_world_commands(world);
    apply(0);
    assert_string_equal(ipvs_world_commands(world), "-dest ");
}

/* ---- conntrack ---- */

static void told(const char *text)
{
    const struct flow_target *f;
    struct buf out = { 0 };
    char ip[IP_TEXT_MAX];
    for (size_t n = ipvs_udp_changes(agent, &f); n; n--, f++) {
        buf_printf(&out, "%s:%u", ip_format(&f->dialled, ip), f->port);
        for (size_t i = 0; i < f->n_others; i++)
            buf_printf(&out, " %s:%u", ip_format(&f->others[i].ip, ip), f->others[i].port);
        buf_puts(&out, f->target.family ? "\n" : " nowhere\n");
    }
    assert_string_equal(buf_str(&out), text);
    buf_done(&out);
}

static void conntrack_hears_of_udp(void **state)
{
    (void)state;
    service(0, "service/a/dns", "10.96.0.1", L4_UDP, "10.244.0.1 10.244.0.2");
    service(1, "service/a/ntp", "10.96.0.2", L4_UDP, "10.244.0.1");
    service(2, "service/a/web", "10.96.0.3", L4_TCP, "10.244.0.1");
    apply(IPVS_LOOK_AUDIT);
    told("10.96.0.1:80 10.244.0.1:8080 10.244.0.2:8080\n10.96.0.2:80 10.244.0.1:8080\n");
    told("");
    service(0, "service/a/dns", "10.96.0.1", L4_UDP, "10.244.0.2");
    service(2, "service/a/web", "10.96.0.3", L4_TCP, "10.244.0.2");
    apply(0);
    told("10.96.0.1:80 10.244.0.2:8080\n");
    forget_groups();
    apply(0);
    told("10.96.0.1:80 nowhere\n10.96.0.2:80 nowhere\n");
    service(0, "service/a/dns", "10.96.0.1", L4_UDP, "10.244.0.1");
    apply(0);
    start_agent(); /* whether its predecessor came that far nobody knows */
    apply(IPVS_LOOK_AUDIT);
    told("10.96.0.1:80 10.244.0.1:8080\n");
}

/* It did what it was told, but nobody knows. */
static void conntrack_hears_of_udp_when_an_answer_is_lost(void **state)
{
    (void)state;
    service(0, "service/a/dns", "10.96.0.1", L4_UDP, "10.244.0.1");
    apply(IPVS_LOOK_AUDIT);
    told("10.96.0.1:80 10.244.0.1:8080\n");
    forget_groups();
    ipvs_world_lose_answer(world);
    assert_int_equal(sync_now(0), -ENOBUFS);
    apply(0);
    assert_string_equal(ipvs_world_text(world), "");
    told("10.96.0.1:80 nowhere\n");
}

/* ---- refusals and others' edits ---- */

static void a_refused_server_holds_up_nothing_else(void **state)
{
    (void)state;
    service(0, "service/a/one", "10.96.0.1", L4_TCP, "10.244.0.1");
    service(1, "service/a/two", "10.96.0.2", L4_TCP, "10.244.0.2");
    ipvs_world_refuse(world, IPVS_CMD_NEW_SERVICE, 1, ENOMEM);
    assert_int_equal(sync_now(IPVS_LOOK_AUDIT), 0);
    assert_int_equal(report.refusals.n, 1);
    assert_string_equal(report.refusals.v[0].owner, "service/a/one");
    assert_string_equal(report.refusals.v[0].object, "TCP 10.96.0.1:80 rr");
    assert_string_equal(ipvs_world_text(world), "tcp 10.96.0.2:80 rr 0: 10.244.0.2:8080/1\n");
    ipvs_world_die_after(world, 2); /* the server, its destination: nothing is read for it */
    apply(0);
    ipvs_world_revive(world);
    assert_non_null(strstr(ipvs_world_text(world), "tcp 10.96.0.1:80 rr 0: 10.244.0.1:8080/1"));
}

/* Two servers, the first of which the kernel keeps. */
static void keep_one(void)
{
    service(0, "service/a/one", "10.96.0.1", L4_TCP, "10.244.0.1 10.244.0.2");
    service(1, "service/a/two", "10.96.0.2", L4_TCP, "10.244.0.1");
    apply(IPVS_LOOK_AUDIT);
    forget_groups();
    ipvs_world_refuse(world, IPVS_CMD_DEL_SERVICE, 1, EINTR);
    assert_int_equal(sync_now(0), 0);
    assert_int_equal(report.refusals.n, 1);
    assert_string_equal(report.refusals.v[0].object, "TCP 10.96.0.1:80 rr");
    ipvs_world_commands(world);
}

static void a_server_that_stays_keeps_its_destinations(void **state)
{
    (void)state;
    keep_one();
    service(0, "service/a/one", "10.96.0.1", L4_TCP, "10.244.0.1 10.244.0.3");
    apply(0);
    assert_string_equal(ipvs_world_commands(world), "+dest =dest -dest ");
    assert_string_equal(ipvs_world_text(world),
                        "tcp 10.96.0.1:80 rr 0: 10.244.0.1:8080/1 10.244.0.3:8080/1\n");
}

/* By them it is known after a start, whenever that is. */
static void what_a_server_is_known_by_goes_after_it(void **state)
{
    (void)state;
    keep_one();
    assert_true(bound("10.96.0.1/32") && in_set("KUBE-CLUSTER-IP", "10.96.0.1,tcp:80"));
    assert_false(bound("10.96.0.2/32") || in_set("KUBE-CLUSTER-IP", "10.96.0.2,tcp:80"));
    apply(0);
    assert_string_equal(ipvs_world_text(world), "");
    assert_false(bound("10.96.0.1/32") || in_set("KUBE-CLUSTER-IP", "10.96.0.1,tcp:80"));
}

static void a_node_port_goes_after_its_server(void **state)
{
    (void)state;
    struct ip ip = ip_of("192.0.2.10");
    struct ipvs_group_builder *b = ipvs_group_begin("service/a/web");
    ipvs_put_port(b, KUBE_NODE_PORT_TCP, IP_V4, 30080);
    ipvs_put_server(b, &ip, L4_TCP, 30080, IPVS_RR, 0);
    groups[n_groups++] = ipvs_group_end(b);
    apply(IPVS_LOOK_AUDIT);
    forget_groups();
    ipvs_world_refuse(world, IPVS_CMD_DEL_SERVICE, 1, EINTR);
    assert_int_equal(sync_now(0), 0);
    assert_true(in_set("KUBE-NODE-PORT-TCP", "30080"));
    start_agent();
    apply(IPVS_LOOK_AUDIT);
    assert_string_equal(ipvs_world_text(world), "");
    assert_false(in_set("KUBE-NODE-PORT-TCP", "30080"));
}

/* One that was there already, as others made it meanwhile, is found by reading. */
static void what_others_made_meanwhile_is_adopted(void **state)
{
    (void)state;
    struct ipvs_service s = { .family = IP_V4,
                              .protocol = L4_TCP,
                              .port = 80,
                              .ip = ip_of("10.96.0.1"),
                              .scheduler = "wlc" };
    apply(IPVS_LOOK_AUDIT);
    ipvs_world_put(world, &s);
    web("10.244.0.1");
    assert_int_equal(sync_now(0), 0);
    assert_int_equal(report.refusals.n, 1);
    apply(0);
    assert_string_equal(ipvs_world_text(world), "tcp 10.96.0.1:80 rr 0: 10.244.0.1:8080/1\n");
}

static void what_others_took_away_is_put_back(void **state)
{
    (void)state;
    web("10.244.0.1");
    apply(IPVS_LOOK_AUDIT);
    run("ipset del KUBE-CLUSTER-IP 10.96.0.1,tcp:80");
    run("ip addr del 10.96.0.1/32 dev kube-ipvs0; ipset destroy KUBE-DROP");
    apply(IPVS_LOOK_AUDIT);
    assert_true(bound("10.96.0.1/32") && in_set("KUBE-CLUSTER-IP", "10.96.0.1,tcp:80"));
    assert_true(in_set("KUBE-DROP", "hash:ip,port"));
}

/* ---- a start ---- */

static void put_server(const char *ip, uint16_t port, const char *scheduler, const char *dest)
{
    struct ipvs_service s = { .family = IP_V4, .protocol = L4_TCP, .port = port, .ip = ip_of(ip) };
    snprintf(s.scheduler, sizeof(s.scheduler), "%s", scheduler);
    ipvs_world_put(world, &s);
    struct ipvs_dest d = { .ip = ip_of(dest), .port = 8080, .weight = 1 };
    ipvs_world_put_dest(world, &s, &d);
}

static void what_an_earlier_run_left_goes(void **state)
{
    (void)state;
    run("ip addr add 10.96.0.9/32 dev kube-ipvs0");
    run("ipset create KUBE-NODE-PORT-TCP bitmap:port range 0-65535");
    run("ipset add KUBE-NODE-PORT-TCP 30080");
    put_server("10.96.0.9", 80, "rr", "10.244.0.9");     /* by its address */
    put_server("192.0.2.10", 30080, "rr", "10.244.0.9"); /* by its node port */
    put_server("10.96.0.1", 80, "wrr", "10.244.0.9");    /* wanted, otherwise */
    web("10.244.0.1");
    apply(IPVS_LOOK_AUDIT);
    assert_string_equal(ipvs_world_text(world), "tcp 10.96.0.1:80 rr 0: 10.244.0.1:8080/1\n");
    assert_false(bound("10.96.0.9") || in_set("KUBE-NODE-PORT-TCP", "30080"));
    assert_non_null(strstr(ipvs_world_commands(world), "=server +dest =dest"));
}

static void other_peoples_servers_stay(void **state)
{
    (void)state;
    run("ip addr add 10.96.0.9/32 dev kube-ipvs0");
    run("ipset create KUBE-NODE-PORT-UDP bitmap:port range 0-65535");
    run("ipset add KUBE-NODE-PORT-UDP 30080");
    run("ipset create KUBE-MINE hash:ip; ipset add KUBE-MINE 192.0.2.1");
    struct ipvs_service mark = { .family = IP_V4, .mark = 7, .scheduler = "lc" };
    ipvs_world_put(world, &mark);
    put_server("192.0.2.10", 30080, "rr", "10.0.0.1"); /* TCP, the port of ours is UDP's */
    put_server("192.0.2.10", 80, "rr", "10.0.0.1");
    put_server("10.96.0.9", 80, "rr", "10.0.0.1"); /* but for --ipvs-exclude-cidrs */
    exclude = (struct ip_prefix){ ip_of("10.96.0.9"), 32 };
    start_agent();
    char before[1000];
    snprintf(before, sizeof(before), "%s", ipvs_world_text(world));
    apply(IPVS_LOOK_AUDIT);
    apply(IPVS_LOOK_AUDIT);
    assert_string_equal(ipvs_world_text(world), before);
    assert_true(in_set("KUBE-MINE", "192.0.2.1"));
}

static void cleaned(enum kubeproxy_whose whose, bool dry_run, const char *says)
{
    struct buf out = { 0 };
    assert_int_equal(ipset_cleanup(ipvs_world_ports(world).netfilter, whose, dry_run, &out, &err),
                     0);
    assert_string_equal(buf_str(&out), says);
    buf_done(&out);
}

static void sets_go_by_their_names(void **state)
{
    (void)state;
    run("for i in CLUSTER-IP LOAD-BALANCER-SOURCE-CIDR DROP MINE; do "
        "ipset create KUBE-$i hash:ip; done; iptables-legacy -w -A INPUT -m set --match-set "
        "KUBE-CLUSTER-IP dst -j DROP");
    cleaned(KUBEPROXY_ITS, true,
            "- ipset KUBE-CLUSTER-IP\n- ipset KUBE-LOAD-BALANCER-SOURCE-CIDR\n");
    cleaned(KUBEPROXY_BESIDE, false, "- ipset KUBE-LOAD-BALANCER-SOURCE-CIDR\n");
    cleaned(KUBEPROXY_OURS, false,
            "! ipset KUBE-CLUSTER-IP stays, because a rule uses it\n- ipset KUBE-DROP\n");
    assert_string_equal(output("ipset list -n"), "KUBE-CLUSTER-IP\nKUBE-MINE\n");
}

/* Everything, and nothing of others. */
static void a_cleanup_leaves_what_others_have(void **state)
{
    (void)state;
    struct ipvs_ports ports = ipvs_world_ports(world);
    struct buf out = { 0 };
    put_server("192.0.2.10", 80, "rr", "10.0.0.1");
    run("ipset create KUBE-MINE hash:ip");
    web("10.244.0.1");
    apply(IPVS_LOOK_AUDIT);
    assert_int_equal(ipvs_cleanup(&ports, true, &out, &err), 0);
    assert_non_null(strstr(buf_str(&out), "- ipvs service tcp 10.96.0.1:80\n- ipset KUBE-"));
    assert_true(bound("10.96.0.1"));
    assert_int_equal(ipvs_cleanup(&ports, false, &out, &err), 0);
    assert_string_equal(ipvs_world_text(world), "tcp 192.0.2.10:80 rr 0: 10.0.0.1:8080/1\n");
    assert_string_equal(output("ipset list -n"), "KUBE-MINE\n");
    assert_string_equal(output("ip link show kube-ipvs0 2>&1"),
                        "Device \"kube-ipvs0\" does not exist.\n");
    buf_done(&out);
}

/* kube-proxy's, or anybody's, who have not our mark. */
static void a_cleanup_leaves_a_device_without_our_mark(void **state)
{
    (void)state;
    struct ipvs_ports ports = ipvs_world_ports(world);
    struct buf out = { 0 };
    run("ip link set kube-ipvs0 alias ''; ip addr add 10.96.0.9/32 dev kube-ipvs0; ipset create KUBE-CLUSTER-IP hash:ip,port");
    put_server("10.96.0.9", 80, "rr", "10.244.0.9");
    assert_int_equal(ipvs_cleanup(&ports, false, &out, &err), 0);
    assert_string_equal(buf_str(&out), "");
    assert_true(bound("10.96.0.9"));
    assert_string_equal(ipvs_world_commands(world), "");
}

/* Everything that was to change when the agent was killed. */
static void from_here(void)
{
    forget_groups();
    service(0, "service/a/gone", "10.96.0.1", L4_TCP, "10.244.0.1");
    service(1, "service/a/moved", "10.96.0.2", L4_TCP, "10.244.0.1 10.244.0.2");
    service(2, "service/a/udp", "10.96.0.3", L4_UDP, "10.244.0.1 10.244.0.2");
}

static void to_there(void)
{
    forget_groups();
    service(0, "service/a/moved", "10.96.0.2", L4_TCP, "10.244.0.2 10.244.0.3");
    service(1, "service/a/new", "10.96.0.4", L4_TCP, "10.244.0.1");
    service(2, "service/a/udp", "10.96.0.3", L4_UDP, "10.244.0.3");
}

static const char *everything(void)
{
    static char text[16384];
    snprintf(text, sizeof(text), "%s%s%s", ipvs_world_text(world),
             output("ip -o addr show dev kube-ipvs0 | awk '{print $4}' | sort"),
             output("ipset save | grep ^add | sort"));
    return text;
}

static void killed_anywhere_it_heals_at_the_next_start(void **state)
{
    (void)state;
    to_there();
    apply(IPVS_LOOK_AUDIT);
    char *there = strdup(everything());
    unsigned k = 0;
    for (bool died = true; died; k++) {
        from_here();
        start_agent();
        apply(IPVS_LOOK_AUDIT);
        to_there();
        start_agent();
        ipvs_world_die_after(world, k);
        died = sync_now(IPVS_LOOK_AUDIT);
        ipvs_world_revive(world);
        start_agent();
        apply(IPVS_LOOK_AUDIT);
        assert_string_equal(everything(), there);
        ipvs_world_writes(world);
        apply(IPVS_LOOK_AUDIT);
        assert_int_equal(ipvs_world_writes(world), 0);
    }
    assert_in_range(k, 50, 1000); /* looks, and 8 changes */
    free(there);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_new_comes_from_the_bottom_up),
        TEST(nothing_is_sent_when_nothing_changed),
        TEST(an_endpoint_comes_before_another_goes),
        TEST(what_goes_goes_from_the_top_down),
        TEST(an_address_of_two_services_stays_for_the_other),
        TEST(elements_are_of_their_set_and_family),
        TEST(elements_of_every_type_are_read_as_they_were_written),
        TEST(a_crowd_comes_and_goes),
        TEST(a_destination_drains),
        TEST(one_that_returns_serves_again),
        TEST(what_drains_goes_with_its_server),
        TEST(what_drained_is_forgotten_when_passes_fail),
        TEST(udp_does_not_drain),
        TEST(conntrack_hears_of_udp),
        TEST(conntrack_hears_of_udp_when_an_answer_is_lost),
        TEST(a_refused_server_holds_up_nothing_else),
        TEST(a_server_that_stays_keeps_its_destinations),
        TEST(what_a_server_is_known_by_goes_after_it),
        TEST(a_node_port_goes_after_its_server),
        TEST(what_others_made_meanwhile_is_adopted),
        TEST(what_others_took_away_is_put_back),
        TEST(what_an_earlier_run_left_goes),
        TEST(other_peoples_servers_stay),
        TEST(sets_go_by_their_names),
        TEST(a_cleanup_leaves_what_others_have),
        TEST(a_cleanup_leaves_a_device_without_our_mark),
        TEST(killed_anywhere_it_heals_at_the_next_start),
    };
    return cmocka_run_group_tests_name("ipvs_sync", tests, NULL, NULL);
}
