#include <errno.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <string.h>

#include "kernel/rtnl_kind.h"

static int addr_cmp(const void *have, const void *want)
{
    return desired_addr_cmp(have, want);
}

static bool addr_equal(const void *have, const void *want)
{
    const struct rtnl_addr *h = have;
    return !h->odd && h->d.prefix_len == ((const struct desired_addr *)want)->prefix_len;
}

/* An IPv6 address keeps waiting for its duplicate detection: that one is made anew. */
static bool addr_in_place(const void *have, const void *want)
{
    const struct rtnl_addr *h = have;
    return h->d.ip.family == IP_V4 &&
           h->d.prefix_len == ((const struct desired_addr *)want)->prefix_len;
}

static void addr_text(const void *want, struct buf *out)
{
    const struct desired_addr *a = want;
    char ip[IP_TEXT_MAX];
    buf_printf(out, "address %s/%u dev %s", ip_format(&a->ip, ip), a->prefix_len, a->ifname);
}

static void addr_note(const void *have, struct buf *out)
{
    if (((const struct rtnl_addr *)have)->odd)
        buf_puts(out, " (not permanent, or tested for duplicates)");
}

struct addr_dump {
    struct rtnl *r;
    struct rtnl_known *into;
};

static int on_addr(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = {
        [IFA_ADDRESS] = NL_IP,
        [IFA_LOCAL] = NL_IP,
        [IFA_FLAGS] = NL_U32,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct addr_dump *d = user;
    if (m->nlmsg_type != RTM_NEWADDR ||
        nl_parse(m, sizeof(struct ifaddrmsg), policy, NL_POLICY_COUNT(policy), tb))
        return 0;
    const struct ifaddrmsg *ifa = mnl_nlmsg_get_payload(m);
    const struct rtnl_link *l = rtnl_link_by_index(&d->r->known[RTNL_LINK], (int)ifa->ifa_index);
    struct rtnl_addr a = { 0 };
    if (!l || !nl_get_ip(tb[IFA_LOCAL] ? tb[IFA_LOCAL] : tb[IFA_ADDRESS], &a.d.ip))
        return 0;
    a.d.ifname = l->d.name;
    a.d.prefix_len = ifa->ifa_prefixlen;
    a.ifindex = l->ifindex;
    uint32_t flags = tb[IFA_FLAGS] ? mnl_attr_get_u32(tb[IFA_FLAGS]) : ifa->ifa_flags;
    uint32_t usual = IFA_F_PERMANENT | (a.d.ip.family == IP_V6 ? IFA_F_NODAD : 0);
    a.odd = (flags & usual) != usual;
    rtnl_known_push(d->into, &a, sizeof(a));
    return 0;
}

static void on_restart(void *user)
{
    ((struct addr_dump *)user)->into->n = 0;
}

static int addr_dump(struct rtnl *r, struct rtnl_known *into, struct err *err)
{
    struct ifaddrmsg ifa = { .ifa_family = AF_UNSPEC };
    struct addr_dump d = { r, into };
    return nl_dump(r->port, rtnl_msg(r, RTM_GETADDR, 0, &ifa, sizeof(ifa)), on_addr, on_restart, &d,
                   err);
}

static struct nlmsghdr *addr_msg(struct rtnl *r, uint16_t type, uint16_t flags, int ifindex,
                                 const struct desired_addr *a)
{
    bool v6 = a->ip.family == IP_V6;
    struct ifaddrmsg ifa = {
        .ifa_family = v6 ? AF_INET6 : AF_INET,
        .ifa_prefixlen = a->prefix_len,
        .ifa_index = (unsigned)ifindex,
        /* Both ends are configured, never negotiated: nobody to detect, and no time for it. */
        .ifa_flags = v6 ? IFA_F_NODAD : 0,
    };
    struct nlmsghdr *m = rtnl_msg(r, type, flags, &ifa, sizeof(ifa));
    nl_put_ip(m, IFA_LOCAL, &a->ip);
    nl_put_ip(m, IFA_ADDRESS, &a->ip);
    return m;
}

static int addr_add(struct rtnl *r, const void *want, void *ret_have, struct err *err)
{
    const struct desired_addr *w = want;
    const struct rtnl_link *l = rtnl_link_by_name(r, w->ifname);
    if (!l)
        return err_set(err, ENODEV, "waits for link %s", w->ifname);
    /* Whatever is on our link is ours, so that replacing cannot hit a stranger's. */
    struct nlmsghdr *m = addr_msg(r, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, l->ifindex, w);
    mnl_attr_put_u8(m, IFA_PROTO, RTPROT_PORTOLAN);
    int e = rtnl_talk(r, m, err);
    if (e)
        return e;
    *(struct rtnl_addr *)ret_have = (struct rtnl_addr){
        .d = { .ifname = l->d.name, .ip = w->ip, .prefix_len = w->prefix_len },
        .ifindex = l->ifindex,
    };
    return 0;
}

static int addr_change(struct rtnl *r, const void *have, const void *want, void *ret_have,
                       struct err *err)
{
    (void)have;
    return addr_add(r, want, ret_have, err);
}

static int addr_del(struct rtnl *r, const void *have, struct err *err)
{
    const struct rtnl_addr *h = have;
    int e = rtnl_talk(r, addr_msg(r, RTM_DELADDR, 0, h->ifindex, &h->d), err);
    /* With its last IPv4 address the kernel takes a device's IPv4 routes. */
    if (h->d.ip.family == IP_V4)
        r->dumped = false;
    return rtnl_gone(e) ? 0 : e;
}

const struct rtnl_kind rtnl_addr_kind = {
    .have_size = sizeof(struct rtnl_addr),
    .owner_at = offsetof(struct desired_addr, owner),
    .cmp = addr_cmp,
    .equal = addr_equal,
    .in_place = addr_in_place,
    .text = addr_text,
    .note = addr_note,
    .dump = addr_dump,
    .add = addr_add,
    .change = addr_change,
    .del = addr_del,
};
