/* Where objects come from and statuses go to. Two kinds behind one interface: `dir:DIR`
 * (a folder of manifests, source/dir) and `kube:` (a Kubernetes API server, source/kube).
 * Neither the planner nor the status writer can tell them apart.
 *
 * Threading: everything happens on the loop's thread. A source calls its sink with whole
 * objects (ownership passes to the sink) and says changed() once after a burst. */
#pragma once

#include <uv.h>

#include "base/buf.h"
#include "base/err.h"
#include "model/status.h"

struct source_sink {
    void *user;
    /* A new or changed object; the callee owns it. */
    void (*upsert)(void *user, struct object *obj);
    void (*removed)(void *user, enum object_kind kind, const char *ns, const char *name);
    /* Something to tell a person: a bad file, an unknown kind, an API server that is away.
     * `where` is "file:line:column" or an address of the API. */
    void (*note)(void *user, bool is_error, const char *where, const char *text);
    /* After a burst of the calls above. */
    void (*changed)(void *user);
    /* A write that was on its way was taken, or refused, which is tried again. Or NULL. */
    void (*settled)(void *user, bool written);
};

struct source;

struct source_ops {
    /* Reads everything once, synchronously, without a loop (plan, get, diff). */
    int (*load)(struct source *s, struct err *err);
    /* Reads everything and follows changes on the loop. */
    int (*start)(struct source *s, uv_loop_t *loop, struct err *err);
    /* True when every needed object has been seen once. */
    bool (*synced)(struct source *s);
    /* 0: written. -EINPROGRESS: newly on its way. In the end the sink gets an object, the one with
     * this written or the one that was in the way; or the source tries again by itself, notes once
     * what keeps it from it, and is unready. changed() is called when it is over.
     * -EAGAIN, decide again on the next snapshot: the object has changed; or one of the same kind
     * for the same object is on its way already (this one takes its place where it differs); or
     * too many are. -EPERM, of an optional one: it is not allowed to, which is noted once, and not
     * tried again. Other -errno with a sentence. */
    int (*write)(struct source *s, const struct status_write *w, struct err *err);
    /* What is wrong now: an Event tells people of what has `event`. NULL: nobody to tell. */
    void (*problems)(struct source *s, const struct problems *problems);
    /* One line for each reason why it is not synced or cannot follow now; nothing when all is
     * well. */
    void (*unready)(struct source *s, struct buf *out);
    /* Its counters in Prometheus' text format. NULL: it has none. */
    void (*metrics)(struct source *s, struct buf *out);
    /* Stops following; handles close on the loop. */
    void (*stop)(struct source *s);
    void (*free)(struct source *s);
};

struct source {
    const struct source_ops *ops;
    struct source_sink sink;
    /* Set before start() when nothing of ours is in the kernel: then nothing is lost by going on
     * without what cannot be read yet. */
    bool fresh;
};

struct source_options {
    const char *spec;                 /* "dir:DIR" or "kube:" */
    const char *kubeconfig, *context; /* of kube:; NULL or "" when not given */
    const char *node;                 /* whose agent asks; NULL or "": nobody's */
    unsigned kinds;                   /* what is needed: bits 1 << enum object_kind; 0: all */
};

/* The kinds that a list of features ("portmap,serviceproxy") reads. */
unsigned source_kinds(const char *features);

/* The options are copied. On error says what would be right. */
int source_open(const struct source_options *opt, const struct source_sink *sink,
                struct source **ret, struct err *err);
