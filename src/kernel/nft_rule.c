/* A statement as the expressions nft 1.0.6 makes of it (`nft --debug=netlink`), with every
 * attribute the kernel would add written out: what it dumps then prints the same. */
#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

/* After stdio.h, which they need. */
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>

#include "kernel/nft_impl.h"
#include "model/names.h"

struct attr {
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
/* Offsets in the IP header. */
enum { SADDR4 = 12, DADDR4 = 16, SADDR6 = 8, DADDR6 = 24 };
enum { ETHER_SADDR = 6 };

#define EXPR(r, name, ...)                                 \
    add((r), (name), (const struct attr[]){ __VA_ARGS__ }, \
        sizeof((const struct attr[]){ __VA_ARGS__ }) / sizeof(struct attr))

static void match_nfproto(struct nftnl_rule *r, uint8_t family);
static void put_stmt(struct nftnl_rule *r, const struct nft_table *t, const struct nft_stmt *s);

struct nftnl_rule *nft_rule_build(const struct nft_table *t, const char *chain,
                                  const struct nft_rule *rule)
{
    struct nftnl_rule *r = nftnl_rule_alloc();
    if (!r)
        abort();
    nftnl_rule_set_u32(r, NFTNL_RULE_FAMILY, NFPROTO_INET);
    nftnl_rule_set_str(r, NFTNL_RULE_TABLE, t->name);
    nftnl_rule_set_str(r, NFTNL_RULE_CHAIN, chain);
    uint8_t matched = 0;
    for (size_t i = 0; i < rule->n; i++) {
        uint8_t header = nft_stmt_header(&rule->stmts[i]);
        if (header && header != matched)
            match_nfproto(r, header);
        matched = header ? header : matched;
        put_stmt(r, t, &rule->stmts[i]);
    }
    return r;
}

static int print_expr(struct nftnl_expr *e, void *user)
{
    char text[1024];
    if (nftnl_expr_is_set(e, NFTNL_EXPR_CTR_PACKETS) &&
        !strcmp(nftnl_expr_get_str(e, NFTNL_EXPR_NAME), "counter")) {
        nftnl_expr_set_u64(e, NFTNL_EXPR_CTR_PACKETS, 0);
        nftnl_expr_set_u64(e, NFTNL_EXPR_CTR_BYTES, 0);
    }
    nftnl_expr_snprintf(text, sizeof(text), e, NFTNL_OUTPUT_DEFAULT, 0);
    buf_printf(user, "[%s %s]", nftnl_expr_get_str(e, NFTNL_EXPR_NAME), text);
    return 0;
}

void nft_rule_print(struct buf *b, struct nftnl_rule *r)
{
    nftnl_expr_foreach(r, print_expr, b);
    buf_puts(b, "\n");
}

/* ---- expressions ---- */

static struct nftnl_expr *add(struct nftnl_rule *r, const char *name, const struct attr *attrs,
                              size_t n)
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

static void load_meta(struct nftnl_rule *r, uint32_t key, uint32_t reg)
{
    EXPR(r, "meta", U32(NFTNL_EXPR_META_KEY, key), U32(NFTNL_EXPR_META_DREG, reg));
}

static void store_meta(struct nftnl_rule *r, uint32_t key)
{
    EXPR(r, "meta", U32(NFTNL_EXPR_META_KEY, key), U32(NFTNL_EXPR_META_SREG, NFT_REG_1));
}

static void load_ct(struct nftnl_rule *r, uint32_t key, uint32_t reg)
{
    EXPR(r, "ct", U32(NFTNL_EXPR_CT_KEY, key), U32(NFTNL_EXPR_CT_DREG, reg));
}

static void load_ct_original(struct nftnl_rule *r, uint32_t key, uint32_t reg)
{
    EXPR(r, "ct", U32(NFTNL_EXPR_CT_KEY, key), U8(NFTNL_EXPR_CT_DIR, IP_CT_DIR_ORIGINAL),
         U32(NFTNL_EXPR_CT_DREG, reg));
}

static void load_payload(struct nftnl_rule *r, uint32_t base, uint32_t offset, uint32_t len,
                         uint32_t reg)
{
    EXPR(r, "payload", U32(NFTNL_EXPR_PAYLOAD_DREG, reg), U32(NFTNL_EXPR_PAYLOAD_BASE, base),
         U32(NFTNL_EXPR_PAYLOAD_OFFSET, offset), U32(NFTNL_EXPR_PAYLOAD_LEN, len));
}

static void compare(struct nftnl_rule *r, uint32_t op, const void *data, uint32_t len)
{
    nftnl_expr_set(EXPR(r, "cmp", U32(NFTNL_EXPR_CMP_SREG, NFT_REG_1), U32(NFTNL_EXPR_CMP_OP, op)),
                   NFTNL_EXPR_CMP_DATA, data, len);
}

static void compare_u8(struct nftnl_rule *r, uint8_t value)
{
    compare(r, NFT_CMP_EQ, &value, sizeof(value));
}

static void mask_and_xor(struct nftnl_rule *r, const void *mask_bytes, const void *xor_bytes,
                         uint32_t len)
{
    struct nftnl_expr *e =
        EXPR(r, "bitwise", U32(NFTNL_EXPR_BITWISE_SREG, NFT_REG_1),
             U32(NFTNL_EXPR_BITWISE_DREG, NFT_REG_1), U32(NFTNL_EXPR_BITWISE_LEN, len),
             U32(NFTNL_EXPR_BITWISE_OP, NFT_BITWISE_BOOL));
    nftnl_expr_set(e, NFTNL_EXPR_BITWISE_MASK, mask_bytes, len);
    nftnl_expr_set(e, NFTNL_EXPR_BITWISE_XOR, xor_bytes, len);
}

static void mask(struct nftnl_rule *r, const void *mask_bytes, uint32_t len)
{
    static const uint32_t zero;
    mask_and_xor(r, mask_bytes, &zero, len);
}

/* `ct state` and `ct status` are sets of bits. */
static void ct_bit(struct nftnl_rule *r, uint32_t key, uint32_t bit, bool is_set)
{
    static const uint32_t zero;
    load_ct(r, key, NFT_REG_1);
    mask(r, &bit, sizeof(bit));
    compare(r, is_set ? NFT_CMP_NEQ : NFT_CMP_EQ, &zero, sizeof(zero));
}

static void match_nfproto(struct nftnl_rule *r, uint8_t family)
{
    load_meta(r, NFT_META_NFPROTO, NFT_REG_1);
    compare_u8(r, family == IP_V6 ? NFPROTO_IPV6 : NFPROTO_IPV4);
}

static void match_l4proto(struct nftnl_rule *r, uint8_t proto)
{
    load_meta(r, NFT_META_L4PROTO, NFT_REG_1);
    compare_u8(r, proto);
}

static void load_ct_top(struct nftnl_rule *r)
{
    static const uint32_t top = HOLDER_MARK_MASK;
    load_ct(r, NFT_CT_MARK, NFT_REG_1);
    mask(r, &top, sizeof(top));
}

static void compare_ct_top(struct nftnl_rule *r, uint32_t op, uint32_t value)
{
    load_ct_top(r);
    compare(r, op, &value, sizeof(value));
}

static void compare_iifname(struct nftnl_rule *r, uint32_t op, const char *ifname)
{
    char name[IFNAMSIZ] = { 0 };
    strncpy(name, ifname, sizeof(name) - 1);
    load_meta(r, NFT_META_IIFNAME, NFT_REG_1);
    compare(r, op, name, sizeof(name));
}

static void match_ether(struct nftnl_rule *r)
{
    static const uint16_t ether = ARPHRD_ETHER;
    load_meta(r, NFT_META_IIFTYPE, NFT_REG_1);
    compare(r, NFT_CMP_EQ, &ether, sizeof(ether));
}

/* The n-th 32-bit word of the registers; whole registers go by their old names in dumps. */
static uint32_t word_reg(uint32_t word)
{
    return word % 4 ? NFT_REG32_00 + word : NFT_REG_1 + word / 4;
}

static void load_key(struct nftnl_rule *r, enum nft_key key)
{
    uint32_t word = 0;
    for (int i = 0; i < NFT_FIELDS_MAX; i++) {
        uint32_t reg = word_reg(word);
        switch (nft_keys[key][i]) {
        case NFT_EXPR_END:
            return;
        case NFT_EXPR_IIFNAME:
            load_meta(r, NFT_META_IIFNAME, reg);
            word += 4;
            break;
        case NFT_EXPR_OIFNAME:
            load_meta(r, NFT_META_OIFNAME, reg);
            word += 4;
            break;
        case NFT_EXPR_DIALLED4:
            load_ct_original(r, NFT_CT_DST_IP, reg);
            word += 1;
            break;
        case NFT_EXPR_DIALLED6:
            load_ct_original(r, NFT_CT_DST_IP6, reg);
            word += 4;
            break;
        case NFT_EXPR_L4PROTO:
            load_meta(r, NFT_META_L4PROTO, reg);
            word += 1;
            break;
        case NFT_EXPR_DPORT:
            load_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, reg);
            word += 1;
            break;
        case NFT_EXPR_DIALLED_PORT:
            load_ct_original(r, NFT_CT_PROTO_DST, reg);
            word += 1;
            break;
        case NFT_EXPR_SADDR4:
            load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, SADDR4, 4, reg);
            word += 1;
            break;
        case NFT_EXPR_SADDR6:
            load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, SADDR6, 16, reg);
            word += 4;
            break;
        case NFT_EXPR_DADDR4:
            load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, DADDR4, 4, reg);
            word += 1;
            break;
        case NFT_EXPR_DADDR6:
            load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, DADDR6, 16, reg);
            word += 4;
            break;
        case NFT_EXPR_PRIORITY:
            load_meta(r, NFT_META_PRIORITY, reg);
            word += 1;
            break;
        case NFT_EXPR_ETHER_SADDR:
            match_ether(r);
            load_payload(r, NFT_PAYLOAD_LL_HEADER, ETHER_SADDR, 6, reg);
            word += 2;
            break;
        case NFT_EXPR_CT_MARK_TOP:
            load_ct_top(r);
            word += 1;
            break;
        }
    }
}

static struct nftnl_expr *lookup(struct nftnl_rule *r, const struct nft_table *t,
                                 const struct nft_stmt *s, uint32_t flags)
{
    load_key(r, s->key);
    struct nftnl_expr *e = EXPR(r, "lookup", U32(NFTNL_EXPR_LOOKUP_SREG, NFT_REG_1),
                                U32(NFTNL_EXPR_LOOKUP_FLAGS, flags));
    nftnl_expr_set_str(e, NFTNL_EXPR_LOOKUP_SET, t->sets[s->set].name);
    return e;
}

static void lookup_into(struct nftnl_rule *r, const struct nft_table *t, const struct nft_stmt *s,
                        uint32_t reg)
{
    nftnl_expr_set_u32(lookup(r, t, s, 0), NFTNL_EXPR_LOOKUP_DREG, reg);
}

static void verdict(struct nftnl_rule *r, int code, const char *chain)
{
    struct nftnl_expr *e = EXPR(r, "immediate", U32(NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT),
                                U32(NFTNL_EXPR_IMM_VERDICT, code));
    if (chain)
        nftnl_expr_set_str(e, NFTNL_EXPR_IMM_CHAIN, chain);
}

/* ---- statements ---- */

static void store_daddr(struct nftnl_rule *r, uint8_t family)
{
    bool v4 = family == IP_V4;
    /* The checksum of the layer above covers the address, that of the header is IPv4's. */
    EXPR(r, "payload", U32(NFTNL_EXPR_PAYLOAD_SREG, NFT_REG_1),
         U32(NFTNL_EXPR_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER),
         U32(NFTNL_EXPR_PAYLOAD_OFFSET, v4 ? DADDR4 : DADDR6),
         U32(NFTNL_EXPR_PAYLOAD_LEN, ip_len(family)),
         U32(NFTNL_EXPR_PAYLOAD_CSUM_TYPE, v4 ? NFT_PAYLOAD_CSUM_INET : NFT_PAYLOAD_CSUM_NONE),
         U32(NFTNL_EXPR_PAYLOAD_CSUM_OFFSET, v4 ? 10 : 0),
         U32(NFTNL_EXPR_PAYLOAD_FLAGS, NFT_PAYLOAD_L4CSUM_PSEUDOHDR));
}

static void put_set_daddr(struct nftnl_rule *r, uint8_t family, const char *text)
{
    struct ip ip = { 0 };
    ip_parse(text, &ip);
    nftnl_expr_set(EXPR(r, "immediate", U32(NFTNL_EXPR_IMM_DREG, NFT_REG_1)), NFTNL_EXPR_IMM_DATA,
                   ip.bytes, (uint32_t)ip_len(family));
    store_daddr(r, family);
}

static void put_nat(struct nftnl_rule *r, uint32_t type, uint8_t family, uint32_t port_reg)
{
    struct nftnl_expr *e = EXPR(
        r, "nat", U32(NFTNL_EXPR_NAT_TYPE, type),
        U32(NFTNL_EXPR_NAT_FAMILY, family == IP_V6 ? NFPROTO_IPV6 : NFPROTO_IPV4),
        U32(NFTNL_EXPR_NAT_REG_ADDR_MIN, NFT_REG_1), U32(NFTNL_EXPR_NAT_REG_ADDR_MAX, NFT_REG_1),
        U32(NFTNL_EXPR_NAT_FLAGS,
            NF_NAT_RANGE_MAP_IPS | (port_reg ? NF_NAT_RANGE_PROTO_SPECIFIED : 0)));
    if (port_reg) {
        nftnl_expr_set_u32(e, NFTNL_EXPR_NAT_REG_PROTO_MIN, port_reg);
        nftnl_expr_set_u32(e, NFTNL_EXPR_NAT_REG_PROTO_MAX, port_reg);
    }
}

static void put_dnat(struct nftnl_rule *r, const struct nft_table *t, const struct nft_stmt *s)
{
    lookup_into(r, t, s, NFT_REG_1);
    bool has_port = t->sets[s->set].data[1] == NFT_FIELD_PORT;
    put_nat(r, NFT_NAT_DNAT, s->family, has_port ? word_reg((uint32_t)ip_len(s->family) / 4) : 0);
}

static void put_snat_saddr(struct nftnl_rule *r, uint8_t family)
{
    load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, family == IP_V6 ? SADDR6 : SADDR4,
                 (uint32_t)ip_len(family), NFT_REG_1);
    put_nat(r, NFT_NAT_SNAT, family, 0);
}

static void put_counter(struct nftnl_rule *r)
{
    struct nftnl_expr *e = add(r, "counter", NULL, 0);
    nftnl_expr_set_u64(e, NFTNL_EXPR_CTR_PACKETS, 0);
    nftnl_expr_set_u64(e, NFTNL_EXPR_CTR_BYTES, 0);
}

static void put_tcp_syn(struct nftnl_rule *r)
{
    static const uint8_t syn = TH_SYN;
    match_l4proto(r, L4_TCP);
    load_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1, NFT_REG_1);
    mask(r, &syn, sizeof(syn));
    compare_u8(r, syn);
}

static void put_mss(struct nftnl_rule *r)
{
    EXPR(r, "rt", U32(NFTNL_EXPR_RT_KEY, NFT_RT_TCPMSS), U32(NFTNL_EXPR_RT_DREG, NFT_REG_1));
    EXPR(r, "byteorder", U32(NFTNL_EXPR_BYTEORDER_SREG, NFT_REG_1),
         U32(NFTNL_EXPR_BYTEORDER_DREG, NFT_REG_1),
         U32(NFTNL_EXPR_BYTEORDER_OP, NFT_BYTEORDER_HTON), U32(NFTNL_EXPR_BYTEORDER_LEN, 2),
         U32(NFTNL_EXPR_BYTEORDER_SIZE, 2));
    EXPR(r, "exthdr", U32(NFTNL_EXPR_EXTHDR_SREG, NFT_REG_1),
         U8(NFTNL_EXPR_EXTHDR_TYPE, TCPOPT_MAXSEG), U32(NFTNL_EXPR_EXTHDR_OFFSET, 2),
         U32(NFTNL_EXPR_EXTHDR_LEN, 2), U32(NFTNL_EXPR_EXTHDR_OP, NFT_EXTHDR_OP_TCPOPT));
}

static void put_local(struct nftnl_rule *r, uint32_t which)
{
    static const uint32_t local = RTN_LOCAL;
    EXPR(r, "fib", U32(NFTNL_EXPR_FIB_DREG, NFT_REG_1),
         U32(NFTNL_EXPR_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE), U32(NFTNL_EXPR_FIB_FLAGS, which));
    compare(r, NFT_CMP_EQ, &local, sizeof(local));
}

static void put_dynset(struct nftnl_rule *r, const struct nft_table *t, const struct nft_stmt *s)
{
    bool v6 = s->family == IP_V6, update = s->kind == NFT_STMT_UPDATE;
    uint32_t data = v6 ? NFT_REG_3 : NFT_REG_2; /* the next one that the key leaves free */
    load_key(r, s->key);
    load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, v6 ? DADDR6 : DADDR4, (uint32_t)ip_len(s->family),
                 data);
    struct nftnl_expr *e =
        EXPR(r, "dynset", U32(NFTNL_EXPR_DYNSET_SREG_KEY, NFT_REG_1),
             U32(NFTNL_EXPR_DYNSET_SREG_DATA, data),
             U32(NFTNL_EXPR_DYNSET_OP, update ? NFT_DYNSET_OP_UPDATE : NFT_DYNSET_OP_DELETE));
    nftnl_expr_set_str(e, NFTNL_EXPR_DYNSET_SET_NAME, t->sets[s->set].name);
    nftnl_expr_set_u64(e, NFTNL_EXPR_DYNSET_TIMEOUT, s->n * UINT64_C(1000));
}

static void change_mark(struct nftnl_rule *r, uint32_t keep, uint32_t flip)
{
    load_meta(r, NFT_META_MARK, NFT_REG_1);
    mask_and_xor(r, &keep, &flip, sizeof(keep));
    store_meta(r, NFT_META_MARK);
}

static void put_ct_mark_top(struct nftnl_rule *r, uint32_t n)
{
    static const uint32_t keep = ~HOLDER_MARK_MASK;
    uint32_t flip = HOLDER_MARK(n);
    load_ct(r, NFT_CT_MARK, NFT_REG_1);
    mask_and_xor(r, &keep, &flip, sizeof(keep));
    EXPR(r, "ct", U32(NFTNL_EXPR_CT_KEY, NFT_CT_MARK), U32(NFTNL_EXPR_CT_SREG, NFT_REG_1));
}

static void put_stmt(struct nftnl_rule *r, const struct nft_table *t, const struct nft_stmt *s)
{
    uint32_t bit = t->masquerade_mark;
    switch (s->kind) {
    case NFT_STMT_CT_STATE_NEW:
        ct_bit(r, NFT_CT_STATE, NF_CT_STATE_BIT(IP_CT_NEW), true);
        break;
    case NFT_STMT_CT_STATUS_DNAT:
        ct_bit(r, NFT_CT_STATUS, IPS_DST_NAT, true);
        break;
    case NFT_STMT_CT_UNCONFIRMED:
        ct_bit(r, NFT_CT_STATUS, IPS_CONFIRMED, false);
        break;
    case NFT_STMT_CT_UNASSURED:
        ct_bit(r, NFT_CT_STATUS, IPS_ASSURED, false);
        break;
    case NFT_STMT_CT_REPLY:
        load_ct(r, NFT_CT_DIRECTION, NFT_REG_1);
        compare_u8(r, IP_CT_DIR_REPLY);
        break;
    case NFT_STMT_L4PROTO:
        match_l4proto(r, s->proto);
        break;
    case NFT_STMT_TCP_SYN:
        put_tcp_syn(r);
        break;
    case NFT_STMT_IN:
        lookup(r, t, s, 0);
        break;
    case NFT_STMT_COUNTER:
        put_counter(r);
        break;
    case NFT_STMT_JUMP:
        verdict(r, NFT_JUMP, s->text);
        break;
    case NFT_STMT_GOTO:
        verdict(r, NFT_GOTO, s->text);
        break;
    case NFT_STMT_RETURN:
        verdict(r, NFT_RETURN, NULL);
        break;
    case NFT_STMT_REJECT_RESET:
        EXPR(r, "reject", U32(NFTNL_EXPR_REJECT_TYPE, NFT_REJECT_TCP_RST),
             U8(NFTNL_EXPR_REJECT_CODE, 0));
        break;
    case NFT_STMT_REJECT_PORT:
        EXPR(r, "reject", U32(NFTNL_EXPR_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH),
             U8(NFTNL_EXPR_REJECT_CODE, NFT_REJECT_ICMPX_PORT_UNREACH));
        break;
    case NFT_STMT_SET_DADDR:
        put_set_daddr(r, s->family, s->text);
        break;
    case NFT_STMT_DNAT:
        put_dnat(r, t, s);
        break;
    case NFT_STMT_SNAT_SADDR:
        put_snat_saddr(r, s->family);
        break;
    case NFT_STMT_MARK:
        lookup_into(r, t, s, NFT_REG_1);
        store_meta(r, NFT_META_MARK);
        break;
    case NFT_STMT_MSS_TO_MTU:
        put_mss(r);
        break;
    case NFT_STMT_NOT_IN:
        lookup(r, t, s, NFT_LOOKUP_F_INV);
        break;
    case NFT_STMT_SADDR_LOCAL:
        put_local(r, NFTA_FIB_F_SADDR);
        break;
    case NFT_STMT_DADDR_LOCAL:
        put_local(r, NFTA_FIB_F_DADDR);
        break;
    case NFT_STMT_VMAP:
        lookup_into(r, t, s, NFT_REG_VERDICT);
        break;
    case NFT_STMT_PRIORITY:
        lookup_into(r, t, s, NFT_REG_1);
        store_meta(r, NFT_META_PRIORITY);
        break;
    case NFT_STMT_RANDOM:
        EXPR(r, "numgen", U32(NFTNL_EXPR_NG_DREG, NFT_REG_1), U32(NFTNL_EXPR_NG_MODULUS, s->n),
             U32(NFTNL_EXPR_NG_TYPE, NFT_NG_RANDOM), U32(NFTNL_EXPR_NG_OFFSET, s->offset));
        store_meta(r, NFT_META_PRIORITY);
        break;
    case NFT_STMT_DADDR:
        lookup_into(r, t, s, NFT_REG_1);
        store_daddr(r, s->family);
        break;
    case NFT_STMT_UPDATE:
    case NFT_STMT_DELETE:
        put_dynset(r, t, s);
        break;
    case NFT_STMT_IS_MARKED:
        load_meta(r, NFT_META_MARK, NFT_REG_1);
        mask(r, &bit, sizeof(bit));
        compare(r, NFT_CMP_EQ, &bit, sizeof(bit));
        break;
    case NFT_STMT_MARK_SET:
        change_mark(r, ~bit, bit);
        break;
    case NFT_STMT_MARK_FLIP:
        change_mark(r, UINT32_MAX, bit);
        break;
    case NFT_STMT_MASQUERADE:
        EXPR(r, "masq", U32(NFTNL_EXPR_MASQ_FLAGS, NF_NAT_RANGE_PROTO_RANDOM_FULLY));
        break;
    case NFT_STMT_DROP:
        verdict(r, NF_DROP, NULL);
        break;
    case NFT_STMT_FROM_OVERLAY:
        compare_iifname(r, NFT_CMP_EQ, t->overlay);
        break;
    case NFT_STMT_NOT_FROM_OVERLAY:
        compare_iifname(r, NFT_CMP_NEQ, t->overlay);
        break;
    case NFT_STMT_CT_TOP_IS:
        compare_ct_top(r, NFT_CMP_EQ, HOLDER_MARK(s->n));
        break;
    case NFT_STMT_CT_TOP_SET:
        compare_ct_top(r, NFT_CMP_NEQ, 0);
        break;
    case NFT_STMT_SET_DADDR_DIALLED:
        load_ct_original(r, s->family == IP_V6 ? NFT_CT_DST_IP6 : NFT_CT_DST_IP, NFT_REG_1);
        store_daddr(r, s->family);
        break;
    case NFT_STMT_CT_MARK_TOP:
        put_ct_mark_top(r, s->n);
        break;
    case NFT_STMT_MARK_TOP:
        change_mark(r, ~HOLDER_MARK_MASK, HOLDER_MARK(s->n));
        break;
    }
}
