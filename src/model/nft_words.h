/* Constructors for files that write rules, unprefixed so that a rule reads as nft reads:
 *
 *     RULE(IN(NFT_FLOW4, NFT_OPEN4), COUNTER, SET_DADDR(IP_V4, STANDIN4), RETURN)
 *     ct original ip daddr . meta l4proto . th dport @open4 counter
 *         ip daddr set 169.254.76.1 return
 *
 * Include it last, and in no header. */
#pragma once

#include "model/nft_rule.h"

/* clang-format off */
#define CT_STATE_NEW    { .kind = NFT_STMT_CT_STATE_NEW }
#define CT_STATUS_DNAT  { .kind = NFT_STMT_CT_STATUS_DNAT }
#define CT_UNCONFIRMED  { .kind = NFT_STMT_CT_UNCONFIRMED }
#define CT_UNASSURED    { .kind = NFT_STMT_CT_UNASSURED }
#define CT_REPLY        { .kind = NFT_STMT_CT_REPLY }
#define L4PROTO(p)      { .kind = NFT_STMT_L4PROTO, .proto = (p) }
#define TCP_SYN         { .kind = NFT_STMT_TCP_SYN }
#define IN(k, s)        { .kind = NFT_STMT_IN, .key = (k), .set = (s) }
#define COUNTER         { .kind = NFT_STMT_COUNTER }
#define JUMP(c)         { .kind = NFT_STMT_JUMP, .text = (c) }
#define GOTO(c)         { .kind = NFT_STMT_GOTO, .text = (c) }
#define RETURN          { .kind = NFT_STMT_RETURN }
#define REJECT_RESET    { .kind = NFT_STMT_REJECT_RESET }
#define REJECT_PORT     { .kind = NFT_STMT_REJECT_PORT }
#define SET_DADDR(f, a) { .kind = NFT_STMT_SET_DADDR, .family = (f), .text = (a) }
#define DNAT(f, k, s)   { .kind = NFT_STMT_DNAT, .family = (f), .key = (k), .set = (s) }
#define SNAT_SADDR(f)   { .kind = NFT_STMT_SNAT_SADDR, .family = (f) }
#define MARK(k, s)      { .kind = NFT_STMT_MARK, .key = (k), .set = (s) }
#define MSS_TO_MTU      { .kind = NFT_STMT_MSS_TO_MTU }
#define NOT_IN(k, s)    { .kind = NFT_STMT_NOT_IN, .key = (k), .set = (s) }
#define SADDR_LOCAL     { .kind = NFT_STMT_SADDR_LOCAL }
#define DADDR_LOCAL     { .kind = NFT_STMT_DADDR_LOCAL }
#define VMAP(k, s)      { .kind = NFT_STMT_VMAP, .key = (k), .set = (s) }
#define PRIORITY(k, s)  { .kind = NFT_STMT_PRIORITY, .key = (k), .set = (s) }
#define RANDOM(m, o)    { .kind = NFT_STMT_RANDOM, .n = (m), .offset = (o) }
#define DADDR(f, k, s)  { .kind = NFT_STMT_DADDR, .family = (f), .key = (k), .set = (s) }
#define UPDATE(f, k, s, t) \
    { .kind = NFT_STMT_UPDATE, .family = (f), .key = (k), .set = (s), .n = (t) }
#define DELETE(f, k, s) { .kind = NFT_STMT_DELETE, .family = (f), .key = (k), .set = (s) }
#define IS_MARKED       { .kind = NFT_STMT_IS_MARKED }
#define MARK_SET        { .kind = NFT_STMT_MARK_SET }
#define MARK_FLIP       { .kind = NFT_STMT_MARK_FLIP }
#define MASQUERADE      { .kind = NFT_STMT_MASQUERADE }
#define DROP            { .kind = NFT_STMT_DROP }
#define FROM_OVERLAY    { .kind = NFT_STMT_FROM_OVERLAY }
#define NOT_FROM_OVERLAY { .kind = NFT_STMT_NOT_FROM_OVERLAY }
#define CT_TOP_IS(m)    { .kind = NFT_STMT_CT_TOP_IS, .n = (m) }
#define CT_TOP_SET      { .kind = NFT_STMT_CT_TOP_SET }
#define SET_DADDR_DIALLED(f) { .kind = NFT_STMT_SET_DADDR_DIALLED, .family = (f) }
#define CT_MARK_TOP(m)  { .kind = NFT_STMT_CT_MARK_TOP, .n = (m) }
#define MARK_TOP(m)     { .kind = NFT_STMT_MARK_TOP, .n = (m) }

#define NFT_COUNTED(type, ...) \
    (const type[]){ __VA_ARGS__ }, sizeof((const type[]){ __VA_ARGS__ }) / sizeof(type)
#define RULE(...) { NFT_COUNTED(struct nft_stmt, __VA_ARGS__) }
#define BASE_CHAIN(name, type, hook, priority, ...) \
    { name, type, hook, priority, NFT_COUNTED(struct nft_rule, __VA_ARGS__) }
#define CHAIN(name, ...) { name, NULL, NULL, 0, NFT_COUNTED(struct nft_rule, __VA_ARGS__) }
/* clang-format on */
