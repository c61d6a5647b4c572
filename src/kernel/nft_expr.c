#include "kernel/nft_expr.h"

#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_tuple_common.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdlib.h>
#include <string.h>

#include "model/names.h"

#define ETHER_SADDR 6 /* in its header */

struct nftnl_expr *nft_expr_add(struct nftnl_rule *r, const char *name,
                                const struct nft_expr_attr *attrs, size_t n)
{
    struct nftnl_expr *e = nftnl_expr_alloc(name);
    if (!e)
        abort();
    for (size_t i = 0; i < n; i++)
        if (attrs[i].size == 1)
            nftnl_expr_set_u8(e, attrs[i].type, (uint8_t)attrs[i].value);
        else
            nftnl_expr_set_u32(e, attrs[i].type, attrs[i].value);
    nftnl_rule_add_expr(r, e);
    return e;
}

void nft_load_meta(struct nftnl_rule *r, uint32_t key, uint32_t reg)
{
    EXPR(r, "meta", U32(NFTNL_EXPR_META_KEY, key), U32(NFTNL_EXPR_META_DREG, reg));
}

void nft_store_meta(struct nftnl_rule *r, uint32_t key)
{
    EXPR(r, "meta", U32(NFTNL_EXPR_META_KEY, key), U32(NFTNL_EXPR_META_SREG, NFT_REG_1));
}

void nft_load_ct(struct nftnl_rule *r, uint32_t key, uint32_t reg)
{
    EXPR(r, "ct", U32(NFTNL_EXPR_CT_KEY, key), U32(NFTNL_EXPR_CT_DREG, reg));
}

void nft_load_ct_original(struct nftnl_rule *r, uint32_t key, uint32_t reg)
{
    EXPR(r, "ct", U32(NFTNL_EXPR_CT_KEY, key), U8(NFTNL_EXPR_CT_DIR, IP_CT_DIR_ORIGINAL),
         U32(NFTNL_EXPR_CT_DREG, reg));
}

void nft_load_payload(struct nftnl_rule *r, uint32_t base, uint32_t offset, uint32_t len,
                      uint32_t reg)
{
    EXPR(r, "payload", U32(NFTNL_EXPR_PAYLOAD_DREG, reg), U32(NFTNL_EXPR_PAYLOAD_BASE, base),
         U32(NFTNL_EXPR_PAYLOAD_OFFSET, offset), U32(NFTNL_EXPR_PAYLOAD_LEN, len));
}

void nft_compare(struct nftnl_rule *r, uint32_t op, const void *data, uint32_t len)
{
    nftnl_expr_set(EXPR(r, "cmp", U32(NFTNL_EXPR_CMP_SREG, NFT_REG_1), U32(NFTNL_EXPR_CMP_OP, op)),
                   NFTNL_EXPR_CMP_DATA, data, len);
}

void nft_compare_u8(struct nftnl_rule *r, uint8_t value)
{
    nft_compare(r, NFT_CMP_EQ, &value, sizeof(value));
}

void nft_mask_and_xor(struct nftnl_rule *r, const void *mask_bytes, const void *xor_bytes,
                      uint32_t len)
{
    struct nftnl_expr *e =
        EXPR(r, "bitwise", U32(NFTNL_EXPR_BITWISE_SREG, NFT_REG_1),
             U32(NFTNL_EXPR_BITWISE_DREG, NFT_REG_1), U32(NFTNL_EXPR_BITWISE_LEN, len),
             U32(NFTNL_EXPR_BITWISE_OP, NFT_BITWISE_BOOL));
    nftnl_expr_set(e, NFTNL_EXPR_BITWISE_MASK, mask_bytes, len);
    nftnl_expr_set(e, NFTNL_EXPR_BITWISE_XOR, xor_bytes, len);
}

void nft_mask(struct nftnl_rule *r, const void *mask_bytes, uint32_t len)
{
    static const uint32_t zero;
    nft_mask_and_xor(r, mask_bytes, &zero, len);
}

void nft_match_ct_bit(struct nftnl_rule *r, uint32_t key, uint32_t bit, bool is_set)
{
    static const uint32_t zero;
    nft_load_ct(r, key, NFT_REG_1);
    nft_mask(r, &bit, sizeof(bit));
    nft_compare(r, is_set ? NFT_CMP_NEQ : NFT_CMP_EQ, &zero, sizeof(zero));
}

void nft_match_nfproto(struct nftnl_rule *r, uint8_t family)
{
    nft_load_meta(r, NFT_META_NFPROTO, NFT_REG_1);
    nft_compare_u8(r, family == IP_V6 ? NFPROTO_IPV6 : NFPROTO_IPV4);
}

void nft_match_l4proto(struct nftnl_rule *r, uint8_t proto)
{
    nft_load_meta(r, NFT_META_L4PROTO, NFT_REG_1);
    nft_compare_u8(r, proto);
}

static void load_ct_top(struct nftnl_rule *r)
{
    static const uint32_t top = HOLDER_MARK_MASK;
    nft_load_ct(r, NFT_CT_MARK, NFT_REG_1);
    nft_mask(r, &top, sizeof(top));
}

void nft_compare_ct_top(struct nftnl_rule *r, uint32_t op, uint32_t value)
{
    load_ct_top(r);
    nft_compare(r, op, &value, sizeof(value));
}

void nft_compare_iifname(struct nftnl_rule *r, uint32_t op, const char *ifname)
{
    char name[IFNAMSIZ] = { 0 };
    strncpy(name, ifname, sizeof(name) - 1);
    nft_load_meta(r, NFT_META_IIFNAME, NFT_REG_1);
    nft_compare(r, op, name, sizeof(name));
}

static void match_ether(struct nftnl_rule *r)
{
    static const uint16_t ether = ARPHRD_ETHER;
    nft_load_meta(r, NFT_META_IIFTYPE, NFT_REG_1);
    nft_compare(r, NFT_CMP_EQ, &ether, sizeof(ether));
}

uint32_t nft_word_reg(uint32_t word)
{
    return word % 4 ? NFT_REG32_00 + word : NFT_REG_1 + word / 4;
}

void nft_load_key(struct nftnl_rule *r, enum nft_key key)
{
    uint32_t word = 0;
    for (int i = 0; i < NFT_FIELDS_MAX; i++) {
        uint32_t reg = nft_word_reg(word);
        switch (nft_keys[key][i]) {
        case NFT_EXPR_END:
            return;
        case NFT_EXPR_IIFNAME:
            nft_load_meta(r, NFT_META_IIFNAME, reg);
            word += 4;
            break;
        case NFT_EXPR_OIFNAME:
            nft_load_meta(r, NFT_META_OIFNAME, reg);
            word += 4;
            break;
        case NFT_EXPR_DIALLED4:
            nft_load_ct_original(r, NFT_CT_DST_IP, reg);
            word += 1;
            break;
        case NFT_EXPR_DIALLED6:
            nft_load_ct_original(r, NFT_CT_DST_IP6, reg);
            word += 4;
            break;
        case NFT_EXPR_L4PROTO:
            nft_load_meta(r, NFT_META_L4PROTO, reg);
            word += 1;
            break;
        case NFT_EXPR_DPORT:
            nft_load_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, reg);
            word += 1;
            break;
        case NFT_EXPR_DIALLED_PORT:
            nft_load_ct_original(r, NFT_CT_PROTO_DST, reg);
            word += 1;
            break;
        case NFT_EXPR_SADDR4:
            nft_load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, SADDR4, 4, reg);
            word += 1;
            break;
        case NFT_EXPR_SADDR6:
            nft_load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, SADDR6, 16, reg);
            word += 4;
            break;
        case NFT_EXPR_DADDR4:
            nft_load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, DADDR4, 4, reg);
            word += 1;
            break;
        case NFT_EXPR_DADDR6:
            nft_load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, DADDR6, 16, reg);
            word += 4;
            break;
        case NFT_EXPR_PRIORITY:
            nft_load_meta(r, NFT_META_PRIORITY, reg);
            word += 1;
            break;
        case NFT_EXPR_ETHER_SADDR:
            match_ether(r);
            nft_load_payload(r, NFT_PAYLOAD_LL_HEADER, ETHER_SADDR, 6, reg);
            word += 2;
            break;
        case NFT_EXPR_CT_MARK_TOP:
            load_ct_top(r);
            word += 1;
            break;
        }
    }
}

struct nftnl_expr *nft_lookup(struct nftnl_rule *r, const struct nft_table *t,
                              const struct nft_stmt *s, uint32_t flags)
{
    nft_load_key(r, s->key);
    struct nftnl_expr *e = EXPR(r, "lookup", U32(NFTNL_EXPR_LOOKUP_SREG, NFT_REG_1),
                                U32(NFTNL_EXPR_LOOKUP_FLAGS, flags));
    nftnl_expr_set_str(e, NFTNL_EXPR_LOOKUP_SET, t->sets[s->set].name);
    return e;
}

void nft_lookup_into(struct nftnl_rule *r, const struct nft_table *t, const struct nft_stmt *s,
                     uint32_t reg)
{
    nftnl_expr_set_u32(nft_lookup(r, t, s, 0), NFTNL_EXPR_LOOKUP_DREG, reg);
}

void nft_verdict(struct nftnl_rule *r, int code, const char *chain)
{
    struct nftnl_expr *e = EXPR(r, "immediate", U32(NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT),
                                U32(NFTNL_EXPR_IMM_VERDICT, code));
    if (chain)
        nftnl_expr_set_str(e, NFTNL_EXPR_IMM_CHAIN, chain);
}
