/* What the service proxy counts, under kube-proxy's names where the meaning is the same. One sync
 * is for both families, so there is no label ip_family. */
#pragma once

#include "agent/prometheus.h"
#include "model/snapshot.h"

struct proxy_metrics {
    struct histogram sync, full_sync, partial_sync, conntrack, network_programming;
    uint64_t endpoint_changes, service_changes;
    uint64_t endpoint_changes_pending, service_changes_pending; /* since the last sync */
    uint64_t sync_failures, conntrack_deleted;
    uint64_t healthz_ok, healthz_bad, livez_ok, livez_bad;
    int64_t synced_wall_us, queued_wall_us;
    int64_t started_wall_us; /* what happened before was another's to program */
};

/* An object the source told of. */
void proxy_metrics_queue(struct proxy_metrics *m, enum object_kind kind, int64_t now_wall_us);
/* The kernel acknowledged everything known, after `took_us`. */
void proxy_metrics_sync(struct proxy_metrics *m, bool full, int64_t took_us, int64_t now_wall_us);
/* It has the endpoints of a slice whose last change was caused at `trigger_us`. */
void proxy_metrics_programmed(struct proxy_metrics *m, int64_t trigger_us, int64_t now_wall_us);
void proxy_metrics_conntrack(struct proxy_metrics *m, int64_t took_us, int deleted);
void proxy_metrics_text(const struct proxy_metrics *m, struct buf *out);
