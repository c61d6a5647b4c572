#include "agent/prometheus.h"

#include <inttypes.h>

void prom_observe(struct histogram *h, struct prom_bounds bounds, int64_t us)
{
    size_t i = 0;
    while (i < bounds.n && us > bounds.us[i])
        i++;
    h->buckets[i]++;
    h->sum_us += (uint64_t)us;
    h->count++;
}

void prom_family(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void prom_sample(struct buf *b, const char *name, const char *label, const char *value, uint64_t n)
{
    buf_printf(b, "%s{%s=\"%s\"} %" PRIu64 "\n", name, label, value, n);
}

void prom_single(struct buf *b, const char *name, const char *type, const char *help, uint64_t n)
{
    prom_family(b, name, type, help);
    buf_printf(b, "%s %" PRIu64 "\n", name, n);
}

void prom_time(struct buf *b, const char *name, const char *help, int64_t us)
{
    prom_family(b, name, "gauge", help);
    buf_printf(b, "%s %" PRId64 ".%06d\n", name, us / 1000000, (int)(us % 1000000));
}

void prom_histogram(struct buf *b, const char *name, const char *help, const struct histogram *h,
                    struct prom_bounds bounds)
{
    uint64_t below = 0;
    prom_family(b, name, "histogram", help);
    for (size_t i = 0; i < bounds.n; i++) {
        below += h->buckets[i];
        buf_printf(b, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, (double)bounds.us[i] / 1e6,
                   below);
    }
    buf_printf(b, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, h->count);
    buf_printf(b, "%s_sum %.6f\n", name, (double)h->sum_us / 1e6);
    buf_printf(b, "%s_count %" PRIu64 "\n", name, h->count);
}
