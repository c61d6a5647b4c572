/* A token bucket: so many at once, then so many a second. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct bucket {
    unsigned per_second, burst;
    int64_t full_us; /* when it will be full again */
};

/* Takes one; false: there is none before *ret_wait_us have passed. */
bool bucket_take(struct bucket *b, int64_t now_us, int64_t *ret_wait_us);
