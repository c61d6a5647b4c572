/* Elements straight with libmnl: through libnftnl 110,000 of them take twice the time and five
 * times the memory. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include "kernel/nft_impl.h"
#include "netlink/nl_attr.h"

/* The list is one attribute, whose length has 16 bits. */
#define LIST_MAX 60000u

static void put_data(struct nlmsghdr *m, uint16_t type, const void *p, size_t n)
{
    struct nlattr *nest = mnl_attr_nest_start(m, type);
    mnl_attr_put(m, NFTA_DATA_VALUE, n, p);
    mnl_attr_nest_end(m, nest);
}

static void put_verdict(struct nlmsghdr *m, const struct nft_class *c)
{
    char name[NFT_CLASS_NAME_MAX];
    struct nlattr *data = mnl_attr_nest_start(m, NFTA_SET_ELEM_DATA);
    struct nlattr *verdict = mnl_attr_nest_start(m, NFTA_DATA_VERDICT);
    mnl_attr_put_u32(m, NFTA_VERDICT_CODE, htonl((uint32_t)NFT_GOTO));
    mnl_attr_put_strz(m, NFTA_VERDICT_CHAIN, nft_class_name(c, name));
    mnl_attr_nest_end(m, verdict);
    mnl_attr_nest_end(m, data);
}

static void put_elem_data(struct nlmsghdr *m, const struct nft_elem *e,
                          const struct nft_classes *classes)
{
    struct nft_class class;
    if (!nft_elem_class(e, &class)) {
        put_data(m, NFTA_SET_ELEM_DATA, e->b + e->klen + e->elen, e->dlen);
    } else if (nft_set_defs[e->set].data[0] == NFT_FIELD_VERDICT) {
        put_verdict(m, &class);
    } else {
        uint32_t number = nft_class_number(classes, &class);
        put_data(m, NFTA_SET_ELEM_DATA, &number, sizeof(number));
    }
}

static bool is_interval_of_one_field(enum nft_set set)
{
    return nft_set_defs[set].interval && !nft_set_defs[set].key[1];
}

static void put_bound(struct nlmsghdr *m, const uint8_t *key, size_t n, uint32_t flags)
{
    struct nlattr *nest = mnl_attr_nest_start(m, NFTA_LIST_ELEM);
    put_data(m, NFTA_SET_ELEM_KEY, key, n);
    if (flags)
        mnl_attr_put_u32(m, NFTA_SET_ELEM_FLAGS, htonl(flags));
    mnl_attr_nest_end(m, nest);
}

/* Adds 1 to, or takes 1 from, a number in network order; false when it leaves the range. */
static bool step(uint8_t *key, size_t n, bool up)
{
    while (n-- > 0) {
        uint8_t was = key[n];
        key[n] = (uint8_t)(up ? was + 1 : was - 1);
        if (was != (up ? 0xff : 0))
            return true;
    }
    return false;
}

/* As the first address and the one after the last. */
static void put_interval(struct nlmsghdr *m, const struct nft_elem *e)
{
    uint8_t after[sizeof(struct ip)];
    memcpy(after, e->b + e->klen, e->elen);
    put_bound(m, e->b, e->klen, 0);
    if (step(after, e->elen, true))
        put_bound(m, after, e->elen, NFT_SET_ELEM_INTERVAL_END);
}

static void put_elem(struct nlmsghdr *m, const struct nft_elem *e,
                     const struct nft_classes *classes, bool data)
{
    if (e->elen && is_interval_of_one_field(e->set)) {
        put_interval(m, e);
        return;
    }
    struct nlattr *nest = mnl_attr_nest_start(m, NFTA_LIST_ELEM);
    if (e->klen)
        put_data(m, NFTA_SET_ELEM_KEY, e->b, e->klen);
    else
        mnl_attr_put_u32(m, NFTA_SET_ELEM_FLAGS, htonl(NFT_SET_ELEM_CATCHALL));
    if (e->elen)
        put_data(m, NFTA_SET_ELEM_KEY_END, e->b + e->klen, e->elen);
    if (data && e->dlen)
        put_elem_data(m, e, classes);
    mnl_attr_nest_end(m, nest);
}

void nft_elem_put(struct nl_buf *b, struct nl_port *port, const struct nft_table *t, uint16_t type,
                  const struct nft_classes *classes, struct nft_ops *ops, bool single)
{
    bool add = type == NFT_MSG_NEWSETELEM;
    for (size_t i = 0; i < ops->n;) {
        uint8_t set = ops->v[i].elem->set;
        struct nlmsghdr *m = nft_msg(b, port, type, add ? NLM_F_CREATE : 0);
        mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_TABLE, t->name);
        mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_SET, t->sets[set].name);
        struct nlattr *list = mnl_attr_nest_start(m, NFTA_SET_ELEM_LIST_ELEMENTS);
        uint32_t start = m->nlmsg_len;
        do {
            put_elem(m, ops->v[i].elem, classes, add);
            ops->v[i++].seq = m->nlmsg_seq;
        } while (!single && i < ops->n && ops->v[i].elem->set == set &&
                 m->nlmsg_len - start < LIST_MAX);
        mnl_attr_nest_end(m, list);
    }
}

void nft_elem_put_class(struct nl_buf *b, struct nl_port *port, const struct nft_table *t,
                        uint16_t type, const struct nft_class_ref *r)
{
    bool add = type == NFT_MSG_NEWSETELEM;
    struct nlmsghdr *m = nft_msg(b, port, type, add ? NLM_F_CREATE : 0);
    mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_TABLE, t->name);
    mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_SET, t->sets[NFT_CLASSES].name);
    struct nlattr *list = mnl_attr_nest_start(m, NFTA_SET_ELEM_LIST_ELEMENTS);
    struct nlattr *nest = mnl_attr_nest_start(m, NFTA_LIST_ELEM);
    put_data(m, NFTA_SET_ELEM_KEY, &r->number, sizeof(r->number));
    if (add)
        put_verdict(m, &r->class);
    mnl_attr_nest_end(m, nest);
    mnl_attr_nest_end(m, list);
}

/* NULL data: absent, which is right only for what is optional. */
static bool get_data(const struct nlattr *nest, const uint8_t **ret, size_t *ret_n)
{
    static const struct nl_policy policy[] = { [NFTA_DATA_VALUE] = NL_NEST };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    *ret = NULL;
    *ret_n = 0;
    if (!nest)
        return true;
    if (nl_parse_nested(nest, policy, NL_POLICY_COUNT(policy), tb) || !tb[NFTA_DATA_VALUE])
        return false;
    *ret = mnl_attr_get_payload(tb[NFTA_DATA_VALUE]);
    *ret_n = mnl_attr_get_payload_len(tb[NFTA_DATA_VALUE]);
    return true;
}

/* The class of the chain that is gone to; false: the element leads elsewhere. */
static bool get_class(const struct nlattr *nest, struct nft_class *ret)
{
    static const struct nl_policy data_policy[] = { [NFTA_DATA_VERDICT] = NL_NEST };
    static const struct nl_policy policy[] = {
        [NFTA_VERDICT_CODE] = NL_U32, [NFTA_VERDICT_CHAIN] = NL_STRING
    };
    const struct nlattr *data[NL_POLICY_COUNT(data_policy)], *v[NL_POLICY_COUNT(policy)];
    return nest && !nl_parse_nested(nest, data_policy, NL_POLICY_COUNT(data_policy), data) &&
           data[NFTA_DATA_VERDICT] &&
           !nl_parse_nested(data[NFTA_DATA_VERDICT], policy, NL_POLICY_COUNT(policy), v) &&
           v[NFTA_VERDICT_CODE] && v[NFTA_VERDICT_CHAIN] &&
           ntohl(mnl_attr_get_u32(v[NFTA_VERDICT_CODE])) == (uint32_t)NFT_GOTO &&
           nft_class_parse(mnl_attr_get_str(v[NFTA_VERDICT_CHAIN]), ret);
}

/* The class that the number of an element stands for; false: none that is known. */
static bool get_numbered(const struct nlattr *nest, const struct nft_classes *classes,
                         struct nft_class *ret)
{
    const uint8_t *data;
    size_t n;
    uint32_t number;
    if (!get_data(nest, &data, &n) || n != sizeof(number))
        return false;
    memcpy(&number, data, sizeof(number));
    const struct nft_class *class = classes ? nft_class_of(classes, number) : NULL;
    if (class)
        *ret = *class;
    return class;
}

static int parse_elem(const struct nlattr *nest, enum nft_set set,
                      const struct nft_classes *classes, struct arena *mem, struct nft_ops *ret)
{
    static const struct nl_policy policy[] = {
        [NFTA_SET_ELEM_KEY] = NL_NEST,
        [NFTA_SET_ELEM_DATA] = NL_NEST,
        [NFTA_SET_ELEM_KEY_END] = NL_NEST,
        [NFTA_SET_ELEM_FLAGS] = NL_U32,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    const uint8_t *key, *end, *data = NULL;
    size_t klen, elen, dlen = 0;
    struct nft_class class;
    if (nl_parse_nested(nest, policy, NL_POLICY_COUNT(policy), tb) ||
        !get_data(tb[NFTA_SET_ELEM_KEY], &key, &klen) ||
        !get_data(tb[NFTA_SET_ELEM_KEY_END], &end, &elen) || (klen && klen != nft_set_klen(set)) ||
        (elen && (elen != klen || is_interval_of_one_field(set))))
        return -EBADMSG;
    enum nft_field kind = nft_set_defs[set].data[0];
    if (kind == NFT_FIELD_VERDICT || kind == NFT_FIELD_CLASS) {
        if (kind == NFT_FIELD_VERDICT ? get_class(tb[NFTA_SET_ELEM_DATA], &class)
                                      : get_numbered(tb[NFTA_SET_ELEM_DATA], classes, &class)) {
            data = (const uint8_t *)&class;
            dlen = sizeof(class);
        }
    } else if (!get_data(tb[NFTA_SET_ELEM_DATA], &data, &dlen) || dlen != nft_set_dlen(set)) {
        return -EBADMSG;
    }
    if (is_interval_of_one_field(set) && tb[NFTA_SET_ELEM_FLAGS] &&
        ntohl(mnl_attr_get_u32(tb[NFTA_SET_ELEM_FLAGS])) & NFT_SET_ELEM_INTERVAL_END) {
        end = key;
        elen = klen;
        klen = 0;
    }
    struct nft_elem *e = arena_alloc(mem, sizeof(*e) + klen + elen + dlen);
    *e = (struct nft_elem){ (uint8_t)set, (uint8_t)klen, (uint8_t)elen, (uint8_t)dlen };
    if (klen)
        memcpy(e->b, key, klen);
    if (elen)
        memcpy(e->b + klen, end, elen);
    if (dlen)
        memcpy(e->b + klen + elen, data, dlen);
    vec_push(ret, (struct nft_op){ .elem = e });
    return 0;
}

int nft_elem_parse(const struct nlmsghdr *m, enum nft_set set, const struct nft_classes *classes,
                   struct arena *mem, struct nft_ops *ret)
{
    static const struct nl_policy policy[] = { [NFTA_SET_ELEM_LIST_ELEMENTS] = NL_NEST };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    if (nl_parse(m, sizeof(struct nfgenmsg), policy, NL_POLICY_COUNT(policy), tb))
        return -EBADMSG;
    if (!tb[NFTA_SET_ELEM_LIST_ELEMENTS])
        return 0;
    const struct nlattr *list = tb[NFTA_SET_ELEM_LIST_ELEMENTS], *e = mnl_attr_get_payload(list);
    const char *end = (const char *)e + mnl_attr_get_payload_len(list);
    for (; mnl_attr_ok(e, (int)(end - (const char *)e)); e = mnl_attr_next(e)) {
        int r = parse_elem(e, set, classes, mem, ret);
        if (r)
            return r;
    }
    return 0;
}

/* What nft_elem_parse() made of a bound: the first address has no key end, the end no key. */
static bool is_end(const struct nft_op *op)
{
    return op->elem->elen > op->elem->klen;
}

/* An interval may begin where one ends: the end is told first. */
static int by_bound(const void *x, const void *y)
{
    const struct nft_op *a = x, *b = y;
    size_t n = (size_t)a->elem->klen + a->elem->elen, m = (size_t)b->elem->klen + b->elem->elen;
    if (!n || !m) /* the element for all other keys, which is no bound */
        return (n > 0) - (m > 0);
    int c = memcmp(a->elem->b, b->elem->b, n < m ? n : m);
    return c ? c : is_end(b) - is_end(a);
}

void nft_elem_pair(enum nft_set set, struct arena *mem, struct nft_ops *ret, size_t start)
{
    size_t n = start, klen = nft_set_klen(set);
    if (!is_interval_of_one_field(set))
        return;
    if (ret->n - start > 1)
        qsort(ret->v + start, ret->n - start, sizeof(ret->v[0]), by_bound);
    for (size_t i = start; i < ret->n; i++) {
        const struct nft_elem *first = ret->v[i].elem;
        if (is_end(&ret->v[i]))
            continue; /* of nothing: nft puts one at address 0 */
        if (!first->klen || first->elen) {
            ret->v[n++].elem = first;
            continue;
        }
        struct nft_elem *e = arena_alloc(mem, sizeof(*e) + 2 * klen);
        *e = (struct nft_elem){ .set = (uint8_t)set, .klen = (uint8_t)klen, .elen = (uint8_t)klen };
        memcpy(e->b, first->b, klen);
        memset(e->b + klen, 0xff, klen);
        if (i + 1 < ret->n && is_end(&ret->v[i + 1])) {
            memcpy(e->b + klen, ret->v[i + 1].elem->b, klen);
            step(e->b + klen, klen, false);
        }
        ret->v[n++].elem = e;
    }
    ret->n = n;
}

struct reading {
    enum nft_set set;
    const struct nft_classes *classes;
    struct arena *mem;
    struct nft_ops *ret;
    size_t start;
};

static int read_elems(const struct nlmsghdr *m, void *user)
{
    struct reading *r = user;
    return nft_elem_parse(m, r->set, r->classes, r->mem, r->ret);
}

static void restart(void *user)
{
    struct reading *r = user;
    r->ret->n = r->start;
}

int nft_elem_read_set(struct nl_port *port, const struct nft_table *t, enum nft_set set,
                      const struct nft_classes *classes, struct arena *mem, struct nft_ops *ret,
                      struct err *err)
{
    struct nl_buf b = { 0 };
    struct reading reading = { set, classes, mem, ret, ret->n };
    struct nlmsghdr *m = nft_msg(&b, port, NFT_MSG_GETSETELEM, 0);
    mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_TABLE, t->name);
    mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_SET, t->sets[set].name);
    int r = nl_dump(port, m, read_elems, restart, &reading, err);
    nft_elem_pair(set, mem, ret, reading.start);
    if (r)
        err_prefix(err, "cannot read set %s of table inet %s", t->sets[set].name, t->name);
    nl_buf_done(&b);
    return r;
}

int nft_elem_read(struct nl_port *port, const struct nft_table *t,
                  const struct nft_classes *classes, struct arena *mem, struct nft_ops *ret,
                  struct err *err)
{
    int r = 0;
    for (int i = 0; i < NFT_SET_COUNT && !r; i++)
        if (nft_table_has(t, i) && !t->sets[i].dynamic && i != NFT_CLASSES)
            r = nft_elem_read_set(port, t, (enum nft_set)i, classes, mem, ret, err);
    nft_ops_sort(ret);
    return r;
}
