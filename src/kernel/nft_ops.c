#include <string.h>

#include "kernel/nft_impl.h"

static int by_key(const void *x, const void *y)
{
    const struct nft_op *a = x, *b = y;
    int c = nft_elem_cmp_key(a->elem, b->elem);
    return c ? c : strcmp(a->group->owner, b->group->owner);
}

static void sort(struct nft_ops *ops)
{
    if (ops->n > 1)
        qsort(ops->v, ops->n, sizeof(ops->v[0]), by_key);
}

static void push(struct nft_ops *ops, const struct nft_elem *e, const struct nft_group *g)
{
    vec_push(ops, (struct nft_op){ .elem = e, .group = g });
}

static void push_group(struct nft_ops *ops, const struct nft_group *g)
{
    for (uint32_t i = 0; i < g->n; i++)
        push(ops, g->elems[i], g);
}

static void push_changes(const struct nft_group *old, const struct nft_group *new,
                         struct nft_ops *dels, struct nft_ops *adds)
{
    uint32_t i = 0, j = 0;
    while (i < old->n || j < new->n) {
        int c = i == old->n ? 1 : j == new->n ? -1 : nft_elem_cmp_key(old->elems[i], new->elems[j]);
        if (c || !nft_elem_equal(old->elems[i], new->elems[j])) {
            if (c <= 0)
                push(dels, old->elems[i], old);
            if (c >= 0)
                push(adds, new->elems[j], new);
        }
        i += c <= 0;
        j += c >= 0;
    }
}

/* What one group gives up and another takes stays where it is, with its counter. */
static void cancel(struct nft_ops *dels, struct nft_ops *adds)
{
    size_t i = 0, j = 0, n_dels = 0, n_adds = 0;
    while (i < dels->n || j < adds->n) {
        int c = i == dels->n   ? 1
                : j == adds->n ? -1
                               : nft_elem_cmp_key(dels->v[i].elem, adds->v[j].elem);
        if (!c && nft_elem_equal(dels->v[i].elem, adds->v[j].elem)) {
            i++, j++;
            continue;
        }
        if (c <= 0)
            dels->v[n_dels++] = dels->v[i++];
        if (c >= 0)
            adds->v[n_adds++] = adds->v[j++];
    }
    dels->n = n_dels;
    adds->n = n_adds;
}

void nft_ops_from_known(struct nft_group *const *known, size_t n_known,
                        struct nft_group *const *wanted, size_t n_wanted, const bool *skip,
                        struct nft_ops *dels, struct nft_ops *adds)
{
    size_t i = 0, j = 0;
    dels->n = adds->n = 0;
    while (i < n_known || j < n_wanted) {
        if (j < n_wanted && skip[j]) {
            j++;
            continue;
        }
        if (i < n_known && j < n_wanted && known[i] == wanted[j]) {
            i++, j++;
            continue;
        }
        int c = i == n_known ? 1 : j == n_wanted ? -1 : strcmp(known[i]->owner, wanted[j]->owner);
        if (c < 0)
            push_group(dels, known[i]);
        else if (c > 0)
            push_group(adds, wanted[j]);
        else
            push_changes(known[i], wanted[j], dels, adds);
        i += c <= 0;
        j += c >= 0;
    }
    sort(dels);
    sort(adds);
    cancel(dels, adds);
}

size_t nft_ops_wanted(struct nft_group *const *groups, size_t n, const bool *skip,
                      struct nft_ops *ret)
{
    ret->n = 0;
    for (size_t i = 0; i < n; i++)
        if (!skip[i])
            push_group(ret, groups[i]);
    sort(ret);
    size_t unique = 0;
    for (size_t i = 0; i < ret->n; i++) {
        if (unique && !nft_elem_cmp_key(ret->v[unique - 1].elem, ret->v[i].elem)) {
            if (nft_elem_equal(ret->v[unique - 1].elem, ret->v[i].elem))
                continue;
            for (size_t j = 0; j < n; j++)
                if (groups[j] == ret->v[i].group)
                    return j;
        }
        ret->v[unique++] = ret->v[i];
    }
    ret->n = unique;
    return n;
}

void nft_ops_from_found(const struct nft_elems *found, const struct nft_ops *wanted,
                        struct nft_ops *dels, struct nft_ops *adds)
{
    size_t i = 0, j = 0;
    dels->n = adds->n = 0;
    while (i < found->n || j < wanted->n) {
        int c = i == found->n    ? 1
                : j == wanted->n ? -1
                                 : nft_elem_cmp_key(found->v[i], wanted->v[j].elem);
        if (c || !nft_elem_equal(found->v[i], wanted->v[j].elem)) {
            if (c <= 0)
                push(dels, found->v[i], NULL);
            if (c >= 0)
                push(adds, wanted->v[j].elem, wanted->v[j].group);
        }
        i += c <= 0;
        j += c >= 0;
    }
}
