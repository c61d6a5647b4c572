#include "store/store.h"

#include <string.h>

#include "base/vec.h"

struct table {
    VEC(struct object *) sorted; /* by namespace, service, name */
};

struct store {
    struct table tables[KIND_COUNT];
    VEC(struct object *) slices;   /* by namespace, name: their table is by service first */
    VEC(struct object *) replaced; /* freed at commit: the planner may still look at them */
    VEC(struct change) changes;
    struct arena change_text;
    bool ever_committed;
};

static const char *service_of(const struct object *o)
{
    return o->meta.kind == KIND_ENDPOINTSLICE ? ((const struct endpoint_slice *)o)->service : "";
}

static int key_cmp(const struct object *o, const char *ns, const char *service, const char *name)
{
    int c = strcmp(o->meta.ns, ns);
    if (!c)
        c = strcmp(service_of(o), service);
    return c ? c : strcmp(o->meta.name, name);
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
    }
    vec_done(&s->slices);
    vec_done(&s->replaced);
    vec_done(&s->changes);
    arena_done(&s->change_text);
    free(s);
}

static size_t lower_bound(const struct table *t, const char *ns, const char *service,
                          const char *name)
{
    return vec_lower_bound(&t->sorted, e, key_cmp(*e, ns, service, name) < 0);
}

static size_t place_of(const struct table *t, const struct object *o)
{
    return lower_bound(t, o->meta.ns, service_of(o), o->meta.name);
}

static int name_cmp(const struct object *o, const char *ns, const char *name)
{
    int c = strcmp(o->meta.ns, ns);
    return c ? c : strcmp(o->meta.name, name);
}

static size_t slice_bound(const struct store *s, const char *ns, const char *name)
{
    return vec_lower_bound(&s->slices, e, name_cmp(*e, ns, name) < 0);
}

static struct object *slice_find(const struct store *s, const char *ns, const char *name)
{
    size_t at = slice_bound(s, ns, name);
    return at < s->slices.n && !name_cmp(s->slices.v[at], ns, name) ? s->slices.v[at] : NULL;
}

static struct object *find(const struct store *s, enum object_kind kind, const char *ns,
                           const char *name)
{
    if (kind == KIND_ENDPOINTSLICE)
        return slice_find(s, ns, name);
    const struct table *t = &s->tables[kind];
    size_t at = lower_bound(t, ns, "", name);
    return at < t->sorted.n && !key_cmp(t->sorted.v[at], ns, "", name) ? t->sorted.v[at] : NULL;
}

static void note_change(struct store *s, const struct object *o)
{
    if (!s->ever_committed) /* everything is new then, and the list would be as long */
        return;
    struct arena *a = &s->change_text;
    vec_push(&s->changes, (struct change){ .kind = o->meta.kind,
                                           .ns = arena_strdup(a, o->meta.ns),
                                           .name = arena_strdup(a, o->meta.name),
                                           .service = arena_strdup(a, service_of(o)) });
}

bool store_upsert(struct store *s, struct object *obj)
{
    struct table *t = &s->tables[obj->meta.kind];
    struct object *old = find(s, obj->meta.kind, obj->meta.ns, obj->meta.name);
    if (old && object_equal(old, obj)) {
        object_free(obj);
        return false;
    }
    if (old && !strcmp(service_of(old), service_of(obj))) {
        t->sorted.v[place_of(t, obj)] = obj;
    } else {
        if (old) {
            vec_remove(&t->sorted, place_of(t, old));
            note_change(s, old); /* the service it leaves */
        }
        size_t at = place_of(t, obj);
        *vec_insert(&t->sorted, at) = obj;
    }
    if (obj->meta.kind == KIND_ENDPOINTSLICE && old)
        s->slices.v[slice_bound(s, obj->meta.ns, obj->meta.name)] = obj;
    else if (obj->meta.kind == KIND_ENDPOINTSLICE)
        *vec_insert(&s->slices, slice_bound(s, obj->meta.ns, obj->meta.name)) = obj;
    note_change(s, obj);
    if (old)
        vec_push(&s->replaced, old);
    return true;
}

bool store_remove(struct store *s, enum object_kind kind, const char *ns, const char *name)
{
    struct table *t = &s->tables[kind];
    struct object *old = find(s, kind, ns, name);
    if (!old)
        return false;
    vec_remove(&t->sorted, place_of(t, old));
    if (kind == KIND_ENDPOINTSLICE)
        vec_remove(&s->slices, slice_bound(s, ns, name));
    note_change(s, old);
    vec_push(&s->replaced, old);
    return true;
}

const struct object *store_get(const struct store *s, enum object_kind kind, const char *ns,
                               const char *name)
{
    return find(s, kind, ns, name);
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
    VIEW(KIND_SERVICECIDR, struct service_cidr, service_cidrs);
    VIEW(KIND_TRAFFICCLASS, struct traffic_class, traffic_classes);
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
