/* Endpoints on this node, which may be their own clients: counted over all Services. */
#include <stdio.h>

#include "plan/services.h"

static int by_ip(const void *a, const void *b)
{
    return ip_cmp(a, b);
}

static void count_hairpin(struct planner *p, const struct ip *ip, bool add)
{
    struct hairpin_shard *s = &p->services->hairpins[hash_bytes(ip, sizeof(*ip)) % HAIRPIN_SHARDS];
    size_t lo = 0, hi = s->v.n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (ip_cmp(&s->v.v[mid].ip, ip) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    bool known = lo < s->v.n && ip_equal(&s->v.v[lo].ip, ip);
    if (!known)
        vec_insert(&s->v, lo)->ip = *ip;
    s->v.v[lo].uses += add ? 1u : -1u;
    if (!s->v.v[lo].uses)
        vec_remove(&s->v, lo);
    s->changed |= add ? !known : lo == s->v.n || !ip_equal(&s->v.v[lo].ip, ip);
}

void service_set_hairpins(struct planner *p, struct service_memo *m, struct ip *v, size_t n)
{
    size_t unique = 0;
    if (n > 1)
        qsort(v, n, sizeof(v[0]), by_ip);
    for (size_t i = 0; i < n; i++)
        if (!unique || !ip_equal(&v[unique - 1], &v[i]))
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

static void build(struct planner *p, size_t shard)
{
    struct hairpin_shard *s = &p->services->hairpins[shard];
    char owner[32];
    snprintf(owner, sizeof(owner), "proxy/hairpin/%02zu", shard);
    struct nft_group_builder *b = nft_group_begin(owner);
    for (size_t i = 0; i < s->v.n; i++)
        nft_put_pair(b, NFT_HAIRPIN4, &s->v.v[i].ip);
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
