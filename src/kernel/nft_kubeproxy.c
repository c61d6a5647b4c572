#include "kernel/nft_kubeproxy.h"

#include <errno.h>
#include <libnftnl/chain.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <string.h>

#include "base/map.h"
#include "base/vec.h"
#include "kernel/nft_impl.h"

/* A stranger who changes the ruleset between our reading and our writing this often in a row. */
#define TRIES 8

struct chain {
    char *name;
    bool base, leftover;
    const char *user; /* a chain of somebody else's that jumps here: this one stays */
};

/* A rule that jumps to a leftover; indexes of chains. */
struct jump {
    size_t from, to;
    uint64_t handle;
};

/* One table, as it is. */
struct reading {
    uint8_t family;
    const char *table;
    struct arena mem;
    VEC(struct chain) chains;
    VEC(struct jump) jumps;
    struct map index; /* name -> index + 1 */
    size_t n_leftovers;
};

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

/* kube-proxy's own: pkg/proxy/iptables and pkg/proxy/ipvs of Kubernetes 1.20 to 1.35. */
static bool is_kube_proxys(const char *table, const char *chain)
{
    static const char *const names[] = {
        "KUBE-SERVICES",
        "KUBE-EXTERNAL-SERVICES",
        "KUBE-NODEPORTS",
        "KUBE-NODE-PORT",
        "KUBE-POSTROUTING",
        "KUBE-MARK-MASQ",
        "KUBE-FORWARD",
        "KUBE-LOAD-BALANCER",
        "KUBE-PROXY-FIREWALL",
        "KUBE-PROXY-CANARY",
        "KUBE-SOURCE-RANGES-FIREWALL",
        "KUBE-IPVS-FILTER",
        "KUBE-IPVS-OUT-FILTER",
    };
    static const char *const prefixes[] = {
        "KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-SEP-", "KUBE-FW-", "KUBE-XLB-",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(chain, names[i]))
            return true;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (!strncmp(chain, prefixes[i], strlen(prefixes[i])))
            return true;
    return !strcmp(table, "nat") && !strcmp(chain, "KUBE-FIREWALL");
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
    arena_reset(&r->mem);
    map_done(&r->index);
    r->index.keys_stay = true;
    r->chains.n = r->jumps.n = r->n_leftovers = 0;
}

static void reset_jumps(void *user)
{
    ((struct reading *)user)->jumps.n = 0;
}

static int read_chain(const struct nlmsghdr *m, void *user)
{
    struct reading *r = user;
    struct nftnl_chain *x = must(nftnl_chain_alloc());
    int ret = nftnl_chain_nlmsg_parse(m, x) < 0 ? -EBADMSG : 0;
    const char *table = ret ? NULL : nftnl_chain_get_str(x, NFTNL_CHAIN_TABLE);
    const char *name = ret ? NULL : nftnl_chain_get_str(x, NFTNL_CHAIN_NAME);
    if (table && name && !strcmp(table, r->table)) {
        struct chain c = { .name = arena_strdup(&r->mem, name),
                           .base = nftnl_chain_is_set(x, NFTNL_CHAIN_HOOKNUM),
                           .leftover = is_kube_proxys(table, name) };
        r->n_leftovers += c.leftover;
        vec_push(&r->chains, c);
        map_put(&r->index, c.name, strlen(c.name), (void *)r->chains.n);
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
    return to && r->chains.v[to - 1].leftover ? to : 0;
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
        vec_push(&r->jumps, (struct jump){ .from = from - 1,
                                           .to = to - 1,
                                           .handle = nftnl_rule_get_u64(x, NFTNL_RULE_HANDLE) });
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

/* A chain that somebody else's chain jumps to stays, and so do those it jumps to itself. */
static void find_users(struct reading *r)
{
    bool news = true;
    while (news) {
        news = false;
        for (size_t i = 0; i < r->jumps.n; i++) {
            const struct chain *from = &r->chains.v[r->jumps.v[i].from];
            struct chain *to = &r->chains.v[r->jumps.v[i].to];
            bool goes = from->base || (from->leftover && !from->user);
            if (goes || to->user)
                continue;
            to->user = from->name;
            news = true;
        }
    }
}

/* ---- removing ---- */

static const char *family_name(uint8_t family)
{
    return family == NFPROTO_IPV4 ? "ip" : "ip6";
}

/* True when anything goes. */
static bool list(const struct reading *r, struct buf *out)
{
    size_t n_jumps = 0, n_chains = 0;
    for (size_t i = 0; i < r->jumps.n; i++)
        n_jumps += r->chains.v[r->jumps.v[i].from].base;
    for (size_t i = 0; i < r->chains.n; i++) {
        const struct chain *c = &r->chains.v[i];
        n_chains += c->leftover && !c->user;
        if (c->user)
            buf_printf(out, "! table %s %s: chain %s stays, because chain %s uses it\n",
                       family_name(r->family), r->table, c->name, c->user);
    }
    if (!n_jumps && !n_chains)
        return false;
    buf_printf(out, "- table %s %s: %zu chains of kube-proxy, and %zu jumps to them\n",
               family_name(r->family), r->table, n_chains, n_jumps);
    return true;
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
    for (size_t i = 0; i < r->jumps.n; i++) {
        const struct chain *from = &r->chains.v[r->jumps.v[i].from];
        if (from->base)
            put_rule_delete(&b, port, r, from->name, r->jumps.v[i].handle);
    }
    for (size_t i = 0; i < r->chains.n; i++)
        if (r->chains.v[i].leftover && !r->chains.v[i].user)
            put_rule_delete(&b, port, r, r->chains.v[i].name, 0); /* all of its rules */
    for (size_t i = 0; i < r->chains.n; i++)
        if (r->chains.v[i].leftover && !r->chains.v[i].user)
            put_chain_delete(&b, port, r, r->chains.v[i].name);
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
    if (!ret && r->n_leftovers)
        ret = dump(r, port, NFT_MSG_GETRULE, NFTA_RULE_TABLE, read_rule, reset_jumps, err);
    bool any = false;
    if (!ret) {
        find_users(r);
        any = list(r, &lines);
    }
    if (any && !dry_run)
        ret = send_deletes(port, r, genid, err);
    if (!ret)
        buf_puts(out, buf_str(&lines));
    buf_done(&lines);
    return ret;
}

static int clean_chains(struct nl_port *port, uint8_t family, const char *table, bool dry_run,
                        struct buf *out, struct err *err)
{
    struct reading r = { .family = family, .table = table };
    int ret = -ERESTART;
    for (int i = 0; i < TRIES && ret == -ERESTART; i++)
        ret = clean_chains_once(port, &r, dry_run, out, err);
    if (ret)
        err_prefix(err, "kube-proxy's chains in table %s %s", family_name(family), table);
    vec_done(&r.chains);
    vec_done(&r.jumps);
    map_done(&r.index);
    arena_done(&r.mem);
    return ret;
}

static int clean_table(struct nl_port *port, uint8_t family, bool dry_run, struct buf *out,
                       struct err *err)
{
    struct nl_buf b = { 0 };
    struct nlmsghdr *m = msg_of(&b, port, family, NFT_MSG_GETTABLE, 0);
    mnl_attr_put_strz(m, NFTA_TABLE_NAME, "kube-proxy");
    int r = nl_talk(port, m, err);
    bool exists = !r;
    if (exists && !dry_run) {
        struct nl_error e;
        size_t n;
        nft_batch_begin(&b, port, 0);
        m = msg_of(&b, port, family, NFT_MSG_DELTABLE, 0);
        mnl_attr_put_strz(m, NFTA_TABLE_NAME, "kube-proxy");
        r = nft_batch_send(&b, port, &e, 1, &n, err);
    }
    nl_buf_done(&b);
    if (r && r != -ENOENT) {
        err_prefix(err, "table %s kube-proxy", family_name(family));
        return r;
    }
    if (exists)
        buf_printf(out, "- table %s kube-proxy\n", family_name(family));
    return 0;
}

int nft_kubeproxy_cleanup(struct nl_port *port, bool dry_run, struct buf *out, struct err *err)
{
    static const uint8_t families[] = { NFPROTO_IPV4, NFPROTO_IPV6 };
    static const char *const tables[] = { "nat", "filter", "mangle" };
    int r = 0;
    for (size_t i = 0; i < 2 && !r; i++) {
        r = clean_table(port, families[i], dry_run, out, err);
        for (size_t j = 0; j < 3 && !r; j++)
            r = clean_chains(port, families[i], tables[j], dry_run, out, err);
    }
    return r;
}
