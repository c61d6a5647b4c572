/* Growing arrays on the heap.
 *
 *     VEC(struct ip) ips = {0};
 *     vec_push(&ips, ip);
 *     for (size_t i = 0; i < ips.n; i++) use(&ips.v[i]);
 *     vec_done(&ips);
 *
 * A pointer into .v is valid until the next push. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

#define VEC(type)      \
    struct {           \
        type *v;       \
        size_t n, cap; \
    }

void *vec_grow(void *v, size_t *cap, size_t need, size_t size);

#define vec_reserve(vec, need) \
    ((vec)->cap >= (need)      \
         ? (void)0             \
         : (void)((vec)->v = vec_grow((vec)->v, &(vec)->cap, (need), sizeof((vec)->v[0]))))
#define vec_push(vec, ...) \
    (vec_reserve((vec), (vec)->n + 1), (void)((vec)->v[(vec)->n++] = (__VA_ARGS__)))
/* Makes room for one zeroed element at index i and returns its address. */
#define vec_insert(vec, i)                                    \
    ({                                                        \
        size_t vec_at = (i);                                  \
        vec_reserve((vec), (vec)->n + 1);                     \
        memmove(&(vec)->v[vec_at + 1], &(vec)->v[vec_at],     \
                ((vec)->n++ - vec_at) * sizeof((vec)->v[0])); \
        memset(&(vec)->v[vec_at], 0, sizeof((vec)->v[0]));    \
        &(vec)->v[vec_at];                                    \
    })
#define vec_remove(vec, i)                                    \
    ({                                                        \
        size_t vec_at = (i);                                  \
        memmove(&(vec)->v[vec_at], &(vec)->v[vec_at + 1],     \
                (--(vec)->n - vec_at) * sizeof((vec)->v[0])); \
        (void)0;                                              \
    })
/* Where in a sorted vector something belongs: the index of its first element that does not come
 * before it, which the expression `before` tells of the element that `e` points to:
 *
 *     size_t at = vec_lower_bound(&people, e, strcmp(e->name, name) < 0); */
#define vec_lower_bound(vec, e, before)                            \
    ({                                                             \
        size_t vec_lo = 0, vec_hi = (vec)->n;                      \
        while (vec_lo < vec_hi) {                                  \
            size_t vec_mid = vec_lo + (vec_hi - vec_lo) / 2;       \
            const __typeof__((vec)->v[0]) *e = &(vec)->v[vec_mid]; \
            if (before)                                            \
                vec_lo = vec_mid + 1;                              \
            else                                                   \
                vec_hi = vec_mid;                                  \
        }                                                          \
        vec_lo;                                                    \
    })
#define vec_done(vec) (free((vec)->v), memset((vec), 0, sizeof(*(vec))))
