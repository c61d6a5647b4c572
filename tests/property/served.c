#include "served.h"

#include "../unit/test.h"

#include <string.h>

#include "base/map.h"
#include "base/vec.h"

/* The first of the ids for which gen_service.c has three port names. */
#define COLLIDING_ID 1063255027u

struct index {
    struct map elems; /* set and key */
    uint64_t seed;
    size_t endpoints, affinities; /* expected */
};

static size_t key_of(uint8_t set, const uint8_t *a, size_t n, const void *more, size_t m,
                     uint8_t out[static 128])
{
    out[0] = set;
    memcpy(out + 1, a, n);
    if (m)
        memcpy(out + 1 + n, more, m);
    return 1 + n + m;
}

static const struct nft_elem *find(const struct index *x, unsigned set, const struct nft_elem *flow,
                                   const void *more, size_t m)
{
    uint8_t key[128];
    size_t n = key_of((uint8_t)set, flow->b, flow->klen, more, m, key);
    return map_get(&x->elems, key, n);
}

static void read_all(struct index *x, const struct desired *d)
{
    uint8_t key[128];
    for (size_t i = 0; i < d->n_groups; i++) {
        if (i && strcmp(d->groups[i - 1]->owner, d->groups[i]->owner) >= 0)
            fail_msg("seed %llu: groups are not in order", (unsigned long long)x->seed);
        for (const struct nft_elem *e = NULL; (e = nft_group_next(d->groups[i], e));) {
            size_t n = key_of(e->set, e->b, (size_t)e->klen + e->elen, NULL, 0, key);
            if (map_put(&x->elems, key, n, (void *)e))
                fail_msg("seed %llu: two groups want one key of %s", (unsigned long long)x->seed,
                         nft_set_defs[e->set].name);
        }
    }
}

/* Endpoints first..first+n-1 of a flow are there, and clients may stay at each. */
static void check_endpoints(struct index *x, const struct nft_elem *flow, uint32_t first,
                            uint32_t n, const struct nft_class *c)
{
    unsigned v6 = flow->set == NFT_SERVICE6;
    unsigned affinity = (first ? NFT_AFFINITYALL4 : NFT_AFFINITYENDPOINT4) + v6;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = first + i;
        const struct nft_elem *e = find(x, NFT_ENDPOINT4 + v6, flow, &at, sizeof(at));
        if (!e)
            fail_msg("seed %llu: endpoint %u is missing", (unsigned long long)x->seed, at);
        if (c->timeout && !find(x, affinity, flow, e->b + e->klen, v6 ? 16 : 4))
            fail_msg("seed %llu: nobody may stay at endpoint %u", (unsigned long long)x->seed, at);
    }
    x->endpoints += n;
}

static void check_flow(struct index *x, const struct nft_elem *flow, struct served *met)
{
    struct nft_class c;
    if (!nft_elem_class(flow, &c))
        fail_msg("seed %llu: a service without a class", (unsigned long long)x->seed);
    met->pick += c.kind == NFT_CLASS_PICK;
    met->reject += c.kind == NFT_CLASS_REJECT;
    met->drop += c.kind == NFT_CLASS_DROP;
    met->all += c.n_all > 0;
    met->ranged += c.ranged;
    if (c.kind != NFT_CLASS_PICK)
        return;
    check_endpoints(x, flow, 0, c.n, &c);
    check_endpoints(x, flow, NFT_INDEX_ALL, c.n_all, &c);
    if (!c.timeout)
        return;
    const struct nft_elem *id =
        find(x, NFT_AFFINITYID4 + (flow->set == NFT_SERVICE6), flow, NULL, 0);
    uint8_t key[128];
    if (!id ||
        !map_get(&x->elems, key, key_of(NFT_AFFINITYTIMEOUT, id->b + id->klen, 4, NULL, 0, key)))
        fail_msg("seed %llu: nobody remembers a client", (unsigned long long)x->seed);
    uint32_t number;
    memcpy(&number, id->b + id->klen, sizeof(number));
    met->probed += number == COLLIDING_ID + 1;
    met->affinity++;
    x->affinities++;
}

static void check_counts(const struct index *x, const size_t counts[static NFT_SET_COUNT])
{
    if (counts[NFT_ENDPOINT4] + counts[NFT_ENDPOINT6] != x->endpoints ||
        counts[NFT_AFFINITYID4] + counts[NFT_AFFINITYID6] != x->affinities)
        fail_msg("seed %llu: elements that no flow leads to", (unsigned long long)x->seed);
}

static void check_rest(const struct plan *plan, uint64_t seed, struct served *met)
{
    const struct desired *d = &plan->desired;
    for (size_t i = 1; i < d->n_health_checks; i++)
        if (d->health_checks[i - 1].port >= d->health_checks[i].port)
            fail_msg("seed %llu: health checks are not in order", (unsigned long long)seed);
    met->health += (unsigned)d->n_health_checks;
    for (size_t i = 0; i < plan->problems.n; i++) {
        const struct problem *p = &plan->problems.v[i];
        met->conflicts += p->kind == KIND_SERVICE && !strcmp(p->reason, "PortConflict");
        met->mapped += !strcmp(p->reason, "PortMapFirst");
    }
}

void served_check(const struct plan *plan, uint64_t seed, struct served *met)
{
    struct index x = { .seed = seed };
    size_t counts[NFT_SET_COUNT] = { 0 };
    read_all(&x, &plan->desired);
    for (size_t i = 0; i < plan->desired.n_groups; i++)
        for (const struct nft_elem *e = NULL; (e = nft_group_next(plan->desired.groups[i], e));) {
            counts[e->set]++;
            if (e->set == NFT_SERVICE4 || e->set == NFT_SERVICE6)
                check_flow(&x, e, met);
        }
    met->hairpins += (unsigned)(counts[NFT_HAIRPIN4] + counts[NFT_HAIRPIN6]);
    check_counts(&x, counts);
    check_rest(plan, seed, met);
    map_done(&x.elems);
}
