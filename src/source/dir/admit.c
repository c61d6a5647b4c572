/* What an API server does with an object someone applies: defaults and schema are behind it
 * (decode), here come identity, generation and the fields that must not change. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "model/trafficclass.h"
#include "source/dir/dir.h"

static const char *table_change(const struct traffic_class *a, const struct traffic_class *b,
                                struct err *ret)
{
    if (a->table == b->table)
        return NULL;
    err_set(ret, EINVAL,
            "TrafficClass %.253s: spec.table is %u, but was accepted as %u and cannot change: set "
            "it back, or make a new class and delete this one" STAYS,
            a->o.meta.name, b->table, a->table);
    return "table";
}

/* The first immutable field that differs, and as a sentence, or NULL. */
static const char *immutable_change(const struct object *record, const struct object *manifest,
                                    struct err *ret)
{
    if (record->meta.kind == KIND_TRAFFICCLASS)
        return table_change((const struct traffic_class *)record,
                            (const struct traffic_class *)manifest, ret);
    if (record->meta.kind != KIND_PORTMAP)
        return NULL;
    const struct portmap *a = (const struct portmap *)record;
    const struct portmap *b = (const struct portmap *)manifest;
    const char *field;
    char was[256], is[256];
    if (strcmp(a->class_name, b->class_name)) {
        field = "className";
        snprintf(was, sizeof(was), "%.80s", a->class_name);
        snprintf(is, sizeof(is), "%.80s", b->class_name);
    } else if (a->protocol != b->protocol) {
        field = "protocol";
        snprintf(was, sizeof(was), "%s", l4proto_name(a->protocol));
        snprintf(is, sizeof(is), "%s", l4proto_name(b->protocol));
    } else if (a->port != b->port) {
        field = "port";
        snprintf(was, sizeof(was), "%u", a->port);
        snprintf(is, sizeof(is), "%u", b->port);
    } else if (a->has_end_port != b->has_end_port || a->end_port != b->end_port) {
        field = "endPort";
        snprintf(was, sizeof(was), a->has_end_port ? "%u" : "absent", a->end_port);
        snprintf(is, sizeof(is), b->has_end_port ? "%u" : "absent", b->end_port);
    } else {
        return NULL;
    }
    err_set(ret, EINVAL,
            "PortMap %.64s/%.253s: spec.%s is %s, but was accepted as %s and cannot change: set it "
            "back, or delete the manifest and create it again" STAYS,
            a->o.meta.ns, a->o.meta.name, field, is, was);
    return field;
}

struct lookup {
    const struct entry *e;
    const char *field;
    struct place place;
};

static void look_at(void *user, const struct doc *doc)
{
    struct lookup *l = user;
    if (!l->place.line && doc->kind == l->e->kind && !strcmp(doc->ns, l->e->ns) &&
        !strcmp(doc->name, l->e->name))
        l->place = doc_place(doc, l->field);
}

/* Where the field stands in the file: read once more, since objects do not keep it. */
static struct place field_place(const struct dir *d, const struct claim *c, const char *field)
{
    struct lookup l = { .e = c->entry, .field = field };
    struct codec_handler handler = { .user = &l, .object = look_at };
    struct place bad;
    struct buf path = { 0 };
    char *text;
    size_t n;
    buf_printf(&path, "%s/%s", d->path, c->file->name);
    if (!codec_read_file(path.p, &text, &n, NULL)) {
        codec_parse(text, n, codec_format(path.p), &handler, &bad, NULL);
        free(text);
    }
    buf_done(&path);
    return l.place.line ? l.place : c->place;
}

static bool same_pairs(const struct label_list *a, const struct label_list *b)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (strcmp(a->v[i].key, b->v[i].key) || strcmp(a->v[i].value, b->v[i].value))
            return false;
    return true;
}

/* Does the manifest itself say that it is another object of the same name? Only asked of one
 * that was away: the identity of what is there is the record's. */
static bool other_identity(const struct object *record, const struct object *manifest)
{
    const struct meta *a = &record->meta, *b = &manifest->meta;
    return (*b->uid && strcmp(a->uid, b->uid)) || (b->creation && a->creation != b->creation);
}

static const char *random_uid(struct arena *mem)
{
    uint8_t b[16];
    if (getrandom(b, sizeof(b), 0) != sizeof(b))
        abort();
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40); /* RFC 4122: version 4, random */
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    return arena_printf(mem, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                        b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11],
                        b[12], b[13], b[14], b[15]);
}

/* Everything of the manifest; what only the record knows of the record. Borrows from both. */
static void merge(struct object *o, const struct object *record, bool same_spec)
{
    struct meta *m = &o->meta;
    m->uid = record->meta.uid;
    m->creation = record->meta.creation;
    m->generation = record->meta.generation + !same_spec;
    m->resource_version = record->meta.resource_version;
    if (m->kind == KIND_PORTMAP)
        ((struct portmap *)o)->status = ((const struct portmap *)record)->status;
    else if (m->kind == KIND_TRAFFICCLASS)
        ((struct traffic_class *)o)->status = ((const struct traffic_class *)record)->status;
    else
        ((struct portmap_class *)o)->status = ((const struct portmap_class *)record)->status;
}

static void create(struct object *o, const char *resource_version, bool follow)
{
    struct meta *m = &o->meta;
    if (!m->generation)
        m->generation = 1;
    if (!m->creation && follow)
        m->creation = clock_wall();
    if (!*m->uid && follow)
        m->uid = random_uid(&o->mem);
    m->resource_version = resource_version;
}

static void take_copy(void *user, const struct doc *doc)
{
    doc_decode(doc, true, user, NULL, NULL);
}

static struct object *decode(const char *text, size_t n)
{
    struct object *ret = NULL;
    struct codec_handler handler = { .user = &ret, .object = take_copy };
    struct place place;
    codec_parse(text, n, CODEC_JSON, &handler, &place, NULL);
    return ret;
}

/* A copy in memory of its own. */
static struct object *copy(const struct object *o)
{
    struct buf b = { 0 };
    struct writer *w = writer_json_new(&b, false);
    encode_object(w, o);
    writer_free(w);
    struct object *ret = decode(b.p, b.n);
    buf_done(&b);
    return ret;
}

/* Notes it once, and has it tried again. */
static void fail(struct dir *d, struct entry *e, const char *file, struct place place,
                 const struct err *err)
{
    if (!e->failing)
        dir_note(d, true, file, place, err->text);
    e->failing = true;
    dir_retry(d);
}

/* record_read, but what is lost of a class that is in force is written again. */
static int read_or_restore(struct dir *d, struct entry *e, struct object **ret, struct err *err)
{
    struct object *o;
    e->record_dirty = false;
    int r = record_read(d, e->kind, e->ns, e->name, ret, &e->record, err);
    if ((r != -ENOENT && r != -EINVAL) || !d->follow || !e->last || !e->claims)
        return r;
    char *path = record_path(d, e->kind, e->ns, e->name);
    struct err lost;
    err_set(&lost, 0, "the record %s was %s: it is written again as it was last read", path,
            r == -ENOENT ? "removed" : "made unreadable");
    free(path);
    o = decode(e->last, strlen(e->last));
    r = record_write(d, o, &e->record, err);
    if (r) {
        object_free(o);
        return r;
    }
    dir_note(d, true, "", (struct place){ 0 }, lost.text);
    *ret = o;
    return 0;
}

/* 0 also when there is none, or none that is good. */
static int read_record(struct dir *d, struct entry *e, const struct claim *c, struct object **ret)
{
    struct err err;
    int r = read_or_restore(d, e, ret, &err);
    if (r == -EINVAL) {
        char *path = record_path(d, e->kind, e->ns, e->name);
        err_prefix(&err,
                   "the record %s is bad, what it said is lost and the manifest counts as new",
                   path);
        dir_note(d, true, c->file->name, c->place, err.text);
        free(path);
    } else if (r && r != -ENOENT) {
        fail(d, e, c->file->name, c->place, &err);
        return r;
    }
    return 0;
}

bool admit(struct dir *d, struct entry *e, const struct claim *c, struct object *manifest,
           struct object **ret)
{
    struct object *record = NULL;
    struct err err;
    if (read_record(d, e, c, &record)) {
        object_free(manifest);
        return false;
    }
    bool same = record && encode_same_spec(record, manifest);
    /* The manifest was accepted before: it is the record that has changed, by other hands. */
    bool accepted = e->present && e->spec == encode_spec_hash(manifest);
    const char *changed =
        record && !same && !accepted ? immutable_change(record, manifest, &err) : NULL;
    bool fresh = !record || (e->gone_us && (changed || other_identity(record, manifest)));
    int r = 0;
    if (changed && !fresh) {
        dir_note(d, true, c->file->name, field_place(d, c, changed), err.text);
        object_free(manifest);
        *ret = record;
        return true;
    }
    if (fresh)
        create(manifest, record ? record->meta.resource_version : "", d->follow);
    else
        merge(manifest, record, same);
    if (d->follow && (fresh || !same || !same_pairs(&record->meta.labels, &manifest->meta.labels) ||
                      !same_pairs(&record->meta.annotations, &manifest->meta.annotations)))
        r = record_write(d, manifest, &e->record, &err);
    if (r)
        fail(d, e, c->file->name, c->place, &err);
    else
        *ret = copy(manifest);
    e->failing = r;
    object_free(record);
    object_free(manifest);
    return !r;
}

/* ---- records that add to the manifest ---- */

static bool is_agents(const char *annotation)
{
    return !strcmp(annotation, ANNOTATION_ADDRESSES) || !strcmp(annotation, ANNOTATION_OVERLAY);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct label *)a)->key, ((const struct label *)b)->key);
}

/* Of these keys the record alone says what they are, "" that there is none. */
static void put_annotations(struct object *o, const struct label_list *written)
{
    struct label_list *own = &o->meta.annotations, all = { 0 };
    all.v = arena_new_array(&o->mem, own->n + written->n, struct label);
    for (uint32_t i = 0; i < own->n; i++)
        if (!is_agents(own->v[i].key))
            all.v[all.n++] = own->v[i];
    for (uint32_t i = 0; i < written->n; i++)
        if (is_agents(written->v[i].key) && *written->v[i].value)
            all.v[all.n++] = (struct label){ arena_strdup(&o->mem, written->v[i].key),
                                             arena_strdup(&o->mem, written->v[i].value) };
    if (all.n)
        qsort(all.v, all.n, sizeof(all.v[0]), by_key);
    *own = all;
}

static void put_status(struct service *s, const struct service *record)
{
    struct arena *mem = &s->o.mem;
    s->o.meta.resource_version = arena_strdup(mem, record->o.meta.resource_version);
    s->n_ingress = record->n_ingress;
    s->ingress = arena_new_array(mem, s->n_ingress, struct service_ingress);
    for (uint32_t i = 0; i < s->n_ingress; i++)
        s->ingress[i] = (struct service_ingress){ arena_strdup(mem, record->ingress[i].ip),
                                                  record->ingress[i].mode };
}

/* What agents said is said of a Service that leaves the class no more, as an API server clears
 * the status then. False: its record cannot be told. */
static bool add_record(struct dir *d, struct entry *e, const char *file, struct place place,
                       struct object *o)
{
    struct object *record = NULL;
    struct err err;
    bool held = e->kind == KIND_NODE || service_is_held((struct service *)o);
    int r = 0;
    e->record_dirty = false;
    if (e->record && held)
        r = record_read(d, e->kind, e->ns, e->name, &record, &e->record, &err);
    else if (e->record && d->follow)
        r = record_delete(d, e, &err);
    if (r == -EINVAL) {
        char *path = record_path(d, e->kind, e->ns, e->name);
        err_prefix(&err, "the record %s is bad, what it said is lost", path);
        dir_note(d, true, file, place, err.text);
        free(path);
    } else if (r && r != -ENOENT) {
        fail(d, e, file, place, &err);
        return false;
    }
    if (!record)
        e->record = r == -EINVAL;
    if (record && e->kind == KIND_NODE)
        put_annotations(o, &record->meta.annotations);
    else if (record)
        put_status((struct service *)o, (const struct service *)record);
    object_free(record);
    e->failing = false;
    return true;
}

bool admit_added(struct dir *d, struct entry *e, const struct claim *c, struct object *manifest,
                 struct object **ret)
{
    free(e->last);
    e->last = NULL;
    if (e->kind == KIND_NODE || service_is_held((struct service *)manifest))
        index_keep(e, manifest);
    if (!add_record(d, e, c->file->name, c->place, manifest)) {
        object_free(manifest);
        return false;
    }
    *ret = manifest;
    return true;
}

/* The record of such a kind may have changed: the manifest need not be read again. */
static void reread_added(struct dir *d, struct entry *e)
{
    uint64_t before = e->record;
    if (e->owner && e->present && e->last) {
        struct object *o = decode(e->last, strlen(e->last));
        if (add_record(d, e, e->owner->file->name, e->owner->place, o) && e->record != before)
            index_upsert(d, e, o);
        else
            object_free(o);
        return;
    }
    /* Nobody's: it goes. */
    char *path = record_path(d, e->kind, e->ns, e->name);
    if (access(path, F_OK))
        e->record = 0;
    free(path);
    e->record_dirty = false;
    index_touch(d, e);
}

void admit_records(struct dir *d)
{
    for (size_t i = 0; i < d->records.n; i++) {
        struct entry *e = d->records.v[i];
        struct object *o = NULL;
        uint64_t before = e->record;
        e->queued = false;
        if (!e->record_dirty)
            continue;
        if (record_adds(e->kind)) {
            reread_added(d, e);
            continue;
        }
        struct err err;
        int r = read_or_restore(d, e, &o, &err);
        if (r && r != -ENOENT && r != -EINVAL) {
            fail(d, e, "", (struct place){ 0 }, &err);
            continue;
        }
        e->failing = false;
        if (!r && e->record == before) {
            object_free(o);
        } else if (!r && e->owner && e->present && encode_spec_hash(o) != e->spec) {
            object_free(o); /* the spec is the manifest's to say */
            e->want = true;
            index_touch(d, e);
        } else if (!r && (e->claims || e->present)) {
            index_upsert(d, e, o);
        } else {
            object_free(o);
            if (r == -ENOENT)
                e->record = 0;
            if (r == -ENOENT && !e->claims)
                e->gone_us = 0;
            e->want = r && e->owner; /* made anew from the manifest */
            index_touch(d, e);
        }
    }
    vec_done(&d->records);
}
