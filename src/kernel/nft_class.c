#include <libnftnl/chain.h>
#include <libnftnl/rule.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "kernel/nft_impl.h"

static size_t lower_bound(const struct nft_classes *c, const struct nft_class *class)
{
    return vec_lower_bound(c, e, memcmp(&e->class, class, sizeof(*class)) < 0);
}

static struct nft_class_ref *find(struct nft_classes *c, const struct nft_class *class)
{
    size_t at = lower_bound(c, class);
    if (at < c->n && !memcmp(&c->v[at].class, class, sizeof(*class)))
        return &c->v[at];
    struct nft_class_ref *r = vec_insert(c, at);
    memset(r, 0, sizeof(*r));
    r->class = *class;
    return r;
}

void nft_classes_found(struct nft_classes *c, const struct nft_class *class, bool wrong)
{
    struct nft_class_ref *r = find(c, class);
    r->exists = true;
    r->wrong = wrong;
}

void nft_classes_forget(struct nft_classes *c)
{
    for (size_t i = 0; i < c->n; i++)
        c->v[i] = (struct nft_class_ref){ .class = c->v[i].class, .number = c->v[i].number };
}

static bool take_number(struct nft_classes *c, const struct nft_elem *e)
{
    struct nft_class class;
    size_t before = c->n;
    if (!nft_elem_class(e, &class) || e->klen != sizeof(uint32_t))
        return false;
    struct nft_class_ref *r = find(c, &class);
    if (c->n != before || !r->exists || r->numbered || !nft_class_is_numbered(&class))
        return false;
    memcpy(&r->number, e->b, sizeof(r->number));
    r->numbered = r->number;
    return r->numbered;
}

bool nft_classes_take_numbers(struct nft_classes *c, const struct nft_ops *ops)
{
    struct nft_classes found = { 0 };
    bool right = true;
    nft_classes_copy(&found, c);
    for (size_t i = 0; i < ops->n; i++)
        right &= take_number(&found, ops->v[i].elem);
    for (size_t i = 0; i < found.n; i++)
        if (!found.v[i].numbered)
            found.v[i].number = 0; /* somebody may have given it to another */
    if (right)
        nft_classes_copy(c, &found);
    vec_done(&found);
    return right;
}

void nft_classes_number(struct nft_classes *c)
{
    uint32_t last = c->last;
    for (size_t i = 0; i < c->n; i++)
        if (c->v[i].number > last)
            last = c->v[i].number;
    for (size_t i = 0; i < c->n; i++)
        if (nft_class_is_due(&c->v[i]) && !c->v[i].number && nft_class_is_numbered(&c->v[i].class))
            c->v[i].number = ++last;
    c->last = last;
}

uint32_t nft_class_number(const struct nft_classes *c, const struct nft_class *class)
{
    size_t at = lower_bound(c, class);
    return at < c->n && !memcmp(&c->v[at].class, class, sizeof(*class)) ? c->v[at].number : 0;
}

const struct nft_class *nft_class_of(const struct nft_classes *c, uint32_t number)
{
    for (size_t i = 0; i < c->n; i++)
        if (number && c->v[i].number == number)
            return &c->v[i].class;
    return NULL;
}

void nft_classes_copy(struct nft_classes *to, const struct nft_classes *from)
{
    vec_reserve(to, from->n);
    if (from->n)
        memcpy(to->v, from->v, from->n * sizeof(from->v[0]));
    to->n = from->n;
    to->last = from->last;
}

void nft_classes_count(struct nft_classes *c, const struct nft_ops *ops, int by)
{
    struct nft_class class, next[2];
    for (size_t i = 0; i < ops->n; i++) {
        if (!nft_elem_class(ops->v[i].elem, &class))
            continue;
        find(c, &class)->refs += (uint32_t)by;
        for (size_t j = nft_class_next(&class, next); j-- > 0;)
            find(c, &next[j])->refs += (uint32_t)by;
    }
}

bool nft_class_is_due(const struct nft_class_ref *r)
{
    return r->refs &&
           (!r->exists || r->wrong || (nft_class_is_numbered(&r->class) && !r->numbered));
}

bool nft_class_is_left(const struct nft_class_ref *r)
{
    return !r->refs && r->exists;
}

bool nft_classes_any(const struct nft_classes *c, bool (*is)(const struct nft_class_ref *r))
{
    for (size_t i = 0; i < c->n; i++)
        if (is(&c->v[i]))
            return true;
    return false;
}

static void put_chain(struct nl_buf *b, struct nl_port *port, const struct nft_table *t,
                      uint16_t type, const char *name)
{
    bool create = type == NFT_MSG_NEWCHAIN;
    struct nlmsghdr *m = nft_msg(b, port, type, create ? NLM_F_CREATE : 0);
    mnl_attr_put_strz(m, NFTA_CHAIN_TABLE, t->name);
    mnl_attr_put_strz(m, NFTA_CHAIN_NAME, name);
}

static void put_rules(struct nl_buf *b, struct nl_port *port, const struct nft_table *t,
                      const struct nft_class_ref *r)
{
    struct nft_class_chain c;
    nft_class_chain(&r->class, &c);
    if (r->wrong) {
        struct nlmsghdr *m = nft_msg(b, port, NFT_MSG_DELRULE, 0);
        mnl_attr_put_strz(m, NFTA_RULE_TABLE, t->name);
        mnl_attr_put_strz(m, NFTA_RULE_CHAIN, c.name);
    }
    for (size_t i = 0; i < c.chain.n; i++) {
        struct nftnl_rule *x = nft_rule_build(t, c.name, &c.rules[i]);
        nftnl_rule_nlmsg_build_payload(
            nft_msg(b, port, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND), x);
        nftnl_rule_free(x);
    }
}

void nft_classes_put_due(struct nl_buf *b, struct nl_port *port, const struct nft_table *t,
                         const struct nft_classes *c)
{
    char name[NFT_CLASS_NAME_MAX];
    for (size_t i = 0; i < c->n; i++)
        if (nft_class_is_due(&c->v[i]) && !c->v[i].exists)
            put_chain(b, port, t, NFT_MSG_NEWCHAIN, nft_class_name(&c->v[i].class, name));
    for (size_t i = 0; i < c->n; i++)
        if (nft_class_is_due(&c->v[i]) && (!c->v[i].exists || c->v[i].wrong))
            put_rules(b, port, t, &c->v[i]);
    for (size_t i = 0; i < c->n; i++)
        if (nft_class_is_due(&c->v[i]) && c->v[i].number && !c->v[i].numbered)
            nft_elem_put_class(b, port, t, NFT_MSG_NEWSETELEM, &c->v[i]);
}

void nft_classes_put_left(struct nl_buf *b, struct nl_port *port, const struct nft_table *t,
                          const struct nft_classes *c)
{
    struct nft_class next[2];
    char name[NFT_CLASS_NAME_MAX];
    for (size_t i = 0; i < c->n; i++)
        if (nft_class_is_left(&c->v[i]) && c->v[i].numbered)
            nft_elem_put_class(b, port, t, NFT_MSG_DELSETELEM, &c->v[i]);
    /* A chain that others go to after these. */
    for (int last = 0; last < 2; last++)
        for (size_t i = 0; i < c->n; i++)
            if (nft_class_is_left(&c->v[i]) && (nft_class_next(&c->v[i].class, next) == 0) == last)
                put_chain(b, port, t, NFT_MSG_DELCHAIN, nft_class_name(&c->v[i].class, name));
}

static void made(struct nft_class_ref *r, uint32_t number)
{
    r->exists = true;
    r->wrong = false;
    r->number = number;
    r->numbered = number;
}

void nft_classes_learn(struct nft_classes *c, const struct nft_classes *from)
{
    for (size_t i = 0; i < from->n; i++)
        if (nft_class_is_due(&from->v[i]))
            made(find(c, &from->v[i].class), from->v[i].number);
    c->last = from->last;
}

void nft_classes_made(struct nft_classes *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (nft_class_is_due(&c->v[i]))
            made(&c->v[i], c->v[i].number);
}

void nft_classes_gone(struct nft_classes *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->v[i].refs)
            c->v[kept++] = c->v[i];
    c->n = kept;
}
