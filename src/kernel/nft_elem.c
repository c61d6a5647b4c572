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

static void put_elem(struct nlmsghdr *m, const struct nft_elem *e, bool data)
{
    struct nlattr *nest = mnl_attr_nest_start(m, NFTA_LIST_ELEM);
    if (e->klen)
        put_data(m, NFTA_SET_ELEM_KEY, e->b, e->klen);
    else
        mnl_attr_put_u32(m, NFTA_SET_ELEM_FLAGS, htonl(NFT_SET_ELEM_CATCHALL));
    if (e->elen)
        put_data(m, NFTA_SET_ELEM_KEY_END, e->b + e->klen, e->elen);
    if (e->dlen && data)
        put_data(m, NFTA_SET_ELEM_DATA, e->b + e->klen + e->elen, e->dlen);
    mnl_attr_nest_end(m, nest);
}

void nft_elem_put(struct nl_buf *b, struct nl_port *port, const struct nft_table *t, uint16_t type,
                  struct nft_ops *ops, bool single)
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
            put_elem(m, ops->v[i].elem, add);
            ops->v[i++].seq = m->nlmsg_seq;
        } while (!single && i < ops->n && ops->v[i].elem->set == set &&
                 m->nlmsg_len - start < LIST_MAX);
        mnl_attr_nest_end(m, list);
    }
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

static int parse_elem(const struct nlattr *nest, enum nft_set set, struct arena *mem,
                      struct nft_ops *ret)
{
    static const struct nl_policy policy[] = {
        [NFTA_SET_ELEM_KEY] = NL_NEST,
        [NFTA_SET_ELEM_DATA] = NL_NEST,
        [NFTA_SET_ELEM_KEY_END] = NL_NEST,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    const uint8_t *key, *end, *data;
    size_t klen, elen, dlen;
    if (nl_parse_nested(nest, policy, NL_POLICY_COUNT(policy), tb) ||
        !get_data(tb[NFTA_SET_ELEM_KEY], &key, &klen) ||
        !get_data(tb[NFTA_SET_ELEM_KEY_END], &end, &elen) ||
        !get_data(tb[NFTA_SET_ELEM_DATA], &data, &dlen) || (klen && klen != nft_set_klen(set)) ||
        (elen && elen != klen) || dlen != nft_set_dlen(set))
        return -EBADMSG;
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

int nft_elem_parse(const struct nlmsghdr *m, enum nft_set set, struct arena *mem,
                   struct nft_ops *ret)
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
        int r = parse_elem(e, set, mem, ret);
        if (r)
            return r;
    }
    return 0;
}

struct reading {
    enum nft_set set;
    struct arena *mem;
    struct nft_ops *ret;
    size_t start;
};

static int read_elems(const struct nlmsghdr *m, void *user)
{
    struct reading *r = user;
    return nft_elem_parse(m, r->set, r->mem, r->ret);
}

static void restart(void *user)
{
    struct reading *r = user;
    r->ret->n = r->start;
}

int nft_elem_read(struct nl_port *port, const struct nft_table *t, struct arena *mem,
                  struct nft_ops *ret, struct err *err)
{
    struct nl_buf b = { 0 };
    int r = 0;
    for (int i = 0; i < NFT_SET_COUNT && !r; i++) {
        if (!nft_table_has(t, i))
            continue;
        struct reading reading = { (enum nft_set)i, mem, ret, ret->n };
        nl_buf_clear(&b);
        struct nlmsghdr *m = nft_msg(&b, port, NFT_MSG_GETSETELEM, 0);
        mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_TABLE, t->name);
        mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_SET, t->sets[i].name);
        r = nl_dump(port, m, read_elems, restart, &reading, err);
        if (r)
            err_prefix(err, "cannot read set %s of table inet %s", t->sets[i].name, t->name);
    }
    nl_buf_done(&b);
    nft_ops_sort(ret);
    return r;
}
