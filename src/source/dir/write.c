/* Status writes: read, compare, change, write, all under the lock. */
#include <errno.h>
#include <stdlib.h>

#include "source/dir/dir.h"

/* ---- what somebody else undoes ---- */

static void put_key(struct buf *b, enum object_kind kind, const char *name)
{
    buf_printf(b, "%s/%s", kind_info[kind].plural, name);
}

void write_forget(struct dir *d, const struct entry *e)
{
    struct buf key = { 0 };
    put_key(&key, e->kind, e->name);
    if (d->rows)
        rows_forget(d->rows, key.p);
    buf_done(&key);
}

/* Text of a write of what this node says of itself, to compare. Returns the node's name. */
static const char *put_said(struct buf *b, const struct status_write *w)
{
    const struct portmap_class c = { .o.meta.kind = KIND_PORTMAPCLASS,
                                     .status = { .nodes = (struct node_row *)&w->row,
                                                 .n_nodes = 1 } };
    const struct traffic_class t = { .o.meta.kind = KIND_TRAFFICCLASS,
                                     .status = { .nodes = (struct traffic_row *)&w->traffic_row,
                                                 .n_nodes = 1 } };
    if (w->kind == WRITE_NODE_ANNOTATIONS) {
        buf_printf(b, "%s %s", w->addresses, w->overlay);
        return w->name;
    }
    bool of_class = w->kind == WRITE_CLASS_ROW;
    struct writer *to = writer_json_new(b, false);
    encode_status_field(to, of_class ? &c.o : &t.o, "nodes");
    writer_free(to);
    return of_class ? w->row.name : w->traffic_row.name;
}

/* What a write of a row says, and whose it is. */
struct row_write {
    struct buf key, said;
};

static void row_begin(struct dir *d, const struct status_write *w, struct row_write *ret)
{
    const char *node = put_said(&ret->said, w);
    put_key(&ret->key, status_write_target(w->kind), w->name);
    if (!d->rows)
        d->rows = rows_new(node);
}

static void row_done(struct row_write *row)
{
    buf_done(&row->key);
    buf_done(&row->said);
}

/* True: another agent has undone this, and it is not its time yet. A pass comes then. */
static bool is_held(struct dir *d, const struct row_write *row)
{
    struct buf tell = { 0 };
    uint64_t ms = rows_hold_ms(d->rows, row->key.p, row->said.p, &tell);
    if (tell.n)
        dir_note(d, true, "", (struct place){ 0 }, tell.p);
    buf_done(&tell);
    if (ms) {
        d->changed = true;
        dir_schedule(d, ms);
    }
    return ms > 0;
}

/* ---- one write ---- */

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

/* Of a row. A record that was lost was not undone. */
static int change_row(struct dir *d, struct object *o, const struct status_write *w,
                      uint64_t *ret_hash, struct err *err)
{
    struct row_write row = { 0 };
    int r;
    row_begin(d, w, &row);
    if (*o->meta.resource_version && is_held(d, &row))
        r = err_set(err, EAGAIN, "%s %.253s: another agent writes the same: later",
                    kind_info[o->meta.kind].kind, w->name);
    else
        r = record_write(d, o, ret_hash, err);
    if (!r)
        rows_landed(d->rows, row.key.p, row.said.p);
    row_done(&row);
    return r;
}

/* 1: nothing to do. */
static int change(struct dir *d, struct object *o, const struct status_write *w, uint64_t *ret_hash,
                  struct err *err)
{
    struct buf before = { 0 }, after = { 0 };
    bool merges = status_write_merges(w->kind);
    int r = 1;
    if (!merges && strcmp(o->meta.resource_version, w->resource_version))
        return err_set(err, EAGAIN, "%s %.64s%s%.253s: it is at version %s, not %s: decide again",
                       kind_info[o->meta.kind].kind, w->ns, *w->ns ? "/" : "", w->name,
                       o->meta.resource_version, w->resource_version);
    encode(&before, o);
    apply(o, w);
    encode(&after, o);
    if (!*o->meta.resource_version || strcmp(before.p, after.p) != 0)
        r = merges ? change_row(d, o, w, ret_hash, err) : record_write(d, o, ret_hash, err);
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
