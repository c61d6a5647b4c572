/* Where objects come from and statuses go to. Two kinds behind one interface: `dir:DIR`
 * (a folder of manifests, source/dir) and, later, a Kubernetes API server. Neither the
 * planner nor the status writer can tell them apart.
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
    /* Something to tell a person: a bad file, an unknown kind. `where` is "file:line:column". */
    void (*note)(void *user, bool is_error, const char *where, const char *text);
    /* After a burst of the calls above. */
    void (*changed)(void *user);
};

struct source;

struct source_ops {
    /* Reads everything once, synchronously, without a loop (plan, get, diff). */
    int (*load)(struct source *s, struct err *err);
    /* Reads everything and follows changes on the loop. */
    int (*start)(struct source *s, uv_loop_t *loop, struct err *err);
    /* True when every needed object has been seen once. */
    bool (*synced)(struct source *s);
    /* 0 written (the sink gets the new object), -EAGAIN the object changed meanwhile (decide
     * again on the next snapshot), other -errno with a sentence. */
    int (*write)(struct source *s, const struct status_write *w, struct err *err);
    /* One line for each reason why it is not synced or cannot follow now; nothing when all is
     * well. */
    void (*unready)(struct source *s, struct buf *out);
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

/* `spec` is "dir:DIR". On error says what would be right. */
int source_open(const char *spec, const struct source_sink *sink, struct source **ret,
                struct err *err);
