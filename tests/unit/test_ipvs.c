/* kube-proxy's IPVS leftovers, told by a kernel that is played: not every kernel has IPVS. */
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/genetlink.h>
#include <linux/ip_vs.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

#include "fake_port.h"
#include "kernel/ipvs.h"
#include "kernel/nft.h"
#include "kernel/nft_kubeproxy.h"
#include "netlink/nl_attr.h"

#define IPVS_FAMILY 0x21
#define DEVICE      7
/* A request takes two: as it is made, and as it is sent. */
#define FIRST_SEQ 2

static const struct ip cluster_ip = { .family = IP_V4, .bytes = { 10, 96, 0, 1 } };
static const struct ip node_ip = { .family = IP_V4, .bytes = { 192, 0, 2, 10 } };

/* The answer to a port's first request, which is not a dump. */
static void push(struct nl_port *p, struct nl_buf *b)
{
    size_t n = nl_end(b);
    fake_push(p, b->p, n);
    nl_buf_done(b);
}

static void put_device(struct nl_port *route)
{
    struct nl_buf b = { 0 };
    struct ifinfomsg link = { .ifi_index = DEVICE };
    struct ifaddrmsg addr = { .ifa_family = AF_INET, .ifa_index = DEVICE };
    struct nlmsghdr *m = nl_msg(&b, RTM_NEWLINK, 0, FIRST_SEQ, &link, sizeof(link));
    struct nlattr *info = mnl_attr_nest_start(m, IFLA_LINKINFO);
    mnl_attr_put_strz(m, IFLA_INFO_KIND, "dummy");
    mnl_attr_nest_end(m, info);
    push(route, &b);
    m = nl_msg(&b, RTM_NEWADDR, NLM_F_MULTI, 0, &addr, sizeof(addr));
    nl_put_ip(m, IFA_ADDRESS, &cluster_ip);
    addr.ifa_index = DEVICE + 1;
    m = nl_msg(&b, RTM_NEWADDR, NLM_F_MULTI, 0, &addr, sizeof(addr));
    nl_put_ip(m, IFA_ADDRESS, &node_ip);
    fake_dump(route, RTM_GETADDR, b.p, nl_end(&b));
    nl_buf_done(&b);
}

static void put_family(struct nl_port *generic)
{
    struct nl_buf b = { 0 };
    struct genlmsghdr g = { .cmd = CTRL_CMD_NEWFAMILY };
    struct nlmsghdr *m = nl_msg(&b, GENL_ID_CTRL, 0, FIRST_SEQ, &g, sizeof(g));
    mnl_attr_put_u16(m, CTRL_ATTR_FAMILY_ID, IPVS_FAMILY);
    push(generic, &b);
}

static void put_service(struct nl_buf *b, uint16_t family, uint16_t protocol, const struct ip *ip,
                        uint16_t port, uint32_t mark)
{
    struct genlmsghdr g = { .cmd = IPVS_CMD_NEW_SERVICE };
    struct nlmsghdr *m = nl_msg(b, IPVS_FAMILY, NLM_F_MULTI, 0, &g, sizeof(g));
    struct nlattr *nest = mnl_attr_nest_start(m, IPVS_CMD_ATTR_SERVICE);
    mnl_attr_put_u16(m, IPVS_SVC_ATTR_AF, family);
    if (ip) {
        mnl_attr_put_u16(m, IPVS_SVC_ATTR_PROTOCOL, protocol);
        mnl_attr_put(m, IPVS_SVC_ATTR_ADDR, 16, ip->bytes);
        mnl_attr_put_u16(m, IPVS_SVC_ATTR_PORT, htons(port));
    } else {
        mnl_attr_put_u32(m, IPVS_SVC_ATTR_FWMARK, mark);
    }
    mnl_attr_put_strz(m, IPVS_SVC_ATTR_SCHED_NAME, "rr");
    mnl_attr_nest_end(m, nest);
}

static void put_services(struct nl_port *generic)
{
    struct nl_buf b = { 0 };
    put_service(&b, AF_INET, IPPROTO_TCP, &cluster_ip, 443, 0);
    put_service(&b, AF_INET, IPPROTO_UDP, &node_ip, 30053, 0);
    put_service(&b, AF_INET6, 0, NULL, 0, 0x10);
    fake_dump(generic, IPVS_FAMILY, b.p, nl_end(&b));
    nl_buf_done(&b);
}

static int clean(struct nl_port *route, struct nl_port *generic, bool dry_run, const char *says)
{
    struct buf out = { 0 };
    struct err err = { 0 };
    int r = ipvs_kubeproxy_cleanup(route, generic, dry_run, &out, &err);
    assert_string_equal(buf_str(&out), says);
    buf_done(&out);
    return r;
}

/* Messages to IPVS with this command. */
static size_t sent(struct nl_port *generic, uint8_t command, const struct nlmsghdr **ret)
{
    size_t n = 0;
    const struct nlmsghdr *m;
    for (size_t i = 0; (m = fake_sent_message(generic, IPVS_FAMILY, i)); i++)
        if (((const struct genlmsghdr *)mnl_nlmsg_get_payload(m))->cmd == command) {
            *ret = m;
            n++;
        }
    return n;
}

static const char *const everything =
    "- ipvs service tcp 10.96.0.1:443\n"
    "! ipvs service udp 192.0.2.10:30053 stays, because its address is not of kube-ipvs0\n"
    "! ipvs service of mark 0x10 stays, because its address is not of kube-ipvs0\n"
    "- link kube-ipvs0\n";

static void services_of_the_device_go_with_it(void **state)
{
    (void)state;
    struct nl_port *route = fake_port_new(NULL), *generic = fake_port_new(NULL);
    put_device(route);
    put_family(generic);
    put_services(generic);
    assert_int_equal(clean(route, generic, false, everything), 0);
    const struct nlmsghdr *m = NULL;
    assert_int_equal(sent(generic, IPVS_CMD_DEL_SERVICE, &m), 1);
    static const struct nl_policy outer[] = { [IPVS_CMD_ATTR_SERVICE] = NL_NEST };
    static const struct nl_policy inner[] = { [IPVS_SVC_ATTR_AF] = NL_U16,
                                              [IPVS_SVC_ATTR_PROTOCOL] = NL_U16,
                                              [IPVS_SVC_ATTR_ADDR] = NL_BYTES(16),
                                              [IPVS_SVC_ATTR_PORT] = NL_U16 };
    const struct nlattr *o[NL_POLICY_COUNT(outer)], *i[NL_POLICY_COUNT(inner)];
    assert_int_equal(nl_parse(m, sizeof(struct genlmsghdr), outer, NL_POLICY_COUNT(outer), o), 0);
    assert_int_equal(nl_parse_nested(o[IPVS_CMD_ATTR_SERVICE], inner, NL_POLICY_COUNT(inner), i),
                     0);
    assert_int_equal(mnl_attr_get_u16(i[IPVS_SVC_ATTR_AF]), AF_INET);
    assert_int_equal(mnl_attr_get_u16(i[IPVS_SVC_ATTR_PROTOCOL]), IPPROTO_TCP);
    assert_int_equal(ntohs(mnl_attr_get_u16(i[IPVS_SVC_ATTR_PORT])), 443);
    assert_memory_equal(mnl_attr_get_payload(i[IPVS_SVC_ATTR_ADDR]), cluster_ip.bytes, 16);
    assert_int_equal(fake_sent(route, RTM_DELLINK), 1);
    m = fake_sent_message(route, RTM_DELLINK, 0);
    assert_int_equal(((const struct ifinfomsg *)mnl_nlmsg_get_payload(m))->ifi_index, DEVICE);
    nl_close(route);
    nl_close(generic);
}

static void a_dry_run_lists_them(void **state)
{
    (void)state;
    struct nl_port *route = fake_port_new(NULL), *generic = fake_port_new(NULL);
    const struct nlmsghdr *m;
    put_device(route);
    put_family(generic);
    put_services(generic);
    assert_int_equal(clean(route, generic, true, everything), 0);
    assert_int_equal(sent(generic, IPVS_CMD_DEL_SERVICE, &m), 0);
    assert_int_equal(fake_sent(route, RTM_DELLINK), 0);
    nl_close(route);
    nl_close(generic);
}

static void without_the_device_nothing_is_touched(void **state)
{
    (void)state;
    struct nl_port *route = fake_port_new(NULL), *generic = fake_port_new(NULL);
    fake_refuse_type(route, RTM_GETLINK, 0, 1, ENODEV, "");
    assert_int_equal(clean(route, generic, false, ""), 0);
    assert_int_equal(fake_sent(generic, 0), 0);
    nl_close(route);
    nl_close(generic);
}

static void a_kernel_without_ipvs_has_the_device_alone(void **state)
{
    (void)state;
    struct nl_port *route = fake_port_new(NULL), *generic = fake_port_new(NULL);
    put_device(route);
    fake_refuse_type(generic, GENL_ID_CTRL, 0, 1, ENOENT, "");
    assert_int_equal(clean(route, generic, false, "- link kube-ipvs0\n"), 0);
    assert_int_equal(fake_sent(route, RTM_DELLINK), 1);
    nl_close(route);
    nl_close(generic);
}

static void what_the_kernel_refuses_is_an_error(void **state)
{
    (void)state;
    struct nl_port *route = fake_port_new(NULL), *generic = fake_port_new(NULL);
    struct buf out = { 0 };
    struct err err = { 0 };
    put_device(route);
    fake_refuse_type(route, RTM_DELLINK, 0, 1, EPERM, "");
    put_family(generic);
    assert_int_equal(ipvs_kubeproxy_cleanup(route, generic, false, &out, &err), -EPERM);
    assert_string_equal(err.text, "kube-proxy's IPVS services and kube-ipvs0: Operation not "
                                  "permitted");
    buf_done(&out);
    nl_close(route);
    nl_close(generic);
}

/* No such subsystem: that is what the kernel says to messages of nftables without nf_tables. */
static void a_kernel_without_nftables_has_nothing_of_it(void **state)
{
    (void)state;
    struct nl_port *port = fake_port_new(NULL);
    struct buf out = { 0 };
    struct err err = { 0 };
    bool existed = true;
    for (uint16_t message = 0; message < NFT_MSG_MAX; message++)
        fake_refuse_type(port, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | message), 0, UINT32_MAX,
                         EINVAL, "");
    assert_int_equal(nft_cleanup(port, false, &existed, &err), 0);
    assert_false(existed);
    assert_int_equal(nft_kubeproxy_cleanup(port, KUBEPROXY_ITS, false, &out, &err), 0);
    assert_string_equal(buf_str(&out), "");
    nl_close(port);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(services_of_the_device_go_with_it),
        cmocka_unit_test(a_dry_run_lists_them),
        cmocka_unit_test(without_the_device_nothing_is_touched),
        cmocka_unit_test(a_kernel_without_ipvs_has_the_device_alone),
        cmocka_unit_test(what_the_kernel_refuses_is_an_error),
        cmocka_unit_test(a_kernel_without_nftables_has_nothing_of_it),
    };
    return cmocka_run_group_tests_name("ipvs", tests, NULL, NULL);
}
