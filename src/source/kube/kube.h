/* An API server's objects, followed: for each kind needed one reflector lists in pages (or has
 * the server stream the state first) and then watches; statuses are patched; Events tell people.
 *
 * What is kept of an object is small (its version, for the difference on a new list); the objects
 * themselves belong to the sink. All on the loop's thread.
 *
 * Files: kube.c the source's face, reflector.c when to ask what, take.c what an answer says,
 * known.c which objects there are; write.c when statuses are sent, order.c and patch.c
 * what is sent (../rows.c: whether somebody undoes it); events.c; client.c and client_request.c the transport, config.c and kubeconfig.c who and where;
 * backoff.c, lines.c. */
#pragma once

#include "base/map.h"
#include "source/codec.h"
#include "source/kube/client.h"
#include "source/kube/lines.h"

#define KIND_BIT(kind) (1u << (kind))

/* An object the server has. */
struct known {
    uint64_t version; /* rv_number() */
    uint32_t round;   /* the last list that had it */
    bool given;       /* the sink has some version of it */
    char *refused;    /* why its newest version cannot be read; NULL: it can */
    const char *ns, *name, *uid;
    struct portmap_class *copy; /* of a class: its status as last seen; else NULL */
    char text[];
};

enum phase {
    PHASE_WAIT,  /* for the timer */
    PHASE_LIST,  /* a page is under way */
    PHASE_WATCH, /* a watch is */
};

struct reflector {
    struct kube *kube;
    enum object_kind kind;
    enum phase phase;
    char path[96];
    struct client_request request;
    uv_timer_t *timer; /* the next try, or the end of patience with an initial stream */
    bool synced;
    bool initial;    /* this watch begins with the state; its end has not come */
    bool no_stream;  /* the server does not know such watches, or does not get through with one */
    bool incomplete; /* an object without a name was passed over: nothing may be called gone */
    bool changed;    /* the sink must be told */
    bool alive;      /* this watch has said something */
    bool relist;     /* its place in history is lost */
    bool expired;    /* since the server no longer has it, which happens */
    bool unserved;   /* the server does not have this kind, which is as good as none of it */
    char *version;   /* to watch from; NULL: list first */
    char *more;      /* the list's continue token */
    uint32_t round;
    unsigned failures, doubts, restarts;
    bool unanswered; /* waits because no answer came */
    bool woken;      /* had its try out of turn */
    uint64_t retry_after_ms;
    int64_t watch_us; /* when it began */
    char *noted;      /* the trouble last told of */
    struct err err;   /* why an answer was given up */
    struct map known; /* "ns/name" */
    struct lines lines;
    struct codec_stream *stream;
};

struct kube {
    struct source source;
    char *kubeconfig, *context, *node;
    struct kube_config config;
    unsigned kinds;
    uv_loop_t *loop;
    struct client *client;
    struct reflector *reflectors[KIND_COUNT]; /* NULL: not needed */
    bool once;                                /* a list of each is enough */
    bool synced;
    bool away;         /* the server does not answer; noted */
    struct err failed; /* with once: why it cannot be had */
    struct writes *writes;
    struct events *events;
};

/* ---- kube.c ---- */
/* Of the API: `path` below the server's address, or "". */
void kube_note(struct kube *k, bool is_error, const char *path, const char *text);
/* Looks at an answer for what concerns all requests: is the server there, are we let in? */
void kube_answered(struct kube *k, const struct client_answer *a);
/* The server has answered: what waits because it did not waits no longer than is needed so that a
 * cluster's nodes do not all come at once. */
void kube_reached(struct kube *k);
/* A timer with `data`; closed by kube_timer_close(), freed by the loop. */
uv_timer_t *kube_timer(struct kube *k, void *data);
void kube_timer_close(uv_timer_t *t); /* accepts NULL */
/* "/api/v1/nodes", "/apis/GROUP/VERSION/namespaces/NS/portmaps/NAME"; ns and name may be "". */
void kube_path(struct buf *out, enum object_kind kind, const char *ns, const char *name);

/* ---- reflector.c ---- */
struct reflector *reflector_new(struct kube *k, enum object_kind kind);
void reflector_start(struct reflector *r);
void reflector_stop(struct reflector *r);
void reflector_free(struct reflector *r); /* accepts NULL */
/* The server answers others. */
void reflector_wake(struct reflector *r);
/* From now on this watch only says what changes. */
void reflector_settled(struct reflector *r);
/* One line: why it is not synced, or cannot follow. Nothing when all is well. */
void reflector_unready(const struct reflector *r, struct buf *out);

/* ---- take.c ---- */
/* Begins to read an answer, a list's page or a watch. */
void take_begin(struct reflector *r, bool watch);
/* A piece of it. False: no more is wanted, r->err or r->relist say why. */
bool take_data(void *reflector, const char *p, size_t n);
/* There is no more. -EINVAL: a page was to be whole, but ends in the middle. */
int take_end(struct reflector *r, bool whole);

/* ---- known.c ---- */
/* Versions compare as numbers (Kubernetes 1.35 promises it, etcd always had it); one that is no
 * number is a hash above all of them, which is equal to itself only. */
uint64_t rv_number(const char *text);
bool rv_is_number(uint64_t version);
/* Of an object, or of anything that may be none: 0. */
uint64_t rv_of(const struct doc *doc);
/* Whether it is `other` or follows it; of what is no number nobody knows. */
bool rv_has_reached(uint64_t version, uint64_t other);
const struct known *known_find(const struct kube *k, enum object_kind kind, const char *ns,
                               const char *name);
/* A list begins: what it does not have will be gone. */
void known_begin(struct reflector *r);
void known_end(struct reflector *r);
/* The server has this. */
void known_take(struct reflector *r, const struct doc *doc);
void known_removed(struct reflector *r, const char *ns, const char *name);
/* The server has something of this name that cannot be read. */
void known_refuse(struct reflector *r, const char *ns, const char *name, const char *why);
/* Of a kind that other objects stand on, which nobody can stand in for: the next object after *i (0
 * first) that could not be read, and never could. NULL: no more. */
const struct known *known_missing(const struct reflector *r, size_t *i);
size_t known_refused(const struct reflector *r);
void known_free(struct reflector *r);

/* ---- write.c ---- */
struct writes *writes_new(struct kube *k);
void writes_free(struct writes *w); /* accepts NULL */
/* The server answers others. */
void writes_wake(struct writes *w);
/* One line: statuses the server refuses. Nothing when it takes all. */
void writes_unready(const struct writes *w, struct buf *out);
int kube_write(struct source *s, const struct status_write *w, struct err *err);
/* An object has this version now, UINT64_MAX: it is gone. */
void writes_seen(struct kube *k, enum object_kind kind, const char *ns, const char *name,
                 uint64_t version);

/* ---- patch.c ---- */
struct patch {
    struct buf path, body;
    const char *content_type;
};
/* What makes the write so. `now` is the class as last seen, for WRITE_CLASS_CONDITION only. */
void patch_build(const struct status_write *w, const struct portmap_class *now, struct patch *ret);
void patch_done(struct patch *p);

/* ---- events.c ---- */
struct events *events_new(struct kube *k);
void events_free(struct events *e); /* accepts NULL */
/* Something is wrong with an object: an Event, or one more of its series. */
void events_tell(struct events *e, enum object_kind kind, const char *ns, const char *name,
                 const char *reason, const char *note);
/* All that is wrong now. What was not the time before is told; what lasted too short to be told is
 * forgotten. */
void events_stand(struct events *e, const struct problems *problems);
/* What was told of the object before that time is so no more: no Event, if there is none yet. */
void events_over(struct events *e, enum object_kind kind, const char *ns, const char *name,
                 int64_t said_before_us);
