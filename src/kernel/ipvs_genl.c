#include "kernel/ipvs_genl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/genetlink.h>
#include <linux/ip_vs.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define V6_BITS 128

static int read_family(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = { [CTRL_ATTR_FAMILY_ID] = NL_U16 };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    if (nl_parse(m, sizeof(struct genlmsghdr), policy, NL_POLICY_COUNT(policy), tb) ||
        !tb[CTRL_ATTR_FAMILY_ID])
        return -EBADMSG;
    *(uint16_t *)user = mnl_attr_get_u16(tb[CTRL_ATTR_FAMILY_ID]);
    return 0;
}

int ipvs_genl_family(struct nl_port *generic, uint16_t *ret, struct err *err)
{
    struct nl_buf b = { 0 };
    uint16_t type = 0;
    struct nlmsghdr *m = ipvs_genl_msg(&b, generic, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0);
    mnl_attr_put_strz(m, CTRL_ATTR_FAMILY_NAME, IPVS_GENL_NAME);
    int r = nl_get(generic, m, read_family, &type, err);
    nl_buf_done(&b);
    if (r && r != -ENOENT)
        return r;
    *ret = type;
    return 0;
}

struct nlmsghdr *ipvs_genl_msg(struct nl_buf *b, struct nl_port *generic, uint16_t family,
                               uint8_t command, uint16_t flags)
{
    struct genlmsghdr g = { .cmd = command, .version = IPVS_GENL_VERSION };
    return nl_msg(b, family, (uint16_t)(NLM_F_REQUEST | flags), nl_seq(generic), &g, sizeof(g));
}

/* ---- writing ---- */

static uint16_t af_of(uint8_t family)
{
    return family == IP_V6 ? AF_INET6 : AF_INET;
}

void ipvs_genl_put_service(struct nlmsghdr *m, const struct ipvs_service *s, bool whole)
{
    struct ip_vs_flags flags = { .flags = s->persistence ? IP_VS_SVC_F_PERSISTENT : 0,
                                 .mask = UINT32_MAX };
    struct nlattr *nest = mnl_attr_nest_start(m, IPVS_CMD_ATTR_SERVICE);
    mnl_attr_put_u16(m, IPVS_SVC_ATTR_AF, af_of(s->family));
    if (s->ip.family) {
        mnl_attr_put_u16(m, IPVS_SVC_ATTR_PROTOCOL, s->protocol);
        mnl_attr_put(m, IPVS_SVC_ATTR_ADDR, sizeof(s->ip.bytes), s->ip.bytes);
        mnl_attr_put_u16(m, IPVS_SVC_ATTR_PORT, htons(s->port));
    } else {
        mnl_attr_put_u32(m, IPVS_SVC_ATTR_FWMARK, s->mark);
    }
    if (whole) {
        mnl_attr_put_strz(m, IPVS_SVC_ATTR_SCHED_NAME, s->scheduler);
        mnl_attr_put(m, IPVS_SVC_ATTR_FLAGS, sizeof(flags), &flags);
        mnl_attr_put_u32(m, IPVS_SVC_ATTR_TIMEOUT, s->persistence);
        mnl_attr_put_u32(m, IPVS_SVC_ATTR_NETMASK, s->family == IP_V6 ? V6_BITS : UINT32_MAX);
    }
    mnl_attr_nest_end(m, nest);
}

void ipvs_genl_put_dest(struct nlmsghdr *m, const struct ipvs_dest *d, bool whole)
{
    struct nlattr *nest = mnl_attr_nest_start(m, IPVS_CMD_ATTR_DEST);
    mnl_attr_put(m, IPVS_DEST_ATTR_ADDR, sizeof(d->ip.bytes), d->ip.bytes);
    mnl_attr_put_u16(m, IPVS_DEST_ATTR_PORT, htons(d->port));
    mnl_attr_put_u16(m, IPVS_DEST_ATTR_ADDR_FAMILY, af_of(d->ip.family));
    if (whole) {
        mnl_attr_put_u32(m, IPVS_DEST_ATTR_FWD_METHOD, IP_VS_CONN_F_MASQ);
        mnl_attr_put_u32(m, IPVS_DEST_ATTR_WEIGHT, d->weight);
        mnl_attr_put_u32(m, IPVS_DEST_ATTR_U_THRESH, 0);
        mnl_attr_put_u32(m, IPVS_DEST_ATTR_L_THRESH, 0);
    }
    mnl_attr_nest_end(m, nest);
}

/* ---- reading ---- */

static uint32_t u32_of(const struct nlattr *a)
{
    return a ? mnl_attr_get_u32(a) : 0;
}

static struct ip ip_of(uint16_t af, const struct nlattr *a)
{
    struct ip ip = { .family = af == AF_INET ? IP_V4 : IP_V6 };
    memcpy(ip.bytes, mnl_attr_get_payload(a), ip_len(ip.family));
    return ip;
}

/* The nest `type` of a message. */
static const struct nlattr *nest_of(const struct nlmsghdr *m, uint16_t type)
{
    static const struct nl_policy policy[] = {
        [IPVS_CMD_ATTR_SERVICE] = NL_NEST, [IPVS_CMD_ATTR_DEST] = NL_NEST
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    return nl_parse(m, sizeof(struct genlmsghdr), policy, NL_POLICY_COUNT(policy), tb) ? NULL
                                                                                       : tb[type];
}

static bool has_key(const struct nlattr *const *tb)
{
    if (!tb[IPVS_SVC_ATTR_AF])
        return false;
    uint16_t af = mnl_attr_get_u16(tb[IPVS_SVC_ATTR_AF]);
    return (af == AF_INET || af == AF_INET6) &&
           (tb[IPVS_SVC_ATTR_FWMARK] ||
            (tb[IPVS_SVC_ATTR_PROTOCOL] && tb[IPVS_SVC_ATTR_ADDR] && tb[IPVS_SVC_ATTR_PORT]));
}

static void read_options(const struct nlattr *const *tb, struct ipvs_service *s)
{
    struct ip_vs_flags flags = { 0 };
    uint32_t whole = s->family == IP_V6 ? V6_BITS : UINT32_MAX;
    if (tb[IPVS_SVC_ATTR_FLAGS])
        memcpy(&flags, mnl_attr_get_payload(tb[IPVS_SVC_ATTR_FLAGS]), sizeof(flags));
    if (flags.flags & IP_VS_SVC_F_PERSISTENT)
        s->persistence = u32_of(tb[IPVS_SVC_ATTR_TIMEOUT]);
    s->odd = (flags.flags & ~(uint32_t)(IP_VS_SVC_F_PERSISTENT | IP_VS_SVC_F_HASHED)) ||
             u32_of(tb[IPVS_SVC_ATTR_NETMASK]) != whole || tb[IPVS_SVC_ATTR_PE_NAME];
    if (tb[IPVS_SVC_ATTR_SCHED_NAME])
        snprintf(s->scheduler, sizeof(s->scheduler), "%s",
                 mnl_attr_get_str(tb[IPVS_SVC_ATTR_SCHED_NAME]));
}

int ipvs_genl_service(const struct nlmsghdr *m, struct ipvs_service *ret)
{
    static const struct nl_policy policy[] = {
        [IPVS_SVC_ATTR_AF] = NL_U16,         [IPVS_SVC_ATTR_PROTOCOL] = NL_U16,
        [IPVS_SVC_ATTR_ADDR] = NL_BYTES(16), [IPVS_SVC_ATTR_PORT] = NL_U16,
        [IPVS_SVC_ATTR_FWMARK] = NL_U32,     [IPVS_SVC_ATTR_SCHED_NAME] = NL_STRING,
        [IPVS_SVC_ATTR_FLAGS] = NL_BYTES(8), [IPVS_SVC_ATTR_TIMEOUT] = NL_U32,
        [IPVS_SVC_ATTR_NETMASK] = NL_U32,    [IPVS_SVC_ATTR_PE_NAME] = NL_STRING,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)], *nest = nest_of(m, IPVS_CMD_ATTR_SERVICE);
    if (!nest || nl_parse_nested(nest, policy, NL_POLICY_COUNT(policy), tb) || !has_key(tb))
        return -EBADMSG;
    uint16_t af = mnl_attr_get_u16(tb[IPVS_SVC_ATTR_AF]);
    *ret = (struct ipvs_service){ .family = af == AF_INET ? IP_V4 : IP_V6 };
    if (tb[IPVS_SVC_ATTR_FWMARK]) {
        ret->mark = mnl_attr_get_u32(tb[IPVS_SVC_ATTR_FWMARK]);
    } else {
        ret->protocol = (uint8_t)mnl_attr_get_u16(tb[IPVS_SVC_ATTR_PROTOCOL]);
        ret->port = ntohs(mnl_attr_get_u16(tb[IPVS_SVC_ATTR_PORT]));
        ret->ip = ip_of(af, tb[IPVS_SVC_ATTR_ADDR]);
    }
    read_options(tb, ret);
    return 0;
}

int ipvs_genl_dest(const struct nlmsghdr *m, struct ipvs_dest *ret)
{
    static const struct nl_policy policy[] = {
        [IPVS_DEST_ATTR_ADDR] = NL_BYTES(16),   [IPVS_DEST_ATTR_PORT] = NL_U16,
        [IPVS_DEST_ATTR_FWD_METHOD] = NL_U32,   [IPVS_DEST_ATTR_WEIGHT] = NL_U32,
        [IPVS_DEST_ATTR_U_THRESH] = NL_U32,     [IPVS_DEST_ATTR_L_THRESH] = NL_U32,
        [IPVS_DEST_ATTR_ACTIVE_CONNS] = NL_U32, [IPVS_DEST_ATTR_INACT_CONNS] = NL_U32,
        [IPVS_DEST_ATTR_ADDR_FAMILY] = NL_U16,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)], *nest = nest_of(m, IPVS_CMD_ATTR_DEST);
    if (!nest || nl_parse_nested(nest, policy, NL_POLICY_COUNT(policy), tb) ||
        !tb[IPVS_DEST_ATTR_ADDR] || !tb[IPVS_DEST_ATTR_PORT] || !tb[IPVS_DEST_ATTR_ADDR_FAMILY])
        return -EBADMSG;
    uint16_t af = mnl_attr_get_u16(tb[IPVS_DEST_ATTR_ADDR_FAMILY]);
    uint32_t method = u32_of(tb[IPVS_DEST_ATTR_FWD_METHOD]) & IP_VS_CONN_F_FWD_MASK;
    if (af != AF_INET && af != AF_INET6)
        return -EBADMSG;
    *ret = (struct ipvs_dest){
        .ip = ip_of(af, tb[IPVS_DEST_ATTR_ADDR]),
        .port = ntohs(mnl_attr_get_u16(tb[IPVS_DEST_ATTR_PORT])),
        .weight = u32_of(tb[IPVS_DEST_ATTR_WEIGHT]),
        /* A destination that is an address of this very machine is delivered here, NAT or not. */
        .odd = (method != IP_VS_CONN_F_MASQ && method != IP_VS_CONN_F_LOCALNODE) ||
               u32_of(tb[IPVS_DEST_ATTR_U_THRESH]) || u32_of(tb[IPVS_DEST_ATTR_L_THRESH]),
        .connections =
            u32_of(tb[IPVS_DEST_ATTR_ACTIVE_CONNS]) + u32_of(tb[IPVS_DEST_ATTR_INACT_CONNS]),
    };
    return 0;
}

/* The kernel looks for the scheduler first and at the mask of a v6 server, which may not be 0,
 * after that (ip_vs_add_service()). */
int ipvs_genl_probe(struct nl_port *generic, uint16_t family, const char *scheduler,
                    struct err *err)
{
    static const uint8_t address[16] = { [15] = 1 };
    struct ip_vs_flags flags = { 0 };
    struct nl_buf b = { 0 };
    struct nlmsghdr *m = ipvs_genl_msg(&b, generic, family, IPVS_CMD_NEW_SERVICE, 0);
    struct nlattr *nest = mnl_attr_nest_start(m, IPVS_CMD_ATTR_SERVICE);
    mnl_attr_put_u16(m, IPVS_SVC_ATTR_AF, AF_INET6);
    mnl_attr_put_u16(m, IPVS_SVC_ATTR_PROTOCOL, IPPROTO_TCP);
    mnl_attr_put(m, IPVS_SVC_ATTR_ADDR, sizeof(address), address);
    mnl_attr_put_u16(m, IPVS_SVC_ATTR_PORT, htons(9));
    mnl_attr_put_strz(m, IPVS_SVC_ATTR_SCHED_NAME, scheduler);
    mnl_attr_put(m, IPVS_SVC_ATTR_FLAGS, sizeof(flags), &flags);
    mnl_attr_put_u32(m, IPVS_SVC_ATTR_TIMEOUT, 0);
    mnl_attr_put_u32(m, IPVS_SVC_ATTR_NETMASK, 0);
    mnl_attr_nest_end(m, nest);
    int r = nl_talk(generic, m, err);
    nl_buf_done(&b);
    /* A kernel whose IPVS has no IPv6 cannot be asked like this. */
    return r == -EINVAL || r == -EAFNOSUPPORT ? 0 : r;
}
