#include "agent/pass.h"

#include <errno.h>
#include <linux/netlink.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "agent/few.h"
#include "agent/kubeproxy.h"
#include "agent/pass_ipvs.h"
#include "base/clock.h"
#include "kernel/conntrack.h"
#include "kernel/sysctl.h"
#include "status/status.h"

#define MANY_CHANGES 100

int pass_open(struct pass *p, struct err *err)
{
    p->planner = planner_new(p->options);
    int r = nl_open(NETLINK_ROUTE, NULL, &p->route_port, err);
    if (!r)
        r = nl_open(NETLINK_NETFILTER, NULL, &p->nft_port, err);
    if (!r)
        r = nl_open(NETLINK_NETFILTER, NULL, &p->conntrack_port, err);
    if (r)
        return r;
    r = monitor_open(p->nft_port->portid, p->options->trafficclass, &p->monitor, err);
    if (r)
        return r;
    r = keep_open(p->state_dir, &p->keep, err);
    if (r)
        return r;
    const struct nft_table table = plan_ruleset(p->options);
    if (plan_needs_nft(p->options))
        p->nft = nft_new(p->nft_port, table);
    p->rtnl = rtnl_new(p->route_port);
    r = pass_ipvs_open(p->options, p->iptables_mode, &p->ipvs, err);
    return r || !p->ipvs || !p->nft
               ? r
               : nft_is_another(p->nft_port, &table, &p->ipvs->follows_table, err);
}

void pass_close(struct pass *p)
{
    nft_free(p->nft);
    pass_ipvs_close(p->ipvs);
    if (p->rtnl)
        rtnl_free(p->rtnl);
    keep_close(p->keep);
    monitor_close(p->monitor);
    nl_close(p->route_port);
    nl_close(p->nft_port);
    nl_close(p->conntrack_port);
    planner_free(p->planner);
    arena_done(&p->host_mem[0]);
    arena_done(&p->host_mem[1]);
    report_done(&p->report);
    notes_done(&p->notes);
    metrics_done(&p->metrics);
    vec_done(&p->flows);
    arena_done(&p->flow_mem);
}

int pass_is_fresh(const struct pass *p, bool *ret, struct err *err)
{
    struct buf rtnl = { 0 };
    bool table = false, ipvs = false;
    int r = nft_cleanup(p->nft_port, true, &table, err);
    if (!r)
        r = ipvs_is_ours(p->route_port, &ipvs, err);
    if (!r)
        r = rtnl_cleanup(p->rtnl, true, &rtnl, err);
    if (!r)
        *ret = !table && !ipvs && !rtnl.n;
    buf_done(&rtnl);
    return r;
}

static void say_error(struct pass *p, const char *event, const char *text)
{
    char line[700];
    snprintf(line, sizeof(line), "text=%s", log_quote(text));
    notes_say(&p->notes, LOG_ERROR, event, line);
}

/* True when the facts differ from the observation before. */
static bool observe_host(struct pass *p, bool *ret_failed)
{
    int next = !p->host_now;
    struct err err = { 0 };
    arena_reset(&p->host_mem[next]);
    if (host_observe(p->route_port, &p->host_mem[next], &p->host[next], &err) ||
        (plan_needs_rules(p->options) &&
         host_observe_policy(p->route_port, &p->host_mem[next], p->options->trafficclass,
                             &p->host[next], &err))) {
        say_error(p, "host", err.text);
        *ret_failed = true;
        return false;
    }
    p->host[next].forwarding4_error = arena_strdup(&p->host_mem[next], p->forwarding4_error);
    p->host[next].forwarding6_error = arena_strdup(&p->host_mem[next], p->forwarding6_error);
    if (p->host_observed && host_equal(&p->host[p->host_now], &p->host[next]))
        return false;
    p->host_now = next;
    p->host_observed = true;
    return true;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

/* Remembers why forwarding could not be switched on; true when that is news, which the
 * planner must hear. */
static bool learn_forwarding(struct pass *p)
{
    char four[sizeof(p->forwarding4_error)] = "", six[sizeof(p->forwarding6_error)] = "";
    for (size_t i = 0; i < p->report.refusals.n; i++) {
        const struct refusal *f = &p->report.refusals.v[i];
        if (ends_with(f->object, "net/ipv4/ip_forward"))
            snprintf(four, sizeof(four), "%s", f->text);
        else if (ends_with(f->object, "net/ipv6/conf/all/forwarding"))
            snprintf(six, sizeof(six), "%s", f->text);
    }
    bool news = strcmp(four, p->forwarding4_error) || strcmp(six, p->forwarding6_error);
    memcpy(p->forwarding4_error, four, sizeof(four));
    memcpy(p->forwarding6_error, six, sizeof(six));
    return news;
}

/* What another start of ours, in another mode or with iptables of the other kind, has left goes when
 * this one's stands. With the table the kernel lets go of conntrack, if nothing else needs it: without
 * the rules, connections of before would then be IPVS', which masquerades nobody. */
static int remove_other_mode(struct pass *p, struct err *err)
{
    struct buf gone = { 0 };
    if (p->ipvs && !p->ipvs->stood)
        return 0;
    bool existed = false, done = true;
    int r = p->ipvs ? pass_ipvs_remove_other_kind(p->ipvs, &done, &gone, err)
                    : kubeproxy_remove_ours(false, &gone, err);
    if (!r && !p->nft)
        r = nft_cleanup(p->nft_port, false, &existed, err);
    if (existed)
        buf_puts(&gone, "- table inet portolan\n");
    if (gone.n)
        log_info("event=mode_changed removed=%s", log_quote(buf_str(&gone)));
    buf_done(&gone);
    p->other_mode_gone = !r && done;
    return r;
}

/* Until IPVS stands, a table that may have proxied services before stays as it is. */
static int apply_services(struct pass *p, const struct desired *d, unsigned needs, struct err *err)
{
    struct err second = { 0 };
    int r = p->ipvs ? pass_ipvs_apply(p, d, needs, err) : 0;
    bool waits = p->ipvs && p->ipvs->follows_table && !p->ipvs->stood;
    int e = p->nft && !waits ? nft_sync(p->nft, d->groups, d->n_groups, needs & PASS_AUDIT_NFT,
                                        &p->report, r ? &second : err)
                             : 0;
    return r ? r : e;
}

/* Adding runs from the bottom up (links, addresses, routes, rules, the links' sysctls, then
 * elements that lead to them), removing from the top down. */
static int apply(struct pass *p, const struct desired *d, unsigned needs, bool *ret_table_ok,
                 struct err *err)
{
    struct err second = { 0 };
    int r = rtnl_add(p->rtnl, d, needs & PASS_AUDIT_RTNL, &p->report, err);
    sysctl_sync(d, p->state_dir, &p->report);
    /* Mappings that need no link do not wait for one that cannot be had. */
    int e = apply_services(p, d, needs, r ? &second : err);
    *ret_table_ok = !e;
    if (!r && !e)
        rtnl_remove(p->rtnl, d, &p->report);
    int o = e || p->other_mode_gone ? 0 : remove_other_mode(p, r ? &second : err);
    return r ? r : e ? e : o;
}

/* Without listening to nftables, which would make a big batch slow. */
static int apply_unheard(struct pass *p, const struct desired *d, unsigned needs,
                         bool *ret_table_ok, struct err *err)
{
    struct err deaf;
    *ret_table_ok = false;
    int r = monitor_hear_nft(p->monitor, false, err);
    if (r)
        return r;
    r = apply(p, d, needs, ret_table_ok, err);
    int e = monitor_hear_nft(p->monitor, true, r ? &deaf : err);
    p->unheard = *ret_table_ok && p->nft && nft_foreign_change(p->nft);
    return r ? r : e;
}

static void put_flows(struct pass *p, const struct flow_target *udp, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct flow_target f = udp[i];
        struct flow_end *others = arena_new_array(&p->flow_mem, f.n_others, struct flow_end);
        for (size_t j = 0; j < f.n_others; j++)
            others[j] = f.others[j];
        f.others = others;
        vec_push(&p->flows, f);
    }
}

/* Flows that were there before still go where they went. What could not be deleted stays due. */
static void flush_conntrack(struct pass *p)
{
    const struct flow_target *udp;
    size_t n = p->nft ? nft_udp_changes(p->nft, &udp) : 0;
    put_flows(p, udp, n);
    n = p->ipvs ? ipvs_udp_changes(p->ipvs->ipvs, &udp) : 0;
    put_flows(p, udp, n);
    if (!p->flows.n)
        return;
    struct err err = { 0 };
    int64_t start = clock_mono_us();
    int flushed = conntrack_flush_udp(p->conntrack_port, p->flows.v, p->flows.n, &err);
    if (flushed >= 0) {
        p->flows.n = 0;
        arena_reset(&p->flow_mem);
        if (p->proxy)
            proxy_conntrack(p->proxy, clock_mono_us() - start, flushed);
        if (flushed)
            log_debug("event=conntrack_flushed entries=%d", flushed);
        return;
    }
    say_error(p, "conntrack", err.text);
    if (!*p->failure.text)
        p->failure = err;
}

static int refusal_cmp(const void *a, const void *b)
{
    return strcmp(((const struct refusal *)a)->owner, ((const struct refusal *)b)->owner);
}

/* Puts them in the order of their owners. */
static void say_refusals(struct pass *p)
{
    char text[700];
    const struct refusal *v;
    if (p->report.refusals.n > 1)
        qsort(p->report.refusals.v, p->report.refusals.n, sizeof(struct refusal), refusal_cmp);
    size_t n = few_refusals(&p->report.mem, p->report.refusals.v, p->report.refusals.n, &v);
    for (size_t i = 0; i < n; i++) {
        const struct refusal *f = &v[i];
        snprintf(text, sizeof(text), "owner=%s object=%s error=%s", log_quote(f->owner),
                 log_quote(f->object), log_quote(f->text));
        notes_say(&p->notes, LOG_ERROR, "refused", text);
    }
}

/* In the log and, where the source has them, by Events. */
static void say_problems(struct pass *p, const struct problems *all)
{
    char text[1400];
    struct problems few = few_problems(&p->report.mem, all);
    for (size_t i = 0; i < few.n; i++) {
        const struct problem *q = &few.v[i];
        snprintf(text, sizeof(text), "kind=%s object=%s%s%s field=%s value=%s reason=%s message=%s",
                 kind_info[q->kind].kind, q->ns, *q->ns ? "/" : "", q->name, log_quote(q->field),
                 log_quote(q->value), q->reason, log_quote(q->message));
        notes_say(&p->notes, LOG_WARN, "problem", text);
    }
    if (p->source->ops->problems)
        p->source->ops->problems(p->source, &few);
}

static void status_failed(const struct status_write *w, const char *text, void *user)
{
    struct pass *p = user;
    char line[700];
    snprintf(line, sizeof(line), "object=%s%s%s error=%s", w->ns, *w->ns ? "/" : "", w->name,
             log_quote(text));
    notes_say(&p->notes, LOG_ERROR, "status", line);
}

static bool write_statuses(struct pass *p, const struct snapshot *snap, bool acknowledged)
{
    struct applied applied = { .refusals = p->report.refusals.v,
                               .n_refusals = p->report.refusals.n,
                               .acknowledged = acknowledged,
                               .bird = p->mesh ? mesh_applied(p->mesh) : NULL };
    struct status_writes writes = plan_statuses(p->planner, snap, &applied);
    struct status_outcome out = status_send(p->source, &writes, status_failed, p);
    p->metrics.statuses_written += out.written;
    p->metrics.status_conflicts += out.conflicts;
    p->metrics.status_failures += out.failed;
    p->statuses_wait = out.waiting;
    if (out.written || out.sent)
        log_debug("event=status written=%zu sent=%zu conflicts=%zu waiting=%zu", out.written,
                  out.sent, out.conflicts, out.waiting);
    return !out.failed;
}

size_t pass_draining(const struct pass *p)
{
    return p->ipvs && p->ipvs->ipvs ? ipvs_draining(p->ipvs->ipvs) : 0;
}

bool pass_ready(const struct pass *p, struct buf *out)
{
    if (!p->metrics.passes_clean && !p->metrics.passes_failed)
        buf_puts(out, "pass: none yet\n");
    else if (*p->failure.text)
        buf_printf(out, "pass: %s\n", p->failure.text);
    else
        return true;
    return false;
}

/* The first thing the pass left undone, for /readyz: p->failure, empty when it was clean. */
static void what_is_undone(struct pass *p, bool host_failed, bool replan, bool written)
{
    if (host_failed) {
        err_set(&p->failure, EAGAIN, "this host could not be observed; see the log");
    } else if (p->report.refusals.n) {
        const struct refusal *f = &p->report.refusals.v[0];
        err_set(&p->failure, f->error, "the kernel refused %zu objects, first %s: %s",
                p->report.refusals.n, f->object, f->text);
    } else if (!written) {
        err_set(&p->failure, EIO, "a status could not be written; see the log");
    } else if (replan) {
        err_set(&p->failure, EAGAIN, "forwarding changed; planning again");
    }
}

static enum pass_result settle(struct pass *p)
{
    bool clean = !*p->failure.text;
    if (clean)
        p->metrics.passes_clean++;
    else
        p->metrics.passes_failed++;
    return clean ? PASS_CLEAN : PASS_AGAIN;
}

/* When, by clock_mono_us(), each part was over. */
struct times {
    int64_t start, planned, applied, flushed;
    int64_t kernel_us; /* how long nftables batches took */
};

static void tell_proxy(struct pass *p, const struct snapshot *snap, const struct plan *plan,
                       const struct times *t, unsigned needs, bool table_ok)
{
    struct err err = { 0 };
    bool full = !snap->changes_known || (needs & (PASS_AUDIT_NFT | PASS_AUDIT_IPVS));
    proxy_synced(p->proxy, snap, full, table_ok, t->applied - t->start);
    if (proxy_sync_health_checks(p->proxy, snap, &plan->desired, &p->notes, &err) &&
        !*p->failure.text)
        p->failure = err;
}

static void account(struct pass *p, const struct plan *plan, const struct times *t, bool mends)
{
    const struct report *rep = &p->report;
    if (rep->adds || rep->changes || rep->deletes)
        log_info("event=%s adds=%zu changes=%zu deletes=%zu bytes=%zu refused=%zu plan_us=%lld "
                 "apply_us=%lld kernel_us=%lld conntrack_us=%lld",
                 mends ? "mended" : "applied", rep->adds, rep->changes, rep->deletes, rep->bytes,
                 rep->refusals.n, (long long)(t->planned - t->start),
                 (long long)(t->applied - t->planned), (long long)t->kernel_us,
                 (long long)(t->flushed - t->applied));
    prom_observe(&p->metrics.plan, metrics_bounds, t->planned - t->start);
    prom_observe(&p->metrics.apply, metrics_bounds, t->applied - t->planned);
    metrics_apply(&p->metrics, rep);
    metrics_problems(&p->metrics, &plan->problems);
    p->metrics.links = (uint32_t)plan->desired.n_links;
}

/* The plan, with what deleted classes left to stay and what waits for BIRD. */
static struct desired wanted_now(struct pass *p, const struct snapshot *snap,
                                 const struct desired *planned, struct err *reterr_unkept)
{
    struct desired d = *planned;
    keep_apply(p->keep, snap, &d);
    if (keep_write(p->keep, reterr_unkept))
        say_error(p, "kept", reterr_unkept->text);
    if (p->mesh) {
        mesh_want(p->mesh, d.bird);
        d.held = mesh_unsettled(p->mesh, &d.n_held);
        p->held = d.n_held;
    }
    return d;
}

enum pass_result pass_run(struct pass *p, unsigned needs)
{
    struct times t = { .start = clock_mono_us() };
    bool failed = false, table_ok;
    p->failure.text[0] = 0;
    p->unheard = false;
    notes_begin(&p->notes);
    report_reset(&p->report);
    bool host_news = (needs & PASS_HOST) && observe_host(p, &failed);
    if (!p->host_observed) {
        notes_end(&p->notes);
        what_is_undone(p, true, false, true);
        return settle(p);
    }
    struct snapshot snap = { .node = p->node,
                             .now = clock_wall(),
                             .host = &p->host[p->host_now],
                             .cni_vxlan_port = p->cni_vxlan_port };
    store_snapshot(p->store, &snap);
    snap.host_changed = host_news;
    if (p->anew)
        snap.changes_known = false;
    p->anew = false;
    /* Nothing is new but the kernel: what is done then undoes what somebody else did. */
    bool mends = snap.changes_known && !snap.n_changes && !host_news && !p->held;
    const struct plan *plan = plan_build(p->planner, &snap);
    t.planned = clock_mono_us();
    struct err unkept = { 0 };
    struct desired desired = wanted_now(p, &snap, &plan->desired, &unkept);
    t.kernel_us = -p->nft_port->batch_us;
    bool many = !snap.changes_known || host_news || snap.n_changes >= MANY_CHANGES;
    int r = (many ? apply_unheard : apply)(p, &desired, needs, &table_ok, &p->failure);
    t.applied = clock_mono_us();
    t.kernel_us += p->nft_port->batch_us;
    if (r)
        say_error(p, "apply", p->failure.text);
    else
        p->failure.text[0] = 0;
    if (table_ok) /* whatever became of the links: nobody tells of these flows again */
        flush_conntrack(p);
    t.flushed = clock_mono_us();
    if (p->proxy)
        tell_proxy(p, &snap, plan, &t, needs, table_ok);
    bool replan = learn_forwarding(p);
    say_refusals(p);
    say_problems(p, &plan->problems);
    bool written = write_statuses(p, &snap, !r);
    store_commit(p->store);
    notes_end(&p->notes);
    account(p, plan, &t, mends);
    if (many)
        malloc_trim(0); /* leaves more free memory behind than the next passes use */
    if (!r)
        what_is_undone(p, failed, replan, written);
    if (!*p->failure.text)
        p->failure = unkept;
    return settle(p);
}
