#include "kernel/ipvs_store.h"

#include <string.h>

#include "base/map.h"

#define CAP_MIN 64

static uint32_t slot_of(const struct ipvs_store *s, const struct ipvs_key *k)
{
    uint32_t at = (uint32_t)hash_bytes(k, sizeof(*k)) & (s->cap - 1);
    while (s->slots[at] && memcmp(&s->records.v[s->slots[at] - 1].entry.key, k, sizeof(*k)))
        at = (at + 1) & (s->cap - 1);
    return at;
}

static void rehash(struct ipvs_store *s, uint32_t cap)
{
    free(s->slots);
    s->slots = xcalloc(cap, sizeof(*s->slots));
    s->cap = cap;
    for (uint32_t i = 0; i < s->records.n; i++)
        if (!(s->records.v[i].state & IPVS_FREE))
            s->slots[slot_of(s, &s->records.v[i].entry.key)] = i + 1;
}

uint32_t ipvs_store_find(const struct ipvs_store *s, const struct ipvs_key *k)
{
    return s->cap ? s->slots[slot_of(s, k)] - 1 : IPVS_NONE;
}

static uint32_t add(struct ipvs_store *s, const struct ipvs_entry *e)
{
    if ((s->n + 1) * 4 > s->cap * 3)
        rehash(s, s->cap ? s->cap * 2 : CAP_MIN);
    uint32_t i = s->free - 1;
    if (s->free)
        s->free = s->records.v[i].wanted;
    else {
        i = (uint32_t)s->records.n;
        vec_push(&s->records, (struct ipvs_record){ 0 });
    }
    s->records.v[i] = (struct ipvs_record){ .entry = *e };
    s->slots[slot_of(s, &e->key)] = i + 1;
    s->n++;
    return i;
}

/* What stands behind a removed entry moves up, or it would no longer be found. */
static void close_gap(struct ipvs_store *s, uint32_t gap)
{
    uint32_t mask = s->cap - 1;
    for (uint32_t at = (gap + 1) & mask; s->slots[at]; at = (at + 1) & mask) {
        const struct ipvs_key *k = &s->records.v[s->slots[at] - 1].entry.key;
        uint32_t home = (uint32_t)hash_bytes(k, sizeof(*k)) & mask;
        if (((at - home) & mask) < ((at - gap) & mask))
            continue;
        s->slots[gap] = s->slots[at];
        gap = at;
    }
    s->slots[gap] = 0;
}

static void drop(struct ipvs_store *s, uint32_t i)
{
    close_gap(s, slot_of(s, &s->records.v[i].entry.key));
    s->records.v[i] = (struct ipvs_record){ .wanted = s->free, .state = IPVS_FREE };
    s->free = i + 1;
    s->n--;
}

static uint32_t find_or_add(struct ipvs_store *s, const struct ipvs_entry *e)
{
    uint32_t i = ipvs_store_find(s, &e->key);
    return i == IPVS_NONE ? add(s, e) : i;
}

void ipvs_store_touch(struct ipvs_store *s, uint32_t i)
{
    if (s->records.v[i].state & IPVS_TOUCHED)
        return;
    s->records.v[i].state |= IPVS_TOUCHED;
    vec_push(&s->touched, i);
}

void ipvs_store_want(struct ipvs_store *s, const struct ipvs_entry *e)
{
    uint32_t i = find_or_add(s, e);
    struct ipvs_record *r = &s->records.v[i];
    if (!ipvs_entry_equal(&r->entry, e)) {
        r->entry = *e;
        r->state |= IPVS_DIFFERS;
    }
    r->wanted++;
    ipvs_store_touch(s, i);
}

void ipvs_store_unwant(struct ipvs_store *s, const struct ipvs_entry *e)
{
    uint32_t i = ipvs_store_find(s, &e->key);
    s->records.v[i].wanted--;
    ipvs_store_touch(s, i);
}

void ipvs_store_has(struct ipvs_store *s, const struct ipvs_entry *e, bool odd)
{
    uint32_t i = find_or_add(s, e);
    struct ipvs_record *r = &s->records.v[i];
    r->state |= IPVS_HAS;
    if (odd || !ipvs_entry_equal(&r->entry, e))
        r->state |= IPVS_DIFFERS;
    ipvs_store_touch(s, i);
}

static void forget(struct ipvs_store *s, uint32_t i)
{
    s->records.v[i].state &= IPVS_TOUCHED;
    ipvs_store_touch(s, i);
}

void ipvs_store_forget_all(struct ipvs_store *s)
{
    for (uint32_t i = 0; i < s->records.n; i++)
        if (!(s->records.v[i].state & IPVS_FREE))
            forget(s, i);
}

void ipvs_store_forget_set(struct ipvs_store *s, enum ipvs_set set, uint8_t family)
{
    for (uint32_t i = 0; i < s->records.n; i++) {
        const struct ipvs_key *k = &s->records.v[i].entry.key;
        if (!(s->records.v[i].state & IPVS_FREE) && k->kind == IPVS_SET_ENTRY && k->set == set &&
            k->family == family)
            forget(s, i);
    }
}

void ipvs_store_settle(struct ipvs_store *s)
{
    for (size_t k = 0; k < s->touched.n; k++) {
        struct ipvs_record *r = &s->records.v[s->touched.v[k]];
        r->state &= ~(uint32_t)IPVS_TOUCHED;
        if (!r->wanted && !(r->state & IPVS_HAS))
            drop(s, s->touched.v[k]);
    }
    s->touched.n = 0;
}

void ipvs_store_done(struct ipvs_store *s)
{
    vec_done(&s->records);
    vec_done(&s->touched);
    free(s->slots);
    *s = (struct ipvs_store){ 0 };
}
