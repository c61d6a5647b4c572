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
    size_t at = vec_lower_bound(&s->v, e, ip_cmp(&e->ip, ip) < 0);
    bool known = at < s->v.n && ip_equal(&s->v.v[at].ip, ip);
    if (!known)
        vec_insert(&s->v, at)->ip = *ip;
    s->v.v[at].uses += add ? 1u : -1u;
    if (!s->v.v[at].uses)
        vec_remove(&s->v, at);
    s->changed |= add ? !known : at == s->v.n || !ip_equal(&s->v.v[at].ip, ip);
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
        nft_put_pair(b, NFT_HAIRPIN4, &s->v.v[i].ip, &s->v.v[i].ip);
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
