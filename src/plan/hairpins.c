/* Endpoints and those whom they would answer past this node, first of all themselves: counted over all
 * Services. */
#include <stdio.h>

#include "plan/services.h"

_Static_assert(sizeof(struct hairpin_pair) == 35, "compared as bytes");

static int by_pair(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct hairpin_pair));
}

static void count_hairpin(struct planner *p, const struct hairpin_pair *pair, bool add)
{
    struct hairpin_shard *s =
        &p->services->hairpins[hash_bytes(&pair->ep, sizeof(pair->ep)) % HAIRPIN_SHARDS];
    size_t at = vec_lower_bound(&s->v, e, by_pair(&e->pair, pair) < 0);
    bool known = at < s->v.n && !by_pair(&s->v.v[at].pair, pair);
    if (!known)
        vec_insert(&s->v, at)->pair = *pair;
    s->v.v[at].uses += add ? 1u : -1u;
    bool gone = !s->v.v[at].uses;
    if (gone)
        vec_remove(&s->v, at);
    s->changed |= add ? !known : gone;
}

void service_set_hairpins(struct planner *p, struct service_memo *m, struct hairpin_pair *v,
                          size_t n)
{
    size_t unique = 0;
    if (n > 1)
        qsort(v, n, sizeof(v[0]), by_pair);
    for (size_t i = 0; i < n; i++)
        if (!unique || by_pair(&v[unique - 1], &v[i]))
            v[unique++] = v[i];
    if (unique == m->n_hairpins && (!unique || !memcmp(v, m->hairpins, unique * sizeof(v[0]))))
        return;
    /* The old after the new: what stays must not look as if it had gone. */
    for (size_t i = 0; i < unique; i++)
        count_hairpin(p, &v[i], true);
    for (size_t i = 0; i < m->n_hairpins; i++)
        count_hairpin(p, &m->hairpins[i], false);
    free(m->hairpins);
    m->hairpins = unique ? xmalloc(unique * sizeof(v[0])) : NULL;
    m->n_hairpins = unique;
    if (unique)
        memcpy(m->hairpins, v, unique * sizeof(v[0]));
}

/* Of prefixes one of which is inside another the outer one: it comes first. */
static void put_pairs(struct nft_group_builder *b, const struct hairpin_shard *s)
{
    const struct hairpin_pair *outer = NULL;
    for (size_t i = 0; i < s->v.n; i++) {
        const struct hairpin_pair *x = &s->v.v[i].pair;
        if (x->client.len == ip_bits(x->ep.family)) {
            nft_put_pair(b, NFT_HAIRPIN4, &x->client.ip, &x->ep);
            continue;
        }
        if (outer && ip_equal(&outer->ep, &x->ep) &&
            ip_prefix_contains(&outer->client, &x->client.ip))
            continue;
        nft_put_near(b, &x->client, &x->ep);
        outer = x;
    }
}

static void build(struct planner *p, size_t shard)
{
    struct hairpin_shard *s = &p->services->hairpins[shard];
    char owner[32];
    snprintf(owner, sizeof(owner), "proxy/hairpin/%02zu", shard);
    struct nft_group_builder *b = nft_group_begin(owner);
    put_pairs(b, s);
    if (s->group)
        vec_push(&p->old_groups, s->group);
    s->group = nft_group_end(b);
    s->changed = false;
}

void hairpins_build(struct planner *p)
{
    for (size_t i = 0; i < HAIRPIN_SHARDS; i++)
        if (p->services->hairpins[i].changed)
            build(p, i);
}
