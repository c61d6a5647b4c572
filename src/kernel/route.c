#include <errno.h>
#include <inttypes.h>
#include <linux/ipv6_route.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>

#include "kernel/rtnl_kind.h"

/* What the kernel makes of an unset metric. */
static uint32_t default_metric(uint8_t family)
{
    return family == IP_V6 ? IP6_RT_PRIO_USER : 0;
}

static uint8_t kernel_type(enum route_type type)
{
    switch (type) {
    case ROUTE_UNICAST:
        return RTN_UNICAST;
    case ROUTE_UNREACHABLE:
        return RTN_UNREACHABLE;
    case ROUTE_THROW:
        return RTN_THROW;
    }
    return RTN_UNSPEC;
}

/* Of types the model does not know too: route_plain() tells them apart. */
static enum route_type model_type(uint8_t kernel)
{
    if (kernel == RTN_UNICAST)
        return ROUTE_UNICAST;
    return kernel == RTN_THROW ? ROUTE_THROW : ROUTE_UNREACHABLE;
}

static const char *type_word(enum route_type type)
{
    switch (type) {
    case ROUTE_UNICAST:
        return "";
    case ROUTE_UNREACHABLE:
        return "unreachable ";
    case ROUTE_THROW:
        return "throw ";
    }
    return "";
}

/* A link of ours as it is known, which its test may have made up; else anybody's. */
static int link_index(const struct rtnl *r, const char *name)
{
    uint32_t vni;
    uint16_t port;
    const struct rtnl_link *l = rtnl_link_by_name(r, name);
    if (l || link_name_parse(name, &vni, &port))
        return l ? l->ifindex : 0;
    return (int)if_nametoindex(name);
}

static const char *link_name(struct rtnl *r, int ifindex)
{
    char name[IF_NAMESIZE];
    const struct rtnl_link *l = rtnl_link_by_index(&r->known[RTNL_LINK], ifindex);
    if (l)
        return l->d.name;
    return ifindex && if_indextoname((unsigned)ifindex, name) ? rtnl_word(r, name) : "";
}

static int route_cmp(const void *have, const void *want)
{
    return desired_route_cmp(have, want);
}

static bool route_plain(const void *have)
{
    const struct rtnl_route *h = have;
    return h->kernel_type == kernel_type(h->d.type) && !h->tos;
}

static bool route_equal(const void *have, const void *want)
{
    const struct rtnl_route *h = have;
    const struct desired_route *w = want;
    return route_plain(h) && ip_equal(&h->d.via, &w->via) &&
           (w->type != ROUTE_UNICAST || !strcmp(h->d.ifname, w->ifname));
}

static void route_text(const void *want, struct buf *out)
{
    const struct desired_route *w = want;
    char text[IP_PREFIX_TEXT_MAX];
    buf_printf(out, "route %s%s", type_word(w->type),
               w->dst.len ? ip_prefix_format(&w->dst, text) : "default");
    if (w->via.family)
        buf_printf(out, " via %s", ip_format(&w->via, text));
    if (w->ifname[0])
        buf_printf(out, " dev %s", w->ifname);
    if (!w->dst.len && w->dst.ip.family == IP_V6 && !w->via.family)
        buf_puts(out, " inet6");
    buf_printf(out, " table %" PRIu32, w->table);
    if (w->metric)
        buf_printf(out, " metric %" PRIu32, w->metric);
}

static void route_note(const void *have, struct buf *out)
{
    const struct rtnl_route *h = have;
    if (!route_plain(h))
        buf_printf(out, " (type %u, tos %u)", h->kernel_type, h->tos);
}

struct route_dump {
    struct rtnl *r;
    struct rtnl_known *into;
    size_t before; /* routes of the other family */
    uint8_t family;
};

static int on_route(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = {
        [RTA_DST] = NL_IP,    [RTA_GATEWAY] = NL_IP,   [RTA_OIF] = NL_U32,
        [RTA_TABLE] = NL_U32, [RTA_PRIORITY] = NL_U32,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct route_dump *d = user;
    if (m->nlmsg_type != RTM_NEWROUTE ||
        nl_parse(m, sizeof(struct rtmsg), policy, NL_POLICY_COUNT(policy), tb))
        return 0;
    const struct rtmsg *rtm = mnl_nlmsg_get_payload(m);
    /* Kernels before 4.20 do not filter. */
    if (rtm->rtm_protocol != RTPROT_PORTOLAN || rtm->rtm_family != d->family ||
        rtm->rtm_flags & RTM_F_CLONED)
        return 0;
    struct rtnl_route x = { .kernel_type = rtm->rtm_type, .tos = rtm->rtm_tos };
    x.d.type = model_type(rtm->rtm_type);
    x.d.table = tb[RTA_TABLE] ? mnl_attr_get_u32(tb[RTA_TABLE]) : rtm->rtm_table;
    x.metric = tb[RTA_PRIORITY] ? mnl_attr_get_u32(tb[RTA_PRIORITY]) : 0;
    x.d.dst.len = rtm->rtm_dst_len;
    if (!nl_get_ip(tb[RTA_DST], &x.d.dst.ip))
        x.d.dst.ip.family = d->family == AF_INET6 ? IP_V6 : IP_V4;
    if (x.metric != default_metric(x.d.dst.ip.family))
        x.d.metric = x.metric;
    nl_get_ip(tb[RTA_GATEWAY], &x.d.via);
    /* The kernel hangs IPv6 routes that lead nowhere on lo. */
    if (tb[RTA_OIF] && x.d.type == ROUTE_UNICAST)
        x.ifindex = (int)mnl_attr_get_u32(tb[RTA_OIF]);
    x.d.ifname = link_name(d->r, x.ifindex);
    rtnl_known_push(d->into, &x, sizeof(x));
    return 0;
}

static void on_restart(void *user)
{
    struct route_dump *d = user;
    d->into->n = d->before;
}

static int route_dump(struct rtnl *r, struct rtnl_known *into, struct err *err)
{
    static const uint8_t families[] = { AF_INET, AF_INET6 };
    int e = 0;
    for (size_t i = 0; i < sizeof(families) && !e; i++) {
        struct rtmsg rtm = { .rtm_family = families[i], .rtm_protocol = RTPROT_PORTOLAN };
        struct route_dump d = { r, into, into->n, families[i] };
        e = nl_dump(r->port, rtnl_msg(r, RTM_GETROUTE, 0, &rtm, sizeof(rtm)), on_route, on_restart,
                    &d, err);
        if (families[i] == AF_INET6 && (e == -EAFNOSUPPORT || e == -EOPNOTSUPP))
            e = 0; /* a kernel without IPv6 */
    }
    return e;
}

static struct nlmsghdr *route_msg(struct rtnl *r, uint16_t type, uint16_t flags,
                                  const struct rtnl_route *x)
{
    struct rtmsg rtm = {
        .rtm_family = x->d.dst.ip.family == IP_V6 ? AF_INET6 : AF_INET,
        .rtm_dst_len = x->d.dst.len,
        .rtm_tos = x->tos,
        .rtm_table = x->d.table < 256 ? (uint8_t)x->d.table : RT_TABLE_UNSPEC,
        .rtm_protocol = RTPROT_PORTOLAN,
        .rtm_scope = type == RTM_DELROUTE ? RT_SCOPE_NOWHERE : RT_SCOPE_UNIVERSE,
        .rtm_type = x->kernel_type,
    };
    struct nlmsghdr *m = rtnl_msg(r, type, flags, &rtm, sizeof(rtm));
    mnl_attr_put_u32(m, RTA_TABLE, x->d.table);
    if (x->d.dst.len)
        nl_put_ip(m, RTA_DST, &x->d.dst.ip);
    if (x->d.via.family)
        nl_put_ip(m, RTA_GATEWAY, &x->d.via);
    if (x->ifindex)
        mnl_attr_put_u32(m, RTA_OIF, (uint32_t)x->ifindex);
    if (x->metric)
        mnl_attr_put_u32(m, RTA_PRIORITY, x->metric);
    return m;
}

static int route_add(struct rtnl *r, const void *want, void *ret_have, struct err *err)
{
    const struct desired_route *w = want;
    struct rtnl_route x = {
        .d = *w,
        .kernel_type = kernel_type(w->type),
        .metric = w->metric ? w->metric : default_metric(w->dst.ip.family),
    };
    x.d.ifname = "";
    if (w->type == ROUTE_UNICAST) {
        x.ifindex = link_index(r, w->ifname);
        if (!x.ifindex)
            return err_set(err, ENODEV, "waits for link %s", w->ifname);
        x.d.ifname = rtnl_word(r, w->ifname);
    }
    /* Never replacing: the same route of somebody else stays. */
    int e = rtnl_talk(r, route_msg(r, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &x), err);
    if (!e)
        *(struct rtnl_route *)ret_have = x;
    return e;
}

static int route_del(struct rtnl *r, const void *have, struct err *err)
{
    int e = rtnl_talk(r, route_msg(r, RTM_DELROUTE, 0, have), err);
    return rtnl_gone(e) ? 0 : e;
}

const struct rtnl_kind rtnl_route_kind = {
    .have_size = sizeof(struct rtnl_route),
    .owner_at = offsetof(struct desired_route, owner),
    .cmp = route_cmp,
    .equal = route_equal,
    .plain = route_plain,
    .text = route_text,
    .note = route_note,
    .dump = route_dump,
    .add = route_add,
    .del = route_del,
};
