#include "source/kube/kube.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "source/kube/open.h"

/* Of a command that reads once. */
#define ONCE_MS 30000

void kube_note(struct kube *k, bool is_error, const char *path, const char *text)
{
    struct buf where = { 0 };
    buf_printf(&where, "%s%s", k->config.server, path);
    k->source.sink.note(k->source.sink.user, is_error, where.p, text);
    buf_done(&where);
}

static void free_timer(uv_handle_t *h)
{
    free(h);
}

uv_timer_t *kube_timer(struct kube *k, void *data)
{
    uv_timer_t *t = xcalloc(1, sizeof(*t));
    uv_timer_init(k->loop, t);
    t->data = data;
    return t;
}

void kube_timer_close(uv_timer_t *t)
{
    if (t)
        uv_close((uv_handle_t *)t, free_timer);
}

void kube_path(struct buf *out, enum object_kind kind, const char *ns, const char *name)
{
    const struct kind_info *info = &kind_info[kind];
    buf_printf(out, strchr(info->api_version, '/') ? "/apis/%s" : "/api/%s", info->api_version);
    if (*ns)
        buf_printf(out, "/namespaces/%s", ns);
    buf_printf(out, "/%s", info->plural);
    if (*name)
        buf_printf(out, "/%s", name);
}

/* ---- the connection ---- */

static int read_config(struct kube *k, struct err *err)
{
    struct kube_config c = { 0 };
    int r = *k->kubeconfig ? kube_config_file(k->kubeconfig, k->context, &c, err)
                           : kube_config_in_cluster(&c, err);
    if (!r)
        r = kube_config_check_token(&c, err);
    if (r) {
        kube_config_done(&c);
        return r;
    }
    kube_config_done(&k->config);
    k->config = c;
    return 0;
}

void kube_answered(struct kube *k, const struct client_answer *a)
{
    if (a->distrust) {
        /* Credentials may have been replaced; what cannot be read now is read next time. */
        read_config(k, NULL);
        client_renew(k->client);
    }
    if (a->begun)
        kube_reached(k);
}

void kube_reached(struct kube *k)
{
    if (k->away)
        kube_note(k, false, "", "the API server answers again");
    k->away = false;
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (k->reflectors[i])
            reflector_wake(k->reflectors[i]);
    if (k->writes)
        writes_wake(k->writes);
}

/* ---- following ---- */

static void begin(struct kube *k, uv_loop_t *loop)
{
    struct buf agent = { 0 };
    k->loop = loop;
    buf_printf(&agent, "portolan/" PORTOLAN_VERSION "%s%s", *k->node ? " node/" : "", k->node);
    k->client = client_open(loop, &k->config, agent.p);
    buf_done(&agent);
    if (!k->once) {
        k->events = events_new(k);
        k->writes = writes_new(k);
    }
    for (enum object_kind kind = 0; kind < KIND_COUNT; kind++)
        if (k->kinds & KIND_BIT(kind)) {
            k->reflectors[kind] = reflector_new(k, kind);
            reflector_start(k->reflectors[kind]);
        }
}

static int kube_start(struct source *s, uv_loop_t *loop, struct err *err)
{
    (void)err;
    begin((struct kube *)s, loop);
    return 0;
}

/* What the kernel has may stand on an object that cannot be read; one whose earlier version is
 * known goes on as that. */
static bool can_go_on(const struct kube *k, const struct reflector *r)
{
    size_t i = 0;
    return r->synced && (k->once || k->source.fresh || !known_missing(r, &i));
}

static bool kube_synced(struct source *s)
{
    struct kube *k = (struct kube *)s;
    bool synced = true;
    for (size_t i = 0; i < KIND_COUNT && !k->synced; i++)
        synced &= !k->reflectors[i] || can_go_on(k, k->reflectors[i]);
    return k->synced = synced;
}

static void kube_stop(struct source *s)
{
    struct kube *k = (struct kube *)s;
    if (!k->client)
        return;
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (k->reflectors[i])
            reflector_stop(k->reflectors[i]);
    writes_free(k->writes);
    events_free(k->events);
    client_close(k->client);
    k->writes = NULL;
    k->events = NULL;
    k->client = NULL;
}

static void kube_unready(struct source *s, struct buf *out)
{
    const struct kube *k = (struct kube *)s;
    for (size_t i = 0; i < KIND_COUNT; i++) {
        const struct reflector *r = k->reflectors[i];
        if (!r)
            continue;
        reflector_unready(r, out);
        const struct known *e;
        for (size_t j = 0; !k->synced && !k->source.fresh && (e = known_missing(r, &j));)
            buf_printf(out, "source: %s: mend it, or delete it\n", e->refused);
    }
    if (k->writes)
        writes_unready(k->writes, out);
}

static void on_late(uv_timer_t *t)
{
    struct kube *k = t->data;
    struct buf why = { 0 };
    kube_unready(&k->source, &why);
    if (!*k->failed.text)
        err_set(&k->failed, ETIMEDOUT, "%s: no whole answer in %d s: %.*s", k->config.server,
                ONCE_MS / 1000, (int)strcspn(buf_str(&why), "\n"), buf_str(&why));
    buf_done(&why);
}

static int kube_load(struct source *s, struct err *err)
{
    struct kube *k = (struct kube *)s;
    uv_loop_t loop;
    uv_loop_init(&loop);
    k->once = true;
    begin(k, &loop);
    uv_timer_t *late = kube_timer(k, k);
    uv_timer_start(late, on_late, ONCE_MS, 0);
    while (!kube_synced(s) && !*k->failed.text)
        uv_run(&loop, UV_RUN_ONCE);
    kube_timer_close(late);
    kube_stop(s);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    return *k->failed.text ? err_set(err, EIO, "%s", k->failed.text) : 0;
}

static void kube_free(struct source *s)
{
    struct kube *k = (struct kube *)s;
    kube_stop(s);
    for (size_t i = 0; i < KIND_COUNT; i++)
        reflector_free(k->reflectors[i]);
    kube_config_done(&k->config);
    free(k->kubeconfig);
    free(k->context);
    free(k->node);
    free(k);
    curl_global_cleanup();
}

/* ---- telling ---- */

static void kube_problems(struct source *s, const struct problems *problems)
{
    struct kube *k = (struct kube *)s;
    if (k->events)
        events_stand(k->events, problems);
}

static void kube_metrics(struct source *s, struct buf *out)
{
    const struct kube *k = (struct kube *)s;
    const struct client_count *counts;
    size_t n = k->client ? client_counts(k->client, &counts) : 0;
    buf_puts(out,
             "# HELP portolan_api_requests_total Requests to the API server that ended; code 0: "
             "no whole answer came.\n"
             "# TYPE portolan_api_requests_total counter\n");
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "portolan_api_requests_total{verb=\"%s\",code=\"%ld\"} %llu\n",
                   counts[i].verb, counts[i].status, (unsigned long long)counts[i].n);
    buf_puts(out, "# HELP portolan_watch_restarts_total Watches that ended.\n"
                  "# TYPE portolan_watch_restarts_total counter\n");
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (k->reflectors[i])
            buf_printf(out, "portolan_watch_restarts_total{resource=\"%s\"} %u\n",
                       kind_info[i].plural, k->reflectors[i]->restarts);
    buf_puts(out, "# HELP portolan_objects_refused Objects whose newest version cannot be read.\n"
                  "# TYPE portolan_objects_refused gauge\n");
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (k->reflectors[i])
            buf_printf(out, "portolan_objects_refused{resource=\"%s\"} %zu\n", kind_info[i].plural,
                       known_refused(k->reflectors[i]));
}

static const struct source_ops kube_ops = {
    .load = kube_load,
    .start = kube_start,
    .synced = kube_synced,
    .write = kube_write,
    .problems = kube_problems,
    .unready = kube_unready,
    .metrics = kube_metrics,
    .stop = kube_stop,
    .free = kube_free,
};

static char *copy(const char *s)
{
    return xstrdup(s ? s : "");
}

int kube_open(const struct source_options *opt, const struct source_sink *sink, struct source **ret,
              struct err *err)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT))
        return err_set(err, ENOMEM, "libcurl cannot be initialised");
    struct kube *k = xcalloc(1, sizeof(*k));
    k->source = (struct source){ .ops = &kube_ops, .sink = *sink };
    k->kubeconfig = copy(opt->kubeconfig);
    k->context = copy(opt->context);
    k->node = copy(opt->node);
    k->kinds = opt->kinds ? opt->kinds : KIND_BIT(KIND_COUNT) - 1;
    int r = read_config(k, err);
    if (r)
        kube_free(&k->source);
    else
        *ret = &k->source;
    return r;
}
