/* What this node's BIRD should do, as values. Built by plan/trafficclass.c, made into text by
 * bird/render.c. Addresses, prefixes and numbers only, besides names of links and nodes: no text
 * that somebody wrote into an object gets this far unparsed.
 *
 * Everything is sorted by the key its comment names. */
#pragma once

#include <stddef.h>

#include "base/ip.h"

/* A session with one neighbour over the mesh; key: node, family of the addresses. */
struct bird_peer {
    const char *node;
    struct ip local, remote;
    const struct ip_prefix *cidrs; /* masked; what it may announce; of the same family */
    uint32_t n_cidrs;
};

struct bird_mesh {
    const char *link;
    uint32_t asn;
    uint32_t hold_time; /* seconds */
    bool bfd, graceful_restart;
    const struct bird_peer *peers;
    size_t n_peers;
};

/* What BIRD does in one routing table of the kernel; key: number. */
struct bird_table {
    uint32_t number;
    const char *owner;           /* "trafficclass/NAME" */
    bool families[2];            /* IPv4, IPv6 */
    const char *const *attached; /* links whose networks are written */
    uint32_t n_attached;
    const struct ip_prefix *own_cidrs; /* masked; this node's pods, announced */
    uint32_t n_own_cidrs;
    const char *pod_device;       /* the own CIDRs are written, too, through it; "": they are not */
    const char *gateway_link;     /* bird_symbol_ok(); "": BIRD writes no default */
    struct ip gateway[2];         /* IPv4, IPv6; IP_NONE: none */
    const struct bird_mesh *mesh; /* NULL: none */
};

struct bird_config {
    struct ip router_id; /* IPv4 */
    const struct bird_table *tables;
    size_t n_tables;
};

/* Fit to stand between apostrophes, where BIRD wants the link of a next hop: letters, digits and
 * any of "_.:-". */
bool bird_symbol_ok(const char *s);
