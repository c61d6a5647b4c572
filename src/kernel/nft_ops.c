#include <string.h>

#include "diff/diff.h"
#include "kernel/nft_impl.h"

static int by_key(const void *x, const void *y)
{
    const struct nft_op *a = x, *b = y;
    return nft_elem_cmp_key(a->elem, b->elem);
}

static bool same(const void *x, const void *y)
{
    const struct nft_op *a = x, *b = y;
    return nft_elem_equal(a->elem, b->elem);
}

static int by_key_and_owner(const void *x, const void *y)
{
    const struct nft_op *a = x, *b = y;
    int c = nft_elem_cmp_key(a->elem, b->elem);
    return c ? c : strcmp(a->group->owner, b->group->owner);
}

void nft_ops_put_group(struct nft_ops *ops, const struct nft_group *g)
{
    for (const struct nft_elem *e = NULL; (e = nft_group_next(g, e));)
        vec_push(ops, (struct nft_op){ .elem = e, .group = g });
}

void nft_ops_sort(struct nft_ops *ops)
{
    if (ops->n > 1)
        qsort(ops->v, ops->n, sizeof(ops->v[0]), by_key);
}

const struct nft_op *nft_ops_sort_wanted(struct nft_ops *ops)
{
    if (ops->n > 1)
        qsort(ops->v, ops->n, sizeof(ops->v[0]), by_key_and_owner);
    size_t unique = 0;
    for (size_t i = 0; i < ops->n; i++) {
        if (!unique || by_key(&ops->v[unique - 1], &ops->v[i]))
            ops->v[unique++] = ops->v[i];
        else if (!same(&ops->v[unique - 1], &ops->v[i]))
            return &ops->v[i];
    }
    ops->n = unique;
    return NULL;
}

void nft_ops_put_changed(struct nft_group *const *known, size_t n_known,
                         struct nft_group *const *wanted, size_t n_wanted, const bool *skip,
                         struct nft_ops *have, struct nft_ops *want)
{
    size_t i = 0, j = 0;
    while (i < n_known || j < n_wanted) {
        if (j < n_wanted && skip[j]) {
            j++;
        } else if (i < n_known && j < n_wanted && known[i] == wanted[j]) {
            i++, j++;
        } else {
            int c = i == n_known    ? 1
                    : j == n_wanted ? -1
                                    : strcmp(known[i]->owner, wanted[j]->owner);
            if (c <= 0)
                nft_ops_put_group(have, known[i++]);
            if (c >= 0)
                nft_ops_put_group(want, wanted[j++]);
        }
    }
}

const struct nft_op *nft_ops_find(const struct nft_ops *ops, uint32_t seq, bool *ret_alone)
{
    for (size_t i = 0; i < ops->n; i++)
        if (ops->v[i].seq == seq) {
            *ret_alone = i + 1 == ops->n || ops->v[i + 1].seq != seq;
            return &ops->v[i];
        }
    return NULL;
}

/* ---- the difference ---- */

static void add(const void *want, void *user)
{
    struct nft_difference *d = user;
    vec_push(&d->adds, *(const struct nft_op *)want);
}

/* A packet may have been sent to the chain of a class on the ground of the elements before, and to
 * the very pod it came from: a batch is atomic for the table, but not across two lookups of one
 * packet. (Affinity that is gone sends it on to the others.) */
static bool goes_late(enum nft_set set)
{
    return set == NFT_ENDPOINT4 || set == NFT_ENDPOINT6 || set == NFT_HAIRPIN4 ||
           set == NFT_HAIRPIN6;
}

static void del(const void *have, void *user)
{
    struct nft_difference *d = user;
    const struct nft_op *op = have;
    vec_push(goes_late(op->elem->set) ? &d->late : &d->dels, *op);
}

static void change(const void *have, const void *want, void *user)
{
    struct nft_difference *d = user;
    d->changes++;
    vec_push(&d->dels, *(const struct nft_op *)have);
    add(want, user);
}

void nft_ops_diff(const struct nft_ops *have, const struct nft_ops *want,
                  struct nft_difference *ret)
{
    static const struct diff_ops ops = {
        .cmp = by_key,
        .equal = same,
        .add = add,
        .change = change,
        .del = del,
    };
    ret->dels.n = ret->adds.n = ret->late.n = ret->changes = 0;
    diff_run((struct diff_array){ have->v, have->n, sizeof(have->v[0]) },
             (struct diff_array){ want->v, want->n, sizeof(want->v[0]) }, &ops, ret);
}
