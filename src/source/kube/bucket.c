#include "source/kube/bucket.h"

bool bucket_take(struct bucket *b, int64_t now_us, int64_t *ret_wait_us)
{
    int64_t each = 1000000 / b->per_second;
    int64_t full = b->full_us > now_us ? b->full_us : now_us;
    int64_t wait = full + each - now_us - each * b->burst;
    if (wait > 0) {
        *ret_wait_us = wait;
        return false;
    }
    b->full_us = full + each;
    return true;
}
