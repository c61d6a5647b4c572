#include "source/kube/backoff.h"

#include <stdlib.h>
#include <sys/random.h>

uint64_t backoff_within_ms(unsigned failures, uint64_t max_ms, uint32_t random)
{
    uint64_t ms = BACKOFF_FIRST_MS;
    for (unsigned i = 1; i < failures && ms < max_ms; i++)
        ms *= 2;
    if (ms > max_ms)
        ms = max_ms;
    return ms / 2 + random % (ms / 2 + 1);
}

uint64_t backoff_ms(unsigned failures, uint32_t random)
{
    return backoff_within_ms(failures, BACKOFF_MAX_MS, random);
}

uint64_t backoff_after_ms(unsigned failures, uint64_t retry_after_ms, uint32_t random)
{
    uint64_t ms = backoff_ms(failures, random);
    if (retry_after_ms > RETRY_AFTER_MAX_MS)
        retry_after_ms = RETRY_AFTER_MAX_MS;
    return retry_after_ms ? retry_after_ms + ms / 2 : ms;
}

uint64_t backoff_turn_ms(unsigned writers, unsigned failures, uint32_t random)
{
    uint64_t ms = writers > 1 ? (writers - 1) * (uint64_t)TURN_MS : 0;
    for (unsigned i = 0; i < failures && ms < BACKOFF_MAX_MS; i++)
        ms *= 2;
    return random % ((ms < BACKOFF_MAX_MS ? ms : BACKOFF_MAX_MS) + 1);
}

uint32_t backoff_random(void)
{
    uint32_t r;
    if (getrandom(&r, sizeof(r), 0) != sizeof(r))
        abort();
    return r;
}
