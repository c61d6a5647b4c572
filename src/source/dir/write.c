/* Status writes: read, compare, change, write, all under the lock. */
#include <errno.h>
#include <stdlib.h>

#include "source/dir/dir.h"

static const char *name_of(const void *rows, uint32_t i, size_t size)
{
    return *(const char *const *)(const void *)((const char *)rows + i * size);
}

/* Rows begin with their name and are sorted by it. Returns all of them, `row` among them. */
static void *with_row(struct object *o, const void *rows, uint32_t *n, const void *row, size_t size)
{
    uint32_t before = 0, after;
    const char *name = name_of(row, 0, size);
    while (before < *n && strcmp(name_of(rows, before, size), name) < 0)
        before++;
    after = before + (before < *n && !strcmp(name_of(rows, before, size), name));
    char *fresh = arena_alloc(&o->mem, (*n + 1) * size);
    if (before)
        memcpy(fresh, rows, before * size);
    memcpy(fresh + before * size, row, size);
    if (after < *n)
        memcpy(fresh + (before + 1) * size, (const char *)rows + after * size, (*n - after) * size);
    *n += before + 1 - after;
    return fresh;
}

static void drop_row(struct class_status *s, const char *name)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_nodes; i++)
        if (strcmp(s->nodes[i].name, name))
            s->nodes[n++] = s->nodes[i];
    s->n_nodes = n;
}

/* Both, "" for none: what a manifest says under these keys counts no more. */
static void put_annotations(struct object *o, const struct status_write *w)
{
    struct label *v = arena_new_array(&o->mem, 2, struct label);
    v[0] = (struct label){ ANNOTATION_ADDRESSES, w->addresses };
    v[1] = (struct label){ ANNOTATION_OVERLAY, w->overlay };
    o->meta.annotations = (struct label_list){ v, 2 };
}

static void put_ingress(struct service *s, const char *ip)
{
    s->ingress = arena_new_array(&s->o.mem, 1, struct service_ingress);
    s->ingress[0] = (struct service_ingress){ ip, IP_MODE_PROXY };
    s->n_ingress = *ip ? 1 : 0;
}

/* `o` borrows from `w`. */
static void apply(struct object *o, const struct status_write *w)
{
    struct portmap_class *c = (struct portmap_class *)o;
    struct traffic_class *t = (struct traffic_class *)o;
    switch (w->kind) {
    case WRITE_PORTMAP_STATUS:
        ((struct portmap *)o)->status = w->portmap;
        return;
    case WRITE_CLASS_ROW:
        c->status.nodes = with_row(o, c->status.nodes, &c->status.n_nodes, &w->row, sizeof(w->row));
        return;
    case WRITE_CLASS_LINKS:
        c->status.links = w->links;
        c->status.n_links = w->n_links;
        return;
    case WRITE_CLASS_CONDITION:
        c->status.conditions = w->conditions;
        c->status.observed_generation = w->observed_generation;
        for (uint32_t i = 0; i < w->drop_rows.n; i++)
            drop_row(&c->status, w->drop_rows.v[i]);
        return;
    case WRITE_TRAFFIC_ROW:
        t->status.nodes = with_row(o, t->status.nodes, &t->status.n_nodes, &w->traffic_row,
                                   sizeof(w->traffic_row));
        return;
    case WRITE_TRAFFIC_STATUS:
        t->status = w->traffic;
        return;
    case WRITE_NODE_ANNOTATIONS:
        put_annotations(o, w);
        return;
    case WRITE_SERVICE_STATUS:
        put_ingress((struct service *)o, w->ingress);
        return;
    }
}

static void encode(struct buf *b, const struct object *o)
{
    struct writer *w = writer_json_new(b, false);
    encode_object(w, o);
    writer_free(w);
}

/* The first record of an object of a kind that has none before something is said of it. Borrows
 * from `e`. */
static struct object *make_record(const struct entry *e)
{
    struct object *o = object_new(e->kind);
    o->meta.ns = e->ns;
    o->meta.name = e->name;
    if (e->kind == KIND_NODE) {
        ((struct node *)o)->pod_cidr = "";
        return o;
    }
    struct service *s = (struct service *)o;
    s->type = SERVICE_LOADBALANCER;
    s->load_balancer_class = NODE_ADDRESS_CLASS;
    s->cluster_ip = s->load_balancer_ip = "";
    return o;
}

/* 1: nothing to do. */
static int change(struct dir *d, struct object *o, const struct status_write *w, uint64_t *ret_hash,
                  struct err *err)
{
    struct buf before = { 0 }, after = { 0 };
    if (!status_write_merges(w->kind) && strcmp(o->meta.resource_version, w->resource_version))
        return err_set(err, EAGAIN, "%s %.64s%s%.253s: it is at version %s, not %s: decide again",
                       kind_info[o->meta.kind].kind, w->ns, *w->ns ? "/" : "", w->name,
                       o->meta.resource_version, w->resource_version);
    encode(&before, o);
    apply(o, w);
    encode(&after, o);
    bool known = *o->meta.resource_version;
    int r = known && !strcmp(before.p, after.p) ? 1 : record_write(d, o, ret_hash, err);
    buf_done(&before);
    buf_done(&after);
    return r;
}

int dir_write(struct source *s, const struct status_write *w, struct err *err)
{
    struct dir *d = (struct dir *)s;
    enum object_kind kind = status_write_target(w->kind);
    struct object *o;
    uint64_t hash;
    int r = record_lock(d, err);
    if (r == -EAGAIN) { /* the next snapshot comes when the lock is free */
        d->changed = true;
        dir_schedule(d, LOCK_RETRY_MS);
    }
    if (r)
        return r;
    r = record_read(d, kind, w->ns, w->name, &o, &hash, err);
    const struct entry *e = index_find(d, kind, w->ns, w->name);
    if ((r == -ENOENT || r == -EINVAL) && record_adds(kind) && e && e->present) {
        o = make_record(e);
        r = 0;
    }
    if (r == -ENOENT || r == -EINVAL) {
        r = err_set(err, EAGAIN, "%s %.64s%s%.253s has no record now: decide again",
                    kind_info[kind].kind, w->ns, *w->ns ? "/" : "", w->name);
    } else if (!r) {
        r = change(d, o, w, &hash, err);
        object_free(o);
    }
    record_unlock(d);
    if (!r && d->watcher) {
        record_mark(d, index_entry(d, kind, w->ns, w->name));
        dir_schedule(d, 0);
    }
    return r > 0 ? 0 : r;
}
