/* Expressions of a rule, appended to it, as nft 1.0.6 makes them (`nft --debug=netlink`): for
 * nft_rule.c. */
#pragma once

#include <linux/netfilter/nf_tables.h>
#include <stdio.h>

/* After stdio.h, which they need. */
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>

#include "kernel/nft_impl.h"

struct nft_expr_attr {
    uint16_t type;
    uint8_t size;
    uint32_t value;
};
#define U32(type, value)             \
    {                                \
        (type), 4, (uint32_t)(value) \
    }
#define U8(type, value)              \
    {                                \
        (type), 1, (uint32_t)(value) \
    }
#define EXPR(r, name, ...)                                                   \
    nft_expr_add((r), (name), (const struct nft_expr_attr[]){ __VA_ARGS__ }, \
                 sizeof((const struct nft_expr_attr[]){ __VA_ARGS__ }) /     \
                     sizeof(struct nft_expr_attr))

/* Offsets in the IP header. */
enum { SADDR4 = 12, DADDR4 = 16, SADDR6 = 8, DADDR6 = 24 };

/* attrs: U32() and U8() of the expression's attributes. */
struct nftnl_expr *nft_expr_add(struct nftnl_rule *r, const char *name,
                                const struct nft_expr_attr *attrs, size_t n);

/* Into a register. */
void nft_load_meta(struct nftnl_rule *r, uint32_t key, uint32_t reg);
void nft_load_ct(struct nftnl_rule *r, uint32_t key, uint32_t reg);
void nft_load_ct_original(struct nftnl_rule *r, uint32_t key, uint32_t reg);
void nft_load_payload(struct nftnl_rule *r, uint32_t base, uint32_t offset, uint32_t len,
                      uint32_t reg);
/* From the first register. */
void nft_store_meta(struct nftnl_rule *r, uint32_t key);
/* The n-th 32-bit word of the registers; whole registers go by their old names in dumps. */
uint32_t nft_word_reg(uint32_t word);

/* The first register. */
void nft_compare(struct nftnl_rule *r, uint32_t op, const void *data, uint32_t len);
void nft_compare_u8(struct nftnl_rule *r, uint8_t value);
void nft_mask_and_xor(struct nftnl_rule *r, const void *mask_bytes, const void *xor_bytes,
                      uint32_t len);
void nft_mask(struct nftnl_rule *r, const void *mask_bytes, uint32_t len);

/* `ct state` and `ct status` are sets of bits. */
void nft_match_ct_bit(struct nftnl_rule *r, uint32_t key, uint32_t bit, bool is_set);
void nft_match_nfproto(struct nftnl_rule *r, uint8_t family);
void nft_match_l4proto(struct nftnl_rule *r, uint8_t proto);
void nft_compare_ct_top(struct nftnl_rule *r, uint32_t op, uint32_t value);
void nft_compare_iifname(struct nftnl_rule *r, uint32_t op, const char *ifname);

/* A key's fields into registers, from the first one on; then what the set has for it, or the verdict
 * that it stands for. */
void nft_load_key(struct nftnl_rule *r, enum nft_key key);
struct nftnl_expr *nft_lookup(struct nftnl_rule *r, const struct nft_table *t,
                              const struct nft_stmt *s, uint32_t flags);
void nft_lookup_into(struct nftnl_rule *r, const struct nft_table *t, const struct nft_stmt *s,
                     uint32_t reg);
/* `chain`: of jump and goto; else NULL. */
void nft_verdict(struct nftnl_rule *r, int code, const char *chain);
