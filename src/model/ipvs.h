/* The IPVS side of the desired state: virtual servers, their destinations, addresses of the device
 * kube-ipvs0 and elements of ipsets, as values; and what of sysctls and iptables does not depend on
 * Services. Who is programmed how: docs/serviceproxy.md.
 *
 * Entries travel in groups: one per Service ("service/NS/NAME") and one of what belongs to the node
 * ("proxy"). Groups are reference counted and never change once built: an unchanged Service keeps
 * its group's pointer from pass to pass. Within a group a key is there once. Several groups may
 * have entries of one key, then with equal values: bound addresses, KUBE-LOOP-BACK, node ports'
 * bitmaps. The kernel has such an entry while any group has it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/ip.h"
#include "model/object.h"

#define IPVS_LINK "kube-ipvs0" /* a dummy: what is bound is an address of it */

/* What has to be there first comes first. */
enum ipvs_kind {
    IPVS_SET_ENTRY,
    IPVS_BOUND,  /* an address of IPVS_LINK, /32 or /128 */
    IPVS_SERVER, /* virtual server; NAT, persistence by whole addresses */
    IPVS_DEST,   /* a server's destination; masquerading */
};

/* The types of the kernel's ipsets that are used. */
enum ipvs_set_type {
    IPSET_HASH_IP,
    IPSET_HASH_NET,
    IPSET_HASH_IP_PORT,
    IPSET_HASH_IP_PORT_IP,
    IPSET_HASH_IP_PORT_NET,
    IPSET_BITMAP_PORT, /* 0-65535, of no family */
};

/* Each is there twice, "KUBE-CLUSTER-IP" of IPv4 and "KUBE-6-CLUSTER-IP" of IPv6. "Local": by the
 * external traffic policy. */
enum ipvs_set {
    KUBE_LOOP_BACK,  /* endpoint here, its port, the same address: its own client */
    KUBE_CLUSTER_IP, /* cluster IP, port */
    KUBE_EXTERNAL_IP,
    KUBE_EXTERNAL_IP_LOCAL, /* those that are Local: in KUBE_EXTERNAL_IP too */
    KUBE_LOAD_BALANCER,
    KUBE_LOAD_BALANCER_FW,    /* those with source ranges */
    KUBE_LOAD_BALANCER_LOCAL, /* those that are Local */
    KUBE_LOAD_BALANCER_SOURCE_IP,
    KUBE_LOAD_BALANCER_SRC_CIDR, /* load balancer's IP, port, who may dial it */
    KUBE_NODE_PORT_TCP,
    KUBE_NODE_PORT_LOCAL_TCP,
    KUBE_NODE_PORT_UDP,
    KUBE_NODE_PORT_LOCAL_UDP,
    KUBE_NODE_PORT_SCTP, /* node's address, port */
    KUBE_NODE_PORT_LOCAL_SCTP,
    KUBE_HEALTH_CHECK_NODE_PORT,
    KUBE_IPVS_IPS,     /* what is bound: refused but where a Service is */
    KUBE_DROP,         /* address, port: nobody gets an answer */
    KUBE_REJECT,       /* address, port: no endpoint anywhere */
    KUBE_DROP_OUTSIDE, /* address, port: only pods and this node get one */
    KUBE_POD_RANGE,    /* who is a pod */
    KUBE_SET_COUNT
};
struct ipvs_set_def {
    const char *name4, *name6;
    enum ipvs_set_type type;
    const char *comment; /* of rules that match it */
};
extern const struct ipvs_set_def ipvs_set_defs[KUBE_SET_COUNT];
const char *ipvs_set_name(enum ipvs_set set, uint8_t family);
const char *ipvs_set_type_name(enum ipvs_set_type type); /* "hash:ip,port" */
/* Elements at most, of the hashes. */
#define IPVS_SET_MAXELEM (1u << 20)

/* The kernel's name of each is ipvs_scheduler_name(). */
enum ipvs_scheduler {
    IPVS_RR,
    IPVS_WRR,
    IPVS_LC,
    IPVS_WLC,
    IPVS_LBLC,
    IPVS_LBLCR,
    IPVS_DH,
    IPVS_SH,
    IPVS_SED,
    IPVS_NQ,
    IPVS_SCHEDULER_COUNT
};
const char *ipvs_scheduler_name(enum ipvs_scheduler s);
/* Also "seq" for IPVS_SED; false for any other text. */
bool ipvs_scheduler_parse(const char *name, enum ipvs_scheduler *ret);

struct ipvs_key {       /* bytes: no padding; what is of no use to a kind is 0 */
    uint8_t kind;       /* enum ipvs_kind */
    uint8_t set;        /* enum ipvs_set, of a SET_ENTRY */
    uint8_t family;     /* IP_V4, IP_V6: also of the port in a bitmap */
    uint8_t proto;      /* enum l4proto; 0: of an address alone, or of a port in a bitmap */
    uint16_t port;      /* host order: SERVER's, the one of a set's element */
    uint16_t dest_port; /* DEST's */
    struct ip ip;       /* SERVER's, also in DEST; BOUND; a set's first address */
    struct ip other;    /* DEST's; a set's second address */
    uint8_t prefix_len; /* of a set's net: `other`, or `ip` where there is no other */
    uint8_t unused;
};
_Static_assert(sizeof(struct ipvs_key) == 44, "compared as bytes");

struct ipvs_entry { /* bytes as well */
    struct ipvs_key key;
    uint32_t timeout;  /* SERVER: seconds of persistence; 0: none */
    uint32_t weight;   /* DEST */
    uint8_t scheduler; /* SERVER: enum ipvs_scheduler */
    uint8_t unused[3];
};
_Static_assert(sizeof(struct ipvs_entry) == 56, "compared as bytes");

struct ipvs_group {
    uint32_t refs;
    uint32_t n;        /* by key, each once */
    const char *owner; /* "service/NS/NAME", "proxy" */
    struct ipvs_entry entries[];
};

/* Total order: by kind, set, family, then addresses, protocol and ports. */
int ipvs_key_cmp(const struct ipvs_key *a, const struct ipvs_key *b);
bool ipvs_entry_equal(const struct ipvs_entry *a, const struct ipvs_entry *b);
/* The key of the server a destination belongs to. */
struct ipvs_key ipvs_server_of(const struct ipvs_key *dest);

/* Builder: entries in any order; of equal keys the first stays. */
struct ipvs_group_builder;
struct ipvs_group_builder *ipvs_group_begin(const char *owner);
struct ipvs_group *ipvs_group_end(struct ipvs_group_builder *b); /* refs = 1; frees the builder */
void ipvs_put_server(struct ipvs_group_builder *b, const struct ip *ip, enum l4proto proto,
                     uint16_t port, enum ipvs_scheduler scheduler, uint32_t timeout);
void ipvs_put_dest(struct ipvs_group_builder *b, const struct ip *ip, enum l4proto proto,
                   uint16_t port, const struct ip *dest, uint16_t dest_port, uint32_t weight);
/* And lists it in KUBE_IPVS_IPS. */
void ipvs_put_bound(struct ipvs_group_builder *b, const struct ip *ip);
/* IPSET_HASH_IP_PORT */
void ipvs_put_address_port(struct ipvs_group_builder *b, enum ipvs_set set, const struct ip *ip,
                           enum l4proto proto, uint16_t port);
/* IPSET_HASH_IP_PORT_IP */
void ipvs_put_address_port_address(struct ipvs_group_builder *b, enum ipvs_set set,
                                   const struct ip *ip, enum l4proto proto, uint16_t port,
                                   const struct ip *other);
/* IPSET_HASH_IP_PORT_NET. Such sets have no /0: it becomes two halves. */
void ipvs_put_address_port_net(struct ipvs_group_builder *b, enum ipvs_set set, const struct ip *ip,
                               enum l4proto proto, uint16_t port, const struct ip_prefix *net);
/* IPSET_HASH_NET; the same. */
void ipvs_put_net(struct ipvs_group_builder *b, enum ipvs_set set, const struct ip_prefix *net);
/* IPSET_BITMAP_PORT */
void ipvs_put_port(struct ipvs_group_builder *b, enum ipvs_set set, uint8_t family, uint16_t port);

struct ipvs_group *ipvs_group_ref(struct ipvs_group *g);
void ipvs_group_unref(struct ipvs_group *g); /* accepts NULL */
bool ipvs_group_equal(const struct ipvs_group *a, const struct ipvs_group *b);

/* As ipset and ipvsadm write it: "KUBE-CLUSTER-IP 10.96.0.1,tcp:80", "kube-ipvs0 10.96.0.1",
 * "TCP 10.96.0.1:80 rr persistent 10800", "TCP 10.96.0.1:80 -> 10.244.0.5:8080 weight 1". */
void ipvs_text_entry(struct buf *out, const struct ipvs_entry *e);
/* The element of a set alone, as `ipset add SET` takes it. */
void ipvs_text_element(struct buf *out, const struct ipvs_key *k);

/* ---- of the node ---- */

enum iptables_mode {
    IPTABLES_AUTO, /* the kind that has rules; when neither has, what is installed as iptables */
    IPTABLES_NFT,
    IPTABLES_LEGACY,
};

struct iptables_chain {
    const char *table, *name;
};
/* Ours, in both families. The kubelet, too, may keep a KUBE-MARK-MASQ, KUBE-MARK-DROP and
 * KUBE-POSTROUTING, with the same rules. */
#define IPVS_CHAIN_COUNT 13
extern const struct iptables_chain ipvs_chains[];

/* A jump from a built-in chain into one of ours. Known by its whole text: kube-proxy's cleanup looks
 * for it so. */
struct iptables_jump {
    const char *table, *chain, *target;
    const char *comment;
};
/* Of both families; each is put at the head of its chain, in this order. */
#define IPVS_JUMP_COUNT 9
extern const struct iptables_jump ipvs_jumps[];

/* Its sysctls are in desired.sysctls; besides, kernels 4.1 to 5.8 need net/ipv4/vs/conn_reuse_mode 0. */
struct ipvs_want {
    /* Our chains with their rules, tables nat and filter, as iptables-restore --noflush takes it. The
     * jumps are not in it: restoring would add them once more. */
    const char *rules4, *rules6;
};
