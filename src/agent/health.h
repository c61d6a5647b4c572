/* Whether the service proxy keeps up, by kube-proxy's rule: it does not while a change of a Service
 * or EndpointSlice waits for longer than HEALTH_PATIENCE_US; until the first sync nothing is late.
 *
 * Pure: the caller reads the clocks. Microseconds are those of clock_mono_us(). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* Twice kube-proxy's syncPeriod, 30 s unless configured. */
#define HEALTH_PATIENCE_US INT64_C(60000000)

struct health {
    int64_t queued_us;    /* when the oldest change came that the kernel does not have; 0: none */
    int64_t updated_wall; /* when the kernel last had everything, Unix seconds; 0: never */
};

/* A Service or EndpointSlice changed. */
void health_queue(struct health *h, int64_t now_us);
/* The kernel acknowledged everything that is known. */
void health_update(struct health *h, int64_t now_wall);
bool health_ok(const struct health *h, int64_t now_us);
/* One JSON object: lastUpdated (the present while all is well, as kube-proxy says it), currentTime
 * and, unless NULL, nodeEligible. */
void health_put(const struct health *h, int64_t now_us, int64_t now_wall, const bool *node_eligible,
                struct buf *out);
