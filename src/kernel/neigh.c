#include <errno.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/rtnl_kind.h"

static int neigh_cmp(const void *have, const void *want)
{
    return desired_neigh_cmp(have, want);
}

static bool neigh_equal(const void *have, const void *want)
{
    const struct rtnl_neigh *h = have;
    const struct desired_neigh *w = want;
    return !h->odd && !memcmp(h->d.mac, w->mac, sizeof(w->mac)) && ip_equal(&h->d.outer, &w->outer);
}

static void neigh_text(const void *want, struct buf *out)
{
    const struct desired_neigh *n = want;
    const uint8_t *m = n->mac;
    char text[IP_TEXT_MAX];
    buf_printf(out, "neighbour %s lladdr %02x:%02x:%02x:%02x:%02x:%02x dev %s",
               n->ip.family ? ip_format(&n->ip, text) : "none", m[0], m[1], m[2], m[3], m[4], m[5],
               n->ifname);
    if (n->outer.family)
        buf_printf(out, " at %s", ip_format(&n->outer, text));
}

static void neigh_note(const void *have, struct buf *out)
{
    if (((const struct rtnl_neigh *)have)->odd)
        buf_puts(out, " (its frames go elsewhere)");
}

/* ---- what is there ---- */

struct neigh_dump {
    const struct rtnl_link *link;
    struct rtnl_known *into;
    size_t before; /* what the first of the two dumps found */
};

/* Permanent ones alone: others come and go by themselves. */
static bool decode(const struct neigh_dump *d, const struct nlmsghdr *m, const struct nlattr **tb,
                   struct rtnl_neigh *ret)
{
    static const struct nl_policy policy[NDA_LLADDR + 1] = {
        [NDA_DST] = NL_IP,
        [NDA_LLADDR] = NL_BYTES(6),
    };
    if (m->nlmsg_type != RTM_NEWNEIGH ||
        nl_parse(m, sizeof(struct ndmsg), policy, NL_POLICY_COUNT(policy), tb))
        return false;
    const struct ndmsg *ndm = mnl_nlmsg_get_payload(m);
    if (ndm->ndm_ifindex != d->link->ifindex || !(ndm->ndm_state & NUD_PERMANENT) ||
        !tb[NDA_LLADDR])
        return false;
    *ret = (struct rtnl_neigh){ .d.ifname = d->link->d.name, .ifindex = d->link->ifindex };
    memcpy(ret->d.mac, mnl_attr_get_payload(tb[NDA_LLADDR]), sizeof(ret->d.mac));
    return true;
}

static int on_neigh(const struct nlmsghdr *m, void *user)
{
    const struct nlattr *tb[NDA_LLADDR + 1];
    struct neigh_dump *d = user;
    struct rtnl_neigh n;
    if (decode(d, m, tb, &n) && nl_get_ip(tb[NDA_DST], &n.d.ip))
        rtnl_known_push(d->into, &n, sizeof(n));
    return 0;
}

static int on_forward(const struct nlmsghdr *m, void *user)
{
    const struct nlattr *tb[NDA_LLADDR + 1];
    struct neigh_dump *d = user;
    struct rtnl_neigh n;
    if (decode(d, m, tb, &n)) {
        nl_get_ip(tb[NDA_DST], &n.d.outer);
        rtnl_known_push(d->into, &n, sizeof(n));
    }
    return 0;
}

static void on_restart(void *user)
{
    struct neigh_dump *d = user;
    d->into->n = d->before;
}

/* An entry of the forwarding database becomes part of the neighbour whose address it has. */
static void join(struct rtnl_known *known, size_t n_neighs)
{
    struct rtnl_neigh *v = known->v;
    size_t n = n_neighs;
    for (size_t i = n_neighs; i < known->n; i++) {
        bool joined = false;
        for (size_t j = 0; j < n_neighs; j++)
            if (!memcmp(v[j].d.mac, v[i].d.mac, sizeof(v[i].d.mac))) {
                v[j].odd |= !v[i].d.outer.family;
                v[j].d.outer = v[i].d.outer;
                joined = true;
            }
        if (!joined)
            v[n++] = v[i];
    }
    known->n = n;
}

static int neigh_dump(struct rtnl *r, struct rtnl_known *into, struct err *err)
{
    struct ndmsg ndm = { .ndm_family = AF_INET };
    struct neigh_dump d = { .link = rtnl_link_by_name(r, OVERLAY_LINK), .into = into };
    if (!d.link)
        return 0;
    struct nlmsghdr *m = rtnl_msg(r, RTM_GETNEIGH, 0, &ndm, sizeof(ndm));
    mnl_attr_put_u32(m, NDA_IFINDEX, (uint32_t)d.link->ifindex);
    int e = nl_dump(r->port, m, on_neigh, on_restart, &d, err);
    if (e)
        return e;
    d.before = into->n;
    /* The forwarding database takes the device in the header, and no attribute for it. */
    ndm = (struct ndmsg){ .ndm_family = AF_BRIDGE, .ndm_ifindex = d.link->ifindex };
    e = nl_dump(r->port, rtnl_msg(r, RTM_GETNEIGH, 0, &ndm, sizeof(ndm)), on_forward, on_restart,
                &d, err);
    if (!e)
        join(into, d.before);
    return e;
}

/* ---- changes ---- */

static int talk_neigh(struct rtnl *r, uint16_t type, uint16_t flags, int ifindex,
                      const struct desired_neigh *n, struct err *err)
{
    struct ndmsg ndm = { .ndm_family = AF_INET,
                         .ndm_ifindex = ifindex,
                         .ndm_state = NUD_PERMANENT };
    struct nlmsghdr *m = rtnl_msg(r, type, flags, &ndm, sizeof(ndm));
    nl_put_ip(m, NDA_DST, &n->ip);
    mnl_attr_put(m, NDA_LLADDR, sizeof(n->mac), n->mac);
    return rtnl_talk(r, m, err);
}

static int talk_forward(struct rtnl *r, uint16_t type, uint16_t flags, int ifindex,
                        const struct desired_neigh *n, struct err *err)
{
    struct ndmsg ndm = { .ndm_family = AF_BRIDGE,
                         .ndm_ifindex = ifindex,
                         .ndm_state = NUD_PERMANENT | NUD_NOARP,
                         .ndm_flags = NTF_SELF };
    struct nlmsghdr *m = rtnl_msg(r, type, flags, &ndm, sizeof(ndm));
    mnl_attr_put(m, NDA_LLADDR, sizeof(n->mac), n->mac);
    if (type == RTM_NEWNEIGH)
        nl_put_ip(m, NDA_DST, &n->outer);
    return rtnl_talk(r, m, err);
}

static int neigh_add(struct rtnl *r, const void *want, void *ret_have, struct err *err)
{
    const struct desired_neigh *w = want;
    const struct rtnl_link *l = rtnl_link_by_name(r, w->ifname);
    if (!l)
        return err_set(err, ENODEV, "waits for link %s", w->ifname);
    int e = 0;
    if (w->outer.family)
        e = talk_forward(r, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, l->ifindex, w, err);
    /* Replacing what was learned meanwhile. */
    if (!e)
        e = talk_neigh(r, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, l->ifindex, w, err);
    if (e)
        return e;
    struct rtnl_neigh *h = ret_have;
    *h = (struct rtnl_neigh){ .d = *w, .ifindex = l->ifindex };
    h->d.ifname = l->d.name;
    return 0;
}

static bool mac_is_used(const struct rtnl *r, const struct desired_neigh *but)
{
    const struct rtnl_neigh *v = r->known[RTNL_NEIGH].v;
    for (size_t i = 0; i < r->known[RTNL_NEIGH].n; i++)
        if (v[i].d.ip.family && !ip_equal(&v[i].d.ip, &but->ip) &&
            !memcmp(v[i].d.mac, but->mac, sizeof(but->mac)))
            return true;
    return false;
}

static int neigh_del(struct rtnl *r, const void *have, struct err *err)
{
    const struct rtnl_neigh *h = have;
    int e = 0;
    if (h->d.ip.family)
        e = talk_neigh(r, RTM_DELNEIGH, 0, h->ifindex, &h->d, err);
    if ((!e || rtnl_gone(e)) && h->d.outer.family && !mac_is_used(r, &h->d))
        e = talk_forward(r, RTM_DELNEIGH, 0, h->ifindex, &h->d, err);
    return rtnl_gone(e) ? 0 : e;
}

const struct rtnl_kind rtnl_neigh_kind = {
    .have_size = sizeof(struct rtnl_neigh),
    .owner_at = offsetof(struct desired_neigh, owner),
    .cmp = neigh_cmp,
    .equal = neigh_equal,
    .text = neigh_text,
    .note = neigh_note,
    .dump = neigh_dump,
    .add = neigh_add,
    .del = neigh_del,
};
