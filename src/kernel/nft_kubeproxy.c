#include "kernel/nft_kubeproxy.h"

#include <errno.h>
#include <libnftnl/chain.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "kernel/kubeproxy.h"
#include "kernel/nft_impl.h"

/* A stranger who changes the ruleset between our reading and our writing this often in a row. */
#define TRIES 8

/* One table, as it is. */
struct reading {
    uint8_t family;
    const char *table;
    struct kubeproxy_table t;
    struct map index; /* name -> index + 1 */
    bool any;         /* of kube-proxy's */
};

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

static struct nlmsghdr *msg_of(struct nl_buf *b, struct nl_port *port, uint8_t family,
                               uint16_t type, uint16_t flags)
{
    struct nlmsghdr *m = nft_msg(b, port, type, flags);
    ((struct nfgenmsg *)mnl_nlmsg_get_payload(m))->nfgen_family = family;
    return m;
}

/* ---- reading ---- */

static void reset(void *user)
{
    struct reading *r = user;
    kubeproxy_table_reset(&r->t);
    map_done(&r->index);
    r->index.keys_stay = true;
    r->any = false;
}

static void reset_jumps(void *user)
{
    ((struct reading *)user)->t.jumps.n = 0;
}

static int read_chain(const struct nlmsghdr *m, void *user)
{
    struct reading *r = user;
    struct nftnl_chain *x = must(nftnl_chain_alloc());
    int ret = nftnl_chain_nlmsg_parse(m, x) < 0 ? -EBADMSG : 0;
    const char *table = ret ? NULL : nftnl_chain_get_str(x, NFTNL_CHAIN_TABLE);
    const char *name = ret ? NULL : nftnl_chain_get_str(x, NFTNL_CHAIN_NAME);
    if (table && name && !strcmp(table, r->table)) {
        struct kubeproxy_chain c = { .name = arena_strdup(&r->t.mem, name),
                                     .base = nftnl_chain_is_set(x, NFTNL_CHAIN_HOOKNUM),
                                     .leftover = kubeproxy_is_chain(r->t.whose, table, name) };
        r->any |= c.leftover;
        vec_push(&r->t.chains, c);
        map_put(&r->index, c.name, strlen(c.name), (void *)r->t.chains.n);
    }
    nftnl_chain_free(x);
    return ret;
}

/* The index + 1 of the leftover the rule jumps to, or 0. */
static size_t target_of(const struct reading *r, struct nftnl_rule *rule)
{
    struct nftnl_expr_iter *it = must(nftnl_expr_iter_create(rule));
    struct nftnl_expr *e;
    size_t to = 0;
    while (!to && (e = nftnl_expr_iter_next(it))) {
        if (strcmp(nftnl_expr_get_str(e, NFTNL_EXPR_NAME), "immediate") ||
            !nftnl_expr_is_set(e, NFTNL_EXPR_IMM_CHAIN))
            continue;
        const char *name = nftnl_expr_get_str(e, NFTNL_EXPR_IMM_CHAIN);
        to = name ? (size_t)map_get(&r->index, name, strlen(name)) : 0;
    }
    nftnl_expr_iter_destroy(it);
    return to && r->t.chains.v[to - 1].leftover ? to : 0;
}

static int read_rule(const struct nlmsghdr *m, void *user)
{
    struct reading *r = user;
    struct nftnl_rule *x = must(nftnl_rule_alloc());
    int ret = nftnl_rule_nlmsg_parse(m, x) < 0 ? -EBADMSG : 0;
    const char *chain = ret ? NULL : nftnl_rule_get_str(x, NFTNL_RULE_CHAIN);
    size_t from = chain ? (size_t)map_get(&r->index, chain, strlen(chain)) : 0;
    size_t to = from ? target_of(r, x) : 0;
    if (to)
        vec_push(&r->t.jumps, (struct kubeproxy_jump){ from - 1, to - 1,
                                                       nftnl_rule_get_u64(x, NFTNL_RULE_HANDLE) });
    nftnl_rule_free(x);
    return ret;
}

static int dump(struct reading *r, struct nl_port *port, uint16_t type, uint16_t table_attr,
                int (*cb)(const struct nlmsghdr *m, void *user), void (*restart)(void *user),
                struct err *err)
{
    struct nl_buf b = { 0 };
    struct nlmsghdr *m = msg_of(&b, port, r->family, type, 0);
    if (table_attr)
        mnl_attr_put_strz(m, table_attr, r->table);
    restart(r);
    int ret = nl_dump(port, m, cb, restart, r, err);
    nl_buf_done(&b);
    return ret;
}

/* ---- removing ---- */

static const char *family_name(uint8_t family)
{
    return family == NFPROTO_IPV4 ? "ip" : "ip6";
}

static void put_rule_delete(struct nl_buf *b, struct nl_port *port, const struct reading *r,
                            const char *chain, uint64_t handle)
{
    struct nlmsghdr *m = msg_of(b, port, r->family, NFT_MSG_DELRULE, 0);
    mnl_attr_put_strz(m, NFTA_RULE_TABLE, r->table);
    mnl_attr_put_strz(m, NFTA_RULE_CHAIN, chain);
    if (handle)
        mnl_attr_put_u64(m, NFTA_RULE_HANDLE, htobe64(handle));
}

static void put_chain_delete(struct nl_buf *b, struct nl_port *port, const struct reading *r,
                             const char *chain)
{
    struct nlmsghdr *m = msg_of(b, port, r->family, NFT_MSG_DELCHAIN, 0);
    mnl_attr_put_strz(m, NFTA_CHAIN_TABLE, r->table);
    mnl_attr_put_strz(m, NFTA_CHAIN_NAME, chain);
}

static int send_deletes(struct nl_port *port, const struct reading *r, uint32_t genid,
                        struct err *err)
{
    struct nl_buf b = { 0 };
    nft_batch_begin(&b, port, genid);
    const struct kubeproxy_chain *chains = r->t.chains.v;
    for (size_t i = 0; i < r->t.jumps.n; i++) {
        const struct kubeproxy_jump *j = &r->t.jumps.v[i];
        if (chains[j->from].base)
            put_rule_delete(&b, port, r, chains[j->from].name, j->handle);
    }
    for (size_t i = 0; i < r->t.chains.n; i++)
        if (kubeproxy_chain_goes(&chains[i]))
            put_rule_delete(&b, port, r, chains[i].name, 0); /* all of its rules */
    for (size_t i = 0; i < r->t.chains.n; i++)
        if (kubeproxy_chain_goes(&chains[i]))
            put_chain_delete(&b, port, r, chains[i].name);
    struct nl_error e;
    size_t n;
    int ret = nft_batch_send(&b, port, &e, 1, &n, err);
    nl_buf_done(&b);
    return ret;
}

static int clean_chains_once(struct nl_port *port, struct reading *r, bool dry_run, struct buf *out,
                             struct err *err)
{
    uint32_t genid = 0;
    struct buf lines = { 0 };
    int ret = nft_genid(port, &genid, err);
    if (!ret)
        ret = dump(r, port, NFT_MSG_GETCHAIN, 0, read_chain, reset, err);
    if (!ret && r->any)
        ret = dump(r, port, NFT_MSG_GETRULE, NFTA_RULE_TABLE, read_rule, reset_jumps, err);
    char where[64];
    snprintf(where, sizeof(where), "table %s %s", family_name(r->family), r->table);
    if (!ret && kubeproxy_settle(&r->t, where, &lines) && !dry_run)
        ret = send_deletes(port, r, genid, err);
    if (!ret)
        buf_puts(out, buf_str(&lines));
    buf_done(&lines);
    return ret;
}

static int clean_chains(struct nl_port *port, uint8_t family, const char *table,
                        enum kubeproxy_whose whose, bool dry_run, struct buf *out, struct err *err)
{
    struct reading r = { .family = family, .table = table, .t.whose = whose };
    int ret = -ERESTART;
    for (int i = 0; i < TRIES && ret == -ERESTART; i++)
        ret = clean_chains_once(port, &r, dry_run, out, err);
    if (ret)
        err_prefix(err, "KUBE-... chains in table %s %s", family_name(family), table);
    map_done(&r.index);
    kubeproxy_table_done(&r.t);
    return ret;
}

static int clean_table(struct nl_port *port, uint8_t family, bool dry_run, struct buf *out,
                       struct err *err)
{
    bool existed = false;
    int r = nft_table_delete(port, family, "kube-proxy", dry_run, &existed, err);
    if (existed)
        buf_printf(out, "- table %s kube-proxy\n", family_name(family));
    return r;
}

int nft_kubeproxy_cleanup(struct nl_port *port, enum kubeproxy_whose whose, bool dry_run,
                          struct buf *out, struct err *err)
{
    static const uint8_t families[] = { NFPROTO_IPV4, NFPROTO_IPV6 };
    static const char *const tables[] = { "nat", "filter", "mangle" };
    uint32_t genid;
    int r = nft_genid(port, &genid, err);
    if (r == -EINVAL) /* no such subsystem: a kernel without nftables */
        return 0;
    for (size_t i = 0; i < 2 && !r; i++) {
        if (whose != KUBEPROXY_OURS)
            r = clean_table(port, families[i], dry_run, out, err);
        for (size_t j = 0; j < 3 && !r; j++)
            r = clean_chains(port, families[i], tables[j], whose, dry_run, out, err);
    }
    return r;
}
