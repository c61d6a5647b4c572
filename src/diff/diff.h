/* Desired against known: one merge of two sorted arrays, giving add, change and delete.
 *
 * Elements may be larger than what is compared: `cmp` and `equal` get an element of `have`
 * first and one of `want` second. `want` has no key twice; of equal keys in `have` the first
 * is the partner and the rest are deleted. Calls come in key order, each element once. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct diff_array {
    const void *v;
    size_t n, size; /* elements, bytes of one */
};

struct diff_ops {
    int (*cmp)(const void *have, const void *want);    /* order of the keys, and of both arrays */
    bool (*equal)(const void *have, const void *want); /* of one key: nothing to do? */
    void (*add)(const void *want, void *user);
    void (*change)(const void *have, const void *want, void *user);
    void (*keep)(const void *have, const void *want, void *user); /* equal; may be NULL */
    void (*del)(const void *have, void *user);
};

void diff_run(struct diff_array have, struct diff_array want, const struct diff_ops *ops,
              void *user);
