/* Events (events.k8s.io/v1) for people who look at an object with kubectl.
 *
 * The same complaint of the same object is one Event: said again, it becomes a series whose count is
 * sent at most once a minute. So a fault that flaps costs the server one write a minute, and
 * all faults together no more than the bucket has. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/timestamp.h"
#include "source/kube/backoff.h"
#include "source/kube/bucket.h"
#include "source/kube/kube.h"

#define REMEMBERED    256 /* complaints; the one said longest ago makes room, unless it stands */
#define SERIES_GAP_US 60000000
/* What is over sooner was on its way to be well. */
#define LASTS_US   3000000
#define PER_SECOND 1
#define BURST      25
#define TIMEOUT_S  30
#define ANSWER_MAX (1u << 20)
/* The API's limits in bytes; for a note 1024, of which a character cut in two may need more. */
#define NOTE_MAX     1000
#define VALUE_MAX    200 /* what is said of it must stay in sight */
#define INSTANCE_MAX 128

struct complaint {
    enum object_kind kind;
    char *ns, *name, *uid, *reason, *note; /* of the object; what is wrong */
    char *event;                           /* the Event's name, NULL: none yet */
    uint32_t count, sent;                  /* how often said, and as known to the server */
    int64_t said_us, sent_us;
    int64_t due_us; /* the Event, while there is none */
    uint64_t round; /* in which it stood last, 0: it does not, or was said but once */
};

struct events {
    struct kube *kube;
    VEC(struct complaint *) all; /* the one said last is last */
    struct complaint *current;   /* being sent */
    uint32_t current_count;
    uv_timer_t *timer;
    struct bucket bucket;
    struct client_request request;
    struct map standing; /* "KIND UID REASON NOTE" of a problem -> struct complaint */
    uint64_t round;
};

static void free_complaint(struct complaint *c)
{
    free(c->ns);
    free(c->name);
    free(c->uid);
    free(c->reason);
    free(c->note);
    free(c->event);
    free(c);
}

/* ---- bodies ---- */

/* metav1.MicroTime */
static void put_time(struct writer *w, const char *key)
{
    struct timespec now;
    char date[TIME_TEXT_MAX];
    struct buf text = { 0 };
    clock_gettime(CLOCK_REALTIME, &now);
    time_format(now.tv_sec, date);
    date[strcspn(date, "Z")] = 0;
    buf_printf(&text, "%s.%06ldZ", date, now.tv_nsec / 1000);
    writer_key(w, key);
    writer_string(w, text.p);
    buf_done(&text);
}

static void put_text(struct writer *w, const char *key, const char *text)
{
    writer_key(w, key);
    writer_string(w, text);
}

static void put_cut(struct writer *w, const char *key, const char *text, size_t max)
{
    struct buf cut = { 0 };
    buf_put(&cut, text, strnlen(text, max));
    put_text(w, key, buf_str(&cut));
    buf_done(&cut);
}

static const char *event_ns(const struct complaint *c)
{
    return *c->ns ? c->ns : "default"; /* where Events of cluster-wide objects live */
}

static void put_regarding(struct writer *w, const struct complaint *c)
{
    const struct kind_info *info = &kind_info[c->kind];
    writer_key(w, "regarding");
    writer_map(w);
    put_text(w, "apiVersion", info->api_version);
    put_text(w, "kind", info->kind);
    if (*c->ns)
        put_text(w, "namespace", c->ns);
    put_text(w, "name", c->name);
    put_text(w, "uid", c->uid);
    writer_map_end(w);
}

static void put_event(const struct events *e, const struct complaint *c, struct buf *out)
{
    struct writer *w = writer_json_new(out, false);
    writer_map(w);
    put_text(w, "apiVersion", "events.k8s.io/v1");
    put_text(w, "kind", "Event");
    writer_key(w, "metadata");
    writer_map(w);
    put_text(w, "name", c->event);
    put_text(w, "namespace", event_ns(c));
    writer_map_end(w);
    put_time(w, "eventTime");
    put_text(w, "reportingController", "portolan");
    put_cut(w, "reportingInstance", *e->kube->node ? e->kube->node : "portolan", INSTANCE_MAX);
    put_text(w, "action", "Program");
    put_text(w, "type", "Warning");
    put_text(w, "reason", c->reason);
    put_cut(w, "note", c->note, NOTE_MAX);
    put_regarding(w, c);
    writer_map_end(w);
    writer_free(w);
}

static void put_series(const struct complaint *c, struct buf *out)
{
    struct writer *w = writer_json_new(out, false);
    writer_map(w);
    writer_key(w, "series");
    writer_map(w);
    writer_key(w, "count");
    writer_int(w, c->count);
    put_time(w, "lastObservedTime");
    writer_map_end(w);
    writer_map_end(w);
    writer_free(w);
}

/* ---- sending ---- */

static void on_timer(uv_timer_t *t);

static void wake(struct events *e, int64_t in_us)
{
    uint64_t ms = in_us > 0 ? (uint64_t)in_us / 1000 + 1 : 0;
    if (uv_is_active((uv_handle_t *)e->timer) && uv_timer_get_due_in(e->timer) <= ms)
        return;
    uv_update_time(e->kube->loop);
    uv_timer_start(e->timer, on_timer, ms, 0);
}

/* An Event that is not taken is not sent again: the status says the same. */
static void done(void *user, const struct client_answer *a)
{
    struct events *e = user;
    struct complaint *c = e->current;
    kube_answered(e->kube, a);
    buf_done(&e->request.body);
    e->current = NULL;
    c->sent = e->current_count;
    if (a->status == 404) { /* the server has dropped it by age */
        free(c->event);
        c->event = NULL;
        c->sent = 0;
        c->count = 1;
    }
    wake(e, 0);
}

static void send_event(struct events *e, struct complaint *c)
{
    struct buf path = { 0 }, body = { 0 };
    bool first = !c->event;
    buf_printf(&path, "/apis/events.k8s.io/v1/namespaces/%s/events", event_ns(c));
    if (first) {
        struct buf name = { 0 };
        buf_printf(&name, "%.200s.%08x%08x", c->name, (unsigned)clock_wall(), backoff_random());
        c->event = name.p;
        put_event(e, c, &body);
    } else {
        buf_printf(&path, "/%s", c->event);
        put_series(c, &body);
    }
    const struct client_call call = { .verb = first ? "POST" : "PATCH",
                                      .path = path.p,
                                      .content_type = first ? "application/json"
                                                            : "application/merge-patch+json",
                                      .body = body.p,
                                      .body_n = body.n,
                                      .timeout_s = TIMEOUT_S,
                                      .limit = ANSWER_MAX };
    e->current = c;
    e->current_count = c->count;
    c->sent_us = clock_mono_us();
    client_start(e->kube->client, &e->request, &call);
    buf_done(&path);
    buf_done(&body);
}

static void on_timer(uv_timer_t *t)
{
    struct events *e = t->data;
    int64_t now = clock_mono_us(), next = INT64_MAX, wait;
    for (size_t i = 0; i < e->all.n && !e->current; i++) {
        struct complaint *c = e->all.v[i];
        const struct known *k = known_find(e->kube, c->kind, c->ns, c->name);
        if (c->sent == c->count || !k || strcmp(k->uid, c->uid))
            continue;
        int64_t due = c->event ? c->sent_us + SERIES_GAP_US : c->due_us;
        if (due > now) {
            next = due < next ? due : next;
        } else if (bucket_take(&e->bucket, now, &wait)) {
            send_event(e, c);
        } else {
            next = now + wait;
            break;
        }
    }
    if (next != INT64_MAX && !e->current)
        wake(e, next - now);
}

/* ---- from outside ---- */

static bool is_same(const struct complaint *c, enum object_kind kind, const char *uid,
                    const char *reason, const char *note)
{
    return c->kind == kind && !strcmp(c->uid, uid) && !strcmp(c->reason, reason) &&
           !strcmp(c->note, note);
}

static void make_room(struct events *e)
{
    for (size_t i = 0; e->all.n >= REMEMBERED && i < e->all.n; i++)
        if (e->all.v[i] != e->current && !e->all.v[i]->round) {
            free_complaint(e->all.v[i]);
            vec_remove(&e->all, i);
            return;
        }
}

static struct complaint *say(struct events *e, const struct known *k, enum object_kind kind,
                             const char *reason, const char *note)
{
    struct complaint *c = NULL;
    for (size_t i = 0; i < e->all.n && !c; i++)
        if (is_same(e->all.v[i], kind, k->uid, reason, note)) {
            c = e->all.v[i];
            vec_remove(&e->all, i);
        }
    if (!c) {
        make_room(e);
        c = xcalloc(1, sizeof(*c));
        c->kind = kind;
        c->ns = xstrdup(k->ns);
        c->name = xstrdup(k->name);
        c->uid = xstrdup(k->uid);
        c->reason = xstrdup(reason);
        c->note = xstrdup(note);
    }
    c->said_us = clock_mono_us();
    if (c->count == c->sent)
        c->due_us = c->said_us + LASTS_US;
    c->count++;
    vec_push(&e->all, c);
    wake(e, c->event ? 0 : LASTS_US);
    return c;
}

void events_tell(struct events *e, enum object_kind kind, const char *ns, const char *name,
                 const char *reason, const char *note)
{
    const struct known *k = known_find(e->kube, kind, ns, name);
    if (k)
        say(e, k, kind, reason, note);
}

static void stand(struct events *e, const struct problem *p)
{
    const struct known *k = known_find(e->kube, p->kind, p->ns, p->name);
    struct buf key = { 0 }, note = { 0 };
    if (!k)
        return;
    buf_printf(&note, "%s \"%.*s\": %s", p->field, VALUE_MAX, p->value, p->message);
    buf_printf(&key, "%d %s %s %s", (int)p->kind, k->uid, p->reason, note.p);
    struct complaint *c = map_get(&e->standing, key.p, key.n);
    if (!c) {
        c = say(e, k, p->kind, p->reason, note.p);
        map_put(&e->standing, key.p, key.n, c);
    }
    c->round = e->round;
    buf_done(&key);
    buf_done(&note);
}

void events_stand(struct events *e, const struct problems *problems)
{
    const void *key;
    size_t len, i = 0;
    void *v;
    e->round++;
    for (size_t p = 0; p < problems->n; p++)
        if (problems->v[p].event)
            stand(e, &problems->v[p]);
    while (map_next(&e->standing, &i, &key, &len, &v)) {
        struct complaint *c = v;
        if (c->round == e->round)
            continue;
        c->round = 0;
        if (!c->event)
            c->count = c->sent;
        map_del(&e->standing, key, len);
    }
}

void events_over(struct events *e, enum object_kind kind, const char *ns, const char *name,
                 int64_t said_before_us)
{
    for (size_t i = 0; i < e->all.n; i++) {
        struct complaint *c = e->all.v[i];
        if (!c->event && c->kind == kind && !strcmp(c->ns, ns) && !strcmp(c->name, name) &&
            c->said_us < said_before_us)
            c->count = c->sent;
    }
}

struct events *events_new(struct kube *k)
{
    struct events *e = xcalloc(1, sizeof(*e));
    e->kube = k;
    e->bucket = (struct bucket){ .per_second = PER_SECOND, .burst = BURST };
    e->timer = kube_timer(k, e);
    e->request.user = e;
    e->request.done = done;
    return e;
}

void events_free(struct events *e)
{
    if (!e)
        return;
    client_cancel(&e->request);
    for (size_t i = 0; i < e->all.n; i++)
        free_complaint(e->all.v[i]);
    vec_done(&e->all);
    map_done(&e->standing);
    kube_timer_close(e->timer);
    free(e);
}
