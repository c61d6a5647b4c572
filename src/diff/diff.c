#include "diff/diff.h"

static const void *at(const struct diff_array *a, size_t i)
{
    return (const char *)a->v + i * a->size;
}

void diff_run(struct diff_array have, struct diff_array want, const struct diff_ops *ops,
              void *user)
{
    size_t i = 0, j = 0;
    while (i < have.n || j < want.n) {
        int cmp = i == have.n ? 1 : j == want.n ? -1 : ops->cmp(at(&have, i), at(&want, j));
        if (cmp < 0) {
            ops->del(at(&have, i++), user);
        } else if (cmp > 0) {
            ops->add(at(&want, j++), user);
        } else {
            const void *h = at(&have, i++), *w = at(&want, j++);
            if (!ops->equal(h, w))
                ops->change(h, w, user);
            else if (ops->keep)
                ops->keep(h, w, user);
        }
    }
}
