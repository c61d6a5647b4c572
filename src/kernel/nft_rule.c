/* A statement as the expressions nft 1.0.6 makes of it (`nft --debug=netlink`), with every
 * attribute the kernel would add written out: what it dumps then prints the same. */
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/rtnetlink.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/nft_expr.h"
#include "model/names.h"

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
            nft_match_nfproto(r, header);
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
    nft_lookup_into(r, t, s, NFT_REG_1);
    bool has_port = t->sets[s->set].data[1] == NFT_FIELD_PORT;
    put_nat(r, NFT_NAT_DNAT, s->family,
            has_port ? nft_word_reg((uint32_t)ip_len(s->family) / 4) : 0);
}

static void put_snat_saddr(struct nftnl_rule *r, uint8_t family)
{
    nft_load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, family == IP_V6 ? SADDR6 : SADDR4,
                     (uint32_t)ip_len(family), NFT_REG_1);
    put_nat(r, NFT_NAT_SNAT, family, 0);
}

static void put_counter(struct nftnl_rule *r)
{
    struct nftnl_expr *e = nft_expr_add(r, "counter", NULL, 0);
    nftnl_expr_set_u64(e, NFTNL_EXPR_CTR_PACKETS, 0);
    nftnl_expr_set_u64(e, NFTNL_EXPR_CTR_BYTES, 0);
}

static void put_tcp_syn(struct nftnl_rule *r)
{
    static const uint8_t syn = TH_SYN;
    nft_match_l4proto(r, L4_TCP);
    nft_load_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1, NFT_REG_1);
    nft_mask(r, &syn, sizeof(syn));
    nft_compare_u8(r, syn);
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
    nft_compare(r, NFT_CMP_EQ, &local, sizeof(local));
}

static void put_dynset(struct nftnl_rule *r, const struct nft_table *t, const struct nft_stmt *s)
{
    bool v6 = s->family == IP_V6, update = s->kind == NFT_STMT_UPDATE;
    uint32_t data = v6 ? NFT_REG_3 : NFT_REG_2; /* the next one that the key leaves free */
    nft_load_key(r, s->key);
    nft_load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, v6 ? DADDR6 : DADDR4,
                     (uint32_t)ip_len(s->family), data);
    struct nftnl_expr *e =
        EXPR(r, "dynset", U32(NFTNL_EXPR_DYNSET_SREG_KEY, NFT_REG_1),
             U32(NFTNL_EXPR_DYNSET_SREG_DATA, data),
             U32(NFTNL_EXPR_DYNSET_OP, update ? NFT_DYNSET_OP_UPDATE : NFT_DYNSET_OP_DELETE));
    nftnl_expr_set_str(e, NFTNL_EXPR_DYNSET_SET_NAME, t->sets[s->set].name);
    nftnl_expr_set_u64(e, NFTNL_EXPR_DYNSET_TIMEOUT, s->n * UINT64_C(1000));
}

static void change_mark(struct nftnl_rule *r, uint32_t keep, uint32_t flip)
{
    nft_load_meta(r, NFT_META_MARK, NFT_REG_1);
    nft_mask_and_xor(r, &keep, &flip, sizeof(keep));
    nft_store_meta(r, NFT_META_MARK);
}

static void put_ct_mark_top(struct nftnl_rule *r, uint32_t n)
{
    static const uint32_t keep = ~HOLDER_MARK_MASK;
    uint32_t flip = HOLDER_MARK(n);
    nft_load_ct(r, NFT_CT_MARK, NFT_REG_1);
    nft_mask_and_xor(r, &keep, &flip, sizeof(keep));
    EXPR(r, "ct", U32(NFTNL_EXPR_CT_KEY, NFT_CT_MARK), U32(NFTNL_EXPR_CT_SREG, NFT_REG_1));
}

static void put_stmt(struct nftnl_rule *r, const struct nft_table *t, const struct nft_stmt *s)
{
    uint32_t bit = t->masquerade_mark;
    switch (s->kind) {
    case NFT_STMT_CT_STATE_NEW:
        nft_match_ct_bit(r, NFT_CT_STATE, NF_CT_STATE_BIT(IP_CT_NEW), true);
        break;
    case NFT_STMT_CT_STATUS_DNAT:
        nft_match_ct_bit(r, NFT_CT_STATUS, IPS_DST_NAT, true);
        break;
    case NFT_STMT_CT_UNCONFIRMED:
        nft_match_ct_bit(r, NFT_CT_STATUS, IPS_CONFIRMED, false);
        break;
    case NFT_STMT_CT_UNASSURED:
        nft_match_ct_bit(r, NFT_CT_STATUS, IPS_ASSURED, false);
        break;
    case NFT_STMT_CT_REPLY:
        nft_load_ct(r, NFT_CT_DIRECTION, NFT_REG_1);
        nft_compare_u8(r, IP_CT_DIR_REPLY);
        break;
    case NFT_STMT_L4PROTO:
        nft_match_l4proto(r, s->proto);
        break;
    case NFT_STMT_TCP_SYN:
        put_tcp_syn(r);
        break;
    case NFT_STMT_IN:
        nft_lookup(r, t, s, 0);
        break;
    case NFT_STMT_COUNTER:
        put_counter(r);
        break;
    case NFT_STMT_JUMP:
        nft_verdict(r, NFT_JUMP, s->text);
        break;
    case NFT_STMT_GOTO:
        nft_verdict(r, NFT_GOTO, s->text);
        break;
    case NFT_STMT_RETURN:
        nft_verdict(r, NFT_RETURN, NULL);
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
        nft_lookup_into(r, t, s, NFT_REG_1);
        nft_store_meta(r, NFT_META_MARK);
        break;
    case NFT_STMT_MSS_TO_MTU:
        put_mss(r);
        break;
    case NFT_STMT_NOT_IN:
        nft_lookup(r, t, s, NFT_LOOKUP_F_INV);
        break;
    case NFT_STMT_SADDR_LOCAL:
        put_local(r, NFTA_FIB_F_SADDR);
        break;
    case NFT_STMT_DADDR_LOCAL:
        put_local(r, NFTA_FIB_F_DADDR);
        break;
    case NFT_STMT_VMAP:
        nft_lookup_into(r, t, s, NFT_REG_VERDICT);
        break;
    case NFT_STMT_PRIORITY:
        nft_lookup_into(r, t, s, NFT_REG_1);
        nft_store_meta(r, NFT_META_PRIORITY);
        break;
    case NFT_STMT_RANDOM:
        EXPR(r, "numgen", U32(NFTNL_EXPR_NG_DREG, NFT_REG_1), U32(NFTNL_EXPR_NG_MODULUS, s->n),
             U32(NFTNL_EXPR_NG_TYPE, NFT_NG_RANDOM), U32(NFTNL_EXPR_NG_OFFSET, s->offset));
        nft_store_meta(r, NFT_META_PRIORITY);
        break;
    case NFT_STMT_DADDR:
        nft_lookup_into(r, t, s, NFT_REG_1);
        store_daddr(r, s->family);
        break;
    case NFT_STMT_UPDATE:
    case NFT_STMT_DELETE:
        put_dynset(r, t, s);
        break;
    case NFT_STMT_IS_MARKED:
        nft_load_meta(r, NFT_META_MARK, NFT_REG_1);
        nft_mask(r, &bit, sizeof(bit));
        nft_compare(r, NFT_CMP_EQ, &bit, sizeof(bit));
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
        nft_verdict(r, NF_DROP, NULL);
        break;
    case NFT_STMT_FROM_OVERLAY:
        nft_compare_iifname(r, NFT_CMP_EQ, t->overlay);
        break;
    case NFT_STMT_NOT_FROM_OVERLAY:
        nft_compare_iifname(r, NFT_CMP_NEQ, t->overlay);
        break;
    case NFT_STMT_CT_TOP_IS:
        nft_compare_ct_top(r, NFT_CMP_EQ, HOLDER_MARK(s->n));
        break;
    case NFT_STMT_CT_TOP_SET:
        nft_compare_ct_top(r, NFT_CMP_NEQ, 0);
        break;
    case NFT_STMT_SET_DADDR_DIALLED:
        nft_load_ct_original(r, s->family == IP_V6 ? NFT_CT_DST_IP6 : NFT_CT_DST_IP, NFT_REG_1);
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
