#include "agent/proxy_metrics.h"

#define SECOND INT64_C(1000000)

/* 1 ms doubled 14 times. */
static const int64_t sync_us[] = {
    1000,   2000,   4000,    8000,    16000,   32000,   64000,    128000,
    256000, 512000, 1024000, 2048000, 4096000, 8192000, 16384000,
};
static const struct prom_bounds sync_bounds = { sync_us, sizeof(sync_us) / sizeof(sync_us[0]) };

/* 0.25 s, 0.5 s, each second to the minute, each five to two minutes, each thirty to five. */
static struct prom_bounds programming_bounds(void)
{
    static int64_t us[PROM_BUCKETS_MAX - 1];
    static size_t n;
    if (n)
        return (struct prom_bounds){ us, n };
    us[n++] = SECOND / 4;
    us[n++] = SECOND / 2;
    for (int64_t s = 1; s <= 300; s += s < 60 ? 1 : s < 120 ? 5 : 30)
        us[n++] = s * SECOND;
    return (struct prom_bounds){ us, n };
}

void proxy_metrics_queue(struct proxy_metrics *m, enum object_kind kind, int64_t now_wall_us)
{
    bool service = kind == KIND_SERVICE;
    m->service_changes += service;
    m->service_changes_pending += service;
    m->endpoint_changes += !service;
    m->endpoint_changes_pending += !service;
    m->queued_wall_us = now_wall_us;
}

void proxy_metrics_sync(struct proxy_metrics *m, bool full, int64_t took_us, int64_t now_wall_us)
{
    prom_observe(&m->sync, sync_bounds, took_us);
    prom_observe(full ? &m->full_sync : &m->partial_sync, sync_bounds, took_us);
    m->service_changes_pending = m->endpoint_changes_pending = 0;
    m->synced_wall_us = now_wall_us;
}

void proxy_metrics_programmed(struct proxy_metrics *m, int64_t trigger_us, int64_t now_wall_us)
{
    if (trigger_us >= m->started_wall_us && now_wall_us >= trigger_us)
        prom_observe(&m->network_programming, programming_bounds(), now_wall_us - trigger_us);
}

void proxy_metrics_conntrack(struct proxy_metrics *m, int64_t took_us, int deleted)
{
    prom_observe(&m->conntrack, sync_bounds, took_us);
    m->conntrack_deleted += (uint64_t)deleted;
}

static void put_syncs(const struct proxy_metrics *m, struct buf *out)
{
    prom_histogram(out, "kubeproxy_sync_proxy_rules_duration_seconds",
                   "Time to plan and apply, to the kernel's acknowledgement.", &m->sync,
                   sync_bounds);
    prom_histogram(out, "kubeproxy_sync_full_proxy_rules_duration_seconds",
                   "The same, of syncs that looked at everything.", &m->full_sync, sync_bounds);
    prom_histogram(out, "kubeproxy_sync_partial_proxy_rules_duration_seconds",
                   "The same, of syncs that looked at what changed.", &m->partial_sync,
                   sync_bounds);
    prom_time(out, "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
              "When the kernel last had everything.", m->synced_wall_us);
    prom_time(out, "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
              "When the last change of a Service or EndpointSlice came.", m->queued_wall_us);
    prom_single(out, "kubeproxy_sync_proxy_rules_nftables_sync_failures_total", "counter",
                "Syncs the kernel did not acknowledge.", m->sync_failures);
    prom_histogram(out, "kubeproxy_network_programming_duration_seconds",
                   "From what caused a change of endpoints to the kernel's acknowledgement.",
                   &m->network_programming, programming_bounds());
}

static void put_changes(const struct proxy_metrics *m, struct buf *out)
{
    prom_single(out, "kubeproxy_sync_proxy_rules_endpoint_changes_total", "counter",
                "Changes of EndpointSlices.", m->endpoint_changes);
    prom_single(out, "kubeproxy_sync_proxy_rules_endpoint_changes_pending", "gauge",
                "Of these, not in the kernel yet.", m->endpoint_changes_pending);
    prom_single(out, "kubeproxy_sync_proxy_rules_service_changes_total", "counter",
                "Changes of Services.", m->service_changes);
    prom_single(out, "kubeproxy_sync_proxy_rules_service_changes_pending", "gauge",
                "Of these, not in the kernel yet.", m->service_changes_pending);
}

static void put_codes(struct buf *out, const char *name, const char *help, uint64_t ok,
                      uint64_t bad)
{
    prom_family(out, name, "counter", help);
    prom_sample(out, name, "code", "200", ok);
    prom_sample(out, name, "code", "503", bad);
}

void proxy_metrics_text(const struct proxy_metrics *m, struct buf *out)
{
    put_syncs(m, out);
    put_changes(m, out);
    put_codes(out, "kubeproxy_proxy_healthz_total", "Answers of /healthz.", m->healthz_ok,
              m->healthz_bad);
    put_codes(out, "kubeproxy_proxy_livez_total", "Answers of /livez.", m->livez_ok, m->livez_bad);
    prom_histogram(out, "kubeproxy_conntrack_reconciler_sync_duration_seconds",
                   "Time to look for UDP conntrack entries to delete.", &m->conntrack, sync_bounds);
    prom_single(out, "kubeproxy_conntrack_reconciler_deleted_entries_total", "counter",
                "Conntrack entries deleted.", m->conntrack_deleted);
}
