/* Groups of elements by owner. Those that are replaced live on for the plan before. */
#include "plan/internal.h"

static size_t lower_bound(const struct group_vec *v, const char *owner)
{
    return vec_lower_bound(v, e, strcmp((*e)->owner, owner) < 0);
}

bool groups_set(struct planner *p, struct group_vec *v, const char *owner, struct nft_group **now,
                struct nft_group *g)
{
    struct nft_group *old = *now;
    if (g && !g->n) {
        nft_group_unref(g);
        g = NULL;
    }
    if (g && old && nft_group_equal(g, old)) {
        nft_group_unref(g);
        return false;
    }
    if (!g && !old)
        return false;
    size_t at = lower_bound(v, owner);
    if (g && old)
        v->v[at] = g;
    else if (g)
        *vec_insert(v, at) = g;
    else
        vec_remove(v, at);
    if (old)
        vec_push(&p->old_groups, old);
    *now = g;
    return true;
}
