/* How long to wait before the next try. */
#pragma once

#include <stdint.h>

#define BACKOFF_FIRST_MS 500
#define BACKOFF_MAX_MS   30000
/* What one of many writers of an object takes: the server's work, and that of all who watch it. */
#define TURN_MS 100
/* Of those that waited for a server which is back. */
#define RETURN_SPREAD_MS 2000
/* What a server may ask for with Retry-After. */
#define RETRY_AFTER_MAX_MS 300000

/* Of what is to be installed yet: somebody may be waiting for it. */
#define BACKOFF_ABSENT_MS 5000

/* After so many failures in a row (from 1): twice as long for each, at most BACKOFF_MAX_MS, of
 * which `random` (any number) decides the second half, so that many agents that failed together
 * do not come back together. */
uint64_t backoff_ms(unsigned failures, uint32_t random);
/* The same, at most `max_ms`. */
uint64_t backoff_within_ms(unsigned failures, uint64_t max_ms, uint32_t random);
/* The same, but not before the server's Retry-After (0: it gave none), and spread behind it. */
uint64_t backoff_after_ms(unsigned failures, uint64_t retry_after_ms, uint32_t random);
/* Writers of one object, each of a part of it, that have something to say at the same moment: this
 * one's turn, anywhere in the time they take one after the other. A server merges what comes
 * together too, but each write then begins anew for every other, and most are turned down. Each
 * failure says that it takes them twice as long. At most BACKOFF_MAX_MS. */
uint64_t backoff_turn_ms(unsigned writers, unsigned failures, uint32_t random);
/* From the kernel. */
uint32_t backoff_random(void);
