#include "model/nft_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "model/names.h"

static const char *const expr_text[] = {
    [NFT_EXPR_IIFNAME] = "iifname",
    [NFT_EXPR_OIFNAME] = "oifname",
    [NFT_EXPR_DIALLED4] = "ct original ip daddr",
    [NFT_EXPR_DIALLED6] = "ct original ip6 daddr",
    [NFT_EXPR_L4PROTO] = "meta l4proto",
    [NFT_EXPR_DPORT] = "th dport",
    [NFT_EXPR_DIALLED_PORT] = "ct original proto-dst",
    [NFT_EXPR_SADDR4] = "ip saddr",
    [NFT_EXPR_SADDR6] = "ip6 saddr",
    [NFT_EXPR_DADDR4] = "ip daddr",
    [NFT_EXPR_DADDR6] = "ip6 daddr",
    [NFT_EXPR_PRIORITY] = "meta priority",
    [NFT_EXPR_ETHER_SADDR] = "ether saddr",
    [NFT_EXPR_CT_MARK_TOP] = "ct mark & 0xff000000",
};

/* Not `typeof`: nft 1.0.6 cannot add a rule to a table whose map was declared with `typeof`
 * and `: ip daddr . th dport`, so a listing could not be loaded over itself. */
static const char *const field_type[] = {
    [NFT_FIELD_IFNAME] = "ifname",     [NFT_FIELD_IP4] = "ipv4_addr",
    [NFT_FIELD_IP6] = "ipv6_addr",     [NFT_FIELD_PROTO] = "inet_proto",
    [NFT_FIELD_PORT] = "inet_service", [NFT_FIELD_MARK] = "mark",
    [NFT_FIELD_PRIORITY] = "classid",  [NFT_FIELD_VERDICT] = "verdict",
    [NFT_FIELD_CLASS] = "classid",     [NFT_FIELD_ETHER] = "ether_addr",
};

static void put_fields(struct buf *b, const enum nft_field *fields, size_t max, const uint8_t *p,
                       const uint8_t *end);
static void put_set(struct buf *b, const struct nft_set_def *s);
static void put_chain(struct buf *b, const struct nft_table *t, const struct nft_chain *c);
static void put_stmt(struct buf *b, const struct nft_table *t, const struct nft_stmt *s);

void nft_text_elem(struct buf *b, const struct nft_elem *e)
{
    const struct nft_set_def *def = &nft_set_defs[e->set];
    if (e->klen)
        put_fields(b, def->key, NFT_FIELDS_MAX, e->b, e->elen ? e->b + e->klen : NULL);
    else
        buf_puts(b, "*");
    if (e->dlen) {
        buf_puts(b, " : ");
        put_fields(b, def->data, 2, e->b + e->klen + e->elen, NULL);
    }
}

void nft_text_element(struct buf *b, const struct nft_table *t, const struct nft_elem *e)
{
    buf_printf(b, "element inet %s %s { ", t->name, t->sets[e->set].name);
    nft_text_elem(b, e);
    buf_puts(b, " }");
}

void nft_text_table(struct buf *b, const struct nft_table *t)
{
    buf_printf(b, "table inet %s {\n\tcomment \"%s\"\n", t->name, t->comment);
    for (int i = 0; i < NFT_SET_COUNT; i++)
        if (nft_table_has(t, i))
            put_set(b, &t->sets[i]);
    for (size_t i = 0; i < t->n_chains; i++)
        put_chain(b, t, t->chains[i]);
    buf_puts(b, "}\n");
}

static int by_class(const void *x, const void *y)
{
    return memcmp(x, y, sizeof(struct nft_class));
}

struct class_list { /* those that the elements need, sorted; those without a number first */
    VEC(struct nft_class) v;
    size_t unnumbered;
};

static void list_classes(struct class_list *ret, const struct nft_elem *const *elems, size_t n)
{
    struct nft_class c, next[2];
    for (size_t i = 0; i < n; i++) {
        if (!nft_elem_class(elems[i], &c))
            continue;
        vec_push(&ret->v, c);
        for (size_t j = nft_class_next(&c, next); j-- > 0;)
            vec_push(&ret->v, next[j]);
    }
    if (ret->v.n)
        qsort(ret->v.v, ret->v.n, sizeof(ret->v.v[0]), by_class);
    size_t unique = 0;
    for (size_t i = 0; i < ret->v.n; i++)
        if (!unique || by_class(&ret->v.v[unique - 1], &ret->v.v[i]))
            ret->v.v[unique++] = ret->v.v[i];
    ret->v.n = unique;
    while (ret->unnumbered < unique && !nft_class_is_numbered(&ret->v.v[ret->unnumbered]))
        ret->unnumbered++;
}

/* The chains, those that others go to first, and the numbers that lead to them. */
static void put_classes(struct buf *b, const struct nft_table *t, const struct class_list *l)
{
    struct nft_class next[2];
    char name[NFT_CLASS_NAME_MAX];
    for (int with_next = 0; with_next < 2 && l->v.n; with_next++) {
        buf_printf(b, "table inet %s {", t->name);
        for (size_t i = 0; i < l->v.n; i++) {
            struct nft_class_chain chain;
            if ((nft_class_next(&l->v.v[i], next) > 0) != with_next)
                continue;
            nft_class_chain(&l->v.v[i], &chain);
            put_chain(b, t, &chain.chain);
        }
        buf_puts(b, "}\n");
    }
    for (size_t i = l->unnumbered; i < l->v.n; i++)
        buf_printf(b, "add element inet %s %s { %zu : goto %s }\n", t->name,
                   t->sets[NFT_CLASSES].name, i - l->unnumbered + 1,
                   nft_class_name(&l->v.v[i], name));
}

/* As nft_text_element(), but with the number in the class's place. */
static void put_element(struct buf *b, const struct nft_table *t, const struct class_list *l,
                        const struct nft_elem *e)
{
    const struct nft_set_def *def = &t->sets[e->set];
    struct nft_class c;
    if (def->data[0] != NFT_FIELD_CLASS || !nft_elem_class(e, &c)) {
        nft_text_element(b, t, e);
        return;
    }
    const struct nft_class *found = bsearch(&c, l->v.v, l->v.n, sizeof(c), by_class);
    buf_printf(b, "element inet %s %s { ", t->name, def->name);
    put_fields(b, def->key, NFT_FIELDS_MAX, e->b, NULL);
    buf_printf(b, " : %zu }", (size_t)(found - l->v.v) - l->unnumbered + 1);
}

static int by_key(const void *x, const void *y)
{
    return nft_elem_cmp_key(*(const struct nft_elem *const *)x, *(const struct nft_elem *const *)y);
}

void nft_text_elements(struct buf *b, const struct nft_table *t, struct nft_group *const *groups,
                       size_t n_groups)
{
    VEC(const struct nft_elem *) all = { 0 };
    for (size_t i = 0; i < n_groups; i++)
        for (const struct nft_elem *e = NULL; (e = nft_group_next(groups[i], e));)
            vec_push(&all, e);
    if (all.n)
        qsort(all.v, all.n, sizeof(all.v[0]), by_key);
    struct class_list classes = { 0 };
    list_classes(&classes, all.v, all.n);
    put_classes(b, t, &classes);
    for (size_t i = 0; i < all.n; i++) {
        buf_puts(b, "add ");
        put_element(b, t, &classes, all.v[i]);
        buf_puts(b, "\n");
    }
    vec_done(&classes.v);
    vec_done(&all);
}

/* ---- elements ---- */

/* NULL: a number, which nft takes as well. */
static const char *proto_name(uint8_t proto)
{
    return proto == L4_TCP ? "tcp" : proto == L4_UDP ? "udp" : proto == L4_SCTP ? "sctp" : NULL;
}

static void put_field(struct buf *b, enum nft_field field, const uint8_t *p)
{
    char text[IP_TEXT_MAX];
    struct ip ip = { 0 };
    uint32_t number;
    struct nft_class class;
    char name[NFT_CLASS_NAME_MAX];
    switch (field) {
    case NFT_FIELD_NONE:
        break;
    case NFT_FIELD_IFNAME:
        buf_printf(b, "\"%.15s\"", (const char *)p);
        break;
    case NFT_FIELD_IP4:
    case NFT_FIELD_IP6:
        ip.family = field == NFT_FIELD_IP4 ? IP_V4 : IP_V6;
        memcpy(ip.bytes, p, ip_len(ip.family));
        buf_puts(b, ip_format(&ip, text));
        break;
    case NFT_FIELD_PROTO:
        if (proto_name(*p))
            buf_puts(b, proto_name(*p));
        else
            buf_printf(b, "%u", *p);
        break;
    case NFT_FIELD_PORT:
        buf_printf(b, "%u", (unsigned)(p[0] << 8 | p[1]));
        break;
    case NFT_FIELD_MARK:
        memcpy(&number, p, sizeof(number));
        buf_printf(b, "0x%08" PRIx32, number);
        break;
    case NFT_FIELD_PRIORITY:
        memcpy(&number, p, sizeof(number));
        buf_printf(b, "%" PRIu32, number);
        break;
    case NFT_FIELD_ETHER:
        buf_printf(b, "%02x:%02x:%02x:%02x:%02x:%02x", p[0], p[1], p[2], p[3], p[4], p[5]);
        break;
    case NFT_FIELD_VERDICT:
    case NFT_FIELD_CLASS:
        memcpy(&class, p, sizeof(class));
        buf_printf(b, "goto %s", nft_class_name(&class, name));
        break;
    }
}

static void put_fields(struct buf *b, const enum nft_field *fields, size_t max, const uint8_t *p,
                       const uint8_t *end)
{
    for (size_t i = 0; i < max && fields[i]; i++) {
        size_t n = nft_field_size(fields[i]);
        if (i)
            buf_puts(b, " . ");
        put_field(b, fields[i], p);
        if (end && memcmp(p, end, n)) {
            buf_puts(b, "-");
            put_field(b, fields[i], end);
        }
        p += n;
        end = end ? end + n : NULL;
    }
}

/* ---- sets ---- */

static void put_types(struct buf *b, const enum nft_field *fields, size_t max)
{
    for (size_t i = 0; i < max && fields[i]; i++)
        buf_printf(b, "%s%s", i ? " . " : "", field_type[fields[i]]);
}

static void put_set(struct buf *b, const struct nft_set_def *s)
{
    buf_printf(b, "\n\t%s %s {\n\t\ttype ", s->data[0] ? "map" : "set", s->name);
    put_types(b, s->key, NFT_FIELDS_MAX);
    if (s->data[0]) {
        buf_puts(b, " : ");
        put_types(b, s->data, 2);
    }
    buf_puts(b, "\n");
    if (s->size)
        buf_printf(b, "\t\tsize %" PRIu32 "\n", s->size);
    buf_printf(b, "%s%s%s\t}\n", s->interval ? "\t\tflags interval\n" : "",
               s->dynamic ? "\t\tflags dynamic,timeout\n" : "", s->counter ? "\t\tcounter\n" : "");
}

/* ---- rules ---- */

static void put_chain(struct buf *b, const struct nft_table *t, const struct nft_chain *c)
{
    buf_printf(b, "\n\tchain %s {\n", c->name);
    if (c->type)
        buf_printf(b, "\t\ttype %s hook %s priority %" PRId32 "; policy accept;\n", c->type,
                   c->hook, c->priority);
    for (size_t i = 0; i < c->n; i++) {
        for (size_t j = 0; j < c->rules[i].n; j++) {
            buf_puts(b, j ? " " : "\t\t");
            put_stmt(b, t, &c->rules[i].stmts[j]);
        }
        buf_puts(b, "\n");
    }
    buf_puts(b, "\t}\n");
}

static void put_key(struct buf *b, enum nft_key key)
{
    for (size_t i = 0; i < NFT_FIELDS_MAX && nft_keys[key][i]; i++)
        buf_printf(b, "%s%s", i ? " . " : "", expr_text[nft_keys[key][i]]);
}

/* "KEY<op>@SET" */
static void put_lookup(struct buf *b, const struct nft_table *t, const struct nft_stmt *s,
                       const char *op)
{
    put_key(b, s->key);
    buf_printf(b, "%s@%s", op, t->sets[s->set].name);
}

/* "update @SET { KEY timeout Ns : ip daddr }" */
static void put_dynset(struct buf *b, const struct nft_table *t, const struct nft_stmt *s)
{
    bool update = s->kind == NFT_STMT_UPDATE;
    buf_printf(b, "%s @%s { ", update ? "update" : "delete", t->sets[s->set].name);
    put_key(b, s->key);
    if (update)
        buf_printf(b, " timeout %" PRIu32 "s", s->n);
    buf_printf(b, " : %s daddr }", s->family == IP_V6 ? "ip6" : "ip");
}

/* As nft lists it: the bits of the value are kept and set. */
static void put_top(struct buf *b, const char *what, uint32_t n)
{
    uint32_t value = HOLDER_MARK(n);
    buf_printf(b, "%s set %s & 0x%08" PRIx32 " | 0x%08" PRIx32, what, what,
               ~HOLDER_MARK_MASK | value, value);
}

static void put_stmt(struct buf *b, const struct nft_table *t, const struct nft_stmt *s)
{
    const char *ip = s->family == IP_V6 ? "ip6" : "ip";
    uint32_t bit = t->masquerade_mark;
    switch (s->kind) {
    case NFT_STMT_CT_STATE_NEW:
        buf_puts(b, "ct state new");
        break;
    case NFT_STMT_CT_STATUS_DNAT:
        buf_puts(b, "ct status dnat");
        break;
    case NFT_STMT_CT_UNCONFIRMED:
        buf_puts(b, "ct status ! confirmed");
        break;
    case NFT_STMT_CT_UNASSURED:
        buf_puts(b, "ct status ! assured");
        break;
    case NFT_STMT_CT_REPLY:
        buf_puts(b, "ct direction reply");
        break;
    case NFT_STMT_L4PROTO:
        buf_printf(b, "meta l4proto %s", proto_name(s->proto));
        break;
    case NFT_STMT_TCP_SYN:
        buf_puts(b, "tcp flags & syn == syn");
        break;
    case NFT_STMT_IN:
        /* As nft lists it. */
        put_lookup(b, t, s, s->key == NFT_CT_MARK_TOP ? " == " : " ");
        break;
    case NFT_STMT_COUNTER:
        buf_puts(b, "counter");
        break;
    case NFT_STMT_JUMP:
        buf_printf(b, "jump %s", s->text);
        break;
    case NFT_STMT_GOTO:
        buf_printf(b, "goto %s", s->text);
        break;
    case NFT_STMT_RETURN:
        buf_puts(b, "return");
        break;
    case NFT_STMT_REJECT_RESET:
        buf_puts(b, "reject with tcp reset");
        break;
    case NFT_STMT_REJECT_PORT:
        buf_puts(b, "reject with icmpx port-unreachable");
        break;
    case NFT_STMT_SET_DADDR:
        buf_printf(b, "%s daddr set %s", ip, s->text);
        break;
    case NFT_STMT_DNAT:
        buf_printf(b, "dnat %s to ", ip);
        put_lookup(b, t, s, " map ");
        break;
    case NFT_STMT_SNAT_SADDR:
        buf_printf(b, "snat %s to %s saddr", ip, ip);
        break;
    case NFT_STMT_MARK:
        buf_puts(b, "meta mark set ");
        put_lookup(b, t, s, " map ");
        break;
    case NFT_STMT_MSS_TO_MTU:
        buf_puts(b, "tcp option maxseg size set rt mtu");
        break;
    case NFT_STMT_NOT_IN:
        put_lookup(b, t, s, " != ");
        break;
    case NFT_STMT_SADDR_LOCAL:
        buf_puts(b, "fib saddr type local");
        break;
    case NFT_STMT_DADDR_LOCAL:
        buf_puts(b, "fib daddr type local");
        break;
    case NFT_STMT_VMAP:
        put_lookup(b, t, s, " vmap ");
        break;
    case NFT_STMT_PRIORITY:
        buf_puts(b, "meta priority set ");
        put_lookup(b, t, s, " map ");
        break;
    case NFT_STMT_RANDOM:
        buf_printf(b, "meta priority set numgen random mod %" PRIu32, s->n);
        if (s->offset)
            buf_printf(b, " offset %" PRIu32, s->offset);
        break;
    case NFT_STMT_DADDR:
        buf_printf(b, "%s daddr set ", ip);
        put_lookup(b, t, s, " map ");
        break;
    case NFT_STMT_UPDATE:
    case NFT_STMT_DELETE:
        put_dynset(b, t, s);
        break;
    case NFT_STMT_IS_MARKED:
        buf_printf(b, "meta mark & 0x%08" PRIx32 " == 0x%08" PRIx32, bit, bit);
        break;
    case NFT_STMT_MARK_SET:
        buf_printf(b, "meta mark set meta mark | 0x%08" PRIx32, bit);
        break;
    case NFT_STMT_MARK_FLIP:
        buf_printf(b, "meta mark set meta mark ^ 0x%08" PRIx32, bit);
        break;
    case NFT_STMT_MASQUERADE:
        buf_puts(b, "masquerade fully-random");
        break;
    case NFT_STMT_DROP:
        buf_puts(b, "drop");
        break;
    case NFT_STMT_FROM_OVERLAY:
        buf_printf(b, "iifname \"%s\"", t->overlay);
        break;
    case NFT_STMT_NOT_FROM_OVERLAY:
        buf_printf(b, "iifname != \"%s\"", t->overlay);
        break;
    case NFT_STMT_CT_TOP_IS:
        buf_printf(b, "ct mark & 0xff000000 == 0x%08" PRIx32, HOLDER_MARK(s->n));
        break;
    case NFT_STMT_CT_TOP_SET:
        buf_puts(b, "ct mark & 0xff000000 != 0x00000000");
        break;
    case NFT_STMT_SET_DADDR_DIALLED:
        buf_printf(b, "%s daddr set ct original %s daddr", ip, ip);
        break;
    case NFT_STMT_CT_MARK_TOP:
        put_top(b, "ct mark", s->n);
        break;
    case NFT_STMT_MARK_TOP:
        put_top(b, "meta mark", s->n);
        break;
    }
}
