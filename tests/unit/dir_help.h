/* A manifest folder in /tmp, and a sink that keeps what it is told. */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "source/codec.h"
#include "source/source.h"

struct world {
    char path[64];
    uv_loop_t loop;
    uv_timer_t tick; /* so that the loop never waits for long */
};

struct agent {
    struct source *source;
    VEC(struct object *) objects;
    VEC(char *) notes; /* "E where: text" or "I where: text", `where` below the folder */
    unsigned changed;
    const struct world *world;
};

static inline void world_tick(uv_timer_t *t)
{
    (void)t;
}

static inline void world_open(struct world *w)
{
    strcpy(w->path, "/tmp/test-dir-XXXXXX");
    if (!mkdtemp(w->path) || uv_loop_init(&w->loop) || uv_timer_init(&w->loop, &w->tick) ||
        uv_timer_start(&w->tick, world_tick, 1, 1))
        abort();
}

static inline int world_remove(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static inline void world_close(struct world *w)
{
    uv_close((uv_handle_t *)&w->tick, NULL);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&w->loop))
        abort(); /* a handle was left open */
    nftw(w->path, world_remove, 16, FTW_DEPTH | FTW_PHYS);
}

static inline const char *world_path(const struct world *w, const char *name)
{
    static char path[8][512];
    static unsigned next;
    char *p = path[next++ % 8];
    snprintf(p, sizeof(path[0]), "%s/%s", w->path, name);
    return p;
}

static inline void world_put(const struct world *w, const char *name, const char *text)
{
    FILE *f = fopen(world_path(w, name), "we");
    if (!f || fputs(text, f) < 0 || fclose(f))
        abort();
}

static inline char *world_get(const struct world *w, const char *name)
{
    char *text;
    size_t n;
    return codec_read_file(world_path(w, name), &text, &n, NULL) ? NULL : text;
}

static inline bool world_has(const struct world *w, const char *name)
{
    return !access(world_path(w, name), F_OK);
}

static inline size_t agent_index(const struct agent *a, enum object_kind kind, const char *ns,
                                 const char *name)
{
    size_t i = 0;
    while (i < a->objects.n &&
           (a->objects.v[i]->meta.kind != kind || strcmp(a->objects.v[i]->meta.ns, ns) ||
            strcmp(a->objects.v[i]->meta.name, name)))
        i++;
    return i;
}

static inline const void *agent_get(const struct agent *a, enum object_kind kind, const char *ns,
                                    const char *name)
{
    size_t i = agent_index(a, kind, ns, name);
    return i < a->objects.n ? a->objects.v[i] : NULL;
}

static inline void agent_upsert(void *user, struct object *o)
{
    struct agent *a = user;
    size_t i = agent_index(a, o->meta.kind, o->meta.ns, o->meta.name);
    if (i == a->objects.n) {
        vec_push(&a->objects, o);
    } else {
        object_free(a->objects.v[i]);
        a->objects.v[i] = o;
    }
}

static inline void agent_removed(void *user, enum object_kind kind, const char *ns,
                                 const char *name)
{
    struct agent *a = user;
    size_t i = agent_index(a, kind, ns, name);
    if (i == a->objects.n)
        abort(); /* removed what was never there */
    object_free(a->objects.v[i]);
    vec_remove(&a->objects, i);
}

static inline void agent_note(void *user, bool is_error, const char *where, const char *text)
{
    struct agent *a = user;
    struct buf b = { 0 };
    size_t n = strlen(a->world->path);
    where += strncmp(where, a->world->path, n) ? 0 : n;
    buf_printf(&b, "%c %s: %s", is_error ? 'E' : 'I', where + (*where == '/'), text);
    vec_push(&a->notes, b.p);
}

static inline void agent_changed(void *user)
{
    ((struct agent *)user)->changed++;
}

static inline void agent_open(struct agent *a, const struct world *w)
{
    struct source_sink sink = { a, agent_upsert, agent_removed, agent_note, agent_changed, NULL };
    struct err err;
    char spec[128];
    *a = (struct agent){ .world = w };
    snprintf(spec, sizeof(spec), "dir:%s/", w->path);
    const struct source_options opt = { .spec = spec };
    if (source_open(&opt, &sink, &a->source, &err))
        abort();
}

static inline bool agent_synced(const struct agent *a)
{
    return a->source->ops->synced(a->source);
}

/* What is in the folder may keep it from being synced. */
static inline void agent_begin(struct agent *a, struct world *w)
{
    struct err err;
    agent_open(a, w);
    if (a->source->ops->start(a->source, &w->loop, &err))
        abort();
}

static inline void agent_start(struct agent *a, struct world *w)
{
    agent_begin(a, w);
    if (!agent_synced(a))
        abort();
}

/* What keeps it from being ready. */
static inline const char *agent_unready(const struct agent *a)
{
    static char text[600];
    struct buf b = { 0 };
    a->source->ops->unready(a->source, &b);
    snprintf(text, sizeof(text), "%s", buf_str(&b));
    buf_done(&b);
    return text;
}

static inline void agent_load(struct agent *a, const struct world *w)
{
    struct err err;
    agent_open(a, w);
    if (a->source->ops->load(a->source, &err))
        abort();
}

static inline void agent_close(struct agent *a)
{
    a->source->ops->stop(a->source);
    a->source->ops->free(a->source);
    for (size_t i = 0; i < a->objects.n; i++)
        object_free(a->objects.v[i]);
    for (size_t i = 0; i < a->notes.n; i++)
        free(a->notes.v[i]);
    vec_done(&a->objects);
    vec_done(&a->notes);
}

/* A folder with one manifest, and those who follow it; b may be NULL. */
static inline void world_begin(struct world *w, struct agent *a, struct agent *b, const char *name,
                               const char *manifest)
{
    world_open(w);
    world_put(w, name, manifest);
    agent_start(a, w);
    if (b)
        agent_start(b, w);
}

static inline void world_end(struct world *w, struct agent *a, struct agent *b)
{
    agent_close(a);
    if (b)
        agent_close(b);
    world_close(w);
}

static inline int agent_write(struct agent *a, struct status_write write)
{
    struct err err;
    return a->source->ops->write(a->source, &write, &err);
}

/* Notes that hold the text. */
static inline size_t agent_noted(const struct agent *a, const char *text)
{
    size_t n = 0;
    for (size_t i = 0; i < a->notes.n; i++)
        n += strstr(a->notes.v[i], text) != NULL;
    return n;
}

/* Runs the loop until the condition holds; fails the test after ten seconds. */
#define world_until(w, condition)                      \
    do {                                               \
        int64_t end_ = clock_mono_us() + 10000000;     \
        while (!(condition) && clock_mono_us() < end_) \
            uv_run(&(w)->loop, UV_RUN_ONCE);           \
        assert_true(condition);                        \
    } while (0)
