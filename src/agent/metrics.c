#include "agent/metrics.h"

#include <inttypes.h>
#include <string.h>

const int64_t metrics_bounds_us[METRICS_BUCKETS] = {
    100, 250, 500, 1000, 2500, 5000, 10000, 25000, 100000, 500000, 1000000, 5000000,
};

void metrics_observe(struct histogram *h, int64_t us)
{
    size_t i = 0;
    while (i < METRICS_BUCKETS && us > metrics_bounds_us[i])
        i++;
    h->buckets[i]++;
    h->sum_us += (uint64_t)us;
    h->count++;
}

void metrics_apply(struct metrics *m, const struct report *r)
{
    m->adds += r->adds;
    m->changes += r->changes;
    m->deletes += r->deletes;
    m->bytes += r->bytes;
    m->refused += r->refusals.n;
    m->refused_now = (uint32_t)r->refusals.n;
}

void metrics_problems(struct metrics *m, const struct problems *problems)
{
    for (size_t i = 0; i < m->problems.n; i++)
        m->problems.v[i].n = 0; /* a reason seen once stays, at 0 */
    for (size_t i = 0; i < problems->n; i++) {
        size_t j = 0;
        while (j < m->problems.n && strcmp(m->problems.v[j].reason, problems->v[i].reason))
            j++;
        if (j == m->problems.n)
            vec_push(&m->problems, (struct reason_count){ xstrdup(problems->v[i].reason), 0 });
        m->problems.v[j].n++;
    }
}

void metrics_done(struct metrics *m)
{
    for (size_t i = 0; i < m->problems.n; i++)
        free((void *)(uintptr_t)m->problems.v[i].reason);
    vec_done(&m->problems);
}

/* ---- text ---- */

static void family(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP portolan_%s %s\n# TYPE portolan_%s %s\n", name, help, name, type);
}

static void labelled(struct buf *b, const char *name, const char *label, const char *value,
                     uint64_t n)
{
    buf_printf(b, "portolan_%s{%s=\"%s\"} %" PRIu64 "\n", name, label, value, n);
}

static void single(struct buf *b, const char *name, const char *type, const char *help, uint64_t n)
{
    family(b, name, type, help);
    buf_printf(b, "portolan_%s %" PRIu64 "\n", name, n);
}

static void put_histogram(struct buf *b, const char *name, const char *help,
                          const struct histogram *h)
{
    uint64_t below = 0;
    family(b, name, "histogram", help);
    for (size_t i = 0; i < METRICS_BUCKETS; i++) {
        below += h->buckets[i];
        buf_printf(b, "portolan_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name,
                   (double)metrics_bounds_us[i] / 1e6, below);
    }
    buf_printf(b, "portolan_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, h->count);
    buf_printf(b, "portolan_%s_sum %.6f\n", name, (double)h->sum_us / 1e6);
    buf_printf(b, "portolan_%s_count %" PRIu64 "\n", name, h->count);
}

static void put_kernel(struct buf *b, const struct metrics *m)
{
    family(b, "kernel_operations_total", "counter", "Operations the kernel acknowledged.");
    labelled(b, "kernel_operations_total", "op", "add", m->adds);
    labelled(b, "kernel_operations_total", "op", "change", m->changes);
    labelled(b, "kernel_operations_total", "op", "delete", m->deletes);
    single(b, "kernel_bytes_total", "counter", "Netlink bytes sent.", m->bytes);
    single(b, "kernel_refusals_total", "counter", "Objects the kernel refused.", m->refused);
    single(b, "kernel_refused_objects", "gauge", "Objects refused in the last pass.",
           m->refused_now);
    single(b, "audits_total", "counter", "Times the kernel's state was dumped and compared.",
           m->audits);
    single(b, "foreign_changes_total", "counter", "Times somebody else changed what is ours.",
           m->foreign_changes);
    single(b, "links", "gauge", "VXLAN links wanted on this node.", m->links);
}

static void put_statuses(struct buf *b, const struct metrics *m)
{
    family(b, "status_writes_total", "counter", "Status writes by result.");
    labelled(b, "status_writes_total", "result", "written", m->statuses_written);
    labelled(b, "status_writes_total", "result", "conflict", m->status_conflicts);
    labelled(b, "status_writes_total", "result", "failed", m->status_failures);
    family(b, "problems", "gauge", "Problems of the last pass by reason.");
    for (size_t i = 0; i < m->problems.n; i++)
        labelled(b, "problems", "reason", m->problems.v[i].reason, m->problems.v[i].n);
}

void metrics_text(const struct metrics *m, const struct store *store, struct buf *out)
{
    family(out, "build_info", "gauge", "Version of the running agent.");
    labelled(out, "build_info", "version", PORTOLAN_VERSION, 1);
    family(out, "objects", "gauge", "Objects known, by kind.");
    for (int k = 0; k < KIND_COUNT; k++)
        labelled(out, "objects", "kind", kind_info[k].kind,
                 store_count(store, (enum object_kind)k));
    family(out, "passes_total", "counter", "Passes by result.");
    labelled(out, "passes_total", "result", "clean", m->passes_clean);
    labelled(out, "passes_total", "result", "failed", m->passes_failed);
    put_histogram(out, "plan_duration_seconds", "Time to plan.", &m->plan);
    put_histogram(out, "apply_duration_seconds", "Time to apply, to the kernel's acknowledgement.",
                  &m->apply);
    put_kernel(out, m);
    put_statuses(out, m);
}
