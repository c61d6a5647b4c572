/* The vocabulary of nftables rules: a rule is an array of statements, as values.
 *
 * One table, written once, with two back ends: text (model/nft_text.h) and netlink
 * (kernel/nft_rule.c). model/nft_words.h has a constructor for each statement, so that a
 * rule in C reads as nft reads it; plan/ruleset.c is the table. Everything here is constant
 * data and borrowed for ever. */
#pragma once

#include "model/nft.h"

/* What a packet is asked for. */
enum nft_expr {
    NFT_EXPR_END = 0,
    NFT_EXPR_IIFNAME,      /* iifname */
    NFT_EXPR_OIFNAME,      /* oifname */
    NFT_EXPR_DIALLED4,     /* ct original ip daddr */
    NFT_EXPR_DIALLED6,     /* ct original ip6 daddr */
    NFT_EXPR_L4PROTO,      /* meta l4proto */
    NFT_EXPR_DPORT,        /* th dport */
    NFT_EXPR_DIALLED_PORT, /* ct original proto-dst */
};

/* What is looked up: one expression for each field of the set. */
enum nft_key {
    NFT_OIFNAME,
    NFT_DIALLED4,
    NFT_DIALLED6,
    NFT_IIF_DIALLED4, /* iifname . ct original ip daddr */
    NFT_IIF_DIALLED6,
    NFT_FLOW4, /* ct original ip daddr . meta l4proto . th dport */
    NFT_FLOW6,
    NFT_DIALLED_FLOW4, /* the same values once the packet's own port is the target's: */
    NFT_DIALLED_FLOW6, /* ct original ip daddr . meta l4proto . ct original proto-dst */
    NFT_KEY_COUNT
};
extern const enum nft_expr nft_keys[NFT_KEY_COUNT][3];

enum nft_stmt_kind {
    NFT_STMT_CT_STATE_NEW,   /* ct state new */
    NFT_STMT_CT_STATUS_DNAT, /* ct status dnat */
    NFT_STMT_CT_UNCONFIRMED, /* ct status ! confirmed */
    NFT_STMT_CT_UNASSURED,   /* ct status ! assured */
    NFT_STMT_CT_REPLY,       /* ct direction reply */
    NFT_STMT_L4PROTO,        /* meta l4proto PROTO */
    NFT_STMT_TCP_SYN,        /* tcp flags & syn == syn */
    NFT_STMT_IN,             /* KEY @SET */
    NFT_STMT_COUNTER,        /* counter */
    NFT_STMT_JUMP,           /* jump CHAIN */
    NFT_STMT_GOTO,           /* goto CHAIN */
    NFT_STMT_RETURN,         /* return */
    NFT_STMT_REJECT_RESET,   /* reject with tcp reset */
    NFT_STMT_REJECT_PORT,    /* reject with icmpx port-unreachable */
    NFT_STMT_SET_DADDR,      /* ip daddr set ADDRESS */
    NFT_STMT_DNAT,           /* dnat ip to KEY map @SET: address, and port when the map has one */
    NFT_STMT_SNAT_SADDR,     /* snat ip to ip saddr: claims the connection, changes nothing */
    NFT_STMT_MARK,           /* meta mark set KEY map @SET */
    NFT_STMT_MSS_TO_MTU,     /* tcp option maxseg size set rt mtu */
};

struct nft_stmt {
    enum nft_stmt_kind kind;
    uint8_t family; /* IP_V4 or IP_V6: NFPROTO, SET_DADDR, DNAT, SNAT_SADDR */
    uint8_t proto;  /* L4PROTO: enum l4proto */
    enum nft_set set;
    enum nft_key key;
    const char *text; /* JUMP, GOTO: the chain; SET_DADDR: the address */
};

struct nft_rule {
    const struct nft_stmt *stmts;
    size_t n;
};

struct nft_chain {
    const char *name;
    /* A base chain; type NULL: a chain to jump to. Policy is always accept. */
    const char *type; /* "filter", "nat", "route" */
    const char *hook; /* "prerouting", "forward", "output", "postrouting" */
    int32_t priority;
    const struct nft_rule *rules;
    size_t n;
};

struct nft_table { /* family inet */
    const char *name;
    const char *comment;
    const struct nft_set_def *sets; /* NFT_SET_COUNT of them */
    uint64_t holds;                 /* 1 << set for each it has */
    const struct nft_chain
        *chains; /* a chain stands before those it jumps to or after: any order */
    size_t n_chains;
};
bool nft_table_has(const struct nft_table *t, int set);
