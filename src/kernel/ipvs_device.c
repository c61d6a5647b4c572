#include "kernel/ipvs_device.h"

#include <errno.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "model/ipvs.h"
#include "model/names.h"

#define KIND  "dummy"
#define ALIAS LINK_ALIAS_PREFIX " addresses of services"

static int read_link(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = {
        [IFLA_IFALIAS] = NL_STRING, [IFLA_LINKINFO] = NL_NEST
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct ipvs_device *d = user;
    if (nl_parse(m, sizeof(struct ifinfomsg), policy, NL_POLICY_COUNT(policy), tb))
        return -EBADMSG;
    const struct ifinfomsg *link = mnl_nlmsg_get_payload(m);
    const char *kind = nl_get_link_kind(tb[IFLA_LINKINFO]);
    bool ours = tb[IFLA_IFALIAS] && !strncmp(mnl_attr_get_str(tb[IFLA_IFALIAS]), LINK_ALIAS_PREFIX,
                                             strlen(LINK_ALIAS_PREFIX));
    if (!ours && strcmp(kind, KIND)) {
        snprintf(d->other, sizeof(d->other), "%s", *kind ? kind : "physical");
        return 0;
    }
    d->index = (uint32_t)link->ifi_index;
    d->up = link->ifi_flags & IFF_UP;
    d->ours = ours;
    return 0;
}

static int read_address(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = { [IFA_ADDRESS] = NL_IP };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct ipvs_device *d = user;
    struct ip ip;
    if (nl_parse(m, sizeof(struct ifaddrmsg), policy, NL_POLICY_COUNT(policy), tb))
        return -EBADMSG;
    const struct ifaddrmsg *a = mnl_nlmsg_get_payload(m);
    if (a->ifa_index == d->index && a->ifa_scope != RT_SCOPE_LINK &&
        nl_get_ip(tb[IFA_ADDRESS], &ip))
        vec_push(&d->addresses, ip);
    return 0;
}

static void forget_addresses(void *user)
{
    ((struct ipvs_device *)user)->addresses.n = 0;
}

static int read_by_name(struct nl_port *route, struct ipvs_device *d, struct err *err)
{
    struct nl_buf b = { 0 };
    struct ifinfomsg link = { 0 };
    struct nlmsghdr *m = nl_msg(&b, RTM_GETLINK, NLM_F_REQUEST, nl_seq(route), &link, sizeof(link));
    mnl_attr_put_strz(m, IFLA_IFNAME, IPVS_LINK);
    d->index = 0;
    *d->other = 0;
    int r = nl_get(route, m, read_link, d, err);
    nl_buf_done(&b);
    return r == -ENODEV ? 0 : r;
}

int ipvs_device_read(struct nl_port *route, struct ipvs_device *ret, struct err *err)
{
    struct nl_buf b = { 0 };
    struct ifaddrmsg addr = { 0 };
    int r = read_by_name(route, ret, err);
    ret->addresses.n = 0;
    if (!r && ret->index) {
        addr.ifa_index = ret->index; /* kernels that check requests tell of this device alone */
        r = nl_dump(route,
                    nl_msg(&b, RTM_GETADDR, NLM_F_REQUEST, nl_seq(route), &addr, sizeof(addr)),
                    read_address, forget_addresses, ret, err);
    }
    nl_buf_done(&b);
    return r;
}

/* No IPv6 address of its own making. */
static void put_no_addresses(struct nlmsghdr *m)
{
    struct nlattr *spec = mnl_attr_nest_start(m, IFLA_AF_SPEC);
    struct nlattr *inet6 = mnl_attr_nest_start(m, AF_INET6);
    mnl_attr_put_u8(m, IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE);
    mnl_attr_nest_end(m, inet6);
    mnl_attr_nest_end(m, spec);
}

static int create(struct nl_port *route, struct err *err)
{
    struct nl_buf b = { 0 };
    struct ifinfomsg link = { 0 };
    struct nlmsghdr *m = nl_msg(&b, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL,
                                nl_seq(route), &link, sizeof(link));
    mnl_attr_put_strz(m, IFLA_IFNAME, IPVS_LINK);
    struct nlattr *info = mnl_attr_nest_start(m, IFLA_LINKINFO);
    mnl_attr_put_strz(m, IFLA_INFO_KIND, KIND);
    mnl_attr_nest_end(m, info);
    int r = nl_talk(route, m, err);
    nl_buf_done(&b);
    return r == -EEXIST ? 0 : r;
}

/* Its mark, and that it gives itself no IPv6 address, which it would when it comes up. */
static int mark(struct nl_port *route, uint32_t index, bool with_ipv6, struct err *err)
{
    struct nl_buf b = { 0 };
    struct ifinfomsg link = { .ifi_index = (int)index };
    struct nlmsghdr *m = nl_msg(&b, RTM_NEWLINK, NLM_F_REQUEST, nl_seq(route), &link, sizeof(link));
    mnl_attr_put_strz(m, IFLA_IFALIAS, ALIAS);
    if (with_ipv6)
        put_no_addresses(m);
    int r = nl_talk(route, m, err);
    nl_buf_done(&b);
    return r;
}

static int set_up(struct nl_port *route, uint32_t index, struct err *err)
{
    struct nl_buf b = { 0 };
    struct ifinfomsg link = { .ifi_index = (int)index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP };
    int r = nl_talk(
        route, nl_msg(&b, RTM_NEWLINK, NLM_F_REQUEST, nl_seq(route), &link, sizeof(link)), err);
    nl_buf_done(&b);
    return r;
}

int ipvs_device_make(struct nl_port *route, struct ipvs_device *d, struct err *err)
{
    if (d->index && d->up && d->ours)
        return 0;
    if (*d->other)
        return err_set(err, EEXIST,
                       "device " IPVS_LINK " is of kind %s, where " KIND
                       " is needed; rename or delete it",
                       d->other);
    int r = d->index ? 0 : create(route, err);
    if (!r)
        r = read_by_name(route, d, err);
    if (!r && (r = mark(route, d->index, true, err)) == -EAFNOSUPPORT)
        r = mark(route, d->index, false, err);
    if (!r)
        r = set_up(route, d->index, err);
    if (r) {
        err_prefix(err, "device " IPVS_LINK);
        return r;
    }
    d->up = d->ours = true;
    return 0;
}

int ipvs_device_delete(struct nl_port *route, const struct ipvs_device *d, struct err *err)
{
    struct nl_buf b = { 0 };
    struct ifinfomsg link = { .ifi_index = (int)d->index };
    int r = nl_talk(
        route, nl_msg(&b, RTM_DELLINK, NLM_F_REQUEST, nl_seq(route), &link, sizeof(link)), err);
    nl_buf_done(&b);
    return r;
}

void ipvs_device_done(struct ipvs_device *d)
{
    vec_done(&d->addresses);
}

void ipvs_device_put_address(struct nl_buf *b, struct nl_port *route, uint16_t type, uint32_t index,
                             const struct ip *ip)
{
    bool v6 = ip->family == IP_V6;
    struct ifaddrmsg a = {
        .ifa_family = v6 ? AF_INET6 : AF_INET,
        .ifa_prefixlen = ip_bits(ip->family),
        .ifa_index = index,
        .ifa_flags = v6 ? IFA_F_NODAD : 0, /* every node has it */
    };
    bool add = type == RTM_NEWADDR;
    struct nlmsghdr *m =
        nl_msg(b, type, (uint16_t)(NLM_F_REQUEST | (add ? NLM_F_CREATE | NLM_F_REPLACE : 0)),
               nl_seq(route), &a, sizeof(a));
    nl_put_ip(m, IFA_LOCAL, ip);
    nl_put_ip(m, IFA_ADDRESS, ip);
}
