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
    NFT_EXPR_SADDR4,       /* ip saddr */
    NFT_EXPR_SADDR6,       /* ip6 saddr */
    NFT_EXPR_DADDR4,       /* ip daddr */
    NFT_EXPR_DADDR6,       /* ip6 daddr */
    NFT_EXPR_PRIORITY,     /* meta priority */
    NFT_EXPR_ETHER_SADDR,  /* ether saddr */
    NFT_EXPR_CT_MARK_TOP,  /* ct mark & 0xff000000 */
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
    NFT_SADDR4,
    NFT_SADDR6,
    NFT_DADDR4,
    NFT_DADDR6,
    NFT_SADDR_DADDR4,
    NFT_SADDR_DADDR6,
    NFT_PRIORITY,
    NFT_SADDR_PRIORITY4,
    NFT_SADDR_PRIORITY6,
    NFT_SERVICE_KEY4, /* ip daddr . meta l4proto . th dport: before any translation */
    NFT_SERVICE_KEY6,
    NFT_SERVICE_SADDR4,
    NFT_SERVICE_SADDR6,
    NFT_SERVICE_PRIORITY4,
    NFT_SERVICE_PRIORITY6,
    NFT_FLOW_PRIORITY4, /* NFT_SERVICE_PRIORITY4 once the destination is an endpoint's */
    NFT_FLOW_PRIORITY6,
    NFT_FLOW_DADDR4, /* NFT_FLOW4 . ip daddr */
    NFT_FLOW_DADDR6,
    NFT_ETHER_SADDR,
    NFT_CT_MARK_TOP,
    NFT_KEY_COUNT
};
extern const enum nft_expr nft_keys[NFT_KEY_COUNT][NFT_FIELDS_MAX];

enum nft_stmt_kind {
    NFT_STMT_CT_STATE_NEW,     /* ct state new */
    NFT_STMT_CT_STATUS_DNAT,   /* ct status dnat */
    NFT_STMT_CT_UNCONFIRMED,   /* ct status ! confirmed */
    NFT_STMT_CT_UNASSURED,     /* ct status ! assured */
    NFT_STMT_CT_REPLY,         /* ct direction reply */
    NFT_STMT_L4PROTO,          /* meta l4proto PROTO */
    NFT_STMT_TCP_SYN,          /* tcp flags & syn == syn */
    NFT_STMT_IN,               /* KEY @SET */
    NFT_STMT_COUNTER,          /* counter */
    NFT_STMT_JUMP,             /* jump CHAIN */
    NFT_STMT_GOTO,             /* goto CHAIN */
    NFT_STMT_RETURN,           /* return */
    NFT_STMT_REJECT_RESET,     /* reject with tcp reset */
    NFT_STMT_REJECT_PORT,      /* reject with icmpx port-unreachable */
    NFT_STMT_SET_DADDR,        /* ip daddr set ADDRESS */
    NFT_STMT_DNAT,             /* dnat ip to KEY map @SET: address, and port when the map has one */
    NFT_STMT_SNAT_SADDR,       /* snat ip to ip saddr: claims the connection, changes nothing */
    NFT_STMT_MARK,             /* meta mark set KEY map @SET */
    NFT_STMT_MSS_TO_MTU,       /* tcp option maxseg size set rt mtu */
    NFT_STMT_NOT_IN,           /* KEY != @SET */
    NFT_STMT_SADDR_LOCAL,      /* fib saddr type local */
    NFT_STMT_DADDR_LOCAL,      /* fib daddr type local */
    NFT_STMT_VMAP,             /* KEY vmap @SET */
    NFT_STMT_PRIORITY,         /* meta priority set KEY map @SET */
    NFT_STMT_RANDOM,           /* meta priority set numgen random mod N [offset OFFSET] */
    NFT_STMT_DADDR,            /* ip daddr set KEY map @SET */
    NFT_STMT_UPDATE,           /* update @SET { KEY timeout Ns : ip daddr } */
    NFT_STMT_DELETE,           /* delete @SET { KEY : ip daddr } */
    NFT_STMT_IS_MARKED,        /* meta mark & BIT == BIT, of nft_table.masquerade_mark */
    NFT_STMT_MARK_SET,         /* meta mark set meta mark | BIT */
    NFT_STMT_MARK_FLIP,        /* meta mark set meta mark ^ BIT */
    NFT_STMT_MASQUERADE,       /* masquerade fully-random */
    NFT_STMT_DROP,             /* drop */
    NFT_STMT_FROM_OVERLAY,     /* iifname OVERLAY, of nft_table.overlay */
    NFT_STMT_NOT_FROM_OVERLAY, /* iifname != OVERLAY */
    NFT_STMT_CT_TOP_IS,        /* ct mark & 0xff000000 == N << 24 */
    NFT_STMT_CT_TOP_SET,       /* ct mark & 0xff000000 != 0 */
    NFT_STMT_SET_DADDR_DIALLED, /* ip daddr set ct original ip daddr */
    NFT_STMT_CT_MARK_TOP,       /* ct mark set N << 24, keeping the other bits */
    NFT_STMT_MARK_TOP,          /* meta mark set N << 24, keeping the other bits */
};

struct nft_stmt {
    enum nft_stmt_kind kind;
    uint8_t family; /* IP_V4 or IP_V6: those that name an address */
    uint8_t proto;  /* L4PROTO: enum l4proto */
    enum nft_set set;
    enum nft_key key;
    const char *text; /* JUMP, GOTO: the chain; SET_DADDR: the address */
    uint32_t n;       /* RANDOM, CT_TOP_IS, CT_MARK_TOP, MARK_TOP: N; UPDATE: seconds */
    uint32_t offset;  /* RANDOM */
};
/* IP_V4 or IP_V6 when the statement reads or writes such a header, else 0. */
uint8_t nft_stmt_header(const struct nft_stmt *s);

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

#define NFT_CHAINS_MAX 40
struct nft_table { /* family inet; a value, whose pointers lead to constants */
    const char *name;
    const char *comment;
    const struct nft_set_def *sets; /* NFT_SET_COUNT of them */
    uint64_t holds;                 /* 1 << set for each it has */
    uint32_t masquerade_mark;       /* one bit */
    const char *overlay;            /* the interface where holders' packets arrive */
    const struct nft_chain *chains[NFT_CHAINS_MAX]; /* in any order: jumps lead both ways */
    size_t n_chains;
};
bool nft_table_has(const struct nft_table *t, int set);

/* The chain of a class. It points into itself: it stays where it was made. */
struct nft_class_chain {
    struct nft_chain chain;
    struct nft_rule rules[10];
    struct nft_stmt stmts[40];
    size_t n_stmts;
    char name[NFT_CLASS_NAME_MAX], next[2][NFT_CLASS_NAME_MAX];
};
void nft_class_chain(const struct nft_class *c, struct nft_class_chain *ret);
