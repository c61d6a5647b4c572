/* The nftables side of the desired state: sets, their elements, and rules as values.
 *
 * The table is constant: its sets, chains and rules never depend on the cluster; only
 * elements do (plan/ruleset.c holds the table, docs/datapath.md explains it). An element
 * is a packed byte string so that 10,000 mappings stay small and compare with memcmp.
 *
 * Elements travel in groups: one group per mapping (owner "portmap/NS/NAME") and one of
 * what belongs to the node ("node"). Groups are reference counted and never change once
 * built: an unchanged mapping keeps its group pointer from pass to pass, which is how the
 * diff skips it. Text form: model/nft_text.h. Netlink form: kernel/nft.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ip.h"
#include "model/object.h"

/* Names in nftables: nft_set_defs[]. "flow" = ct original {ip,ip6} daddr . meta l4proto . th dport */
enum nft_set {
    NFT_LINKS,   /* ifname: our VXLAN links */
    NFT_IFADDR4, /* ifname . ip: (interface, address) pairs mappings answer on */
    NFT_IFADDR6,
    /* flow: steered, and claimed by the identity SNAT. Never one whose target is the very address
     * and port that was dialled: a translation to the same is none, and the packet would keep its
     * stand-in destination. */
    NFT_OPEN4,
    NFT_OPEN6,
    NFT_OPENRANGE4, /* the same, flow with a port interval */
    NFT_OPENRANGE6,
    NFT_REFUSE4, /* flow: mapped, but no endpoint: refused */
    NFT_REFUSE6,
    NFT_REFUSERANGE4,
    NFT_REFUSERANGE6,
    NFT_TARGET4, /* flow : ip . port, with a counter per element */
    NFT_TARGET6,
    NFT_TARGETRANGE4, /* flow with a port interval : ip (ports kept) */
    NFT_TARGETRANGE6,
    NFT_REPLYMARK4, /* dialled address : mark its replies carry: our end of a link and the link's
                       mark, or an address of this node and EDGE_MARK */
    NFT_REPLYMARK6,
    NFT_SET_COUNT
};

/* nftables datatypes, in register form */
enum nft_field {
    NFT_FIELD_NONE = 0,
    NFT_FIELD_IFNAME, /* 16 bytes, NUL padded */
    NFT_FIELD_IP4,    /* 4 bytes */
    NFT_FIELD_IP6,    /* 16 bytes */
    NFT_FIELD_PROTO,  /* 1 byte, padded to 4 */
    NFT_FIELD_PORT,   /* 2 bytes big endian, padded to 4 */
    NFT_FIELD_MARK,   /* 4 bytes host order */
};

/* Bytes in a register, padding included. */
size_t nft_field_size(enum nft_field field);

struct nft_set_def {
    const char *name;
    enum nft_field key[3];
    enum nft_field data[2]; /* {0}: a set, not a map */
    uint32_t size;          /* elements at most; 0: no limit */
    bool interval;          /* a concatenation with ranges */
    bool counter;           /* every element counts */
};
extern const struct nft_set_def nft_set_defs[NFT_SET_COUNT];

/* Bytes of the key and of the data, as the fields add up. */
size_t nft_set_klen(enum nft_set set);
size_t nft_set_dlen(enum nft_set set);

/* key, then key end (intervals only: the same length), then data, in register form. */
struct nft_elem {
    uint8_t set;  /* enum nft_set */
    uint8_t klen; /* bytes of the key; 0: the element for all other keys, which only others make */
    uint8_t elen; /* 0 or klen */
    uint8_t dlen; /* bytes of data, 0 in a set */
    uint8_t b[];  /* no alignment: read fields with memcpy */
};

struct nft_group {
    uint32_t refs;
    uint32_t n;
    const struct nft_elem **elems; /* sorted by nft_elem_cmp_key, keys unique */
    const char *owner;             /* "portmap/NS/NAME" or "node" */
};

/* Total order by set, key and key end. */
int nft_elem_cmp_key(const struct nft_elem *a, const struct nft_elem *b);
bool nft_elem_equal(const struct nft_elem *a, const struct nft_elem *b);
size_t nft_elem_size(const struct nft_elem *e);

/* Builder: elements in any order, duplicates by key dropped (the first stays). */
struct nft_group_builder;
struct nft_group_builder *nft_group_begin(const char *owner);
struct nft_group *nft_group_end(struct nft_group_builder *b); /* refs = 1; frees the builder */
void nft_put_ifname(struct nft_group_builder *b, enum nft_set set, const char *ifname);
/* set is the IPv4 member of a 4/6 pair; the address's family picks the twin. */
void nft_put_ifaddr(struct nft_group_builder *b, const char *ifname, const struct ip *ip);
/* A flow key: address, protocol, port..end (end == port for the exact sets). */
void nft_put_flow(struct nft_group_builder *b, enum nft_set set, const struct ip *dialled,
                  enum l4proto proto, uint16_t port, uint16_t end);
/* NFT_TARGET4: with the target's port. NFT_TARGETRANGE4: port ignored. */
void nft_put_target(struct nft_group_builder *b, enum nft_set set, const struct ip *dialled,
                    enum l4proto proto, uint16_t port, uint16_t end, const struct ip *target,
                    uint16_t target_port);
void nft_put_mark(struct nft_group_builder *b, enum nft_set set, const struct ip *dialled,
                  uint32_t mark);

struct nft_group *nft_group_ref(struct nft_group *g);
void nft_group_unref(struct nft_group *g); /* accepts NULL */
bool nft_group_equal(const struct nft_group *a, const struct nft_group *b);
