#include <linux/netfilter/nf_conntrack_common.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/ipvs_impl.h"

static int by_key(const void *a, const void *b)
{
    return ipvs_key_cmp(a, b);
}

void ipvs_udp_note(struct ipvs *v, const struct ipvs_key *k)
{
    if (k->proto != L4_UDP || (k->kind != IPVS_SERVER && k->kind != IPVS_DEST))
        return;
    struct ipvs_key server = *k;
    if (k->kind == IPVS_DEST)
        server = ipvs_server_of(k);
    if (!v->udp.n || memcmp(&v->udp.v[v->udp.n - 1], &server, sizeof(server)))
        vec_push(&v->udp, server);
}

static void sort(struct ipvs *v)
{
    size_t n = 0;
    if (v->udp.n > 1)
        qsort(v->udp.v, v->udp.n, sizeof(v->udp.v[0]), by_key);
    for (size_t i = 0; i < v->udp.n; i++)
        if (!n || ipvs_key_cmp(&v->udp.v[n - 1], &v->udp.v[i]))
            v->udp.v[n++] = v->udp.v[i];
    v->udp.n = n;
}

/* Where a server of the group leads. */
static void put_flow(struct ipvs *v, const struct ipvs_group *g, const struct ipvs_key *server)
{
    struct flow_target f = { .dialled = server->ip,
                             .port = server->port,
                             .end = server->port,
                             .nat = v->unmasqueraded ? IPS_NAT_MASK : 0 };
    struct flow_end *ends = arena_new_array(&v->flow_mem, g ? g->n : 0, struct flow_end);
    for (uint32_t i = 0; g && i < g->n; i++) {
        const struct ipvs_key *k = &g->entries[i].key;
        struct ipvs_key its = ipvs_server_of(k);
        if (k->kind == IPVS_DEST && !ipvs_key_cmp(&its, server))
            ends[f.n_others++] = (struct flow_end){ k->other, k->dest_port };
    }
    f.others = ends;
    if (f.n_others) {
        f.target = ends[0].ip;
        f.target_port = ends[0].port;
    }
    vec_push(&v->flows, f);
}

/* Every wanted one at first: a predecessor may have ended before conntrack heard. */
static void put_wanted(struct ipvs *v, bool all, bool *found)
{
    for (size_t i = 0; i < v->n_groups; i++)
        for (uint32_t j = 0; j < v->groups[i]->n; j++) {
            const struct ipvs_key *k = &v->groups[i]->entries[j].key;
            if (k->kind != IPVS_SERVER || k->proto != L4_UDP)
                continue;
            const struct ipvs_key *changed =
                v->udp.n ? bsearch(k, v->udp.v, v->udp.n, sizeof(*k), by_key) : NULL;
            if (changed)
                found[changed - v->udp.v] = true;
            if (changed || all)
                put_flow(v, v->groups[i], k);
        }
}

size_t ipvs_udp_changes(struct ipvs *v, const struct flow_target **ret)
{
    sort(v);
    arena_reset(&v->flow_mem);
    v->flows.n = 0;
    bool *found = xcalloc(v->udp.n + 1, sizeof(*found));
    if (v->udp.n || !v->told)
        put_wanted(v, !v->told, found);
    for (size_t i = 0; i < v->udp.n; i++)
        if (!found[i])
            put_flow(v, NULL, &v->udp.v[i]);
    free(found);
    v->told = true;
    v->unmasqueraded = false;
    v->udp.n = 0;
    *ret = v->flows.v;
    return v->flows.n;
}
