#include <errno.h>
#include <inttypes.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <string.h>

#include "kernel/rtnl_kind.h"

static int rule_cmp(const void *have, const void *want)
{
    return desired_rule_cmp(have, want);
}

static bool rule_plain(const void *have)
{
    const struct rtnl_rule *h = have;
    return !h->odd;
}

static bool rule_equal(const void *have, const void *want)
{
    (void)want;
    return rule_plain(have);
}

static void rule_text(const void *want, struct buf *out)
{
    const struct desired_rule *w = want;
    char text[IP_PREFIX_TEXT_MAX];
    buf_printf(out, "rule %s%" PRIu32 ":", w->family == IP_V6 ? "inet6 " : "", w->priority);
    if (w->mask)
        buf_printf(out, " fwmark 0x%" PRIx32, w->fwmark);
    if (w->mask && w->mask != UINT32_MAX)
        buf_printf(out, "/0x%" PRIx32, w->mask);
    if (w->local)
        buf_puts(out, " iif lo");
    if (w->has_src)
        buf_printf(out, " from %s", ip_prefix_format(&w->src, text));
    if (w->has_dst)
        buf_printf(out, " to %s", ip_prefix_format(&w->dst, text));
    switch (w->action) {
    case RULE_LOOKUP:
        buf_printf(out, " lookup %" PRIu32 "%s", w->table,
                   w->suppress_default ? " suppress_prefixlength 0" : "");
        break;
    case RULE_GOTO:
        buf_printf(out, " goto %" PRIu32, w->goto_priority);
        break;
    case RULE_NOP:
        buf_puts(out, " nop");
        break;
    }
}

static void rule_note(const void *have, struct buf *out)
{
    if (!rule_plain(have))
        buf_puts(out, " (and other selectors)");
}

static bool is_lo(const struct nlattr *a)
{
    return mnl_attr_get_type(a) == FRA_IIFNAME && mnl_attr_get_payload_len(a) == sizeof("lo") &&
           !memcmp(mnl_attr_get_payload(a), "lo", sizeof("lo"));
}

/* Selectors of newer kernels count too: their attributes are there only when they select. */
static bool selects_by_more(const struct nlmsghdr *m, const struct fib_rule_hdr *frh)
{
    if ((frh->action != FR_ACT_TO_TBL && frh->action != FR_ACT_GOTO && frh->action != FR_ACT_NOP) ||
        frh->tos || frh->flags & FIB_RULE_INVERT)
        return true;
    const char *end = mnl_nlmsg_get_payload_tail(m);
    for (const struct nlattr *a = mnl_nlmsg_get_payload_offset(m, sizeof(*frh));
         mnl_attr_ok(a, (int)(end - (const char *)a)); a = mnl_attr_next(a)) {
        uint16_t type = mnl_attr_get_type(a);
        /* The kernel tells this one of every rule: UINT32_MAX is none, 0 is known to the model. */
        bool known = type == FRA_SUPPRESS_PREFIXLEN && mnl_attr_get_payload_len(a) == 4 &&
                     (mnl_attr_get_u32(a) == UINT32_MAX || !mnl_attr_get_u32(a));
        if (!known && !is_lo(a) && type != FRA_SRC && type != FRA_DST && type != FRA_PRIORITY &&
            type != FRA_FWMARK && type != FRA_FWMASK && type != FRA_TABLE && type != FRA_PROTOCOL &&
            type != FRA_GOTO && type != FRA_PAD)
            return true;
    }
    return false;
}

static uint8_t kernel_action(enum rule_action action)
{
    switch (action) {
    case RULE_LOOKUP:
        return FR_ACT_TO_TBL;
    case RULE_GOTO:
        return FR_ACT_GOTO;
    case RULE_NOP:
        return FR_ACT_NOP;
    }
    return FR_ACT_UNSPEC;
}

/* Of actions the model does not know too: selects_by_more() tells them apart. */
static enum rule_action model_action(uint8_t kernel)
{
    if (kernel == FR_ACT_GOTO)
        return RULE_GOTO;
    return kernel == FR_ACT_NOP ? RULE_NOP : RULE_LOOKUP;
}

struct rule_dump {
    struct rtnl *r;
    struct rtnl_known *into;
};

static int on_rule(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = {
        [FRA_SRC] = NL_IP,       [FRA_DST] = NL_IP,
        [FRA_PRIORITY] = NL_U32, [FRA_FWMARK] = NL_U32,
        [FRA_FWMASK] = NL_U32,   [FRA_TABLE] = NL_U32,
        [FRA_PROTOCOL] = NL_U8,  [FRA_IIFNAME] = NL_STRING,
        [FRA_GOTO] = NL_U32,     [FRA_SUPPRESS_PREFIXLEN] = NL_U32,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct rule_dump *d = user;
    if (m->nlmsg_type != RTM_NEWRULE ||
        nl_parse(m, sizeof(struct fib_rule_hdr), policy, NL_POLICY_COUNT(policy), tb))
        return 0;
    const struct fib_rule_hdr *frh = mnl_nlmsg_get_payload(m);
    if (!tb[FRA_PROTOCOL] || mnl_attr_get_u8(tb[FRA_PROTOCOL]) != RTPROT_PORTOLAN ||
        (frh->family != AF_INET && frh->family != AF_INET6))
        return 0;
    struct rtnl_rule x = { 0 };
    if (selects_by_more(m, frh))
        x.odd = rtnl_bytes(d->r, m, m->nlmsg_len);
    x.d.family = frh->family == AF_INET6 ? IP_V6 : IP_V4;
    x.d.priority = tb[FRA_PRIORITY] ? mnl_attr_get_u32(tb[FRA_PRIORITY]) : 0;
    x.d.fwmark = tb[FRA_FWMARK] ? mnl_attr_get_u32(tb[FRA_FWMARK]) : 0;
    x.d.mask = tb[FRA_FWMASK] ? mnl_attr_get_u32(tb[FRA_FWMASK]) : 0;
    x.d.local = tb[FRA_IIFNAME] && is_lo(tb[FRA_IIFNAME]);
    x.d.action = model_action(frh->action);
    if (x.d.action == RULE_GOTO)
        x.d.goto_priority = tb[FRA_GOTO] ? mnl_attr_get_u32(tb[FRA_GOTO]) : 0;
    else if (x.d.action == RULE_LOOKUP)
        x.d.table = tb[FRA_TABLE] ? mnl_attr_get_u32(tb[FRA_TABLE]) : frh->table;
    x.d.suppress_default =
        tb[FRA_SUPPRESS_PREFIXLEN] && !mnl_attr_get_u32(tb[FRA_SUPPRESS_PREFIXLEN]);
    x.d.has_src = nl_get_ip(tb[FRA_SRC], &x.d.src.ip);
    x.d.src.len = frh->src_len;
    x.d.has_dst = nl_get_ip(tb[FRA_DST], &x.d.dst.ip);
    x.d.dst.len = frh->dst_len;
    rtnl_known_push(d->into, &x, sizeof(x));
    return 0;
}

static void on_restart(void *user)
{
    ((struct rule_dump *)user)->into->n = 0;
}

static int rule_dump(struct rtnl *r, struct rtnl_known *into, struct err *err)
{
    struct fib_rule_hdr frh = { .family = AF_UNSPEC };
    struct rule_dump d = { r, into };
    return nl_dump(r->port, rtnl_msg(r, RTM_GETRULE, 0, &frh, sizeof(frh)), on_rule, on_restart, &d,
                   err);
}

static struct nlmsghdr *rule_msg(struct rtnl *r, uint16_t type, uint16_t flags,
                                 const struct desired_rule *w)
{
    struct fib_rule_hdr frh = {
        .family = w->family == IP_V6 ? AF_INET6 : AF_INET,
        .src_len = w->has_src ? w->src.len : 0,
        .dst_len = w->has_dst ? w->dst.len : 0,
        .table = w->action == RULE_LOOKUP && w->table < 256 ? (uint8_t)w->table : RT_TABLE_UNSPEC,
        .action = kernel_action(w->action),
    };
    struct nlmsghdr *m = rtnl_msg(r, type, flags, &frh, sizeof(frh));
    mnl_attr_put_u8(m, FRA_PROTOCOL, RTPROT_PORTOLAN);
    mnl_attr_put_u32(m, FRA_PRIORITY, w->priority);
    if (w->action == RULE_LOOKUP)
        mnl_attr_put_u32(m, FRA_TABLE, w->table);
    if (w->suppress_default)
        mnl_attr_put_u32(m, FRA_SUPPRESS_PREFIXLEN, 0);
    if (w->action == RULE_GOTO)
        mnl_attr_put_u32(m, FRA_GOTO, w->goto_priority);
    if (w->mask) {
        mnl_attr_put_u32(m, FRA_FWMARK, w->fwmark);
        mnl_attr_put_u32(m, FRA_FWMASK, w->mask);
    }
    if (w->local)
        mnl_attr_put_strz(m, FRA_IIFNAME, "lo");
    if (w->has_src)
        nl_put_ip(m, FRA_SRC, &w->src.ip);
    if (w->has_dst)
        nl_put_ip(m, FRA_DST, &w->dst.ip);
    return m;
}

static int rule_add(struct rtnl *r, const void *want, void *ret_have, struct err *err)
{
    const struct desired_rule *w = want;
    /* Without NLM_F_EXCL: it would see a stranger's rule of the same content as ours. */
    int e = rtnl_talk(r, rule_msg(r, RTM_NEWRULE, NLM_F_CREATE, w), err);
    if (!e)
        *(struct rtnl_rule *)ret_have = (struct rtnl_rule){ .d = *w };
    return e;
}

static int rule_del(struct rtnl *r, const void *have, struct err *err)
{
    const struct rtnl_rule *h = have;
    struct nlmsghdr *m;
    /* The kernel deletes the first rule that has all we name: name all. */
    if (h->odd)
        m = rtnl_msg(r, RTM_DELRULE, 0, mnl_nlmsg_get_payload(h->odd),
                     mnl_nlmsg_get_payload_len(h->odd));
    else
        m = rule_msg(r, RTM_DELRULE, 0, &h->d);
    int e = rtnl_talk(r, m, err);
    return rtnl_gone(e) ? 0 : e;
}

const struct rtnl_kind rtnl_rule_kind = {
    .have_size = sizeof(struct rtnl_rule),
    .owner_at = offsetof(struct desired_rule, owner),
    .cmp = rule_cmp,
    .equal = rule_equal,
    .plain = rule_plain,
    .text = rule_text,
    .note = rule_note,
    .dump = rule_dump,
    .add = rule_add,
    .del = rule_del,
};
