/* Desired links, addresses, routes and rules for tests, shaped as the planner shapes them. */
#pragma once

#include "base/arena.h"
#include "base/vec.h"
#include "model/desired.h"

struct want {
    struct arena mem;
    VEC(struct desired_link) links;
    VEC(struct desired_addr) addrs;
    VEC(struct desired_neigh) neighs;
    VEC(struct desired_route) routes;
    VEC(struct desired_rule) rules;
    struct desired d; /* of want_finish() */
};

struct want_slot {
    unsigned slot, side; /* side 0 or 1: which end we are */
    uint16_t port;       /* 0: 4790 */
    struct ip local, remote;
    uint32_t mtu;
    bool ipv6;
};

/* A link with all that belongs to it. VNI 4242 + slot. */
void want_slot(struct want *w, struct want_slot s);
/* Our end of the link (side 0 or 1). */
struct ip want_end(unsigned slot, unsigned side, bool ipv6);
const char *want_name(struct want *w, unsigned slot, uint16_t port);
/* The overlay's device with our address 169.254.96.SELF, and its peers. */
void want_overlay(struct want *w, uint8_t self, struct ip local);
/* A neighbour 169.254.96.PEER there. */
void want_peer(struct want *w, uint8_t peer, struct ip outer);
void want_unreachable(struct want *w, const char *prefix);
/* Sorts; the result is valid as long as `w`. */
const struct desired *want_finish(struct want *w);
void want_done(struct want *w);
