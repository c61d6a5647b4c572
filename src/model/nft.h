/* The nftables side of the desired state: sets, their elements, and rules as values.
 *
 * The table is constant: its sets, chains and rules never depend on the cluster; only
 * elements do (plan/ruleset.c holds the table, docs/datapath.md explains it). Class chains
 * (struct nft_class) come and go with the elements that lead to them. An element
 * is a packed byte string so that 10,000 mappings stay small and compare with memcmp.
 *
 * Elements travel in groups: one group per mapping (owner "portmap/NS/NAME") or service
 * ("service/NS/NAME"), one of what belongs to the node ("node") and one of what all services
 * share ("proxy"). Groups are reference counted and never change once
 * built: an unchanged mapping keeps its group pointer from pass to pass, which is how the
 * diff skips it. Text form: model/nft_text.h. Netlink form: kernel/nft.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ip.h"
#include "model/object.h"

/* Names in nftables: nft_set_defs[]. "flow" = ct original {ip,ip6} daddr . meta l4proto . th dport;
 * "service" = {ip,ip6} daddr . meta l4proto . th dport, the packet's own. */
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
                       mark, or an address of this node and EDGE_MARK or
                       EDGE_MARK_BASE | a traffic class's table */
    NFT_REPLYMARK6,

    NFT_SERVICE4, /* service : its class */
    NFT_SERVICE6,
    NFT_ENDPOINT4, /* service . index : ip . port; see struct nft_class for the indexes */
    NFT_ENDPOINT6,
    NFT_CLUSTERIP4, /* ip: of services; what no service answers there is refused */
    NFT_CLUSTERIP6,
    NFT_SERVICERANGE4, /* ip, interval: where cluster IPs come from; what is none is dropped */
    NFT_SERVICERANGE6,
    NFT_PODRANGE4, /* ip, interval: clients inside the cluster */
    NFT_PODRANGE6,
    NFT_SOURCERANGE4, /* service . ip saddr, interval: who may dial it, where not everybody may */
    NFT_SOURCERANGE6,
    NFT_HAIRPIN4, /* client's ip . endpoint's ip: an endpoint that is its own client, or its node */
    NFT_HAIRPIN6,
    NFT_AFFINITYID4, /* service : meta priority, the id of a service port whose clients stay */
    NFT_AFFINITYID6,
    NFT_AFFINITYENDPOINT4, /* service . ip : ip . port, where a client may stay */
    NFT_AFFINITYENDPOINT6,
    NFT_AFFINITYALL4, /* the same for who is sent to all endpoints: nft_class.offset */
    NFT_AFFINITYALL6,
    NFT_AFFINITY4, /* ip saddr . meta priority : ip: where a client was sent. The kernel fills it */
    NFT_AFFINITY6,
    NFT_AFFINITYTIMEOUT, /* meta priority : goto the chain that remembers for so long */
    NFT_CLASSES, /* meta priority : goto the chain of the class. kernel/ keeps it: in no group */

    /* Held addresses, which are services as well: IPv4 alone. */
    NFT_HELD4,        /* flow: steered; its clients keep their address */
    NFT_HELDROUTE4,   /* flow: an endpoint is behind the overlay: its packets carry HELD_MARK */
    NFT_HELDNEAR4,    /* ip, interval . endpoint's ip: who is answered past this node */
    NFT_HOLDERS,      /* ether saddr : goto the chain that marks the connection */
    NFT_HOLDERMARKS,  /* connmark & 0xff000000 : goto the chain that marks replies to the holder */
    NFT_HOLDERCLAIMS, /* connmark & 0xff000000: keeps its client's address */
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
    NFT_FIELD_PRIORITY, /* 4 bytes host order: meta priority, for us a register that `type` can name */
    NFT_FIELD_ETHER,    /* 6 bytes; a key of its own only, for which nothing is padded */
    NFT_FIELD_VERDICT, /* goto a class chain: a struct nft_class */
    /* A struct nft_class; in the kernel the 4 bytes, host order, by which NFT_CLASSES has its chain.
     * Not a verdict: for each new one the kernel looks at all verdicts of the map, once for every
     * base chain that leads there, which takes 1.5 ms at 10,000 services. */
    NFT_FIELD_CLASS,
};

/* Bytes in a register, padding included. */
size_t nft_field_size(enum nft_field field);

#define NFT_FIELDS_MAX 4

struct nft_set_def {
    const char *name;
    enum nft_field key[NFT_FIELDS_MAX];
    enum nft_field data[2]; /* {0}: a set, not a map */
    uint32_t size;          /* elements at most; 0: no limit */
    bool interval;          /* of ranges */
    bool counter;           /* every element counts */
    bool dynamic;           /* filled by rules, with timeouts: never read, never compared */
};
extern const struct nft_set_def nft_set_defs[NFT_SET_COUNT];

/* Bytes of the key and of the data, as the fields add up. */
size_t nft_set_klen(enum nft_set set);
size_t nft_set_dlen(enum nft_set set);

/* ---- classes ---- */

enum nft_class_kind {
    NFT_CLASS_PICK,     /* to one of the endpoints */
    NFT_CLASS_REJECT,   /* TCP: reset; others: port unreachable */
    NFT_CLASS_DROP,     /* silence */
    NFT_CLASS_REMEMBER, /* of NFT_AFFINITYTIMEOUT: keeps the client at its endpoint; both families */
    NFT_CLASS_HOLDER,   /* of NFT_HOLDERS: marks the connection, n in the top byte */
    NFT_CLASS_REPLY,    /* of NFT_HOLDERMARKS: marks the packet likewise */
};
enum nft_masquerade {
    NFT_MASQUERADE_NEVER,
    NFT_MASQUERADE_OUTSIDE, /* clients outside NFT_PODRANGE4 */
    NFT_MASQUERADE_ALWAYS,
};

/* What happens to a packet of a service: the data of NFT_SERVICE4. Services of one class share
 * one chain, whose name is the class in words: "pick4-3-outside". Endpoints have the indexes
 * 0..n-1 of NFT_ENDPOINT4, and NFT_INDEX_ALL.. those for who is sent to all endpoints of a
 * service whose external policy is Local. */
struct nft_class {
    uint8_t family;     /* IP_V4, IP_V6; 0 from REMEMBER on */
    uint8_t kind;       /* enum nft_class_kind */
    uint8_t masquerade; /* enum nft_masquerade; PICK */
    bool ranged;        /* drops clients outside NFT_SOURCERANGE4; PICK and REJECT */
    bool offset;        /* PICK among n from NFT_INDEX_ALL on, affinity by NFT_AFFINITYALL4 */
    uint16_t n;         /* PICK: endpoints; 0: drops. HOLDER, REPLY: 1 to HOLDER_MARK_MAX */
    uint16_t n_all;     /* PICK: above 0, pods and this node are sent to all of so many */
    uint32_t timeout;   /* seconds of affinity; 0: none. REMEMBER: not 0 */
};
#define NFT_INDEX_ALL      32768u
#define NFT_CLASS_NAME_MAX 96

const char *nft_class_name(const struct nft_class *c, char out[static NFT_CLASS_NAME_MAX]);
/* The inverse; false for any other text. */
bool nft_class_parse(const char *name, struct nft_class *ret);
/* NFT_CLASSES has its chain; otherwise elements lead to the chain themselves. */
bool nft_class_is_numbered(const struct nft_class *c);
/* The classes whose chains the chain of the class goes to: 0 or 2 of them. */
size_t nft_class_next(const struct nft_class *c, struct nft_class ret[static 2]);

/* ---- elements and groups ---- */

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
    uint32_t n;         /* elements, sorted by nft_elem_cmp_key, keys unique */
    uint32_t size;      /* bytes of the elements */
    const char *owner;  /* "portmap/NS/NAME", "service/NS/NAME", "node", "proxy" */
    uint8_t elements[]; /* one after the other: nft_group_next() */
};
/* The element after e; NULL: the first; NULL at the end. */
const struct nft_elem *nft_group_next(const struct nft_group *g, const struct nft_elem *e);

/* Total order by set, key and key end. */
int nft_elem_cmp_key(const struct nft_elem *a, const struct nft_elem *b);
bool nft_elem_equal(const struct nft_elem *a, const struct nft_elem *b);
size_t nft_elem_size(const struct nft_elem *e);
/* Of an element whose data is a class or a verdict; false when it leads to no class, which
 * only an element of others does. */
bool nft_elem_class(const struct nft_elem *e, struct nft_class *ret);

/* Builder: elements in any order; of equal keys the first stays, and of intervals one of which
 * is inside another the outer one. */
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

/* The same for the sets of services. `daddr`, `proto` and `port` are what is dialled; its family
 * picks the twin. */
void nft_put_service(struct nft_group_builder *b, const struct ip *daddr, enum l4proto proto,
                     uint16_t port, const struct nft_class *c);
void nft_put_endpoint(struct nft_group_builder *b, const struct ip *daddr, enum l4proto proto,
                      uint16_t port, uint16_t index, const struct ip *ep, uint16_t ep_port);
void nft_put_affinity(struct nft_group_builder *b, const struct ip *daddr, enum l4proto proto,
                      uint16_t port, uint32_t id);
void nft_put_affinity_timeout(struct nft_group_builder *b, uint32_t id, uint32_t seconds);
/* set: NFT_AFFINITYENDPOINT4 or NFT_AFFINITYALL4 */
void nft_put_affinity_endpoint(struct nft_group_builder *b, enum nft_set set,
                               const struct ip *daddr, enum l4proto proto, uint16_t port,
                               const struct ip *ep, uint16_t ep_port);
/* set: NFT_CLUSTERIP4 */
void nft_put_address(struct nft_group_builder *b, enum nft_set set, const struct ip *ip);
/* set: NFT_HAIRPIN4 */
void nft_put_pair(struct nft_group_builder *b, enum nft_set set, const struct ip *client,
                  const struct ip *ep);
/* set: NFT_PODRANGE4, NFT_SERVICERANGE4 */
void nft_put_prefix(struct nft_group_builder *b, enum nft_set set, const struct ip_prefix *prefix);
void nft_put_source_range(struct nft_group_builder *b, const struct ip *daddr, enum l4proto proto,
                          uint16_t port, const struct ip_prefix *prefix);

/* The sets of held addresses. */
void nft_put_near(struct nft_group_builder *b, const struct ip_prefix *clients,
                  const struct ip *ep);
/* 1 to HOLDER_MARK_MAX: elements of all three sets of holders. */
void nft_put_holder(struct nft_group_builder *b, const uint8_t mac[static 6], uint8_t mark);

struct nft_group *nft_group_ref(struct nft_group *g);
void nft_group_unref(struct nft_group *g); /* accepts NULL */
bool nft_group_equal(const struct nft_group *a, const struct nft_group *b);
