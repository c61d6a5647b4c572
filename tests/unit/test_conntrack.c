#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "fake_port.h"
#include "kernel/conntrack.h"
#include "netlink/nl_attr.h"
#include "netns.h"

#define CT_TYPE(t) ((NFNL_SUBSYS_CTNETLINK << 8) | (t))

static struct nl_port *port_in_new_world(void)
{
    struct nl_port *p;
    struct err err;
    close(netns_new());
    run("ip addr add 192.0.2.1/32 dev lo; ip addr add 192.0.2.2/32 dev lo;"
        "ip addr add 192.0.2.3/32 dev lo; ip -6 addr add 2001:db8::1/128 dev lo;"
        "ip -6 addr add 2001:db8::2/128 dev lo; ip -6 addr add 2001:db8::3/128 dev lo");
    assert_int_equal(nl_open(NETLINK_NETFILTER, NULL, &p, &err), 0);
    return fake_port_new(p);
}

/* A flow that was dialled at `to`:`port` and went to `target`:`target_port`. */
static void insert(const char *proto, const char *to, unsigned port, const char *target,
                   unsigned target_port)
{
    static unsigned source = 20000;
    const char *from = strchr(to, ':') ? "2001:db8:c::1" : "198.51.100.1";
    source++;
    run("conntrack -I -p %s%s -s %s -d %s -r %s -q %s --sport %u --dport %u --reply-port-src %u "
        "--reply-port-dst %u -t 600",
        proto, strcmp(proto, "tcp") ? "" : " --state ESTABLISHED", from, to, target, from, source,
        port, target_port, source);
}

/* What is left, one line each: "udp 192.0.2.1:80>192.0.2.2". */
static const char *left(void)
{
    return output(
        "(conntrack -L -f ipv4; conntrack -L -f ipv6) 2>/dev/null |"
        "sed -E 's/^([a-z]+) .* dst=([^ ]+) .* dport=([0-9]+) .*src=([^ ]+) .*sport=([0-9]+) "
        ".*/\\1 \\2 \\3 \\4 \\5/' | sort");
}

static struct flow_target key(const char *dialled, uint16_t port, uint16_t end, const char *target,
                              uint16_t target_port)
{
    struct flow_target t = { .port = port, .end = end, .target_port = target_port };
    assert_true(ip_parse(dialled, &t.dialled));
    if (target)
        assert_true(ip_parse(target, &t.target));
    return t;
}

static int flush(struct nl_port *p, const struct flow_target *keys, size_t n)
{
    struct err err = { 0 };
    int r = conntrack_flush_udp(p, keys, n, &err);
    if (r < 0)
        fail_msg("%s", err.text);
    return r;
}

static void insert_all(void)
{
    insert("udp", "192.0.2.1", 80, "10.0.0.1", 8080);
    insert("udp", "192.0.2.1", 80, "10.0.0.2", 8080);
    insert("udp", "192.0.2.1", 80, "10.0.0.2", 8081);
    insert("udp", "192.0.2.1", 81, "10.0.0.1", 8080); /* another port */
    insert("udp", "192.0.2.3", 80, "10.0.0.1", 8080); /* another address */
    insert("tcp", "192.0.2.1", 80, "10.0.0.1", 8080);
    insert("udp", "192.0.2.1", 90, "192.0.2.1", 90); /* reached nothing but us */
    insert("udp", "192.0.2.1", 1000, "10.0.0.1", 1000);
    insert("udp", "192.0.2.1", 1005, "10.0.0.1", 1005);
    insert("udp", "192.0.2.1", 1010, "10.0.0.3", 1010);
    insert("udp", "192.0.2.1", 1011, "10.0.0.1", 1011); /* past the range */
    insert("udp", "192.0.2.1", 2001, "10.0.0.1", 3001);
    insert("udp", "192.0.2.1", 2002, "10.0.0.1", 3001);
    insert("udp", "2001:db8::1", 80, "fd00::1", 8080);
    insert("udp", "2001:db8::1", 80, "fd00::2", 8080);
}

static void what_leads_elsewhere_goes(void **state)
{
    (void)state;
    static const char *const want = "tcp 192.0.2.1 80 10.0.0.1 8080\n"
                                    "udp 192.0.2.1 1005 10.0.0.1 1005\n"
                                    "udp 192.0.2.1 1011 10.0.0.1 1011\n"
                                    "udp 192.0.2.1 2001 10.0.0.1 3001\n"
                                    "udp 192.0.2.1 80 10.0.0.2 8080\n"
                                    "udp 192.0.2.1 81 10.0.0.1 8080\n"
                                    "udp 192.0.2.3 80 10.0.0.1 8080\n"
                                    "udp 2001:db8::1 80 fd00::2 8080\n";
    struct flow_target keys[] = {
        key("192.0.2.1", 80, 80, "10.0.0.2", 8080),     key("192.0.2.1", 90, 90, "10.0.0.9", 90),
        key("192.0.2.1", 1001, 1010, "10.0.0.1", 0), /* ports kept */
        key("192.0.2.1", 1000, 1000, NULL, 0),       /* nowhere */
        key("192.0.2.1", 2001, 2002, "10.0.0.1", 3001), key("2001:db8::1", 80, 80, "fd00::2", 8080),
    };
    size_t n = sizeof(keys) / sizeof(keys[0]);
    /* One dump of all, then each key by itself: the same result. */
    struct nl_port *p = port_in_new_world();
    insert_all();
    assert_int_equal(flush(p, keys, n), 7);
    assert_string_equal(left(), want);
    assert_int_equal(fake_sent(p, CT_TYPE(IPCTNL_MSG_CT_GET)), 2); /* once a family */
    assert_int_equal(flush(p, keys, n), 0);
    nl_close(p);

    p = port_in_new_world();
    insert_all();
    int gone = 0;
    for (size_t i = 0; i < n; i++)
        gone += flush(p, &keys[i], 1);
    assert_int_equal(gone, 7);
    assert_string_equal(left(), want);
    assert_int_equal(fake_sent(p, CT_TYPE(IPCTNL_MSG_CT_GET)), n);
    nl_close(p);
}

static void an_entry_that_leads_to_any_endpoint_of_a_service_stays(void **state)
{
    (void)state;
    struct flow_end four[] = { { .port = 53 }, { .port = 53 }, { .port = 5353 } }, six[2] = { 0 };
    assert_true(ip_parse("10.0.0.1", &four[0].ip) && ip_parse("10.0.0.2", &four[1].ip) &&
                ip_parse("10.0.0.2", &four[2].ip) && ip_parse("fd00::1", &six[0].ip) &&
                ip_parse("fd00::2", &six[1].ip));
    six[0].port = six[1].port = 53;
    struct flow_target keys[] = { key("192.0.2.1", 53, 53, "10.0.0.1", 53),
                                  key("2001:db8::1", 53, 53, "fd00::1", 53),
                                  key("192.0.2.3", 53, 53, NULL, 0) };
    keys[0].others = four;
    keys[0].n_others = 3;
    keys[1].others = six;
    keys[1].n_others = 2;
    for (size_t at_once = 1; at_once <= 3; at_once += 2) {
        struct nl_port *p = port_in_new_world();
        insert("udp", "192.0.2.1", 53, "10.0.0.1", 53);
        insert("udp", "192.0.2.1", 53, "10.0.0.2", 53);
        insert("udp", "192.0.2.1", 53, "10.0.0.2", 5353);
        insert("udp", "192.0.2.1", 53, "10.0.0.1", 5353); /* no endpoint: the port */
        insert("udp", "192.0.2.1", 53, "10.0.0.3", 53);   /* the address */
        insert("udp", "192.0.2.1", 53, "192.0.2.1", 53);  /* before there was one */
        insert("udp", "192.0.2.1", 54, "10.0.0.9", 53);   /* another service */
        insert("tcp", "192.0.2.1", 53, "10.0.0.9", 53);   /* never cut */
        insert("udp", "192.0.2.3", 53, "10.0.0.1", 53);   /* of a service that is gone */
        insert("udp", "2001:db8::1", 53, "fd00::2", 53);
        insert("udp", "2001:db8::1", 53, "fd00::3", 53);
        int gone = 0;
        for (size_t i = 0; i < 3; i += at_once)
            gone += flush(p, &keys[i], at_once);
        assert_int_equal(gone, 5);
        assert_string_equal(left(), "tcp 192.0.2.1 53 10.0.0.9 53\n"
                                    "udp 192.0.2.1 53 10.0.0.1 53\n"
                                    "udp 192.0.2.1 53 10.0.0.2 53\n"
                                    "udp 192.0.2.1 53 10.0.0.2 5353\n"
                                    "udp 192.0.2.1 54 10.0.0.9 53\n"
                                    "udp 2001:db8::1 53 fd00::2 53\n");
        nl_close(p);
    }
}

/* As IPVS has entries: it tells conntrack where replies come from, and translates by itself. */
static void an_entry_that_something_else_translates_goes_when_it_is_told_to(void **state)
{
    (void)state;
    static const char *const translated = "udp 192.0.2.1 80 10.0.0.1 8080\n",
                             *const itself = "udp 192.0.2.1 80 192.0.2.1 80\n";
    struct flow_end ends[] = { { .port = 8080 }, { .port = 80 } };
    struct flow_target k = key("192.0.2.1", 80, 80, "10.0.0.1", 8080);
    char want[200];
    assert_true(ip_parse("10.0.0.1", &ends[0].ip) && ip_parse("192.0.2.1", &ends[1].ip));
    k.others = ends;
    k.n_others = 2;
    struct nl_port *p = port_in_new_world();
    insert("udp", "192.0.2.1", 80, "10.0.0.1", 8080);
    insert("udp", "192.0.2.1", 80, "192.0.2.1", 80);
    run("conntrack -I -p udp -s 198.51.100.1 -d 192.0.2.1 --sport 1 --dport 80 -t 600 "
        "--dst-nat 10.0.0.1:8080");
    run("conntrack -I -p udp -s 198.51.100.1 -d 192.0.2.1 --sport 2 --dport 80 -t 600 "
        "-r 10.0.0.1 -q 198.51.100.1 --reply-port-src 8080 --reply-port-dst 2 "
        "--src-nat 192.0.2.9:2");
    assert_int_equal(flush(p, &k, 1), 0);
    k.nat = IPS_NAT_MASK;
    assert_int_equal(flush(p, &k, 1), 1);
    snprintf(want, sizeof(want), "%s%s%s", translated, translated, itself);
    assert_string_equal(left(), want);
    k.nat = IPS_DST_NAT;
    assert_int_equal(flush(p, &k, 1), 1);
    snprintf(want, sizeof(want), "%s%s", translated, itself);
    assert_string_equal(left(), want);
    nl_close(p);
}

static void no_keys_ask_nothing(void **state)
{
    (void)state;
    struct nl_port *p = fake_port_new(NULL);
    assert_int_equal(flush(p, NULL, 0), 0);
    assert_int_equal(fake_sent(p, 0), 0);
    nl_close(p);
}

static void a_disturbed_dump_deletes_each_once(void **state)
{
    (void)state;
    struct flow_target keys[] = { key("192.0.2.1", 1, 60000, NULL, 0),
                                  key("2001:db8::1", 1, 60000, NULL, 0) };
    for (unsigned at = 0; at < 4; at++) {
        struct nl_port *p = port_in_new_world();
        insert_all();
        fake_interrupt_dump(p, at);
        assert_int_equal(flush(p, keys, 2), 13);
        assert_int_equal(fake_sent(p, CT_TYPE(IPCTNL_MSG_CT_DELETE)), 13);
        nl_close(p);
    }
}

static void an_entry_that_ended_by_itself_is_no_error(void **state)
{
    (void)state;
    struct flow_target k = key("192.0.2.1", 80, 80, "10.0.0.2", 8080);
    struct nl_port *p = port_in_new_world();
    insert_all();
    fake_refuse_type(p, CT_TYPE(IPCTNL_MSG_CT_DELETE), 0, 1, ENOENT, "");
    assert_int_equal(flush(p, &k, 1), 1);
    struct err err;
    fake_refuse_type(p, CT_TYPE(IPCTNL_MSG_CT_DELETE), 0, 1, EPERM, "");
    assert_int_equal(conntrack_flush_udp(p, &k, 1, &err), -EPERM);
    fake_refuse_type(p, CT_TYPE(IPCTNL_MSG_CT_GET), 0, 1, EPERM, "");
    assert_int_equal(conntrack_flush_udp(p, &k, 1, &err), -EPERM);
    assert_string_equal(err.text,
                        "cannot delete UDP flows that lead to where nothing is served any "
                        "more: Operation not permitted");
    nl_close(p);
}

static int udp_socket(const char *ip, uint16_t port, bool connect_it)
{
    struct sockaddr_storage a = { 0 };
    struct ip x;
    assert_true(ip_parse(ip, &x));
    bool v6 = x.family == IP_V6;
    a.ss_family = v6 ? AF_INET6 : AF_INET;
    ((struct sockaddr_in *)&a)->sin_port = htons(port); /* the same place in both */
    memcpy(v6 ? (void *)&((struct sockaddr_in6 *)&a)->sin6_addr
              : (void *)&((struct sockaddr_in *)&a)->sin_addr,
           x.bytes, ip_len(x.family));
    int fd = socket(a.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t len = v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int r =
        connect_it ? connect(fd, (struct sockaddr *)&a, len) : bind(fd, (struct sockaddr *)&a, len);
    assert_int_equal(r, 0);
    return fd;
}

static bool arrives(int fd)
{
    char c;
    return within_ms(2000, recv(fd, &c, 1, 0) == 1);
}

static void a_client_with_one_socket_reaches_the_new_target(void **state)
{
    (void)state;
    static const struct {
        const char *family, *dialled, *old, *new;
    } cases[] = { { "ip", "192.0.2.1", "192.0.2.2", "192.0.2.3" },
                  { "ip6", "2001:db8::1", "2001:db8::2", "2001:db8::3" } };
    struct nl_port *p = port_in_new_world();
    for (size_t i = 0; i < 2; i++) {
        const char *f = cases[i].family;
        bool v6 = i == 1;
        int old = udp_socket(cases[i].old, 6000, false),
            new = udp_socket(cases[i].new, 6000, false);
        run("nft 'table %s t { map m { type %s : %s; elements = { %s : %s }; }; "
            "chain o { type nat hook output priority -100; dnat to %s daddr map @m; }; }'",
            f, v6 ? "ipv6_addr" : "ipv4_addr", v6 ? "ipv6_addr" : "ipv4_addr", cases[i].dialled,
            cases[i].old, f);
        int client = udp_socket(cases[i].dialled, 6000, true);
        assert_int_equal(send(client, "a", 1, 0), 1);
        assert_true(arrives(old));
        run("nft 'delete element %s t m { %s }; add element %s t m { %s : %s }'", f,
            cases[i].dialled, f, cases[i].dialled, cases[i].new);
        assert_int_equal(send(client, "b", 1, 0), 1);
        assert_true(arrives(old)); /* stuck: this is why */
        struct flow_target k = key(cases[i].dialled, 6000, 6000, cases[i].new, 6000);
        assert_int_equal(flush(p, &k, 1), 1);
        assert_int_equal(send(client, "c", 1, 0), 1);
        assert_true(arrives(new));
        assert_int_equal(flush(p, &k, 1), 0); /* the new flow stays */
        close(client);
        close(old);
        close(new);
    }
    nl_close(p);
}

static void put_tuple(struct nlmsghdr *m, uint16_t type, const char *src, const char *dst,
                      uint16_t sport, uint16_t dport)
{
    struct ip s, d;
    assert_true(ip_parse(src, &s) && ip_parse(dst, &d));
    struct nlattr *tuple = mnl_attr_nest_start(m, type);
    struct nlattr *ip = mnl_attr_nest_start(m, CTA_TUPLE_IP);
    nl_put_ip(m, CTA_IP_V4_SRC, &s);
    nl_put_ip(m, CTA_IP_V4_DST, &d);
    mnl_attr_nest_end(m, ip);
    struct nlattr *proto = mnl_attr_nest_start(m, CTA_TUPLE_PROTO);
    mnl_attr_put_u8(m, CTA_PROTO_NUM, IPPROTO_UDP);
    mnl_attr_put_u16(m, CTA_PROTO_SRC_PORT, htons(sport));
    mnl_attr_put_u16(m, CTA_PROTO_DST_PORT, htons(dport));
    mnl_attr_nest_end(m, proto);
    mnl_attr_nest_end(m, tuple);
}

/* Last: what is learned of the kernel is learned for good. */
static void a_kernel_that_does_not_filter_is_asked_once(void **state)
{
    (void)state;
    struct nl_port *p = fake_port_new(NULL);
    struct nl_buf b = { 0 };
    struct nfgenmsg head = { .nfgen_family = AF_INET };
    static const uint16_t ports[] = { 80, 81, 82, 83 };
    for (size_t i = 0; i < 4; i++) {
        struct nlmsghdr *m = nl_msg(&b, CT_TYPE(IPCTNL_MSG_CT_NEW), 0, 0, &head, sizeof(head));
        put_tuple(m, CTA_TUPLE_ORIG, "198.51.100.1", "192.0.2.1", 4000, ports[i]);
        put_tuple(m, CTA_TUPLE_REPLY, "10.0.0.1", "198.51.100.1", ports[i], 4000);
        mnl_attr_put_u32(m, CTA_ID, htonl((uint32_t)i));
    }
    fake_dump(p, CT_TYPE(IPCTNL_MSG_CT_GET), b.p, nl_end(&b));
    nl_buf_done(&b);
    struct flow_target keys[] = { key("192.0.2.1", 80, 80, "10.0.0.2", 80),
                                  key("192.0.2.1", 82, 82, "10.0.0.2", 82) };
    assert_int_equal(flush(p, keys, 2), 2);
    fake_forget_sent(p);
    assert_int_equal(flush(p, keys, 2), 2);
    assert_int_equal(fake_sent(p, CT_TYPE(IPCTNL_MSG_CT_GET)), 1);
    assert_int_equal(fake_sent(p, CT_TYPE(IPCTNL_MSG_CT_DELETE)), 2);
    nl_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_leads_elsewhere_goes),
        cmocka_unit_test(an_entry_that_leads_to_any_endpoint_of_a_service_stays),
        cmocka_unit_test(an_entry_that_something_else_translates_goes_when_it_is_told_to),
        cmocka_unit_test(no_keys_ask_nothing),
        cmocka_unit_test(a_disturbed_dump_deletes_each_once),
        cmocka_unit_test(an_entry_that_ended_by_itself_is_no_error),
        cmocka_unit_test(a_client_with_one_socket_reaches_the_new_target),
        cmocka_unit_test(a_kernel_that_does_not_filter_is_asked_once),
    };
    return cmocka_run_group_tests_name("conntrack", tests, NULL, NULL);
}
