/* When to list, when to watch, and how long to wait after a failure. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "source/kube/backoff.h"
#include "source/kube/kube.h"

#define PAGE           "500"
#define LIST_TIMEOUT_S 60
#define WATCH_MIN_S    300
#define WATCH_SPREAD_S 301
/* Beyond the server's own end of a watch. */
#define WATCH_GRACE_S 30
/* A page of 500 objects, decoded as it comes. */
#define LIST_BYTES_MAX ((size_t)256 << 20)
/* How long the state may take to come by a watch before pages are tried. */
#define STREAM_PATIENCE_MS 60000
/* A watch that ended sooner and said nothing has not worked. */
#define WATCH_USEFUL_MS 1000
/* Then the place in history may be what is wrong. */
#define DOUBTS_BEFORE_LIST 3

static void go(struct reflector *r);
static void on_timer(uv_timer_t *timer);

/* Slices that belong to no Service are nobody's. Slices of headless Services and of those another
 * proxy serves (which kube-proxy leaves out) are wanted: a mapping may name any Service. */
static const char *selector(enum object_kind kind)
{
    return kind == KIND_ENDPOINTSLICE ? "&labelSelector=kubernetes.io%2Fservice-name" : "";
}

static void wait_for(struct reflector *r, uint64_t ms)
{
    r->phase = PHASE_WAIT;
    uv_update_time(r->kube->loop);
    uv_timer_start(r->timer, on_timer, ms, 0);
}

static void tell_changed(struct reflector *r)
{
    r->changed = false;
    r->kube->source.sink.changed(r->kube->source.sink.user);
}

/* ---- failures ---- */

struct trouble {
    const char *text;
    uint64_t retry_after_ms;
    bool expected; /* no error */
    bool away;     /* the server did not answer: that concerns all reflectors */
    bool busy;     /* it will, later */
    bool unheard;  /* nobody looked at the place in history we gave */
    bool absent;   /* the server has no such kind, so far */
};

static void note_once(struct reflector *r, const struct trouble *t)
{
    bool same = r->noted && !strcmp(r->noted, t->text);
    bool known = t->away && r->kube->away;
    if (!same) {
        free(r->noted);
        r->noted = xstrdup(t->text);
    }
    if (!same && !known && !r->kube->once)
        kube_note(r->kube, !t->expected, r->path, t->text);
    r->kube->away |= t->away;
}

static void fail(struct reflector *r, const struct trouble *t)
{
    struct kube *k = r->kube;
    /* How long it was away says nothing of how long it needs now. */
    if (r->unanswered && !t->away)
        r->failures = 0;
    r->failures++;
    /* One that was cut off is asked again first: servers and what is before them restart. */
    if (r->failures > 1 || !r->synced)
        note_once(r, t);
    if (!t->unheard)
        r->doubts++;
    /* Not for a server that was away: all nodes would list everything when it is back. */
    if (r->initial || r->doubts >= DOUBTS_BEFORE_LIST) {
        free(r->version);
        r->version = NULL;
    }
    r->unanswered = t->away;
    if (k->once && !t->busy && !r->unserved && !*k->failed.text)
        err_set(&k->failed, EIO, "%s%s: %s", k->config.server, r->path, t->text);
    wait_for(r, t->absent ? backoff_within_ms(r->failures, BACKOFF_ABSENT_MS, backoff_random())
                          : backoff_after_ms(r->failures, t->retry_after_ms, backoff_random()));
}

static void succeed(struct reflector *r)
{
    r->failures = r->doubts = 0;
    r->woken = false;
    r->unserved = false;
    free(r->noted);
    r->noted = NULL;
}

/* Of what only newer servers have, an older one has none: that is an answer too. */
static void take_as_none(struct reflector *r)
{
    bool first = !r->synced;
    known_begin(r);
    known_end(r);
    r->synced = true;
    if (first || r->changed)
        tell_changed(r);
}

/* What can be told of any answer that is not a success. */
static void refused(struct reflector *r, const struct client_answer *a)
{
    struct err err;
    struct trouble t = { .text = a->text, .retry_after_ms = a->retry_after_ms };
    const struct kind_info *info = &kind_info[r->kind];
    r->unserved = a->status == 404 && r->kind == KIND_SERVICECIDR && !*r->err.text;
    if (*r->err.text) {
        t.text = r->err.text;
    } else if (r->unserved) {
        err_set(&err, ENOENT,
                "the API server has no %s of %s (Kubernetes has them since 1.33): of the addresses "
                "no Service has, packets are not dropped",
                info->plural, info->api_version);
        t.text = err.text;
        t.expected = true;
        take_as_none(r);
    } else if (a->status == 404 && strchr(info->api_version, '/')) {
        err_set(&err, ENOENT,
                "the cluster does not know %s of %s: their CustomResourceDefinition is not "
                "installed (yet)",
                info->plural, info->api_version);
        t.text = err.text;
        t.expected = t.absent = true;
    }
    t.away = !a->status && !*r->err.text;
    t.busy = a->status == 429 || a->status >= 500;
    t.unheard =
        !a->begun || a->status == 401 || a->status == 429 || (a->status >= 502 && a->status <= 504);
    t.expected |= t.busy || a->status == 410;
    fail(r, &t);
}

/* ---- list ---- */

static void list_done(void *user, const struct client_answer *a);
static void watch_done(void *user, const struct client_answer *a);

static void escape(struct buf *out, const char *s)
{
    for (; *s; s++) {
        bool plain = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
                     (*s >= '0' && *s <= '9') || strchr("-._~", *s);
        buf_printf(out, plain ? "%c" : "%%%02X", (unsigned char)*s);
    }
}

static void list_page(struct reflector *r)
{
    struct buf path = { 0 };
    buf_printf(&path, "%s?limit=" PAGE "%s", r->path, selector(r->kind));
    if (r->more) {
        buf_puts(&path, "&continue=");
        escape(&path, r->more);
    } else {
        known_begin(r);
    }
    free(r->more);
    free(r->version);
    r->more = r->version = NULL;
    r->initial = false;
    r->phase = PHASE_LIST;
    take_begin(r, false);
    r->request.data = take_data;
    r->request.done = list_done;
    const struct client_call call = {
        .verb = "LIST", .path = path.p, .timeout_s = LIST_TIMEOUT_S, .limit = LIST_BYTES_MAX
    };
    client_start(r->kube->client, &r->request, &call);
    buf_done(&path);
}

static void list_done(void *user, const struct client_answer *a)
{
    struct reflector *r = user;
    kube_answered(r->kube, a);
    bool whole = a->status >= 200 && a->status < 300;
    int e = take_end(r, whole);
    if (!whole || e || !r->version) {
        free(r->more);
        free(r->version);
        r->more = r->version = NULL; /* 410 too: the continue token is too old, so from the start */
        if (whole && !e)
            err_set(&r->err, EPROTO, "the list has no resourceVersion");
        refused(r, a);
        return;
    }
    if (r->more) {
        list_page(r);
        return;
    }
    known_end(r);
    bool first = !r->synced;
    r->synced = true;
    if (first || r->changed)
        tell_changed(r);
    if (r->kube->once)
        return;
    go(r);
}

/* ---- watch ---- */

static void on_patience(uv_timer_t *timer)
{
    struct reflector *r = timer->data;
    const struct trouble t = { .text = "the state did not come by a watch: trying lists" };
    client_cancel(&r->request);
    take_end(r, false);
    r->no_stream = true;
    fail(r, &t);
}

/* The server accepted the watch and has kept it for a moment. */
static void on_useful(uv_timer_t *timer)
{
    struct reflector *r = timer->data;
    if (client_status(&r->request) != 200) {
        reflector_settled(r);
        return;
    }
    succeed(r);
    kube_reached(r->kube);
}

void reflector_settled(struct reflector *r)
{
    uv_timer_start(r->timer, on_useful, WATCH_USEFUL_MS, 0);
}

static void watch(struct reflector *r)
{
    unsigned seconds = WATCH_MIN_S + backoff_random() % WATCH_SPREAD_S;
    struct buf path = { 0 };
    r->initial = !r->version;
    r->phase = PHASE_WATCH;
    r->watch_us = clock_mono_us();
    buf_printf(&path, "%s?watch=true&allowWatchBookmarks=true&timeoutSeconds=%u%s", r->path,
               seconds, selector(r->kind));
    if (r->initial) {
        buf_puts(&path, "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
        known_begin(r);
        uv_timer_start(r->timer, on_patience, STREAM_PATIENCE_MS, 0);
    } else {
        buf_puts(&path, "&resourceVersion=");
        escape(&path, r->version);
        reflector_settled(r);
    }
    take_begin(r, true);
    r->request.data = take_data;
    r->request.done = watch_done;
    const struct client_call call = {
        .verb = "WATCH", .path = path.p, .timeout_s = seconds + WATCH_GRACE_S, .limit = SIZE_MAX
    };
    client_start(r->kube->client, &r->request, &call);
    buf_done(&path);
}

static bool no_such_watch(const struct reflector *r, const struct client_answer *a)
{
    return r->initial && !r->alive && (a->status == 400 || a->status == 422);
}

/* It ended as watches do, or it was cut off. */
static void watch_over(struct reflector *r, const struct client_answer *a, bool at_once)
{
    struct trouble t = { .retry_after_ms = r->retry_after_ms, .expected = r->expired };
    if (*r->err.text)
        t.text = r->err.text;
    else if (r->initial)
        t.text = "the watch ended before the state was complete";
    else
        t.text = "the watch ended at once";
    /* Some server does not get through with it. */
    r->no_stream |= r->initial && r->alive && r->doubts + 1 >= DOUBTS_BEFORE_LIST;
    if (!*r->err.text && a->status != 200)
        refused(r, a);
    else if (*r->err.text || r->initial || at_once)
        fail(r, &t);
    else
        wait_for(r, backoff_random() % BACKOFF_FIRST_MS);
}

static void watch_done(void *user, const struct client_answer *a)
{
    struct reflector *r = user;
    kube_answered(r->kube, a);
    take_end(r, false);
    uv_timer_stop(r->timer);
    r->restarts++;
    if (r->changed)
        tell_changed(r);
    r->no_stream |= no_such_watch(r, a);
    if (r->initial && r->no_stream) {
        list_page(r);
        return;
    }
    bool short_lived = clock_mono_us() - r->watch_us < WATCH_USEFUL_MS * 1000;
    if (!r->initial && !*r->err.text && r->alive)
        succeed(r);
    if (r->relist || a->status == 410) {
        free(r->version);
        r->version = NULL;
    }
    watch_over(r, a, short_lived && !r->alive);
}

/* ---- from outside ---- */

static void go(struct reflector *r)
{
    uv_timer_stop(r->timer);
    if (!r->version && (r->no_stream || r->kube->once))
        list_page(r);
    else
        watch(r);
}

static void on_timer(uv_timer_t *timer)
{
    go(timer->data);
}

struct reflector *reflector_new(struct kube *k, enum object_kind kind)
{
    struct reflector *r = xcalloc(1, sizeof(*r));
    struct buf path = { 0 };
    r->kube = k;
    r->kind = kind;
    r->request.user = r;
    r->known.keys_stay = true;
    kube_path(&path, kind, "", "");
    snprintf(r->path, sizeof(r->path), "%s", path.p);
    buf_done(&path);
    return r;
}

void reflector_start(struct reflector *r)
{
    r->timer = kube_timer(r->kube, r);
    go(r);
}

void reflector_stop(struct reflector *r)
{
    client_cancel(&r->request);
    kube_timer_close(r->timer);
    r->timer = NULL;
}

void reflector_wake(struct reflector *r)
{
    if (r->phase != PHASE_WAIT || !r->unanswered || r->woken ||
        uv_timer_get_due_in(r->timer) <= RETURN_SPREAD_MS)
        return;
    r->woken = true;
    wait_for(r, backoff_random() % RETURN_SPREAD_MS);
}

void reflector_free(struct reflector *r)
{
    if (!r)
        return;
    codec_stream_free(r->stream);
    lines_done(&r->lines);
    known_free(r);
    free(r->version);
    free(r->more);
    free(r->noted);
    free(r);
}

void reflector_unready(const struct reflector *r, struct buf *out)
{
    const char *plural = kind_info[r->kind].plural;
    if (r->unserved)
        return;
    if (r->noted)
        buf_printf(out, "source: %s%s: %s\n", r->synced ? "not up to date with " : "", plural,
                   r->noted);
    else if (!r->synced)
        buf_printf(out, "source: %s: not every one has been seen yet\n", plural);
}
