#include "cli/world.h"

#include <stdio.h>

static void upsert(void *user, struct object *obj)
{
    store_upsert(((struct world *)user)->store, obj);
}

static void removed(void *user, enum object_kind kind, const char *ns, const char *name)
{
    store_remove(((struct world *)user)->store, kind, ns, name);
}

static void note(void *user, bool is_error, const char *where, const char *text)
{
    struct world *w = user;
    w->errors += is_error;
    fprintf(stderr, "portolan: %s: %s%s\n", where, is_error ? "" : "note: ", text);
}

static void changed(void *user)
{
    (void)user;
}

int world_load(struct world *w, const struct source_options *source, struct err *err)
{
    const struct source_sink sink = { w, upsert, removed, note, changed, NULL };
    w->store = store_new();
    int r = source_open(source, &sink, &w->source, err);
    return r ? r : w->source->ops->load(w->source, err);
}

void world_done(struct world *w)
{
    if (w->source)
        w->source->ops->free(w->source);
    store_free(w->store);
}
