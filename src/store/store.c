#include "store/store.h"

#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/vec.h"

struct table {
    struct map by_name; /* "ns/name" -> struct object */
    VEC(struct object *) sorted;
};

struct store {
    struct table tables[KIND_COUNT];
    VEC(struct object *) replaced; /* freed at commit: the planner may still look at them */
    VEC(struct change) changes;
    struct arena change_text;
    bool ever_committed;
};

static const char *service_of(const struct object *o)
{
    return o->meta.kind == KIND_ENDPOINTSLICE ? ((const struct endpoint_slice *)o)->service : "";
}

static int object_cmp(const struct object *a, const struct object *b)
{
    int c = strcmp(a->meta.ns, b->meta.ns);
    if (!c)
        c = strcmp(service_of(a), service_of(b));
    return c ? c : strcmp(a->meta.name, b->meta.name);
}

struct store *store_new(void)
{
    return xcalloc(1, sizeof(struct store));
}

void store_free(struct store *s)
{
    if (!s)
        return;
    store_commit(s);
    for (int k = 0; k < KIND_COUNT; k++) {
        struct table *t = &s->tables[k];
        for (size_t i = 0; i < t->sorted.n; i++)
            object_free(t->sorted.v[i]);
        vec_done(&t->sorted);
        map_done(&t->by_name);
    }
    vec_done(&s->replaced);
    vec_done(&s->changes);
    arena_done(&s->change_text);
    free(s);
}

/* '/' is in no name, so the joined key is unique. */
static size_t join(struct buf *b, const char *ns, const char *name)
{
    buf_printf(b, "%s/%s", ns, name);
    return b->n;
}

static size_t lower_bound(const struct table *t, const struct object *o)
{
    size_t lo = 0, hi = t->sorted.n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (object_cmp(t->sorted.v[mid], o) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void note_change(struct store *s, const struct object *o)
{
    struct arena *a = &s->change_text;
    vec_push(&s->changes, (struct change){ .kind = o->meta.kind,
                                           .ns = arena_strdup(a, o->meta.ns),
                                           .name = arena_strdup(a, o->meta.name),
                                           .service = arena_strdup(a, service_of(o)) });
}

bool store_upsert(struct store *s, struct object *obj)
{
    struct table *t = &s->tables[obj->meta.kind];
    struct buf key = { 0 };
    size_t len = join(&key, obj->meta.ns, obj->meta.name);
    struct object *old = map_get(&t->by_name, key.p, len);
    bool news = !old || !object_equal(old, obj);
    if (!news) {
        object_free(obj);
    } else {
        map_put(&t->by_name, key.p, len, obj);
        if (old && !object_cmp(old, obj)) {
            t->sorted.v[lower_bound(t, obj)] = obj;
        } else {
            if (old) {
                vec_remove(&t->sorted, lower_bound(t, old));
                note_change(s, old); /* the service it leaves */
            }
            size_t at = lower_bound(t, obj);
            *vec_insert(&t->sorted, at) = obj;
        }
        note_change(s, obj);
        if (old)
            vec_push(&s->replaced, old);
    }
    buf_done(&key);
    return news;
}

bool store_remove(struct store *s, enum object_kind kind, const char *ns, const char *name)
{
    struct table *t = &s->tables[kind];
    struct buf key = { 0 };
    size_t len = join(&key, ns, name);
    struct object *old = map_del(&t->by_name, key.p, len);
    buf_done(&key);
    if (!old)
        return false;
    vec_remove(&t->sorted, lower_bound(t, old));
    note_change(s, old);
    vec_push(&s->replaced, old);
    return true;
}

const struct object *store_get(const struct store *s, enum object_kind kind, const char *ns,
                               const char *name)
{
    struct buf key = { 0 };
    size_t len = join(&key, ns, name);
    const struct object *o = map_get(&s->tables[kind].by_name, key.p, len);
    buf_done(&key);
    return o;
}

size_t store_count(const struct store *s, enum object_kind kind)
{
    return s->tables[kind].sorted.n;
}

void store_snapshot(struct store *s, struct snapshot *snap)
{
#define VIEW(kind, type, field)                                                \
    snap->field = (const type *const *)(const void *)s->tables[kind].sorted.v; \
    snap->n_##field = s->tables[kind].sorted.n
    VIEW(KIND_NODE, struct node, nodes);
    VIEW(KIND_NAMESPACE, struct namespace, namespaces);
    VIEW(KIND_SERVICE, struct service, services);
    VIEW(KIND_ENDPOINTSLICE, struct endpoint_slice, slices);
    VIEW(KIND_PORTMAP, struct portmap, portmaps);
    VIEW(KIND_PORTMAPCLASS, struct portmap_class, classes);
#undef VIEW
    snap->changes_known = s->ever_committed;
    snap->changes = s->changes.v;
    snap->n_changes = s->changes.n;
}

void store_commit(struct store *s)
{
    for (size_t i = 0; i < s->replaced.n; i++)
        object_free(s->replaced.v[i]);
    s->replaced.n = 0;
    s->changes.n = 0;
    arena_reset(&s->change_text);
    s->ever_committed = true;
}
