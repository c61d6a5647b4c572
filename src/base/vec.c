#include "base/vec.h"

void *vec_grow(void *v, size_t *cap, size_t need, size_t size)
{
    /* The first piece is malloc's smallest: many vectors hold one element for ever. */
    size_t want = *cap ? *cap * 2 : 24 / size;
    if (want < need)
        want = need;
    *cap = want;
    size_t bytes;
    if (__builtin_mul_overflow(want, size, &bytes))
        abort();
    return xrealloc(v, bytes);
}
