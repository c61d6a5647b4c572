/* Prometheus' text format 0.0.4, and histograms. Names are whole; label values are constants or
 * the planner's reasons and need no escaping. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define PROMETHEUS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Upper bounds, rising, in microseconds; one more bucket is for what is above. */
struct prom_bounds {
    const int64_t *us;
    size_t n;
};
#define PROM_BUCKETS_MAX 81

struct histogram {
    uint64_t buckets[PROM_BUCKETS_MAX];
    uint64_t sum_us, count;
};

void prom_observe(struct histogram *h, struct prom_bounds bounds, int64_t us);

/* What goes before a name's samples. */
void prom_family(struct buf *b, const char *name, const char *type, const char *help);
/* One sample of a family. */
void prom_sample(struct buf *b, const char *name, const char *label, const char *value, uint64_t n);
/* A family of one sample without labels. */
void prom_single(struct buf *b, const char *name, const char *type, const char *help, uint64_t n);
/* Seconds with a fraction, as a family of one sample. */
void prom_time(struct buf *b, const char *name, const char *help, int64_t us);
void prom_histogram(struct buf *b, const char *name, const char *help, const struct histogram *h,
                    struct prom_bounds bounds);
