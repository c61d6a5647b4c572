#include "model/nft_rule.h"

#include <string.h>

/* Last. */
#include "model/nft_words.h"

/* clang-format off */
#define FLOW4 NFT_EXPR_DIALLED4, NFT_EXPR_L4PROTO, NFT_EXPR_DPORT
#define FLOW6 NFT_EXPR_DIALLED6, NFT_EXPR_L4PROTO, NFT_EXPR_DPORT
#define SERVICE4 NFT_EXPR_DADDR4, NFT_EXPR_L4PROTO, NFT_EXPR_DPORT
#define SERVICE6 NFT_EXPR_DADDR6, NFT_EXPR_L4PROTO, NFT_EXPR_DPORT
/* clang-format on */

const enum nft_expr nft_keys[NFT_KEY_COUNT][NFT_FIELDS_MAX] = {
    [NFT_OIFNAME] = { NFT_EXPR_OIFNAME },
    [NFT_DIALLED4] = { NFT_EXPR_DIALLED4 },
    [NFT_DIALLED6] = { NFT_EXPR_DIALLED6 },
    [NFT_IIF_DIALLED4] = { NFT_EXPR_IIFNAME, NFT_EXPR_DIALLED4 },
    [NFT_IIF_DIALLED6] = { NFT_EXPR_IIFNAME, NFT_EXPR_DIALLED6 },
    [NFT_FLOW4] = { FLOW4 },
    [NFT_FLOW6] = { FLOW6 },
    [NFT_DIALLED_FLOW4] = { NFT_EXPR_DIALLED4, NFT_EXPR_L4PROTO, NFT_EXPR_DIALLED_PORT },
    [NFT_DIALLED_FLOW6] = { NFT_EXPR_DIALLED6, NFT_EXPR_L4PROTO, NFT_EXPR_DIALLED_PORT },
    [NFT_SADDR4] = { NFT_EXPR_SADDR4 },
    [NFT_SADDR6] = { NFT_EXPR_SADDR6 },
    [NFT_DADDR4] = { NFT_EXPR_DADDR4 },
    [NFT_DADDR6] = { NFT_EXPR_DADDR6 },
    [NFT_SADDR_DADDR4] = { NFT_EXPR_SADDR4, NFT_EXPR_DADDR4 },
    [NFT_SADDR_DADDR6] = { NFT_EXPR_SADDR6, NFT_EXPR_DADDR6 },
    [NFT_PRIORITY] = { NFT_EXPR_PRIORITY },
    [NFT_SADDR_PRIORITY4] = { NFT_EXPR_SADDR4, NFT_EXPR_PRIORITY },
    [NFT_SADDR_PRIORITY6] = { NFT_EXPR_SADDR6, NFT_EXPR_PRIORITY },
    [NFT_SERVICE_KEY4] = { SERVICE4 },
    [NFT_SERVICE_KEY6] = { SERVICE6 },
    [NFT_SERVICE_SADDR4] = { SERVICE4, NFT_EXPR_SADDR4 },
    [NFT_SERVICE_SADDR6] = { SERVICE6, NFT_EXPR_SADDR6 },
    [NFT_SERVICE_PRIORITY4] = { SERVICE4, NFT_EXPR_PRIORITY },
    [NFT_SERVICE_PRIORITY6] = { SERVICE6, NFT_EXPR_PRIORITY },
    [NFT_FLOW_PRIORITY4] = { FLOW4, NFT_EXPR_PRIORITY },
    [NFT_FLOW_PRIORITY6] = { FLOW6, NFT_EXPR_PRIORITY },
    [NFT_FLOW_DADDR4] = { FLOW4, NFT_EXPR_DADDR4 },
    [NFT_FLOW_DADDR6] = { FLOW6, NFT_EXPR_DADDR6 },
    [NFT_ETHER_SADDR] = { NFT_EXPR_ETHER_SADDR },
    [NFT_CT_MARK_TOP] = { NFT_EXPR_CT_MARK_TOP },
};

bool nft_table_has(const struct nft_table *t, int set)
{
    return t->holds >> set & 1;
}

static uint8_t key_header(enum nft_key key)
{
    for (size_t i = 0; i < NFT_FIELDS_MAX; i++) {
        enum nft_expr e = nft_keys[key][i];
        if (e == NFT_EXPR_SADDR4 || e == NFT_EXPR_DADDR4)
            return IP_V4;
        if (e == NFT_EXPR_SADDR6 || e == NFT_EXPR_DADDR6)
            return IP_V6;
    }
    return 0;
}

uint8_t nft_stmt_header(const struct nft_stmt *s)
{
    switch (s->kind) {
    case NFT_STMT_SET_DADDR:
    case NFT_STMT_SNAT_SADDR:
    case NFT_STMT_SET_DADDR_DIALLED:
        return s->family;
    case NFT_STMT_IN:
    case NFT_STMT_NOT_IN:
    case NFT_STMT_DNAT:
    case NFT_STMT_MARK:
    case NFT_STMT_VMAP:
    case NFT_STMT_PRIORITY:
    case NFT_STMT_DADDR:
    case NFT_STMT_UPDATE:
    case NFT_STMT_DELETE:
        return key_header(s->key);
    case NFT_STMT_CT_STATE_NEW:
    case NFT_STMT_CT_STATUS_DNAT:
    case NFT_STMT_CT_UNCONFIRMED:
    case NFT_STMT_CT_UNASSURED:
    case NFT_STMT_CT_REPLY:
    case NFT_STMT_L4PROTO:
    case NFT_STMT_TCP_SYN:
    case NFT_STMT_COUNTER:
    case NFT_STMT_JUMP:
    case NFT_STMT_GOTO:
    case NFT_STMT_RETURN:
    case NFT_STMT_REJECT_RESET:
    case NFT_STMT_REJECT_PORT:
    case NFT_STMT_MSS_TO_MTU:
    case NFT_STMT_SADDR_LOCAL:
    case NFT_STMT_DADDR_LOCAL:
    case NFT_STMT_RANDOM:
    case NFT_STMT_IS_MARKED:
    case NFT_STMT_MARK_SET:
    case NFT_STMT_MARK_FLIP:
    case NFT_STMT_MASQUERADE:
    case NFT_STMT_DROP:
    case NFT_STMT_FROM_OVERLAY:
    case NFT_STMT_NOT_FROM_OVERLAY:
    case NFT_STMT_CT_TOP_IS:
    case NFT_STMT_CT_TOP_SET:
    case NFT_STMT_CT_MARK_TOP:
    case NFT_STMT_MARK_TOP:
        break;
    }
    return 0;
}

/* ---- the chain of a class ---- */

static void put_rule(struct nft_class_chain *r, const struct nft_stmt *stmts, size_t n)
{
    r->rules[r->chain.n++] = (struct nft_rule){ r->stmts + r->n_stmts, n };
    memcpy(r->stmts + r->n_stmts, stmts, n * sizeof(*stmts));
    r->n_stmts += n;
}
#define ADD(r, ...) put_rule((r), NFT_COUNTED(struct nft_stmt, __VA_ARGS__))

/* One of a pair of enumerators that stand next to each other, IPv4's first. */
#define TWIN(x) ((x) + six)

/* Where the client was sent before, it goes again, if that is still an endpoint. Its destination
 * is what tells: conntrack keeps what was dialled. */
static void put_affinity(const struct nft_class *c, unsigned six, struct nft_class_chain *r)
{
    ADD(r, PRIORITY(TWIN(NFT_SERVICE_KEY4), TWIN(NFT_AFFINITYID4)), COUNTER);
    ADD(r, DADDR(c->family, TWIN(NFT_SADDR_PRIORITY4), TWIN(NFT_AFFINITY4)), COUNTER);
    ADD(r, COUNTER,
        DNAT(c->family, TWIN(NFT_FLOW_DADDR4),
             c->offset ? TWIN(NFT_AFFINITYALL4) : TWIN(NFT_AFFINITYENDPOINT4)));
    /* An update in chain `remember-N` does not replace the data of an element. */
    ADD(r, COUNTER, DELETE(c->family, TWIN(NFT_SADDR_PRIORITY4), TWIN(NFT_AFFINITY4)));
}

static void put_pick(const struct nft_class *c, unsigned six, struct nft_class_chain *r)
{
    struct nft_class next[2];
    for (size_t i = nft_class_next(c, next); i-- > 0;)
        nft_class_name(&next[i], r->next[i]);
    if (c->n_all) {
        ADD(r, IN(TWIN(NFT_SADDR4), TWIN(NFT_PODRANGE4)), COUNTER, GOTO(r->next[0]));
        ADD(r, SADDR_LOCAL, COUNTER, GOTO(r->next[1]));
    }
    if (c->masquerade == NFT_MASQUERADE_OUTSIDE)
        ADD(r, NOT_IN(TWIN(NFT_SADDR4), TWIN(NFT_PODRANGE4)), COUNTER, MARK_SET);
    if (c->masquerade == NFT_MASQUERADE_ALWAYS)
        ADD(r, COUNTER, MARK_SET);
    if (c->timeout && c->n)
        put_affinity(c, six, r);
    if (c->n)
        ADD(r, RANDOM(c->n, c->offset ? NFT_INDEX_ALL : 0), COUNTER,
            DNAT(c->family, c->timeout ? TWIN(NFT_FLOW_PRIORITY4) : TWIN(NFT_SERVICE_PRIORITY4),
                 TWIN(NFT_ENDPOINT4)));
    ADD(r, COUNTER, DROP);
}

void nft_class_chain(const struct nft_class *c, struct nft_class_chain *ret)
{
    unsigned six = c->family == IP_V6;
    memset(ret, 0, sizeof(*ret));
    ret->chain = (struct nft_chain){ .name = ret->name, .rules = ret->rules };
    nft_class_name(c, ret->name);
    if (c->ranged)
        ADD(ret, NOT_IN(TWIN(NFT_SERVICE_SADDR4), TWIN(NFT_SOURCERANGE4)), COUNTER, DROP);
    switch ((enum nft_class_kind)c->kind) {
    case NFT_CLASS_PICK:
        put_pick(c, six, ret);
        break;
    case NFT_CLASS_REJECT:
        /* Not ICMP: a client whose connect() has not come back yet drops that unread, and over the
         * veth of a pod the answer comes as soon. */
        ADD(ret, L4PROTO(L4_TCP), COUNTER, REJECT_RESET);
        ADD(ret, COUNTER, REJECT_PORT);
        break;
    case NFT_CLASS_DROP:
        ADD(ret, COUNTER, DROP);
        break;
    case NFT_CLASS_REMEMBER:
        ADD(ret, COUNTER, UPDATE(IP_V4, NFT_SADDR_PRIORITY4, NFT_AFFINITY4, c->timeout));
        ADD(ret, COUNTER, UPDATE(IP_V6, NFT_SADDR_PRIORITY6, NFT_AFFINITY6, c->timeout));
        break;
    case NFT_CLASS_HOLDER:
        ADD(ret, COUNTER, CT_MARK_TOP(c->n));
        break;
    case NFT_CLASS_REPLY:
        ADD(ret, COUNTER, MARK_TOP(c->n));
        break;
    }
}
