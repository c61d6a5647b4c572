/* What the agent counts about itself, and how it looks to Prometheus. */
#pragma once

#include "agent/prometheus.h"
#include "kernel/kernel.h"
#include "model/status.h"
#include "store/store.h"

extern const struct prom_bounds metrics_bounds;

/* Problems of the last pass by reason; reasons are constants of the planner. */
struct reason_count {
    const char *reason;
    uint32_t n;
};

struct metrics {
    uint64_t passes_clean, passes_failed;
    struct histogram plan, apply;
    uint64_t adds, changes, deletes, bytes; /* acknowledged by the kernel */
    uint64_t refused;
    uint64_t audits, foreign_changes;
    uint64_t statuses_written, status_conflicts, status_failures;
    uint32_t refused_now;
    VEC(struct reason_count) problems;
    uint32_t links;
};

void metrics_apply(struct metrics *m, const struct report *r);
void metrics_problems(struct metrics *m, const struct problems *problems);
/* Prometheus text format 0.0.4. */
void metrics_text(const struct metrics *m, const struct store *store, struct buf *out);
void metrics_done(struct metrics *m);
