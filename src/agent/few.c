#include "agent/few.h"

#include <string.h>

static bool is_of_same(const struct problem *a, const struct problem *b)
{
    return a->kind == b->kind && !strcmp(a->ns, b->ns) && !strcmp(a->name, b->name);
}

/* Of `n` problems, the first of them given. */
static struct problem more_problems(struct arena *mem, const struct problem *left_out, size_t n)
{
    struct problem p = *left_out;
    p.reason = "MoreProblems";
    p.message =
        arena_printf(mem, "one of %zu more problems of this object, which are not listed", n);
    for (size_t i = 1; i < n; i++)
        p.event = p.event || left_out[i].event;
    return p;
}

struct problems few_problems(struct arena *mem, const struct problems *all)
{
    struct problem *v = arena_new_array(mem, all->n, struct problem);
    size_t n = 0;
    for (size_t i = 0, end; i < all->n; i = end) {
        for (end = i; end < all->n && is_of_same(&all->v[i], &all->v[end]); end++)
            if (end - i < FEW)
                v[n++] = all->v[end];
        if (end - i > FEW)
            v[n++] = more_problems(mem, &all->v[i + FEW], end - i - FEW);
    }
    return (struct problems){ v, n };
}

size_t few_refusals(struct arena *mem, const struct refusal *all, size_t n,
                    const struct refusal **ret)
{
    struct refusal *v = arena_new_array(mem, n, struct refusal);
    size_t kept = 0;
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && !strcmp(all[i].owner, all[end].owner); end++)
            if (end - i < FEW)
                v[kept++] = all[end];
        if (end - i <= FEW)
            continue;
        v[kept] = all[i + FEW];
        v[kept++].text = arena_printf(mem,
                                      "one of %zu more refusals of this owner, which are not "
                                      "listed",
                                      end - i - FEW);
    }
    *ret = v;
    return kept;
}
