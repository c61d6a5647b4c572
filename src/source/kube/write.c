/* Statuses on their way to the server.
 *
 * One order at a time for each piece of status that one writer owns. It waits (QUEUED) for its turn,
 * is under way (SENT), and is remembered after that until the watch has shown what came of it
 * (LANDED, CONFLICT): until then every pass decides on the old object and asks for the same again. One
 * that is optional and not allowed is not sent again (REFUSED). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "source/kube/backoff.h"
#include "source/kube/bucket.h"
#include "source/kube/kube.h"
#include "source/kube/order.h"
#include "source/rows.h"

#define SENT_MAX   8
#define PER_SECOND 50
#define BURST      100
#define TIMEOUT_S  30
#define ANSWER_MAX (8u << 20)
/* Beyond that the caller is turned away until half of them are done. */
#define QUEUE_MAX 256
/* How long mappings wait for the node's row to be seen, which most of them depend on. */
#define CLASS_FIRST_US 1000000
#define HOLD_US        50000
/* A watch that has not shown a write after that long never will. */
#define REMEMBER_US 30000000

enum state { QUEUED, SENT, LANDED, CONFLICT, REFUSED };

struct pending {
    struct writes *writes;
    enum object_kind kind;
    enum state state;
    const char *ns, *name;
    struct order now, next;
    bool has_next;
    bool merges; /* what this node says of itself */
    bool optional;
    uint64_t before, landed; /* the object's version when it was sent, and what it made of it */
    bool idle;               /* it changed nothing: no watch will tell */
    int64_t when_us;         /* QUEUED: not before; LANDED, CONFLICT: since */
    int64_t born_us;
    unsigned failures, writers;
    char *noted;
    struct client_request request;
    char text[];
};

struct writes {
    struct kube *kube;
    struct map all;
    VEC(struct pending *) queue;
    uv_timer_t *timer;
    struct bucket bucket;
    struct rows *rows;
    unsigned sent, failures;
    int64_t pause_us; /* nothing is sent before */
    bool unanswered;  /* since no answer came to the last one */
    bool turned_away; /* the caller has more */
};

/* ---- the queue ---- */

static void on_timer(uv_timer_t *t);

static void wake(struct writes *w, int64_t in_us)
{
    uint64_t ms = in_us > 0 ? (uint64_t)in_us / 1000 + 1 : 0;
    if (uv_is_active((uv_handle_t *)w->timer) && uv_timer_get_due_in(w->timer) <= ms)
        return;
    uv_update_time(w->kube->loop);
    uv_timer_start(w->timer, on_timer, ms, 0);
}

static void enqueue(struct pending *p, uint64_t in_ms)
{
    uint64_t turn_ms =
        backoff_turn_ms(p->writers, p->failures + p->writes->failures, backoff_random());
    int64_t in_us = (int64_t)(in_ms + turn_ms) * 1000;
    p->state = QUEUED;
    p->when_us = clock_mono_us() + in_us;
    /* What this node says of itself others wait for, and it is little. */
    if (p->merges)
        *vec_insert(&p->writes->queue, 0) = p;
    else
        vec_push(&p->writes->queue, p);
    wake(p->writes, in_us);
}

static void forget(struct pending *p)
{
    struct writes *w = p->writes;
    map_del(&w->all, p->text, strlen(p->text));
    client_cancel(&p->request);
    order_done(&p->now);
    order_done(&p->next);
    free(p->noted);
    free(p);
}

static void done(void *user, const struct client_answer *a);

static void send_order(struct pending *p)
{
    const struct client_call call = { .verb = "PATCH",
                                      .path = p->now.patch.path.p,
                                      .content_type = p->now.patch.content_type,
                                      .body = p->now.patch.body.p,
                                      .body_n = p->now.patch.body.n,
                                      .timeout_s = TIMEOUT_S,
                                      .limit = ANSWER_MAX };
    p->state = SENT;
    p->before = known_find(p->writes->kube, p->kind, p->ns, p->name)->version;
    p->writes->sent++;
    p->request.user = p;
    p->request.done = done;
    client_start(p->writes->kube->client, &p->request, &call);
}

/* The object has gone or changed since it was decided: a newer pass has decided, or will. */
static bool is_stale(const struct pending *p)
{
    const struct known *k = known_find(p->writes->kube, p->kind, p->ns, p->name);
    return !k || (p->now.base && k->version != p->now.base);
}

/* A class is being written: mappings decided before that was seen would be decided again. */
static bool class_first(const struct writes *w, int64_t now)
{
    size_t i = 0;
    void *v;
    while (map_next(&w->all, &i, NULL, NULL, &v)) {
        const struct pending *p = v;
        if (p->kind == KIND_PORTMAPCLASS && !p->failures && now - p->born_us < CLASS_FIRST_US)
            return true;
    }
    return false;
}

/* Sends what may be sent now; when to look again, INT64_MAX: when something ends. */
static int64_t send_queue(struct writes *w, int64_t now)
{
    int64_t next = INT64_MAX, wait;
    bool hold = class_first(w, now);
    for (size_t i = 0; i < w->queue.n && w->sent < SENT_MAX;) {
        struct pending *p = w->queue.v[i];
        int64_t due = hold && p->kind == KIND_PORTMAP ? now + HOLD_US : p->when_us;
        if (is_stale(p)) {
            vec_remove(&w->queue, i);
            forget(p);
        } else if (due > now) {
            next = due < next ? due : next;
            i++;
        } else if (bucket_take(&w->bucket, now, &wait)) {
            vec_remove(&w->queue, i);
            send_order(p);
        } else {
            return now + wait;
        }
    }
    return next;
}

static void on_timer(uv_timer_t *t)
{
    struct writes *w = t->data;
    int64_t now = clock_mono_us();
    int64_t next = w->pause_us > now ? w->pause_us : send_queue(w, now);
    if (next != INT64_MAX)
        wake(w, next - now);
    if (w->turned_away && w->queue.n <= QUEUE_MAX / 2) {
        w->turned_away = false;
        w->kube->source.sink.changed(w->kube->source.sink.user);
    }
}

/* ---- answers ---- */

static void take_version(void *user, const struct doc *doc)
{
    *(uint64_t *)user = rv_of(doc);
}

static void settled(const struct writes *w, bool written)
{
    const struct source_sink *sink = &w->kube->source.sink;
    if (sink->settled)
        sink->settled(sink->user, written);
}

static void landed(struct pending *p)
{
    struct writes *w = p->writes;
    struct codec_handler handler = { .user = &p->landed, .object = take_version };
    struct place place;
    p->landed = 0;
    codec_parse(buf_str(&p->request.body), p->request.body.n, CODEC_JSON, &handler, &place, NULL);
    buf_done(&p->request.body);
    int64_t now = clock_mono_us();
    for (size_t i = 0; i < p->now.faults.n; i++)
        events_tell(w->kube->events, p->kind, p->ns, p->name, p->now.faults.v[i].reason,
                    p->now.faults.v[i].note);
    if (p->kind == KIND_PORTMAP) /* all that is said of it is in this one status */
        events_over(w->kube->events, p->kind, p->ns, p->name, now);
    p->state = LANDED;
    p->idle = p->landed == p->before;
    if (p->merges && !p->idle)
        rows_landed(w->rows, p->text, p->now.patch.body.p);
    p->when_us = now;
    p->failures = w->failures = 0;
    if (p->noted)
        kube_note(w->kube, false, p->now.patch.path.p, "the status is taken now");
    free(p->noted);
    p->noted = NULL;
    settled(w, true);
}

static void note_once(struct pending *p, const char *text)
{
    if (p->noted && !strcmp(p->noted, text))
        return;
    free(p->noted);
    p->noted = xstrdup(text);
    struct buf b = { 0 };
    buf_printf(&b, "a status was not taken: %s: trying again", text);
    kube_note(p->writes->kube, true, p->now.patch.path.p, b.p);
    buf_done(&b);
}

static void refused(struct pending *p, const struct client_answer *a)
{
    struct buf b = { 0 };
    buf_printf(&b, "it stays as it is, and is not tried again: %s", a->text);
    kube_note(p->writes->kube, false, p->now.patch.path.p, b.p);
    buf_done(&b);
    free(p->noted);
    p->noted = NULL;
    p->state = REFUSED;
}

static void failed(struct pending *p, const struct client_answer *a)
{
    struct writes *w = p->writes;
    /* Rows are merged by the server; it gives up when many come at once. */
    bool crowded = a->status == 409;
    bool everywhere = !a->status || a->status == 429 || a->status == 503;
    uint64_t ms;
    if (everywhere) {
        w->failures++;
        w->unanswered = !a->status;
        ms = backoff_after_ms(w->failures, a->retry_after_ms, backoff_random());
        w->pause_us = clock_mono_us() + (int64_t)ms * 1000;
        enqueue(p, 0);
    } else {
        p->failures++;
        ms = backoff_after_ms(p->failures, a->retry_after_ms, backoff_random());
        enqueue(p, ms);
    }
    /* The first 401 is how we learn of new credentials. */
    bool renewed = a->status == 401 && p->failures == 1;
    if (!crowded && !renewed && a->status) {
        note_once(p, a->text);
        settled(w, false);
    }
}

/* What was asked for while the last order was under way. */
static void take_next(struct pending *p)
{
    bool answered = p->state == LANDED || p->state == CONFLICT;
    p->has_next = false;
    if (answered && p->next.base && p->next.base == p->now.base) {
        order_done(&p->next); /* decided on an object that is no more */
        return;
    }
    order_done(&p->now);
    p->now = p->next;
    memset(&p->next, 0, sizeof(p->next));
    if (answered)
        enqueue(p, 0);
}

/* The watch may have been faster than the answer. */
static bool is_over(const struct pending *p)
{
    const struct known *k = known_find(p->writes->kube, p->kind, p->ns, p->name);
    if (p->state == LANDED)
        return !k || (rv_has_reached(k->version, p->landed) && !p->idle);
    return p->state == CONFLICT && is_stale(p);
}

static void done(void *user, const struct client_answer *a)
{
    struct pending *p = user;
    struct writes *w = p->writes;
    w->sent--;
    kube_answered(w->kube, a);
    if (a->status >= 200 && a->status < 300) {
        landed(p);
    } else if (a->status == 409 && p->now.base) {
        p->state = CONFLICT;
        p->when_us = clock_mono_us();
    } else if ((a->status == 403 || a->status == 422) && p->optional) {
        /* By the rights, or by an admission policy's reason. */
        refused(p, a);
    } else if (a->status != 404) {
        failed(p, a);
    }
    if (p->has_next && a->status != 404)
        take_next(p);
    bool over = a->status == 404 || is_over(p);
    bool idle = p->state == LANDED && p->idle;
    if (over)
        forget(p);
    wake(w, 0);
    /* What waited for this to be seen need not wait: no event is to come. */
    if (over || idle)
        w->kube->source.sink.changed(w->kube->source.sink.user);
}

/* ---- from outside ---- */

static void put_key(struct buf *key, const struct status_write *s)
{
    buf_printf(key, "%d %s/%s", (int)s->kind, s->ns, s->name);
}

static struct pending *find(struct writes *w, const struct status_write *s, bool create)
{
    struct buf key = { 0 };
    put_key(&key, s);
    struct pending *p = map_get(&w->all, key.p, key.n);
    if (!p && create) {
        size_t a = key.n + 1, b = strlen(s->ns) + 1, c = strlen(s->name) + 1;
        p = xcalloc(1, sizeof(*p) + a + b + c);
        p->writes = w;
        p->born_us = clock_mono_us();
        p->kind = status_write_target(s->kind);
        p->merges = status_write_merges(s->kind);
        memcpy(p->text, key.p, a);
        p->ns = memcpy(p->text + a, s->ns, b);
        p->name = memcpy(p->text + a + b, s->name, c);
        map_put(&w->all, p->text, key.n, p);
    }
    buf_done(&key);
    return p;
}

static int turn_away(const struct status_write *w, const char *why, struct err *err)
{
    return err_set(err, EAGAIN, "%s%s%s: %s: decide again", w->ns, *w->ns ? "/" : "", w->name, why);
}

static void enqueue_new(struct pending *p)
{
    const struct patch *patch = &p->now.patch;
    struct buf tell = { 0 };
    uint64_t ms = p->merges ? rows_wait_ms(p->writes->rows, p->text, patch->body.p, &tell) : 0;
    if (tell.n)
        kube_note(p->writes->kube, true, patch->path.p, tell.p);
    buf_done(&tell);
    enqueue(p, ms);
}

/* Where one is already. -EAGAIN unless it is queued anew. */
static int order_again(struct pending *p, struct order *o, const struct status_write *w,
                       struct err *err)
{
    bool same = order_equal(&p->now, o);
    bool recent = clock_mono_us() - p->when_us < REMEMBER_US;
    bool awaited = recent && o->base && o->base == p->now.base;
    switch (p->state) {
    case QUEUED:
        order_done(&p->now);
        p->now = *o;
        return turn_away(w, "it is on its way", err);
    case SENT:
        order_done(&p->next);
        p->has_next = !same;
        if (same)
            order_done(o);
        else
            p->next = *o;
        return turn_away(w, "it is on its way", err);
    case LANDED:
    case CONFLICT:
        if ((same && recent && p->state == LANDED) || awaited) {
            order_done(o);
            return turn_away(w, "it has changed", err);
        }
        break;
    case REFUSED:
        order_done(o);
        return err_set(err, EPERM, "%s: not allowed", w->name);
    }
    order_done(&p->now);
    p->now = *o;
    enqueue_new(p);
    return -EINPROGRESS;
}

int kube_write(struct source *s, const struct status_write *w, struct err *err)
{
    struct kube *k = (struct kube *)s;
    enum object_kind kind = status_write_target(w->kind);
    const struct known *known = known_find(k, kind, w->ns, w->name);
    struct order o = { .base = status_write_merges(w->kind) ? 0 : rv_number(w->resource_version) };
    if (!k->writes || !known || (o.base && o.base != known->version) ||
        (kind == KIND_PORTMAPCLASS && !known->copy))
        return turn_away(w, "it has changed", err);
    struct pending *p = find(k->writes, w, false);
    if (!p && k->writes->queue.n >= QUEUE_MAX && !status_write_merges(w->kind)) {
        k->writes->turned_away = true;
        return turn_away(w, "others are before it", err);
    }
    patch_build(w, known->copy, &o.patch);
    order_add_faults(&o, w);
    bool is_new = !p;
    if (is_new)
        p = find(k->writes, w, true);
    p->optional = w->optional;
    p->writers = w->kind == WRITE_CLASS_ROW ? known->copy->n_nodes : 1;
    if (!is_new)
        return order_again(p, &o, w, err);
    p->now = o;
    enqueue_new(p);
    return -EINPROGRESS;
}

void writes_unready(const struct writes *w, struct buf *out)
{
    const struct pending *first = NULL;
    size_t n = 0, i = 0;
    void *v;
    while (map_next(&w->all, &i, NULL, NULL, &v)) {
        const struct pending *p = v;
        if (!p->noted)
            continue;
        n++;
        if (!first || strcmp(p->text, first->text) < 0)
            first = p;
    }
    if (first)
        buf_printf(out, "source: %zu statuses were not taken, first that of %s %s%s%s: %s\n", n,
                   kind_info[first->kind].kind, first->ns, *first->ns ? "/" : "", first->name,
                   first->noted);
    rows_unready(w->rows, out);
}

static void forget_row(struct writes *w, const struct status_write *s)
{
    struct buf key = { 0 };
    put_key(&key, s);
    rows_forget(w->rows, key.p);
    buf_done(&key);
}

void writes_seen(struct kube *k, enum object_kind kind, const char *ns, const char *name,
                 uint64_t version)
{
    if (!k->writes)
        return;
    for (enum status_write_kind w = 0; w <= WRITE_SERVICE_STATUS; w++) {
        const struct status_write key = { .kind = w, .ns = ns, .name = name };
        if (status_write_target(w) != kind)
            continue;
        struct pending *p = find(k->writes, &key, false);
        if (p &&
            ((p->state == LANDED && version != p->before && rv_has_reached(version, p->landed)) ||
             (p->state == CONFLICT && version != p->now.base) ||
             (p->state == REFUSED && version == UINT64_MAX)))
            forget(p);
        if (version == UINT64_MAX)
            forget_row(k->writes, &key);
    }
}

void writes_wake(struct writes *w)
{
    int64_t now = clock_mono_us(), spread = (int64_t)RETURN_SPREAD_MS * 1000;
    if (!w->unanswered || w->pause_us <= now + spread)
        return;
    w->unanswered = false;
    w->pause_us = now + backoff_random() % spread;
    wake(w, w->pause_us - now);
}

struct writes *writes_new(struct kube *k)
{
    struct writes *w = xcalloc(1, sizeof(*w));
    w->kube = k;
    w->all.keys_stay = true;
    w->bucket = (struct bucket){ .per_second = PER_SECOND, .burst = BURST };
    w->timer = kube_timer(k, w);
    w->rows = rows_new(k->node);
    return w;
}

void writes_free(struct writes *w)
{
    if (!w)
        return;
    size_t i = 0;
    void *v;
    VEC(struct pending *) all = { 0 };
    while (map_next(&w->all, &i, NULL, NULL, &v))
        vec_push(&all, v);
    for (i = 0; i < all.n; i++)
        forget(all.v[i]);
    vec_done(&all);
    map_done(&w->all);
    vec_done(&w->queue);
    kube_timer_close(w->timer);
    rows_free(w->rows);
    free(w);
}
