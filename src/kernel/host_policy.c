/* Policy routing of others, as traffic classes have to know it: rules, tables with routes, and
 * what drops packets that come another way than they would go. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/vec.h"
#include "kernel/host.h"
#include "model/names.h"
#include "netlink/nl_attr.h"

struct policy {
    struct nl_port *port;
    struct arena *mem;
    VEC(struct host_rule) rules;
    VEC(struct host_table) tables;
    size_t before; /* what the dump in progress may take away when it starts anew */
};

static int rule_order(const void *x, const void *y)
{
    const struct host_rule *a = x, *b = y;
    if (a->family != b->family)
        return a->family < b->family ? -1 : 1;
    if (a->priority != b->priority)
        return a->priority < b->priority ? -1 : 1;
    return strcmp(a->text, b->text);
}

static int table_order(const void *x, const void *y)
{
    const struct host_table *a = x, *b = y;
    if (a->table != b->table)
        return a->table < b->table ? -1 : 1;
    return (a->protocol > b->protocol) - (a->protocol < b->protocol);
}

/* ---- rules ---- */

static void put_table(struct buf *b, uint32_t table)
{
    if (table == RT_TABLE_MAIN)
        buf_puts(b, " lookup main");
    else if (table == RT_TABLE_DEFAULT)
        buf_puts(b, " lookup default");
    else
        buf_printf(b, " lookup %" PRIu32, table);
}

/* Attributes that select nothing, or by addresses. */
static bool is_plain(uint16_t type)
{
    return type == FRA_SRC || type == FRA_DST || type == FRA_PRIORITY || type == FRA_TABLE ||
           type == FRA_PROTOCOL || type == FRA_SUPPRESS_PREFIXLEN || type == FRA_PAD;
}

static bool is_selective(const struct nlmsghdr *m, const struct fib_rule_hdr *frh)
{
    if (frh->tos || frh->flags & FIB_RULE_INVERT)
        return true;
    const char *end = mnl_nlmsg_get_payload_tail(m);
    for (const struct nlattr *a = mnl_nlmsg_get_payload_offset(m, sizeof(*frh));
         mnl_attr_ok(a, (int)(end - (const char *)a)); a = mnl_attr_next(a))
        if (!is_plain(mnl_attr_get_type(a)))
            return true;
    return false;
}

static const char *rule_text(struct policy *p, const struct host_rule *r,
                             const struct fib_rule_hdr *frh, uint32_t table, uint32_t suppress)
{
    struct buf b = { 0 };
    char text[IP_PREFIX_TEXT_MAX];
    buf_printf(&b, "from %s", r->has_src ? ip_prefix_format(&r->src, text) : "all");
    if (r->has_dst)
        buf_printf(&b, " to %s", ip_prefix_format(&r->dst, text));
    if (r->selective)
        buf_puts(&b, " and more");
    if (frh->action == FR_ACT_TO_TBL)
        put_table(&b, table);
    else
        buf_printf(&b, " action %u", frh->action);
    if (suppress != UINT32_MAX)
        buf_printf(&b, " suppress_prefixlength %" PRIu32, suppress);
    const char *ret = arena_strdup(p->mem, buf_str(&b));
    buf_done(&b);
    return ret;
}

static int on_rule(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = {
        [FRA_SRC] = NL_IP,    [FRA_DST] = NL_IP,      [FRA_PRIORITY] = NL_U32,
        [FRA_TABLE] = NL_U32, [FRA_PROTOCOL] = NL_U8, [FRA_SUPPRESS_PREFIXLEN] = NL_U32,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct policy *p = user;
    if (m->nlmsg_type != RTM_NEWRULE ||
        nl_parse(m, sizeof(struct fib_rule_hdr), policy, NL_POLICY_COUNT(policy), tb))
        return 0;
    const struct fib_rule_hdr *frh = mnl_nlmsg_get_payload(m);
    uint32_t table = tb[FRA_TABLE] ? mnl_attr_get_u32(tb[FRA_TABLE]) : frh->table;
    bool local = frh->action == FR_ACT_TO_TBL && table == RT_TABLE_LOCAL;
    if (local || (frh->family != AF_INET && frh->family != AF_INET6) ||
        (tb[FRA_PROTOCOL] && mnl_attr_get_u8(tb[FRA_PROTOCOL]) == RTPROT_PORTOLAN))
        return 0;
    struct host_rule r = { .family = frh->family == AF_INET6 ? IP_V6 : IP_V4,
                           .priority = tb[FRA_PRIORITY] ? mnl_attr_get_u32(tb[FRA_PRIORITY]) : 0,
                           .selective = is_selective(m, frh) };
    r.has_src = nl_get_ip(tb[FRA_SRC], &r.src.ip);
    r.src.len = r.has_src ? frh->src_len : 0;
    r.has_dst = nl_get_ip(tb[FRA_DST], &r.dst.ip);
    r.dst.len = r.has_dst ? frh->dst_len : 0;
    r.text = rule_text(p, &r, frh, table,
                       tb[FRA_SUPPRESS_PREFIXLEN] ? mnl_attr_get_u32(tb[FRA_SUPPRESS_PREFIXLEN])
                                                  : UINT32_MAX);
    vec_push(&p->rules, r);
    return 0;
}

static void forget_rules(void *user)
{
    ((struct policy *)user)->rules.n = 0;
}

/* ---- tables ---- */

static int on_route(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = { [RTA_TABLE] = NL_U32 };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct policy *p = user;
    if (m->nlmsg_type != RTM_NEWROUTE ||
        nl_parse(m, sizeof(struct rtmsg), policy, NL_POLICY_COUNT(policy), tb))
        return 0;
    const struct rtmsg *rtm = mnl_nlmsg_get_payload(m);
    struct host_table t = { tb[RTA_TABLE] ? mnl_attr_get_u32(tb[RTA_TABLE]) : rtm->rtm_table,
                            rtm->rtm_protocol };
    bool of_kernel =
        t.table == RT_TABLE_MAIN || t.table == RT_TABLE_LOCAL || t.table == RT_TABLE_DEFAULT;
    bool known = p->tables.n && p->tables.v[p->tables.n - 1].table == t.table;
    if (!of_kernel && !known && t.protocol != RTPROT_PORTOLAN && t.protocol != RTPROT_BIRD &&
        !(rtm->rtm_flags & RTM_F_CLONED))
        vec_push(&p->tables, t);
    return 0;
}

static void forget_tables(void *user)
{
    struct policy *p = user;
    p->tables.n = p->before;
}

/* One entry for each table. */
static void sort_tables(struct policy *p)
{
    size_t n = 0;
    if (p->tables.n > 1)
        qsort(p->tables.v, p->tables.n, sizeof(p->tables.v[0]), table_order);
    for (size_t i = 0; i < p->tables.n; i++)
        if (!n || p->tables.v[n - 1].table != p->tables.v[i].table)
            p->tables.v[n++] = p->tables.v[i];
    p->tables.n = n;
}

/* ---- both ---- */

static int dump(struct policy *p, uint16_t type, const void *header, size_t len,
                int (*cb)(const struct nlmsghdr *m, void *user), void (*restart)(void *user),
                struct err *err)
{
    struct nl_buf b = { 0 };
    int e = nl_dump(p->port, nl_msg(&b, type, 0, 0, header, len), cb, restart, p, err);
    nl_buf_done(&b);
    return e;
}

static int dump_tables(struct policy *p, struct err *err)
{
    static const uint8_t families[] = { AF_INET, AF_INET6 };
    int e = 0;
    for (size_t i = 0; i < sizeof(families) && !e; i++) {
        struct rtmsg rtm = { .rtm_family = families[i] };
        p->before = p->tables.n;
        e = dump(p, RTM_GETROUTE, &rtm, sizeof(rtm), on_route, forget_tables, err);
        if (e == -ENOENT || (families[i] == AF_INET6 && (e == -EAFNOSUPPORT || e == -EOPNOTSUPP)))
            e = 0;
    }
    return e;
}

static uint8_t rp_filter(const char *iface)
{
    char path[100], value = '0';
    snprintf(path, sizeof(path), "/proc/sys/net/ipv4/conf/%s/rp_filter", iface);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, &value, 1) != 1)
        value = '0';
    if (fd >= 0)
        close(fd);
    return (uint8_t)(value - '0');
}

static void read_rp_filters(struct host *h)
{
    uint8_t all = rp_filter("all");
    for (uint32_t i = 0; i < h->n_ifaces; i++) {
        uint8_t own = rp_filter(h->ifaces[i].name);
        h->ifaces[i].rp_filter = own > all ? own : all;
    }
}

int host_observe_policy(struct nl_port *port, struct arena *mem, bool tables, struct host *h,
                        struct err *err)
{
    struct policy p = { .port = port, .mem = mem };
    struct fib_rule_hdr frh = { .family = AF_UNSPEC };
    int e = dump(&p, RTM_GETRULE, &frh, sizeof(frh), on_rule, forget_rules, err);
    if (!e && tables)
        e = dump_tables(&p, err);
    if (e) {
        err_prefix(err, "cannot read this machine's rules and routes");
    } else {
        sort_tables(&p);
        if (p.rules.n > 1)
            qsort(p.rules.v, p.rules.n, sizeof(p.rules.v[0]), rule_order);
        h->n_rules = (uint32_t)p.rules.n;
        h->rules = arena_new_array(mem, p.rules.n, struct host_rule);
        if (p.rules.n)
            memcpy(h->rules, p.rules.v, p.rules.n * sizeof(h->rules[0]));
        h->n_foreign_tables = (uint32_t)p.tables.n;
        h->foreign_tables = arena_new_array(mem, p.tables.n, struct host_table);
        if (p.tables.n)
            memcpy(h->foreign_tables, p.tables.v, p.tables.n * sizeof(h->foreign_tables[0]));
        if (tables)
            read_rp_filters(h);
    }
    vec_done(&p.rules);
    vec_done(&p.tables);
    return e;
}
