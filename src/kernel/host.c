#include "kernel/host.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/ipv6.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/vec.h"
#include "kernel/kernel.h"
#include "netlink/nl_attr.h"

/* An interface while it is being put together. */
struct seen {
    struct host_iface iface;
    int ifindex;
    VEC(struct host_address) addresses;
};

struct observation {
    struct nl_port *port;
    struct arena *mem;
    VEC(struct seen) seen; /* by ifindex, then by name */
    uint8_t family;        /* of the dump in progress */
};

static int dump(struct observation *o, uint16_t type, const void *header, size_t len,
                int (*cb)(const struct nlmsghdr *m, void *user), void (*restart)(void *user),
                struct err *err);
static int on_link(const struct nlmsghdr *m, void *user);
static void forget_links(void *user);
static int observe_addresses(struct observation *o, struct err *err);
static int observe_defaults(struct observation *o, struct err *err);
static void give(struct observation *o, struct host *ret);
static bool read_switch(const char *path, struct arena *mem, const char **ret_error);
static int read_digit(const char *path);
static int by_index(const void *a, const void *b);
static int by_name(const void *a, const void *b);

int host_observe(struct nl_port *port, struct arena *mem, struct host *ret, struct err *err)
{
    struct observation o = { .port = port, .mem = mem };
    struct ifinfomsg ifi = { .ifi_family = AF_UNSPEC };
    int e = dump(&o, RTM_GETLINK, &ifi, sizeof(ifi), on_link, forget_links, err);
    if (!e && o.seen.n)
        qsort(o.seen.v, o.seen.n, sizeof(o.seen.v[0]), by_index);
    if (!e)
        e = observe_addresses(&o, err);
    if (!e)
        e = observe_defaults(&o, err);
    if (e) {
        err_prefix(err, "cannot read this machine's interfaces");
    } else {
        struct host h = { 0 };
        give(&o, &h);
        h.forwarding4 = read_switch("/proc/sys/net/ipv4/ip_forward", mem, &h.forwarding4_error);
        h.ipv6 = !access("/proc/sys/net/ipv6", F_OK);
        h.forwarding6_error = "";
        if (h.ipv6)
            h.forwarding6 =
                read_switch("/proc/sys/net/ipv6/conf/all/forwarding", mem, &h.forwarding6_error);
        h.bridge_nf_call_iptables = read_digit("/proc/sys/net/bridge/bridge-nf-call-iptables");
        *ret = h;
    }
    for (size_t i = 0; i < o.seen.n; i++)
        vec_done(&o.seen.v[i].addresses);
    vec_done(&o.seen);
    return e;
}

static int by_index(const void *a, const void *b)
{
    int x = ((const struct seen *)a)->ifindex, y = ((const struct seen *)b)->ifindex;
    return (x > y) - (x < y);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct seen *)a)->iface.name, ((const struct seen *)b)->iface.name);
}

static struct seen *find(struct observation *o, int ifindex)
{
    struct seen key = { .ifindex = ifindex };
    return o->seen.n ? bsearch(&key, o->seen.v, o->seen.n, sizeof(key), by_index) : NULL;
}

static int dump(struct observation *o, uint16_t type, const void *header, size_t len,
                int (*cb)(const struct nlmsghdr *m, void *user), void (*restart)(void *user),
                struct err *err)
{
    struct nl_buf b = { 0 };
    struct nlmsghdr *m = nl_msg(&b, type, 0, 0, header, len);
    if (type == RTM_GETLINK)
        mnl_attr_put_u32(m, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    if (type == RTM_GETROUTE)
        mnl_attr_put_u32(m, RTA_TABLE, RT_TABLE_MAIN);
    int e = nl_dump(o->port, m, cb, restart, o, err);
    nl_buf_done(&b);
    return e;
}

static uint8_t accept_ra(const struct nlattr *af_spec)
{
    static const struct nl_policy families[AF_INET6 + 1] = { [AF_INET6] = NL_NEST };
    static const struct nl_policy policy[] = { [IFLA_INET6_CONF] = NL_NEST };
    const struct nlattr *f[NL_POLICY_COUNT(families)], *tb[NL_POLICY_COUNT(policy)];
    int32_t value = 0;
    if (af_spec && !nl_parse_nested(af_spec, families, NL_POLICY_COUNT(families), f) &&
        f[AF_INET6] && !nl_parse_nested(f[AF_INET6], policy, NL_POLICY_COUNT(policy), tb) &&
        tb[IFLA_INET6_CONF] &&
        mnl_attr_get_payload_len(tb[IFLA_INET6_CONF]) >= (DEVCONF_ACCEPT_RA + 1) * sizeof(value))
        memcpy(&value,
               (const char *)mnl_attr_get_payload(tb[IFLA_INET6_CONF]) +
                   DEVCONF_ACCEPT_RA * sizeof(value),
               sizeof(value));
    return (uint8_t)value;
}

static int on_link(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = {
        [IFLA_IFNAME] = NL_STRING, [IFLA_MTU] = NL_U32,      [IFLA_IFALIAS] = NL_STRING,
        [IFLA_LINKINFO] = NL_NEST, [IFLA_AF_SPEC] = NL_NEST, [IFLA_ADDRESS] = NL_BYTES(6),
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct observation *o = user;
    if (m->nlmsg_type != RTM_NEWLINK ||
        nl_parse(m, sizeof(struct ifinfomsg), policy, NL_POLICY_COUNT(policy), tb) ||
        !tb[IFLA_IFNAME] || !tb[IFLA_MTU])
        return 0;
    const struct ifinfomsg *ifi = mnl_nlmsg_get_payload(m);
    const char *name = mnl_attr_get_str(tb[IFLA_IFNAME]);
    const char *kind = nl_get_link_kind(tb[IFLA_LINKINFO]);
    /* Services' addresses are not this machine's own. */
    if (!strcmp(name, IPVS_LINK) ||
        link_is_ours(name, kind, tb[IFLA_IFALIAS] ? mnl_attr_get_str(tb[IFLA_IFALIAS]) : ""))
        return 0;
    struct seen s = { .ifindex = ifi->ifi_index,
                      .iface = {
                          .name = arena_strdup(o->mem, name),
                          .mtu = mnl_attr_get_u32(tb[IFLA_MTU]),
                          .up = ifi->ifi_flags & IFF_UP,
                          .accept_ra = accept_ra(tb[IFLA_AF_SPEC]),
                          .bridge = !strcmp(kind, "bridge"),
                      } };
    if (tb[IFLA_ADDRESS])
        memcpy(s.iface.mac, mnl_attr_get_payload(tb[IFLA_ADDRESS]), sizeof(s.iface.mac));
    vec_push(&o->seen, s);
    return 0;
}

static void forget_links(void *user)
{
    ((struct observation *)user)->seen.n = 0;
}

static int on_addr(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = {
        [IFA_ADDRESS] = NL_IP, [IFA_LOCAL] = NL_IP, [IFA_FLAGS] = NL_U32
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct observation *o = user;
    if (m->nlmsg_type != RTM_NEWADDR ||
        nl_parse(m, sizeof(struct ifaddrmsg), policy, NL_POLICY_COUNT(policy), tb))
        return 0;
    const struct ifaddrmsg *ifa = mnl_nlmsg_get_payload(m);
    uint32_t flags = tb[IFA_FLAGS] ? mnl_attr_get_u32(tb[IFA_FLAGS]) : ifa->ifa_flags;
    struct seen *s = find(o, (int)ifa->ifa_index);
    struct host_address a = { .prefix_len = ifa->ifa_prefixlen };
    if (!s || ifa->ifa_family != o->family || flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED) ||
        (ifa->ifa_scope != RT_SCOPE_UNIVERSE && ifa->ifa_scope != RT_SCOPE_SITE) ||
        !nl_get_ip(tb[IFA_LOCAL] ? tb[IFA_LOCAL] : tb[IFA_ADDRESS], &a.ip))
        return 0;
    /* The same bit says "secondary" of an IPv4 address. */
    a.temporary = o->family == AF_INET6 && flags & IFA_F_TEMPORARY;
    a.deprecated = flags & IFA_F_DEPRECATED;
    vec_push(&s->addresses, a);
    return 0;
}

static void forget_addresses(void *user)
{
    struct observation *o = user;
    for (size_t i = 0; i < o->seen.n; i++) {
        struct seen *s = &o->seen.v[i];
        size_t n = 0;
        while (n < s->addresses.n && (o->family == AF_INET6) &&
               s->addresses.v[n].ip.family == IP_V4)
            n++;
        s->addresses.n = n;
    }
}

static int observe_addresses(struct observation *o, struct err *err)
{
    static const uint8_t families[] = { AF_INET, AF_INET6 };
    int e = 0;
    for (size_t i = 0; i < sizeof(families) && !e; i++) {
        struct ifaddrmsg ifa = { .ifa_family = o->family = families[i] };
        e = dump(o, RTM_GETADDR, &ifa, sizeof(ifa), on_addr, forget_addresses, err);
    }
    return e;
}

static void flag_default(struct observation *o, uint32_t ifindex)
{
    struct seen *s = find(o, (int)ifindex);
    if (s)
        *(o->family == AF_INET6 ? &s->iface.default6 : &s->iface.default4) = true;
}

static int on_route(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = {
        [RTA_OIF] = NL_U32, [RTA_TABLE] = NL_U32, [RTA_MULTIPATH] = NL_NEST
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct observation *o = user;
    if (m->nlmsg_type != RTM_NEWROUTE ||
        nl_parse(m, sizeof(struct rtmsg), policy, NL_POLICY_COUNT(policy), tb))
        return 0;
    const struct rtmsg *rtm = mnl_nlmsg_get_payload(m);
    uint32_t table = tb[RTA_TABLE] ? mnl_attr_get_u32(tb[RTA_TABLE]) : rtm->rtm_table;
    if (rtm->rtm_family != o->family || rtm->rtm_dst_len || rtm->rtm_type != RTN_UNICAST ||
        table != RT_TABLE_MAIN)
        return 0;
    if (tb[RTA_OIF])
        flag_default(o, mnl_attr_get_u32(tb[RTA_OIF]));
    if (tb[RTA_MULTIPATH]) {
        const struct rtnexthop *nh = mnl_attr_get_payload(tb[RTA_MULTIPATH]);
        size_t left = mnl_attr_get_payload_len(tb[RTA_MULTIPATH]);
        while (left >= sizeof(*nh) && nh->rtnh_len >= sizeof(*nh) && nh->rtnh_len <= left) {
            flag_default(o, (uint32_t)nh->rtnh_ifindex);
            size_t step = RTNH_ALIGN(nh->rtnh_len);
            left -= step < left ? step : left;
            nh = (const void *)((const char *)nh + step);
        }
    }
    return 0;
}

static void forget_defaults(void *user)
{
    struct observation *o = user;
    for (size_t i = 0; i < o->seen.n; i++)
        *(o->family == AF_INET6 ? &o->seen.v[i].iface.default6 : &o->seen.v[i].iface.default4) =
            false;
}

static int observe_defaults(struct observation *o, struct err *err)
{
    static const uint8_t families[] = { AF_INET, AF_INET6 };
    int e = 0;
    for (size_t i = 0; i < sizeof(families) && !e; i++) {
        struct rtmsg rtm = { .rtm_family = o->family = families[i] };
        e = dump(o, RTM_GETROUTE, &rtm, sizeof(rtm), on_route, forget_defaults, err);
        /* A namespace that never had a route has no table; a kernel may lack IPv6. */
        if (e == -ENOENT || (families[i] == AF_INET6 && (e == -EAFNOSUPPORT || e == -EOPNOTSUPP)))
            e = 0;
    }
    return e;
}

static void give(struct observation *o, struct host *ret)
{
    if (o->seen.n)
        qsort(o->seen.v, o->seen.n, sizeof(o->seen.v[0]), by_name);
    ret->n_ifaces = (uint32_t)o->seen.n;
    ret->ifaces = arena_new_array(o->mem, o->seen.n, struct host_iface);
    for (size_t i = 0; i < o->seen.n; i++) {
        struct seen *s = &o->seen.v[i];
        s->iface.n_addresses = (uint32_t)s->addresses.n;
        s->iface.addresses = arena_new_array(o->mem, s->addresses.n, struct host_address);
        if (s->addresses.n)
            memcpy(s->iface.addresses, s->addresses.v, s->addresses.n * sizeof(s->addresses.v[0]));
        ret->ifaces[i] = s->iface;
    }
}

/* A switch that is off and cannot be switched on has an error. */
static bool read_switch(const char *path, struct arena *mem, const char **ret_error)
{
    char value = '0';
    *ret_error = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool readable = fd >= 0 && read(fd, &value, 1) == 1;
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (!readable || (value == '0' && access(path, W_OK)))
        *ret_error =
            arena_printf(mem, "%s cannot be written: %s", path, strerror(readable ? errno : error));
    return readable && value != '0';
}

/* -1: it is not there. */
static int read_digit(const char *path)
{
    char digit;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool readable = fd >= 0 && read(fd, &digit, 1) == 1;
    if (fd >= 0)
        close(fd);
    return readable ? digit - '0' : -1;
}
