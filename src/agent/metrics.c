#include "agent/metrics.h"

#include <string.h>

static const int64_t bounds_us[] = {
    100, 250, 500, 1000, 2500, 5000, 10000, 25000, 100000, 500000, 1000000, 5000000,
};
const struct prom_bounds metrics_bounds = { bounds_us, sizeof(bounds_us) / sizeof(bounds_us[0]) };

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

static void put_kernel(struct buf *b, const struct metrics *m)
{
    prom_family(b, "portolan_kernel_operations_total", "counter",
                "Operations the kernel acknowledged.");
    prom_sample(b, "portolan_kernel_operations_total", "op", "add", m->adds);
    prom_sample(b, "portolan_kernel_operations_total", "op", "change", m->changes);
    prom_sample(b, "portolan_kernel_operations_total", "op", "delete", m->deletes);
    prom_single(b, "portolan_kernel_bytes_total", "counter", "Netlink bytes sent.", m->bytes);
    prom_single(b, "portolan_kernel_refusals_total", "counter", "Objects the kernel refused.",
                m->refused);
    prom_single(b, "portolan_kernel_refused_objects", "gauge", "Objects refused in the last pass.",
                m->refused_now);
    prom_single(b, "portolan_audits_total", "counter",
                "Times the kernel's state was dumped and compared.", m->audits);
    prom_single(b, "portolan_foreign_changes_total", "counter",
                "Times somebody else changed what is ours.", m->foreign_changes);
    prom_single(b, "portolan_links", "gauge", "VXLAN links wanted on this node.", m->links);
}

static void put_statuses(struct buf *b, const struct metrics *m)
{
    prom_family(b, "portolan_status_writes_total", "counter", "Status writes by result.");
    prom_sample(b, "portolan_status_writes_total", "result", "written", m->statuses_written);
    prom_sample(b, "portolan_status_writes_total", "result", "conflict", m->status_conflicts);
    prom_sample(b, "portolan_status_writes_total", "result", "failed", m->status_failures);
    prom_family(b, "portolan_problems", "gauge", "Problems of the last pass by reason.");
    for (size_t i = 0; i < m->problems.n; i++)
        prom_sample(b, "portolan_problems", "reason", m->problems.v[i].reason, m->problems.v[i].n);
}

void metrics_text(const struct metrics *m, const struct store *store, struct buf *out)
{
    prom_family(out, "portolan_build_info", "gauge", "Version of the running agent.");
    prom_sample(out, "portolan_build_info", "version", PORTOLAN_VERSION, 1);
    prom_family(out, "portolan_objects", "gauge", "Objects known, by kind.");
    for (int k = 0; k < KIND_COUNT; k++)
        prom_sample(out, "portolan_objects", "kind", kind_info[k].kind,
                    store_count(store, (enum object_kind)k));
    prom_family(out, "portolan_passes_total", "counter", "Passes by result.");
    prom_sample(out, "portolan_passes_total", "result", "clean", m->passes_clean);
    prom_sample(out, "portolan_passes_total", "result", "failed", m->passes_failed);
    prom_histogram(out, "portolan_plan_duration_seconds", "Time to plan.", &m->plan,
                   metrics_bounds);
    prom_histogram(out, "portolan_apply_duration_seconds",
                   "Time to apply, to the kernel's acknowledgement.", &m->apply, metrics_bounds);
    put_kernel(out, m);
    put_statuses(out, m);
}
