/* Prefixes a class speaks of: those it names, and those that names stand for. */
#include "plan/traffic.h"

static uint8_t family_of(enum family_index f)
{
    return f == F4 ? IP_V4 : IP_V6;
}

static int prefix_order(const void *x, const void *y)
{
    const struct ip_prefix *a = x, *b = y;
    int c = ip_cmp(&a->ip, &b->ip);
    return c ? c : (a->len > b->len) - (a->len < b->len);
}

static bool within(const struct ip_prefix *outer, const struct ip_prefix *inner)
{
    return outer->len <= inner->len && ip_prefix_contains(outer, &inner->ip);
}

/* The one prefix that is both of these, which are sorted and apart. */
static bool joined(const struct ip_prefix *a, const struct ip_prefix *b, struct ip_prefix *ret)
{
    if (a->len != b->len || !a->len)
        return false;
    struct ip_prefix half = { a->ip, (uint8_t)(a->len - 1) };
    *ret = ip_prefix_masked(&half);
    return ip_equal(&ret->ip, &a->ip) && ip_prefix_contains(ret, &b->ip);
}

void prefixes_aggregate(struct prefix_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        l->v[i] = ip_prefix_masked(&l->v[i]);
    if (l->n > 1)
        qsort(l->v, l->n, sizeof(l->v[0]), prefix_order);
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        struct ip_prefix both;
        if (n && within(&l->v[n - 1], &l->v[i]))
            continue;
        l->v[n++] = l->v[i];
        for (; n > 1 && joined(&l->v[n - 2], &l->v[n - 1], &both); n--)
            l->v[n - 2] = both;
    }
    l->n = n;
}

bool prefixes_cover(const struct prefix_list *outer, const struct prefix_list *inner)
{
    for (size_t i = 0; i < inner->n; i++) {
        size_t j = 0;
        while (j < outer->n && !within(&outer->v[j], &inner->v[i]))
            j++;
        if (j == outer->n)
            return false;
    }
    return true;
}

static void add_text(struct prefix_list *l, const char *text, enum family_index f)
{
    struct ip_prefix p;
    if (ip_prefix_parse(text, &p) && p.ip.family == family_of(f))
        vec_push(l, p);
}

bool node_pod_cidrs(const struct node *n, enum family_index f, struct prefix_list *into)
{
    struct prefix_list own = { 0 };
    for (uint32_t i = 0; i < n->pod_cidrs.n; i++)
        add_text(&own, n->pod_cidrs.v[i], f);
    prefixes_aggregate(&own);
    bool all = own.n && !own.v[0].len;
    for (size_t i = 0; i < own.n && !all; i++)
        vec_push(into, own.v[i]);
    vec_done(&own);
    return !all;
}

static void add_attached(const struct host *h, enum family_index f, struct prefix_list *l)
{
    for (uint32_t i = 0; i < h->n_ifaces; i++)
        for (uint32_t j = 0; j < h->ifaces[i].n_addresses; j++) {
            const struct host_address *a = &h->ifaces[i].addresses[j];
            if (a->ip.family == family_of(f) && a->prefix_len &&
                a->prefix_len < ip_bits(a->ip.family) && ip_is_global_unicast(&a->ip))
                vec_push(l, (struct ip_prefix){ a->ip, a->prefix_len });
        }
}

void prefix_sets_build(const struct snapshot *s, struct prefix_sets *ret)
{
    *ret = (struct prefix_sets){ 0 };
    const struct node *own = snapshot_node(s, s->node);
    for (enum family_index f = F4; f < F_COUNT; f++) {
        for (size_t i = 0; i < s->n_nodes; i++)
            node_pod_cidrs(s->nodes[i], f, &ret->pods[f]);
        if (own)
            node_pod_cidrs(own, f, &ret->own_pods[f]);
        for (size_t i = 0; i < s->n_service_cidrs; i++)
            for (uint32_t j = 0; j < s->service_cidrs[i]->cidrs.n; j++)
                add_text(&ret->services[f], s->service_cidrs[i]->cidrs.v[j], f);
        add_attached(s->host, f, &ret->attached[f]);
        prefixes_aggregate(&ret->pods[f]);
        prefixes_aggregate(&ret->own_pods[f]);
        prefixes_aggregate(&ret->services[f]);
        prefixes_aggregate(&ret->attached[f]);
    }
}

void prefix_sets_done(struct prefix_sets *s)
{
    for (enum family_index f = F4; f < F_COUNT; f++) {
        vec_done(&s->pods[f]);
        vec_done(&s->own_pods[f]);
        vec_done(&s->services[f]);
        vec_done(&s->attached[f]);
    }
}

static const struct prefix_list *named(const struct prefix_sets *s, const char *name,
                                       enum family_index f)
{
    if (!strcmp(name, PREFIXES_PODS))
        return &s->pods[f];
    if (!strcmp(name, PREFIXES_OWN_PODS))
        return &s->own_pods[f];
    if (!strcmp(name, PREFIXES_SERVICES))
        return &s->services[f];
    return strcmp(name, PREFIXES_ATTACHED) ? NULL : &s->attached[f];
}

struct prefix_list prefixes_of(const struct prefix_sets *sets, const struct string_list *l,
                               enum family_index f)
{
    struct prefix_list ret = { 0 };
    for (uint32_t i = 0; i < l->n; i++) {
        const struct prefix_list *several = named(sets, l->v[i], f);
        for (size_t j = 0; several && j < several->n; j++)
            vec_push(&ret, several->v[j]);
        if (!several)
            add_text(&ret, l->v[i], f);
    }
    prefixes_aggregate(&ret);
    return ret;
}
