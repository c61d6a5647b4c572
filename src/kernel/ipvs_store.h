/* What is wanted of the kernel's IPVS state and what it has, entry by entry: a hash table over one
 * array, without an allocation for each. Several groups may want the same entry: each counts. */
#pragma once

#include "base/vec.h"
#include "model/ipvs.h"

enum ipvs_state {
    IPVS_HAS = 1,     /* the kernel has it */
    IPVS_DIFFERS = 2, /* with another value than `entry` */
    IPVS_DRAINS = 4,  /* a destination with weight 0 until its connections are over */
    IPVS_BUSY = 8,    /* which were not when last looked */
    IPVS_TOUCHED = 16,
    IPVS_FREE = 32, /* no record */
};

struct ipvs_record {
    struct ipvs_entry entry; /* as wanted; while nobody wants it as the kernel has it */
    uint32_t wanted;         /* by so many groups. FREE: the next free record + 1 */
    uint32_t state;          /* a set of enum ipvs_state */
};

struct ipvs_store {
    VEC(struct ipvs_record) records; /* FREE ones among them */
    uint32_t *slots;                 /* index + 1 */
    uint32_t cap, n, free;
    VEC(uint32_t) touched; /* to be looked at by the next ipvs_store_settle() */
};

/* The record's index, or IPVS_NONE. */
#define IPVS_NONE UINT32_MAX
uint32_t ipvs_store_find(const struct ipvs_store *s, const struct ipvs_key *k);

/* One group more, or less, wants the entry. */
void ipvs_store_want(struct ipvs_store *s, const struct ipvs_entry *e);
void ipvs_store_unwant(struct ipvs_store *s, const struct ipvs_entry *e);
/* The kernel has it, as it is told by a dump; `odd`: in a way no entry can say. */
void ipvs_store_has(struct ipvs_store *s, const struct ipvs_entry *e, bool odd);
/* Before it is read: the kernel has nothing, or no element of the set. */
void ipvs_store_forget_all(struct ipvs_store *s);
void ipvs_store_forget_set(struct ipvs_store *s, enum ipvs_set set, uint8_t family);

void ipvs_store_touch(struct ipvs_store *s, uint32_t i);
/* Drops records among the touched that nobody wants and the kernel does not have, and forgets what
 * was touched. */
void ipvs_store_settle(struct ipvs_store *s);
void ipvs_store_done(struct ipvs_store *s);
