#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include "agent/http.h"
#include "agent/kubeproxy.h"
#include "agent/lock.h"
#include "agent/pass.h"
#include "base/clock.h"
#include "base/log.h"

#define RETRY_FIRST_MS 200
#define RETRY_MAX_MS   30000
/* Between two looks at destinations that drain, as kube-proxy has it. */
#define DRAIN_MS 60000
/* Between two looks at an overlay's sysctls that the kernel tells nobody of. */
#define SWITCHES_MS 10000
/* Between two audits: some multiple of what the last one took, so that a busy host does not
 * keep us busy, but never so long that a foreign change stands for a second. */
#define AUDIT_GAP_MIN_MS 20
#define AUDIT_GAP_MAX_MS 300

struct agent {
    uv_loop_t loop;
    struct pass pass;
    struct http *http; /* NULL: switched off */
    unsigned needs;    /* enum pass_need of the next pass */
    uint64_t retry_ms;
    uint64_t audit_allowed_at; /* uv_now() ms */
    uv_timer_t pass_timer, retry_timer, audit_timer, anew_timer, drain_timer, switches_timer;
    uv_poll_t route_poll, nft_poll;
    uv_signal_t sigterm, sigint, sighup;
    bool synced;
    bool node_seen, node_missed; /* our Node object was there once; it was waited for */
};

static void on_pass(uv_timer_t *t);
static unsigned look(struct agent *a);

/* The next pass runs in this turn of the loop, or when an audit is allowed again. */
static void request(struct agent *a, unsigned needs)
{
    a->needs |= needs;
    uint64_t wait = 0, now = uv_now(&a->loop);
    if ((a->needs & PASS_AUDITS) && a->audit_allowed_at > now)
        wait = a->audit_allowed_at - now;
    if (needs && uv_is_active((uv_handle_t *)&a->pass_timer))
        return;
    uv_timer_start(&a->pass_timer, on_pass, needs ? wait : 0, 0);
}

static void on_drain(uv_timer_t *t)
{
    request(t->data, PASS_DRAINING);
}

static void on_retry(uv_timer_t *t)
{
    request(t->data, PASS_HOST);
}

/* A node nobody has heard of is most likely a wrong --node: planning for it would take away
 * everything. Once it was there, its removal counts. */
static bool node_exists(struct agent *a)
{
    if (a->node_seen || store_get(a->pass.store, KIND_NODE, "", a->pass.node)) {
        a->node_seen = true;
        return true;
    }
    if (!a->node_missed)
        log_error("event=waiting for=%s text=%s", log_quote(a->pass.node),
                  log_quote("the source has no Node object of this name; nothing is changed until "
                            "it has, or --node is set right"));
    a->node_missed = true;
    return false;
}

static void on_pass(uv_timer_t *t)
{
    struct agent *a = t->data;
    struct source *source = a->pass.source;
    /* No rule is written, and none removed, before every needed object was seen. */
    if (!source->ops->synced(source) || !node_exists(a))
        return;
    if (!a->synced) {
        a->synced = true;
        a->needs = PASS_ALL;
    }
    unsigned needs = a->needs |= look(a);
    uint64_t now = uv_now(&a->loop);
    if (a->audit_allowed_at > now) /* an object changed while an audit waits its turn */
        needs &= ~(unsigned)PASS_AUDITS;
    a->needs &= ~needs;
    enum pass_result r = pass_run(&a->pass, needs);
    if (a->pass.unheard)
        a->needs |= PASS_AUDIT_NFT;
    uv_update_time(&a->loop);
    if (needs & PASS_AUDITS) {
        uint64_t gap = (uv_now(&a->loop) - now) * 4;
        if (gap < AUDIT_GAP_MIN_MS)
            gap = AUDIT_GAP_MIN_MS;
        if (gap > AUDIT_GAP_MAX_MS)
            gap = AUDIT_GAP_MAX_MS;
        a->audit_allowed_at = uv_now(&a->loop) + gap;
    }
    if (needs & PASS_AUDITS)
        a->pass.metrics.audits++;
    if (r == PASS_CLEAN) {
        a->retry_ms = 0;
        uv_timer_stop(&a->retry_timer);
    } else if (!uv_is_active((uv_handle_t *)&a->retry_timer)) {
        /* Passes for other reasons do not put it off. */
        a->retry_ms = a->retry_ms ? a->retry_ms * 2 : RETRY_FIRST_MS;
        if (a->retry_ms > RETRY_MAX_MS)
            a->retry_ms = RETRY_MAX_MS;
        uv_timer_start(&a->retry_timer, on_retry, a->retry_ms, 0);
    }
    if (pass_draining(&a->pass) && !uv_is_active((uv_handle_t *)&a->drain_timer))
        uv_timer_start(&a->drain_timer, on_drain, DRAIN_MS, 0);
    if (a->needs)
        request(a, a->needs);
    else if (a->pass.statuses_wait) /* not at once: a source that writes by the loop needs a turn */
        uv_timer_start(&a->pass_timer, on_pass, 1, 0);
}

/* A pass without news sets what differs, and sends nothing else. */
static void on_switches(uv_timer_t *t)
{
    request(t->data, 0);
}

static void on_audit(uv_timer_t *t)
{
    request(t->data, PASS_ALL);
}

/* Whatever was told of changes: everything is planned and compared again. */
static void on_anew(uv_timer_t *t)
{
    struct agent *a = t->data;
    a->pass.anew = true;
    request(a, PASS_ALL);
}

/* What others did since the last look; a set of enum pass_need. */
static unsigned look(struct agent *a)
{
    unsigned seen = monitor_read(a->pass.monitor), needs = 0;
    if (seen & (MONITOR_HOST | MONITOR_RP_FILTER))
        needs |= PASS_HOST;
    /* A class's default goes with its link, silently, and the link may be back before we look. */
    if (seen & MONITOR_HOST && a->pass.mesh)
        needs |= PASS_AUDIT_RTNL;
    /* With an audit, of which there are not many a second: others may change many routes. */
    if (seen & (MONITOR_POLICY | MONITOR_RP_FILTER) && plan_needs_rules(a->pass.options))
        needs |= PASS_HOST | PASS_AUDIT_RTNL;
    if (seen & MONITOR_OURS)
        needs |= PASS_AUDIT_RTNL;
    if (seen & MONITOR_LOST)
        needs |= PASS_ALL;
    if (seen & MONITOR_NFT) {
        needs |= PASS_AUDIT_NFT;
        a->pass.metrics.foreign_changes++;
    } else if (seen & MONITOR_GEN && a->pass.nft) {
        nft_accept_generation(a->pass.nft);
    }
    if (seen & MONITOR_IPVS && a->pass.ipvs)
        needs |= PASS_AUDIT_IPVS;
    return needs;
}

static void on_kernel(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    unsigned needs = look(poll->data);
    if (needs)
        request(poll->data, needs);
}

static void on_signal(uv_signal_t *handle, int signum)
{
    struct agent *a = handle->data;
    if (signum == SIGHUP) {
        if ((a->needs & PASS_ALL) != PASS_ALL)
            log_info("event=audit cause=SIGHUP");
        request(a, PASS_ALL);
        return;
    }
    log_info("event=stopping cause=%s kernel_state=kept", signum == SIGTERM ? "SIGTERM" : "SIGINT");
    uv_stop(&a->loop);
}

/* ---- what the source tells ---- */

static void sink_upsert(void *user, struct object *obj)
{
    struct pass *p = &((struct agent *)user)->pass;
    enum object_kind kind = obj->meta.kind;
    if (store_upsert(p->store, obj) && p->proxy)
        proxy_queue(p->proxy, kind);
}

static void sink_removed(void *user, enum object_kind kind, const char *ns, const char *name)
{
    struct pass *p = &((struct agent *)user)->pass;
    if (store_remove(p->store, kind, ns, name) && p->proxy)
        proxy_queue(p->proxy, kind);
}

static void sink_settled(void *user, bool written)
{
    struct metrics *m = &((struct agent *)user)->pass.metrics;
    written ? m->statuses_written++ : m->status_failures++;
}

static void sink_note(void *user, bool is_error, const char *where, const char *text)
{
    (void)user;
    log_write(is_error ? LOG_ERROR : LOG_INFO, "event=source where=%s text=%s", log_quote(where),
              log_quote(text));
}

static void sink_changed(void *user)
{
    request(user, 0);
}

/* ---- what HTTP asks ---- */

static void tell_metrics(void *user, struct buf *out)
{
    struct agent *a = user;
    const struct source_ops *ops = a->pass.source->ops;
    metrics_text(&a->pass.metrics, a->pass.store, out);
    if (a->pass.proxy)
        proxy_metrics_put(a->pass.proxy, out);
    if (a->pass.mesh)
        mesh_metrics(a->pass.mesh, out);
    if (ops->metrics)
        ops->metrics(a->pass.source, out);
}

static bool tell_ready(void *user, struct buf *out)
{
    struct agent *a = user;
    const struct source_ops *ops = a->pass.source->ops;
    size_t n = out->n;
    ops->unready(a->pass.source, out);
    bool current = out->n == n;
    if (!ops->synced(a->pass.source)) {
        buf_puts(out, "source: not every needed object has been seen yet; the kernel keeps what it "
                      "has\n");
        return false;
    }
    if (!a->node_seen) {
        buf_printf(out, "node: the source has no Node object %s; the kernel keeps what it has\n",
                   a->pass.node);
        return false;
    }
    return pass_ready(&a->pass, out) && current;
}

static void answer(void *user, const char *path, struct http_answer *ret)
{
    if (!strcmp(path, "/livez") || !strcmp(path, "/healthz")) { /* that it answers is the proof */
        buf_puts(&ret->body, "ok\n");
    } else if (!strcmp(path, "/readyz")) {
        if (tell_ready(user, &ret->body))
            buf_puts(&ret->body, "ok\n");
        else
            ret->status = 503;
    } else if (!strcmp(path, "/metrics")) {
        ret->type = PROMETHEUS_TYPE;
        tell_metrics(user, &ret->body);
    } else {
        ret->status = 404;
        buf_puts(&ret->body, "/livez, /readyz, /healthz or /metrics\n");
    }
}

/* ---- start and stop ---- */

/* Two proxies in one network namespace undo each other's work. What one left behind acts on
 * packets still, but is removed only when that is asked for. */
static int check_kubeproxy(struct err *err)
{
    struct buf seen = { 0 };
    struct err why = { 0 };
    int r = 0;
    if (kubeproxy_runs(&seen))
        r = err_set(err, EBUSY, "kube-proxy runs on this node: %s; stop it first", buf_str(&seen));
    buf_clear(&seen);
    if (!r && kubeproxy_cleanup(true, &seen, &why)) /* no reason not to serve */
        log_warn("event=leftovers of=kube-proxy error=%s", log_quote(why.text));
    else if (!r && seen.n)
        log_warn(
            "event=leftovers of=kube-proxy text=%s",
            log_quote("rules of a former kube-proxy are still in force; 'portolan cleanup "
                      "--kube-proxy --dry-run' lists them, without --dry-run it removes them"));
    buf_done(&seen);
    return r;
}

/* Each health-check node port takes a few descriptors; the usual soft limit of 1024 is for
 * programs that use select(). */
static void raise_file_limit(void)
{
    struct rlimit l;
    if (!getrlimit(RLIMIT_NOFILE, &l) && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max;
        setrlimit(RLIMIT_NOFILE, &l);
    }
}

static int open_listeners(struct agent *a, const struct agent_options *opt, struct err *err)
{
    const struct http_handler handler = { a, answer };
    const struct proxy_handler proxy = { a, tell_metrics };
    struct err why;
    int r = opt->metrics.port ? http_open(&opt->metrics, &a->loop, &handler, &a->http, &why) : 0;
    if (r)
        return err_set(err, -r, "--metrics-address %s; give another one, or none", why.text);
    if (!opt->plan->serviceproxy)
        return 0;
    raise_file_limit();
    return proxy_open(&opt->proxy, a->pass.store, &a->loop, &proxy, &a->pass.proxy, err);
}

static void on_mesh(void *user)
{
    request(user, 0);
}

static void poll_fd(struct agent *a, uv_poll_t *poll, int fd)
{
    uv_poll_init(&a->loop, poll, fd);
    poll->data = a;
    uv_poll_start(poll, UV_READABLE, on_kernel);
}

static void init_timer(struct agent *a, uv_timer_t *t)
{
    uv_timer_init(&a->loop, t);
    t->data = a;
}

static void watch_signal(struct agent *a, uv_signal_t *handle, int signum)
{
    uv_signal_init(&a->loop, handle);
    handle->data = a;
    uv_signal_start(handle, on_signal, signum);
}

static int start(struct agent *a, const struct agent_options *opt, struct err *err)
{
    const struct source_sink sink = { .user = a,
                                      .upsert = sink_upsert,
                                      .removed = sink_removed,
                                      .note = sink_note,
                                      .changed = sink_changed,
                                      .settled = sink_settled };
    const struct source_options source = { .spec = opt->source,
                                           .kubeconfig = opt->kubeconfig,
                                           .context = opt->context,
                                           .node = opt->node,
                                           .kinds = source_kinds(opt->features) };
    a->pass.store = store_new();
    int r = opt->plan->serviceproxy ? check_kubeproxy(err) : 0;
    if (!r)
        r = open_listeners(a, opt, err);
    if (!r)
        r = source_open(&source, &sink, &a->pass.source, err);
    if (!r)
        r = pass_open(&a->pass, err);
    if (r)
        return r;
    if (opt->plan->trafficclass)
        a->pass.mesh = mesh_open(&opt->mesh, &a->loop, a->pass.route_port, on_mesh, a);
    poll_fd(a, &a->route_poll, monitor_fd_route(a->pass.monitor));
    poll_fd(a, &a->nft_poll, monitor_fd_nft(a->pass.monitor));
    r = pass_is_fresh(&a->pass, &a->pass.source->fresh, err);
    if (r)
        return r;
    r = a->pass.source->ops->start(a->pass.source, &a->loop, err);
    if (r)
        return r;
    uint64_t every = (uint64_t)opt->audit_seconds * 1000;
    uv_timer_start(&a->audit_timer, on_audit, every, every);
    if (opt->plan->loadbalancer && opt->plan->overlay && strcmp(opt->plan->overlay, OVERLAY_VXLAN))
        uv_timer_start(&a->switches_timer, on_switches, SWITCHES_MS, SWITCHES_MS);
    every = (uint64_t)opt->proxy.config_sync_seconds * 1000;
    if (a->pass.proxy)
        uv_timer_start(&a->anew_timer, on_anew, every, every);
    request(a, PASS_ALL);
    return 0;
}

static void close_handle(uv_handle_t *h, void *arg)
{
    (void)arg;
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

static void stop(struct agent *a)
{
    if (a->pass.source)
        a->pass.source->ops->stop(a->pass.source);
    http_close(a->http);
    proxy_close(a->pass.proxy);
    mesh_close(a->pass.mesh);
    uv_walk(&a->loop, close_handle, NULL);
    uv_run(&a->loop, UV_RUN_DEFAULT);
    uv_loop_close(&a->loop);
    proxy_free(a->pass.proxy);
    mesh_free(a->pass.mesh);
    if (a->pass.source)
        a->pass.source->ops->free(a->pass.source);
    pass_close(&a->pass);
    store_free(a->pass.store);
}

int agent_run(const struct agent_options *opt, struct err *err)
{
    int lock;
    int r = lock_take(&lock, err);
    if (r)
        return r;
    /* Who hangs up while we write is told of by that write: BIRD, a client of ours, a child. */
    signal(SIGPIPE, SIG_IGN);
    struct agent *a = xcalloc(1, sizeof(*a));
    r = uv_loop_init(&a->loop);
    if (r) { /* libuv's errors are -errno */
        free(a);
        close(lock);
        return err_set(err, -r, "event loop: %s; the limit of open files may be too low",
                       uv_strerror(r));
    }
    a->pass.node = opt->node;
    a->pass.options = opt->plan;
    a->pass.state_dir = opt->state_dir;
    a->pass.cni_vxlan_port = opt->cni_vxlan_port;
    a->pass.iptables_mode = opt->iptables_mode;
    init_timer(a, &a->pass_timer);
    init_timer(a, &a->retry_timer);
    init_timer(a, &a->audit_timer);
    init_timer(a, &a->anew_timer);
    init_timer(a, &a->drain_timer);
    init_timer(a, &a->switches_timer);
    watch_signal(a, &a->sigterm, SIGTERM);
    watch_signal(a, &a->sigint, SIGINT);
    watch_signal(a, &a->sighup, SIGHUP);
    log_info("event=starting version=%s node=%s source=%s", PORTOLAN_VERSION, opt->node,
             log_quote(opt->source));
    r = start(a, opt, err);
    if (!r)
        uv_run(&a->loop, UV_RUN_DEFAULT);
    stop(a);
    free(a);
    close(lock);
    return r;
}
