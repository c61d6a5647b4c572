#include "kernel/ipvs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/genetlink.h>
#include <linux/ip_vs.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

#include "base/vec.h"
#include "netlink/nl_attr.h"

#define DEVICE "kube-ipvs0"

struct service {
    struct ip ip; /* IP_NONE: by mark */
    uint16_t family, protocol, port;
    uint32_t mark;
};

struct found {
    uint32_t device; /* ifindex, 0: not there */
    VEC(struct ip) addresses;
    uint16_t genl; /* message type, 0: a kernel without IPVS */
    VEC(struct service) services;
};

/* ---- the device ---- */

static int read_link(const struct nlmsghdr *m, void *user)
{
    if (m->nlmsg_len < NLMSG_LENGTH(sizeof(struct ifinfomsg)))
        return -EBADMSG;
    ((struct found *)user)->device =
        (uint32_t)((const struct ifinfomsg *)mnl_nlmsg_get_payload(m))->ifi_index;
    return 0;
}

static int read_address(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = { [IFA_ADDRESS] = NL_IP };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct found *f = user;
    struct ip ip;
    if (nl_parse(m, sizeof(struct ifaddrmsg), policy, NL_POLICY_COUNT(policy), tb))
        return -EBADMSG;
    if (((const struct ifaddrmsg *)mnl_nlmsg_get_payload(m))->ifa_index == f->device &&
        nl_get_ip(tb[IFA_ADDRESS], &ip))
        vec_push(&f->addresses, ip);
    return 0;
}

static void forget_addresses(void *user)
{
    ((struct found *)user)->addresses.n = 0;
}

static int find_device(struct nl_port *route, struct found *f, struct err *err)
{
    struct nl_buf b = { 0 };
    struct ifinfomsg link = { 0 };
    struct ifaddrmsg addr = { 0 };
    struct nlmsghdr *m = nl_msg(&b, RTM_GETLINK, NLM_F_REQUEST, nl_seq(route), &link, sizeof(link));
    mnl_attr_put_strz(m, IFLA_IFNAME, DEVICE);
    int r = nl_get(route, m, read_link, f, err);
    if (r == -ENODEV)
        r = 0;
    if (!r && f->device) {
        m = nl_msg(&b, RTM_GETADDR, NLM_F_REQUEST, nl_seq(route), &addr, sizeof(addr));
        r = nl_dump(route, m, read_address, forget_addresses, f, err);
    }
    nl_buf_done(&b);
    return r;
}

static int delete_device(struct nl_port *route, uint32_t index, struct err *err)
{
    struct nl_buf b = { 0 };
    struct ifinfomsg link = { .ifi_index = (int)index };
    int r = nl_talk(
        route, nl_msg(&b, RTM_DELLINK, NLM_F_REQUEST, nl_seq(route), &link, sizeof(link)), err);
    nl_buf_done(&b);
    return r;
}

/* ---- the services ---- */

static struct nlmsghdr *genl_msg(struct nl_buf *b, struct nl_port *port, uint16_t type,
                                 uint8_t command)
{
    struct genlmsghdr g = { .cmd = command, .version = 1 };
    return nl_msg(b, type, NLM_F_REQUEST, nl_seq(port), &g, sizeof(g));
}

static int read_family(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = { [CTRL_ATTR_FAMILY_ID] = NL_U16 };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    if (nl_parse(m, sizeof(struct genlmsghdr), policy, NL_POLICY_COUNT(policy), tb) ||
        !tb[CTRL_ATTR_FAMILY_ID])
        return -EBADMSG;
    ((struct found *)user)->genl = mnl_attr_get_u16(tb[CTRL_ATTR_FAMILY_ID]);
    return 0;
}

static bool parse_service(const struct nlattr *nest, struct service *ret)
{
    static const struct nl_policy policy[] = {
        [IPVS_SVC_ATTR_AF] = NL_U16,         [IPVS_SVC_ATTR_PROTOCOL] = NL_U16,
        [IPVS_SVC_ATTR_ADDR] = NL_BYTES(16), [IPVS_SVC_ATTR_PORT] = NL_U16,
        [IPVS_SVC_ATTR_FWMARK] = NL_U32,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    if (nl_parse_nested(nest, policy, NL_POLICY_COUNT(policy), tb) || !tb[IPVS_SVC_ATTR_AF])
        return false;
    *ret = (struct service){ .family = mnl_attr_get_u16(tb[IPVS_SVC_ATTR_AF]) };
    if (tb[IPVS_SVC_ATTR_FWMARK]) {
        ret->mark = mnl_attr_get_u32(tb[IPVS_SVC_ATTR_FWMARK]);
        return true;
    }
    if (!tb[IPVS_SVC_ATTR_PROTOCOL] || !tb[IPVS_SVC_ATTR_ADDR] || !tb[IPVS_SVC_ATTR_PORT])
        return false;
    ret->protocol = mnl_attr_get_u16(tb[IPVS_SVC_ATTR_PROTOCOL]);
    ret->port = ntohs(mnl_attr_get_u16(tb[IPVS_SVC_ATTR_PORT]));
    ret->ip.family = ret->family == AF_INET ? IP_V4 : IP_V6;
    memcpy(ret->ip.bytes, mnl_attr_get_payload(tb[IPVS_SVC_ATTR_ADDR]), ip_len(ret->ip.family));
    return true;
}

static int read_service(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = { [IPVS_CMD_ATTR_SERVICE] = NL_NEST };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct service s;
    if (nl_parse(m, sizeof(struct genlmsghdr), policy, NL_POLICY_COUNT(policy), tb) ||
        !tb[IPVS_CMD_ATTR_SERVICE] || !parse_service(tb[IPVS_CMD_ATTR_SERVICE], &s))
        return -EBADMSG;
    vec_push(&((struct found *)user)->services, s);
    return 0;
}

static void forget_services(void *user)
{
    ((struct found *)user)->services.n = 0;
}

static int find_services(struct nl_port *generic, struct found *f, struct err *err)
{
    struct nl_buf b = { 0 };
    struct nlmsghdr *m = genl_msg(&b, generic, GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
    mnl_attr_put_strz(m, CTRL_ATTR_FAMILY_NAME, IPVS_GENL_NAME);
    int r = nl_get(generic, m, read_family, f, err);
    if (r == -ENOENT)
        r = 0;
    if (!r && f->genl)
        r = nl_dump(generic, genl_msg(&b, generic, f->genl, IPVS_CMD_GET_SERVICE), read_service,
                    forget_services, f, err);
    nl_buf_done(&b);
    return r;
}

static int delete_service(struct nl_port *generic, uint16_t genl, const struct service *s,
                          struct err *err)
{
    struct nl_buf b = { 0 };
    struct nlmsghdr *m = genl_msg(&b, generic, genl, IPVS_CMD_DEL_SERVICE);
    struct nlattr *nest = mnl_attr_nest_start(m, IPVS_CMD_ATTR_SERVICE);
    mnl_attr_put_u16(m, IPVS_SVC_ATTR_AF, s->family);
    mnl_attr_put_u16(m, IPVS_SVC_ATTR_PROTOCOL, s->protocol);
    mnl_attr_put(m, IPVS_SVC_ATTR_ADDR, sizeof(s->ip.bytes), s->ip.bytes);
    mnl_attr_put_u16(m, IPVS_SVC_ATTR_PORT, htons(s->port));
    mnl_attr_nest_end(m, nest);
    int r = nl_talk(generic, m, err);
    nl_buf_done(&b);
    return r;
}

static bool on_device(const struct found *f, const struct service *s)
{
    for (size_t i = 0; i < f->addresses.n; i++)
        if (ip_equal(&f->addresses.v[i], &s->ip))
            return true;
    return false;
}

static int clean_service(struct nl_port *generic, const struct found *f, const struct service *s,
                         bool dry_run, struct buf *out, struct err *err)
{
    char ip[IP_TEXT_MAX], name[80];
    bool ours = on_device(f, s);
    if (s->ip.family)
        snprintf(name, sizeof(name), s->ip.family == IP_V6 ? "%s [%s]:%u" : "%s %s:%u",
                 s->protocol == IPPROTO_TCP   ? "tcp"
                 : s->protocol == IPPROTO_UDP ? "udp"
                                              : "sctp",
                 ip_format(&s->ip, ip), s->port);
    else
        snprintf(name, sizeof(name), "of mark 0x%x", s->mark);
    int r = ours && !dry_run ? delete_service(generic, f->genl, s, err) : 0;
    if (!r)
        buf_printf(out,
                   ours ? "- ipvs service %s\n"
                        : "! ipvs service %s stays, because its address is not of " DEVICE "\n",
                   name);
    return r;
}

int ipvs_kubeproxy_cleanup(struct nl_port *route, struct nl_port *generic, bool dry_run,
                           struct buf *out, struct err *err)
{
    struct found f = { 0 };
    int r = find_device(route, &f, err);
    if (!r && f.device)
        r = find_services(generic, &f, err);
    for (size_t i = 0; i < f.services.n && !r; i++)
        r = clean_service(generic, &f, &f.services.v[i], dry_run, out, err);
    if (!r && f.device && !dry_run)
        r = delete_device(route, f.device, err);
    if (!r && f.device)
        buf_puts(out, "- link " DEVICE "\n");
    if (r)
        err_prefix(err, "kube-proxy's IPVS services and " DEVICE);
    vec_done(&f.addresses);
    vec_done(&f.services);
    return r;
}
