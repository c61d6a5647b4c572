#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/rtnl_kind.h"

/* IPv6 leaves a device with less. */
#define IPV6_MTU_MIN 1280

static int link_cmp(const void *have, const void *want)
{
    return desired_link_cmp(have, want);
}

static bool link_rebuild(const struct rtnl_link *h, const struct desired_link *w)
{
    return h->odd || h->d.vni != w->vni || h->d.port != w->port;
}

static bool link_moved(const struct rtnl_link *h, const struct desired_link *w)
{
    return !ip_equal(&h->d.local, &w->local) || !ip_equal(&h->d.remote, &w->remote);
}

static bool link_equal(const void *have, const void *want)
{
    const struct rtnl_link *h = have;
    const struct desired_link *w = want;
    return !link_rebuild(h, w) && !link_moved(h, w) && h->d.mtu == w->mtu && h->up &&
           h->gen_mode == IN6_ADDR_GEN_MODE_NONE && !memcmp(h->d.mac, w->mac, sizeof(w->mac)) &&
           !strcmp(h->d.alias, w->alias);
}

static bool link_in_place(const void *have, const void *want)
{
    return !link_rebuild(have, want);
}

static void link_text(const void *want, struct buf *out)
{
    const struct desired_link *l = want;
    char text[IP_TEXT_MAX];
    buf_printf(out, "link %s type vxlan id %" PRIu32 " local %s", l->name, l->vni,
               ip_format(&l->local, text));
    if (l->remote.family)
        buf_printf(out, " remote %s", ip_format(&l->remote, text));
    buf_printf(out,
               " dstport %u mtu %" PRIu32 " address %02x:%02x:%02x:%02x:%02x:%02x alias \"%s\"",
               l->port, l->mtu, l->mac[0], l->mac[1], l->mac[2], l->mac[3], l->mac[4], l->mac[5],
               l->alias);
}

static void link_label(const void *want, struct buf *out)
{
    buf_printf(out, "link %s", ((const struct desired_link *)want)->name);
}

static void link_note(const void *have, struct buf *out)
{
    const struct rtnl_link *h = have;
    if (!h->up)
        buf_puts(out, " (down)");
    if (h->odd)
        buf_puts(out, " (learning, or without checksums)");
    if (h->gen_mode != IN6_ADDR_GEN_MODE_NONE)
        buf_puts(out, " (makes IPv6 addresses of its own)");
}

static bool vxlan_decode(const struct nlattr *info, struct rtnl_link *l)
{
    static const struct nl_policy info_policy[] = {
        [IFLA_INFO_KIND] = NL_STRING,
        [IFLA_INFO_DATA] = NL_NEST,
    };
    static const struct nl_policy policy[] = {
        [IFLA_VXLAN_ID] = NL_U32,         [IFLA_VXLAN_GROUP] = NL_BYTES(4),
        [IFLA_VXLAN_LOCAL] = NL_BYTES(4), [IFLA_VXLAN_PORT] = NL_U16,
        [IFLA_VXLAN_LEARNING] = NL_U8,    [IFLA_VXLAN_UDP_CSUM] = NL_U8,
    };
    const struct nlattr *i[NL_POLICY_COUNT(info_policy)], *tb[NL_POLICY_COUNT(policy)];
    if (!info || nl_parse_nested(info, info_policy, NL_POLICY_COUNT(info_policy), i) ||
        !i[IFLA_INFO_KIND] || strcmp(mnl_attr_get_str(i[IFLA_INFO_KIND]), "vxlan") ||
        !i[IFLA_INFO_DATA] ||
        nl_parse_nested(i[IFLA_INFO_DATA], policy, NL_POLICY_COUNT(policy), tb) ||
        !tb[IFLA_VXLAN_ID] || !tb[IFLA_VXLAN_PORT])
        return false;
    l->d.vni = mnl_attr_get_u32(tb[IFLA_VXLAN_ID]);
    l->d.port = ntohs(mnl_attr_get_u16(tb[IFLA_VXLAN_PORT]));
    nl_get_ip(tb[IFLA_VXLAN_LOCAL], &l->d.local);
    nl_get_ip(tb[IFLA_VXLAN_GROUP], &l->d.remote);
    l->odd = (tb[IFLA_VXLAN_LEARNING] && mnl_attr_get_u8(tb[IFLA_VXLAN_LEARNING])) ||
             !tb[IFLA_VXLAN_UDP_CSUM] || !mnl_attr_get_u8(tb[IFLA_VXLAN_UDP_CSUM]);
    return true;
}

static uint8_t gen_mode_decode(const struct nlattr *af_spec)
{
    static const struct nl_policy families[AF_INET6 + 1] = { [AF_INET6] = NL_NEST };
    static const struct nl_policy policy[] = { [IFLA_INET6_ADDR_GEN_MODE] = NL_U8 };
    const struct nlattr *f[NL_POLICY_COUNT(families)], *tb[NL_POLICY_COUNT(policy)];
    if (!af_spec || nl_parse_nested(af_spec, families, NL_POLICY_COUNT(families), f) ||
        !f[AF_INET6] || nl_parse_nested(f[AF_INET6], policy, NL_POLICY_COUNT(policy), tb) ||
        !tb[IFLA_INET6_ADDR_GEN_MODE])
        return IN6_ADDR_GEN_MODE_NONE;
    return mnl_attr_get_u8(tb[IFLA_INET6_ADDR_GEN_MODE]);
}

/* False: not ours. A link of our name without an alias is ours when it is what is left of a
 * creation cut short: never up, and its name tells its number and port. */
static bool link_decode(struct rtnl *r, const struct nlmsghdr *m, struct rtnl_link *ret)
{
    static const struct nl_policy policy[] = {
        [IFLA_IFNAME] = NL_STRING,  [IFLA_MTU] = NL_U32,       [IFLA_ADDRESS] = NL_BYTES(6),
        [IFLA_IFALIAS] = NL_STRING, [IFLA_LINKINFO] = NL_NEST, [IFLA_AF_SPEC] = NL_NEST,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct rtnl_link l = { 0 };
    uint32_t vni;
    uint16_t port;
    if (m->nlmsg_type != RTM_NEWLINK ||
        nl_parse(m, sizeof(struct ifinfomsg), policy, NL_POLICY_COUNT(policy), tb) ||
        !tb[IFLA_IFNAME] || !tb[IFLA_MTU] || !tb[IFLA_ADDRESS] ||
        !vxlan_decode(tb[IFLA_LINKINFO], &l))
        return false;
    const char *name = mnl_attr_get_str(tb[IFLA_IFNAME]);
    const struct ifinfomsg *ifi = mnl_nlmsg_get_payload(m);
    const char *alias = tb[IFLA_IFALIAS] ? mnl_attr_get_str(tb[IFLA_IFALIAS]) : "";
    l.up = ifi->ifi_flags & IFF_UP;
    bool unfinished = !alias[0] && !l.up && !l.odd && link_name_parse(name, &vni, &port) &&
                      l.d.vni == vni && l.d.port == port;
    if (!link_is_ours(name, "vxlan", alias) && !unfinished)
        return false;
    l.ifindex = ifi->ifi_index;
    l.d.name = rtnl_word(r, name);
    l.d.alias = rtnl_word(r, alias);
    l.d.mtu = mnl_attr_get_u32(tb[IFLA_MTU]);
    memcpy(l.d.mac, mnl_attr_get_payload(tb[IFLA_ADDRESS]), sizeof(l.d.mac));
    l.gen_mode = gen_mode_decode(tb[IFLA_AF_SPEC]);
    *ret = l;
    return true;
}

struct link_dump {
    struct rtnl *r;
    struct rtnl_known *into;
};

static int on_link(const struct nlmsghdr *m, void *user)
{
    struct link_dump *d = user;
    struct rtnl_link l;
    if (link_decode(d->r, m, &l))
        rtnl_known_push(d->into, &l, sizeof(l));
    return 0;
}

static void on_restart(void *user)
{
    ((struct link_dump *)user)->into->n = 0;
}

/* Of all VXLAN devices. */
static struct nlmsghdr *dump_msg(struct rtnl *r)
{
    struct ifinfomsg ifi = { .ifi_family = AF_UNSPEC };
    struct nlmsghdr *m = rtnl_msg(r, RTM_GETLINK, 0, &ifi, sizeof(ifi));
    mnl_attr_put_u32(m, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    struct nlattr *info = mnl_attr_nest_start(m, IFLA_LINKINFO);
    mnl_attr_put_strz(m, IFLA_INFO_KIND, "vxlan");
    mnl_attr_nest_end(m, info);
    return m;
}

static int link_dump(struct rtnl *r, struct rtnl_known *into, struct err *err)
{
    struct link_dump d = { r, into };
    return nl_dump(r->port, dump_msg(r), on_link, on_restart, &d, err);
}

static int link_read(struct rtnl *r, const char *name, struct rtnl_link *ret, struct err *err)
{
    struct ifinfomsg ifi = { .ifi_family = AF_UNSPEC };
    struct rtnl_known got = { 0 };
    struct link_dump d = { r, &got };
    struct nlmsghdr *m = rtnl_msg(r, RTM_GETLINK, 0, &ifi, sizeof(ifi));
    mnl_attr_put_u32(m, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    mnl_attr_put_strz(m, IFLA_IFNAME, name);
    int e = nl_get(r->port, m, on_link, &d, err);
    if (!e && got.n != 1)
        e = err_set(err, ENODEV, "No such device: it went away while it was made");
    if (!e)
        *ret = *(struct rtnl_link *)got.v;
    free(got.v);
    return e;
}

static struct nlmsghdr *link_msg(struct rtnl *r, uint16_t type, uint16_t flags, int ifindex,
                                 unsigned up)
{
    struct ifinfomsg ifi = {
        .ifi_family = AF_UNSPEC, .ifi_index = ifindex, .ifi_flags = up, .ifi_change = up
    };
    return rtnl_msg(r, type, flags, &ifi, sizeof(ifi));
}

static void put_vxlan(struct nlmsghdr *m, const struct desired_link *w, bool creating)
{
    struct nlattr *info = mnl_attr_nest_start(m, IFLA_LINKINFO);
    mnl_attr_put_strz(m, IFLA_INFO_KIND, "vxlan");
    struct nlattr *data = mnl_attr_nest_start(m, IFLA_INFO_DATA);
    nl_put_ip(m, IFLA_VXLAN_LOCAL, &w->local);
    if (w->remote.family)
        nl_put_ip(m, IFLA_VXLAN_GROUP, &w->remote);
    else if (!creating)
        mnl_attr_put_u32(m, IFLA_VXLAN_GROUP, 0); /* the one it has */
    if (creating) {
        mnl_attr_put_u32(m, IFLA_VXLAN_ID, w->vni);
        mnl_attr_put_u16(m, IFLA_VXLAN_PORT, htons(w->port));
        mnl_attr_put_u8(m, IFLA_VXLAN_LEARNING, 0);
        mnl_attr_put_u8(m, IFLA_VXLAN_UDP_CSUM, 1);
    }
    mnl_attr_nest_end(m, data);
    mnl_attr_nest_end(m, info);
}

/* The link carries our addresses only. Before it is up, or the kernel makes one. */
static int set_gen_mode(struct rtnl *r, int ifindex, struct err *err)
{
    struct nlmsghdr *m = link_msg(r, RTM_SETLINK, 0, ifindex, 0);
    struct nlattr *spec = mnl_attr_nest_start(m, IFLA_AF_SPEC);
    struct nlattr *family = mnl_attr_nest_start(m, AF_INET6);
    mnl_attr_put_u8(m, IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE);
    mnl_attr_nest_end(m, family);
    mnl_attr_nest_end(m, spec);
    int e = rtnl_talk(r, m, err);
    return e == -EAFNOSUPPORT ? 0 : e; /* no IPv6 here, or not with this MTU: nothing to stop */
}

static int link_change(struct rtnl *r, const void *have, const void *want, void *ret_have,
                       struct err *err)
{
    const struct rtnl_link *h = have;
    const struct desired_link *w = want;
    int e = 0;
    struct nlmsghdr *m;
    if (link_moved(h, w)) {
        m = link_msg(r, RTM_NEWLINK, 0, h->ifindex, 0);
        put_vxlan(m, w, false);
        e = rtnl_talk(r, m, err);
    }
    if (!e && h->d.mtu != w->mtu) {
        m = link_msg(r, RTM_SETLINK, 0, h->ifindex, 0);
        mnl_attr_put_u32(m, IFLA_MTU, w->mtu);
        e = rtnl_talk(r, m, err);
        if (!e && w->mtu < IPV6_MTU_MIN)
            rtnl_forget_device(r, w->name, true);
    }
    /* With IPv6 comes an address that was made before we could say no. */
    bool ipv6_is_new = h->d.mtu < IPV6_MTU_MIN && w->mtu >= IPV6_MTU_MIN;
    r->addrs_moved |= ipv6_is_new;
    if (!e && (ipv6_is_new || h->gen_mode != IN6_ADDR_GEN_MODE_NONE))
        e = set_gen_mode(r, h->ifindex, err);
    if (!e &&
        (!h->up || memcmp(h->d.mac, w->mac, sizeof(w->mac)) || strcmp(h->d.alias, w->alias))) {
        m = link_msg(r, RTM_SETLINK, 0, h->ifindex, IFF_UP);
        mnl_attr_put(m, IFLA_ADDRESS, sizeof(w->mac), w->mac);
        mnl_attr_put_strz(m, IFLA_IFALIAS, w->alias);
        e = rtnl_talk(r, m, err);
        rtnl_forget_neighs(r, w->name); /* the kernel does, with the address */
    }
    return e ? e : link_read(r, w->name, ret_have, err);
}

static int link_del(struct rtnl *r, const void *have, struct err *err)
{
    const struct rtnl_link *h = have;
    int e = rtnl_talk(r, link_msg(r, RTM_DELLINK, 0, h->ifindex, 0), err);
    if (e && !rtnl_gone(e))
        return e;
    rtnl_forget_device(r, h->d.name, false);
    return 0;
}

/* Who has a link's VNI and port under another name. */
struct vni_search {
    const struct desired_link *want;
    char name[IFNAMSIZ]; /* "": nobody */
    bool renamed;        /* our alias is on it */
};

static int on_vxlan(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = {
        [IFLA_IFNAME] = NL_STRING,
        [IFLA_IFALIAS] = NL_STRING,
        [IFLA_LINKINFO] = NL_NEST,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct vni_search *s = user;
    struct rtnl_link l = { 0 };
    if (m->nlmsg_type != RTM_NEWLINK ||
        nl_parse(m, sizeof(struct ifinfomsg), policy, NL_POLICY_COUNT(policy), tb) ||
        !tb[IFLA_IFNAME] || !vxlan_decode(tb[IFLA_LINKINFO], &l) || l.d.vni != s->want->vni ||
        l.d.port != s->want->port)
        return 0;
    const char *alias = tb[IFLA_IFALIAS] ? mnl_attr_get_str(tb[IFLA_IFALIAS]) : "";
    snprintf(s->name, sizeof(s->name), "%s", mnl_attr_get_str(tb[IFLA_IFNAME]));
    s->renamed = !strncmp(alias, LINK_ALIAS_PREFIX, strlen(LINK_ALIAS_PREFIX));
    return 0;
}

static void on_search_restart(void *user)
{
    ((struct vni_search *)user)->name[0] = '\0';
}

/* The kernel says that something is there, but not what. */
static void name_what_is_in_the_way(struct rtnl *r, const struct desired_link *w, struct err *err)
{
    struct vni_search s = { .want = w };
    if (!strcmp(err->text, strerror(EEXIST))) {
        err_set(err, EEXIST,
                "%s: a device called %s that is not Portolan's is in the way; rename or remove it",
                strerror(EEXIST), w->name);
        return;
    }
    if (nl_dump(r->port, dump_msg(r), on_vxlan, on_search_restart, &s, NULL) || !s.name[0])
        return;
    err_set(err, EEXIST,
            "%s: the device %s has VNI %" PRIu32 " and port %u%s; remove it (ip link del %s)",
            strerror(EEXIST), s.name, w->vni, w->port,
            s.renamed ? ", and was Portolan's until it was renamed" : "", s.name);
}

static int link_add(struct rtnl *r, const void *want, void *ret_have, struct err *err)
{
    const struct desired_link *w = want;
    struct rtnl_link made;
    struct nlmsghdr *m = link_msg(r, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0, 0);
    mnl_attr_put_strz(m, IFLA_IFNAME, w->name);
    mnl_attr_put_u32(m, IFLA_MTU, w->mtu);
    mnl_attr_put(m, IFLA_ADDRESS, sizeof(w->mac), w->mac);
    put_vxlan(m, w, true);
    int e = rtnl_talk(r, m, err);
    if (e == -EEXIST && err)
        name_what_is_in_the_way(r, w, err);
    if (!e)
        e = link_read(r, w->name, &made, err);
    if (e)
        return e;
    /* Alias and up come last: until then it can be told from a finished link. */
    made.gen_mode = IN6_ADDR_GEN_MODE_EUI64;
    e = link_change(r, &made, want, ret_have, err);
    if (e)
        link_del(r, &made, NULL);
    return e;
}

const struct rtnl_kind rtnl_link_kind = {
    .have_size = sizeof(struct rtnl_link),
    .owner_at = offsetof(struct desired_link, owner),
    .cmp = link_cmp,
    .equal = link_equal,
    .in_place = link_in_place,
    .text = link_text,
    .label = link_label,
    .note = link_note,
    .dump = link_dump,
    .add = link_add,
    .change = link_change,
    .del = link_del,
};
