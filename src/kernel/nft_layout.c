#include <arpa/inet.h>
#include <errno.h>
#include <libnftnl/chain.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <libnftnl/set.h>
#include <libnftnl/table.h>
#include <libnftnl/udata.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "kernel/nft_impl.h"
#include "model/names.h"

/* What nft calls the datatypes, and in which byte order it takes them (src/datatype.h and
 * include/datatype.h of nftables 1.0.6; the numbers are for userspace, the kernel keeps them). */
static const struct {
    uint32_t type, byteorder; /* 1 host, 2 network, 0 none of its own */
} datatype[] = {
    [NFT_FIELD_IFNAME] = { 41, 1 },   [NFT_FIELD_IP4] = { 7, 2 },
    [NFT_FIELD_IP6] = { 8, 2 },       [NFT_FIELD_PROTO] = { 12, 2 },
    [NFT_FIELD_PORT] = { 13, 2 },     [NFT_FIELD_MARK] = { 19, 1 },
    [NFT_FIELD_PRIORITY] = { 23, 1 }, [NFT_FIELD_VERDICT] = { NFT_DATA_VERDICT, 0 },
    [NFT_FIELD_CLASS] = { 23, 1 },    [NFT_FIELD_ETHER] = { 9, 2 },
};
#define TYPE_BITS 6 /* of each type in a concatenation */

static uint32_t type_of(const enum nft_field *fields, size_t max)
{
    uint32_t type = 0;
    for (size_t i = 0; i < max && fields[i]; i++)
        type = type << TYPE_BITS | datatype[fields[i]].type;
    return type;
}

static uint32_t byteorder_of(const enum nft_field *fields)
{
    return fields[1] ? 0 : datatype[fields[0]].byteorder;
}

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

/* ---- what is wanted, as libnftnl has it ---- */

static struct nftnl_table *build_table(const struct nft_table *t)
{
    struct nftnl_table *x = must(nftnl_table_alloc());
    struct nftnl_udata_buf *u = must(nftnl_udata_buf_alloc(NFT_USERDATA_MAXLEN));
    nftnl_table_set_u32(x, NFTNL_TABLE_FAMILY, NFPROTO_INET);
    nftnl_table_set_str(x, NFTNL_TABLE_NAME, t->name);
    nftnl_udata_put_strz(u, NFTNL_UDATA_TABLE_COMMENT, t->comment);
    nftnl_table_set_data(x, NFTNL_TABLE_USERDATA, nftnl_udata_buf_data(u), nftnl_udata_buf_len(u));
    nftnl_udata_buf_free(u);
    return x;
}

static struct nftnl_set *build_set(const struct nft_table *t, enum nft_set set)
{
    const struct nft_set_def *def = &t->sets[set];
    bool map = def->data[0], concat = def->interval && def->key[1];
    struct nftnl_set *x = must(nftnl_set_alloc());
    nftnl_set_set_u32(x, NFTNL_SET_FAMILY, NFPROTO_INET);
    nftnl_set_set_str(x, NFTNL_SET_TABLE, t->name);
    nftnl_set_set_str(x, NFTNL_SET_NAME, def->name);
    nftnl_set_set_u32(x, NFTNL_SET_ID, (uint32_t)set + 1);
    nftnl_set_set_u32(x, NFTNL_SET_FLAGS,
                      (map ? NFT_SET_MAP : 0u) | (def->interval ? NFT_SET_INTERVAL : 0u) |
                          (concat ? NFT_SET_CONCAT : 0u) |
                          (def->dynamic ? NFT_SET_EVAL | NFT_SET_TIMEOUT : 0u));
    nftnl_set_set_u32(x, NFTNL_SET_KEY_TYPE, type_of(def->key, NFT_FIELDS_MAX));
    nftnl_set_set_u32(x, NFTNL_SET_KEY_LEN, (uint32_t)nft_set_klen(set));
    if (map) {
        nftnl_set_set_u32(x, NFTNL_SET_DATA_TYPE, type_of(def->data, 2));
        nftnl_set_set_u32(x, NFTNL_SET_DATA_LEN, (uint32_t)nft_set_dlen(set));
    }
    if (def->size)
        nftnl_set_set_u32(x, NFTNL_SET_DESC_SIZE, def->size);
    if (concat) {
        /* Real sizes; only a set with intervals may say them: with them a hash is refused. */
        uint8_t len[NFT_FIELDS_MAX] = { 0 };
        uint32_t n = 0;
        for (; n < NFT_FIELDS_MAX && def->key[n]; n++)
            len[n] = def->key[n] == NFT_FIELD_PROTO  ? 1
                     : def->key[n] == NFT_FIELD_PORT ? 2
                                                     : (uint8_t)nft_field_size(def->key[n]);
        nftnl_set_set_data(x, NFTNL_SET_DESC_CONCAT, len, n);
    }
    if (def->counter)
        nftnl_set_add_expr(x, must(nftnl_expr_alloc("counter")));
    struct nftnl_udata_buf *u = must(nftnl_udata_buf_alloc(NFT_USERDATA_MAXLEN));
    nftnl_udata_put_u32(u, NFTNL_UDATA_SET_KEYBYTEORDER, byteorder_of(def->key));
    if (map)
        nftnl_udata_put_u32(u, NFTNL_UDATA_SET_DATABYTEORDER, byteorder_of(def->data));
    nftnl_set_set_data(x, NFTNL_SET_USERDATA, nftnl_udata_buf_data(u), nftnl_udata_buf_len(u));
    nftnl_udata_buf_free(u);
    return x;
}

static uint32_t hook_number(const char *hook)
{
    static const char *const names[] = {
        [NF_INET_PRE_ROUTING] = "prerouting",   [NF_INET_LOCAL_IN] = "input",
        [NF_INET_FORWARD] = "forward",          [NF_INET_LOCAL_OUT] = "output",
        [NF_INET_POST_ROUTING] = "postrouting",
    };
    uint32_t n = 0;
    while (strcmp(names[n], hook))
        n++;
    return n;
}

static struct nftnl_chain *build_chain(const struct nft_table *t, const struct nft_chain *c)
{
    struct nftnl_chain *x = must(nftnl_chain_alloc());
    nftnl_chain_set_u32(x, NFTNL_CHAIN_FAMILY, NFPROTO_INET);
    nftnl_chain_set_str(x, NFTNL_CHAIN_TABLE, t->name);
    nftnl_chain_set_str(x, NFTNL_CHAIN_NAME, c->name);
    if (c->type) {
        nftnl_chain_set_str(x, NFTNL_CHAIN_TYPE, c->type);
        nftnl_chain_set_u32(x, NFTNL_CHAIN_HOOKNUM, hook_number(c->hook));
        nftnl_chain_set_s32(x, NFTNL_CHAIN_PRIO, c->priority);
        nftnl_chain_set_u32(x, NFTNL_CHAIN_POLICY, NF_ACCEPT);
    }
    return x;
}

static void put_table(struct nl_buf *b, struct nl_port *port, const struct nft_table *t,
                      uint16_t type)
{
    struct nftnl_table *x = build_table(t);
    nftnl_table_nlmsg_build_payload(
        nft_msg(b, port, type, type == NFT_MSG_NEWTABLE ? NLM_F_CREATE : 0), x);
    nftnl_table_free(x);
}

void nft_layout_put(struct nl_buf *b, struct nl_port *port, const struct nft_table *t)
{
    /* Deleting what is not there would fail the batch, so it is made to be there. */
    put_table(b, port, t, NFT_MSG_NEWTABLE);
    put_table(b, port, t, NFT_MSG_DELTABLE);
    put_table(b, port, t, NFT_MSG_NEWTABLE);
    for (int i = 0; i < NFT_SET_COUNT; i++) {
        if (!nft_table_has(t, i))
            continue;
        struct nftnl_set *x = build_set(t, (enum nft_set)i);
        nftnl_set_nlmsg_build_payload(nft_msg(b, port, NFT_MSG_NEWSET, NLM_F_CREATE), x);
        nftnl_set_free(x);
    }
    for (size_t i = 0; i < t->n_chains; i++) {
        struct nftnl_chain *x = build_chain(t, t->chains[i]);
        nftnl_chain_nlmsg_build_payload(nft_msg(b, port, NFT_MSG_NEWCHAIN, NLM_F_CREATE), x);
        nftnl_chain_free(x);
    }
    for (size_t i = 0; i < t->n_chains; i++)
        for (size_t j = 0; j < t->chains[i]->n; j++) {
            struct nftnl_rule *x = nft_rule_build(t, t->chains[i]->name, &t->chains[i]->rules[j]);
            nftnl_rule_nlmsg_build_payload(
                nft_msg(b, port, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND), x);
            nftnl_rule_free(x);
        }
}

/* ---- what is there ---- */

struct found_class {
    struct nft_class class;
    struct buf rules;
};

struct reading {
    const struct nft_table *t;
    bool exists;
    uint32_t use;                 /* sets, chains and other objects, as the kernel counts */
    size_t sets, chains, n_rules; /* of the wanted names */
    size_t *count;                /* the one the current dump counts in */
    struct buf *rules;            /* text of each chain's rules */
    VEC(struct found_class) classes;
    struct buf *why; /* the first difference */
};

static void differs(struct reading *r, const char *what, const char *name)
{
    if (!r->why->n)
        buf_printf(r->why, "%s%s%s", what, name ? " " : "", name ? name : "");
}

static int read_table(const struct nlmsghdr *m, void *user)
{
    struct reading *r = user;
    struct nftnl_table *x = must(nftnl_table_alloc());
    int ret = nftnl_table_nlmsg_parse(m, x) < 0 ? -EBADMSG : 0;
    if (!ret) {
        r->exists = true;
        r->use = nftnl_table_get_u32(x, NFTNL_TABLE_USE);
        if (nftnl_table_get_u32(x, NFTNL_TABLE_FLAGS))
            differs(r, "flags of the table", NULL);
    }
    nftnl_table_free(x);
    return ret;
}

static bool same_u32(const struct nftnl_set *a, const struct nftnl_set *b, uint16_t attr)
{
    bool has = nftnl_set_is_set(a, attr);
    return has == nftnl_set_is_set(b, attr) &&
           (!has || nftnl_set_get_u32(a, attr) == nftnl_set_get_u32(b, attr));
}

static int count_counter(struct nftnl_expr *e, void *user)
{
    *(int *)user += strcmp(nftnl_expr_get_str(e, NFTNL_EXPR_NAME), "counter") ? 100 : 1;
    return 0;
}

static bool same_set(const struct nftnl_set *want, const struct nftnl_set *have)
{
    static const uint16_t attrs[] = { NFTNL_SET_KEY_TYPE, NFTNL_SET_KEY_LEN,   NFTNL_SET_DATA_TYPE,
                                      NFTNL_SET_DATA_LEN, NFTNL_SET_DESC_SIZE, NFTNL_SET_POLICY };
    /* The kernel leaves out flags of zero. */
    bool same =
        nftnl_set_get_u32(want, NFTNL_SET_FLAGS) == nftnl_set_get_u32(have, NFTNL_SET_FLAGS);
    for (size_t i = 0; i < sizeof(attrs) / sizeof(attrs[0]); i++)
        same &= same_u32(want, have, attrs[i]);
    uint32_t n = 0, m = 0;
    const void *p = nftnl_set_get_data(want, NFTNL_SET_DESC_CONCAT, &n);
    const void *q = nftnl_set_get_data(have, NFTNL_SET_DESC_CONCAT, &m);
    same &= !p == !q && (!p || (n == m && !memcmp(p, q, n)));
    int counters[2] = { 0, 0 };
    nftnl_set_expr_foreach(want, count_counter, &counters[0]);
    nftnl_set_expr_foreach(have, count_counter, &counters[1]);
    return same && counters[0] == counters[1];
}

static int read_set(const struct nlmsghdr *m, void *user)
{
    struct reading *r = user;
    struct nftnl_set *x = must(nftnl_set_alloc());
    int ret =
        nftnl_set_nlmsg_parse(m, x) < 0 || !nftnl_set_get_str(x, NFTNL_SET_NAME) ? -EBADMSG : 0;
    if (!ret) {
        const char *name = nftnl_set_get_str(x, NFTNL_SET_NAME);
        int i = 0;
        while (i < NFT_SET_COUNT && strcmp(r->t->sets[i].name, name))
            i++;
        if (i < NFT_SET_COUNT && nft_table_has(r->t, i)) {
            struct nftnl_set *want = build_set(r->t, (enum nft_set)i);
            if (!same_set(want, x))
                differs(r, "set", name);
            nftnl_set_free(want);
            r->sets++;
        } else {
            differs(r, "set", name);
        }
    }
    nftnl_set_free(x);
    return ret;
}

static size_t chain_index(const struct nft_table *t, const char *name)
{
    size_t i = 0;
    while (i < t->n_chains && (!name || strcmp(t->chains[i]->name, name)))
        i++;
    return i;
}

static bool same_chain(const struct nft_chain *want, const struct nftnl_chain *have)
{
    const char *type = nftnl_chain_get_str(have, NFTNL_CHAIN_TYPE);
    if (!want->type)
        return !type && !nftnl_chain_is_set(have, NFTNL_CHAIN_HOOKNUM);
    return type && !strcmp(want->type, type) &&
           nftnl_chain_get_u32(have, NFTNL_CHAIN_HOOKNUM) == hook_number(want->hook) &&
           nftnl_chain_get_s32(have, NFTNL_CHAIN_PRIO) == want->priority &&
           nftnl_chain_get_u32(have, NFTNL_CHAIN_POLICY) == NF_ACCEPT;
}

static int read_chain(const struct nlmsghdr *m, void *user)
{
    struct reading *r = user;
    struct nftnl_chain *x = must(nftnl_chain_alloc());
    int ret = nftnl_chain_nlmsg_parse(m, x) < 0 ? -EBADMSG : 0;
    const char *table = ret ? NULL : nftnl_chain_get_str(x, NFTNL_CHAIN_TABLE);
    /* The kernel dumps the chains of every table. */
    if (table && !strcmp(table, r->t->name)) {
        const char *name = nftnl_chain_get_str(x, NFTNL_CHAIN_NAME);
        static const struct nft_chain no_base = { 0 };
        struct found_class found = { 0 };
        size_t i = chain_index(r->t, name);
        bool is_class = i == r->t->n_chains && nft_table_has(r->t, NFT_SERVICE4) && name &&
                        nft_class_parse(name, &found.class);
        if ((i == r->t->n_chains && !is_class) ||
            !same_chain(is_class ? &no_base : r->t->chains[i], x))
            differs(r, "chain", name);
        else if (is_class)
            vec_push(&r->classes, found);
        else
            r->chains++;
    }
    nftnl_chain_free(x);
    return ret;
}

static struct found_class *class_called(struct reading *r, const char *name)
{
    struct nft_class c;
    if (!name || !nft_class_parse(name, &c))
        return NULL;
    for (size_t i = 0; i < r->classes.n; i++)
        if (!memcmp(&r->classes.v[i].class, &c, sizeof(c)))
            return &r->classes.v[i];
    return NULL;
}

static int read_rule(const struct nlmsghdr *m, void *user)
{
    struct reading *r = user;
    struct nftnl_rule *x = must(nftnl_rule_alloc());
    int ret = nftnl_rule_nlmsg_parse(m, x) < 0 ? -EBADMSG : 0;
    if (!ret) {
        const char *name = nftnl_rule_get_str(x, NFTNL_RULE_CHAIN);
        size_t i = chain_index(r->t, name);
        struct found_class *class = i == r->t->n_chains ? class_called(r, name) : NULL;
        if (class)
            nft_rule_print(&class->rules, x);
        else if (i < r->t->n_chains)
            nft_rule_print(&r->rules[i], x);
        r->n_rules++;
    }
    nftnl_rule_free(x);
    return ret;
}

/* A difference seen before a restart stays: then the generation has moved as well, and the
 * table is read again before anything is sent. */
static void restart(void *user)
{
    struct reading *r = user;
    *r->count = 0;
    for (size_t i = 0; i < r->t->n_chains; i++)
        buf_clear(&r->rules[i]);
    for (size_t i = 0; i < r->classes.n; i++)
        buf_clear(&r->classes.v[i].rules);
    if (r->count == &r->chains)
        r->classes.n = 0;
}

static bool has_rules(const struct nft_table *t, const struct nft_chain *c, const struct buf *rules)
{
    struct buf want = { 0 };
    for (size_t j = 0; j < c->n; j++) {
        struct nftnl_rule *x = nft_rule_build(t, c->name, &c->rules[j]);
        nft_rule_print(&want, x);
        nftnl_rule_free(x);
    }
    bool same = !strcmp(buf_str(&want), buf_str(rules));
    buf_done(&want);
    return same;
}

static void compare_rules(struct reading *r, struct nft_classes *classes)
{
    for (size_t i = 0; i < r->t->n_chains; i++)
        if (!has_rules(r->t, r->t->chains[i], &r->rules[i]))
            differs(r, "rules of chain", r->t->chains[i]->name);
    for (size_t i = 0; i < r->classes.n; i++) {
        const struct found_class *f = &r->classes.v[i];
        struct nft_class_chain c;
        nft_class_chain(&f->class, &c);
        nft_classes_found(classes, &f->class, !has_rules(r->t, &c.chain, &f->rules));
    }
}

/* Each class has one number, and nothing else has one. */
static int read_numbers(struct reading *r, struct nl_port *port, struct nft_classes *classes,
                        struct err *err)
{
    struct arena mem = { 0 };
    struct nft_ops ops = { 0 };
    int ret = nft_elem_read_set(port, r->t, NFT_CLASSES, NULL, &mem, &ops, err);
    bool right = nft_classes_take_numbers(classes, &ops);
    if (!ret && !right)
        differs(r, "elements of map", r->t->sets[NFT_CLASSES].name);
    vec_done(&ops);
    arena_done(&mem);
    return ret;
}

static int dump(struct reading *r, struct nl_port *port, uint16_t type, uint16_t table_attr,
                size_t *count, int (*cb)(const struct nlmsghdr *m, void *user), struct err *err)
{
    struct nl_buf b = { 0 };
    struct nlmsghdr *m = nft_msg(&b, port, type, 0);
    r->count = count;
    if (table_attr)
        mnl_attr_put_strz(m, table_attr, r->t->name);
    int ret = nl_dump(port, m, cb, restart, r, err);
    nl_buf_done(&b);
    return ret;
}

int nft_layout_read(struct nl_port *port, const struct nft_table *t, enum nft_layout *ret,
                    struct nft_classes *classes, struct buf *why, struct err *err)
{
    struct reading r = { .t = t, .why = why };
    struct nl_buf b = { 0 };
    struct nlmsghdr *m = nft_msg(&b, port, NFT_MSG_GETTABLE, 0);
    mnl_attr_put_strz(m, NFTA_TABLE_NAME, t->name);
    int res = nl_get(port, m, read_table, &r, err);
    nl_buf_done(&b);
    if (res == -ENOENT || (!res && !r.exists)) {
        *ret = NFT_LAYOUT_ABSENT;
        return 0;
    }
    r.rules = xcalloc(t->n_chains, sizeof(*r.rules));
    if (!res)
        res = dump(&r, port, NFT_MSG_GETSET, NFTA_SET_TABLE, &r.sets, read_set, err);
    if (!res)
        res = dump(&r, port, NFT_MSG_GETCHAIN, 0, &r.chains, read_chain, err);
    if (!res)
        res = dump(&r, port, NFT_MSG_GETRULE, NFTA_RULE_TABLE, &r.n_rules, read_rule, err);
    if (res) {
        err_prefix(err, "cannot read table inet %s", t->name);
    } else {
        compare_rules(&r, classes);
        size_t sets = (size_t)__builtin_popcountll(t->holds);
        if (r.sets != sets || r.chains != t->n_chains || r.use != sets + r.chains + r.classes.n)
            differs(&r, "number of sets, chains and objects", NULL);
        if (!why->n && nft_table_has(t, NFT_CLASSES))
            res = read_numbers(&r, port, classes, err);
        *ret = why->n ? NFT_LAYOUT_OTHER : NFT_LAYOUT_WANTED;
    }
    for (size_t i = 0; i < t->n_chains; i++)
        buf_done(&r.rules[i]);
    for (size_t i = 0; i < r.classes.n; i++)
        buf_done(&r.classes.v[i].rules);
    vec_done(&r.classes);
    free(r.rules);
    return res;
}

int nft_is_another(struct nl_port *port, const struct nft_table *table, bool *ret, struct err *err)
{
    struct nft_classes classes = { 0 };
    struct buf why = { 0 };
    enum nft_layout layout;
    int r = nft_layout_read(port, table, &layout, &classes, &why, err);
    if (!r)
        *ret = layout == NFT_LAYOUT_OTHER;
    buf_done(&why);
    vec_done(&classes);
    return r;
}

/* ---- the end of it ---- */

int nft_cleanup(struct nl_port *port, bool dry_run, bool *ret_existed, struct err *err)
{
    return nft_table_delete(port, NFPROTO_INET, PORTOLAN_NFT_TABLE, dry_run, ret_existed, err);
}
