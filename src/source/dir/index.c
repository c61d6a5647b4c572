#include "source/dir/dir.h"

#include <stdlib.h>

#include "base/clock.h"

/* KIND NS NUL NAME, as in entry.text */
static void make_key(struct buf *b, enum object_kind kind, const char *ns, const char *name)
{
    buf_printf(b, "%c%s", 'A' + (int)kind, ns);
    buf_put(b, "", 1);
    buf_puts(b, name);
}

struct entry *index_find(const struct dir *d, enum object_kind kind, const char *ns,
                         const char *name)
{
    struct buf key = { 0 };
    make_key(&key, kind, ns, name);
    struct entry *e = map_get(&d->entries, key.p, key.n);
    buf_done(&key);
    return e;
}

struct entry *index_entry(struct dir *d, enum object_kind kind, const char *ns, const char *name)
{
    struct buf key = { 0 };
    make_key(&key, kind, ns, name);
    struct entry *e = map_get(&d->entries, key.p, key.n);
    if (!e) {
        e = xcalloc(1, sizeof(*e) + key.n + 1);
        memcpy(e->text, key.p, key.n + 1);
        e->kind = kind;
        e->ns = e->text + 1;
        e->name = e->ns + strlen(ns) + 1;
        map_put(&d->entries, e->text, key.n, e);
    }
    buf_done(&key);
    return e;
}

void index_touch(struct dir *d, struct entry *e)
{
    if (!e->touched)
        vec_push(&d->touched, e);
    e->touched = true;
}

struct claim *index_claim(struct dir *d, struct file *f, struct entry *e)
{
    struct claim **at = &e->claims;
    while (*at && strcmp((*at)->file->name, f->name) < 0)
        at = &(*at)->next;
    if (*at && (*at)->file == f)
        return *at;
    struct claim *c = xcalloc(1, sizeof(*c));
    *c = (struct claim){ .file = f, .entry = e, .next = *at };
    *at = c;
    e->claimed = true;
    vec_push(&f->claims, c);
    index_touch(d, e);
    return c;
}

void index_drop_claim(struct dir *d, struct claim *c)
{
    struct entry *e = c->entry;
    struct claim **at = &e->claims;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    if (e->owner == c)
        e->owner = NULL;
    index_touch(d, e);
    object_free(c->pending);
    free(c);
}

static void free_entry(struct dir *d, struct entry *e)
{
    struct buf key = { 0 };
    make_key(&key, e->kind, e->ns, e->name);
    map_del(&d->entries, key.p, key.n);
    buf_done(&key);
    free(e);
}

static void note_conflicts(struct dir *d, const struct claim *owner)
{
    uint64_t first = hash_bytes(owner->file->name, strlen(owner->file->name));
    for (struct claim *c = owner->next; c; c = c->next) {
        if (!c->good || c->conflict == first)
            continue;
        struct err err;
        const struct entry *e = c->entry;
        err_set(&err, 0,
                "%s %.64s%s%.253s is also in %.100s, which comes first by name and is the one in "
                "force: remove one of the two",
                kind_info[e->kind].kind, e->ns, *e->ns ? "/" : "", e->name, owner->file->name);
        dir_note(d, true, c->file->name, c->place, err.text);
        c->conflict = first;
    }
}

static void drop_pending(struct entry *e)
{
    for (struct claim *c = e->claims; c; c = c->next) {
        object_free(c->pending);
        c->pending = NULL;
    }
}

void index_keep(struct entry *e, const struct object *o)
{
    struct buf b = { 0 };
    struct writer *w = writer_json_new(&b, false);
    encode_object(w, o);
    writer_free(w);
    free(e->last);
    e->last = b.p;
}

void index_upsert(struct dir *d, struct entry *e, struct object *o)
{
    e->present = true;
    if (record_kind(e->kind))
        e->spec = encode_spec_hash(o);
    /* Links live by the claims in the status of a class, which nothing else knows of. */
    if (e->kind == KIND_PORTMAPCLASS)
        index_keep(e, o);
    d->changed = true;
    d->source.sink.upsert(d->source.sink.user, o);
}

/* False: nothing new, or its record cannot be told; *o is freed. */
static bool with_record(struct dir *d, struct entry *e, const struct claim *owner,
                        struct object **o)
{
    if (record_kind(e->kind))
        return admit(d, e, owner, *o, o);
    return record_adds(e->kind) ? admit_added(d, e, owner, *o, o) : true;
}

/* False: its files must be read again. */
static bool resolve_claimed(struct dir *d, struct entry *e, struct claim *owner)
{
    if (e->owner == owner && e->in_force == owner->good && !e->want)
        return true;
    if (!owner->pending) {
        if (e->tried == d->pass) { /* it cannot be read again: the next one's turn */
            owner->good = 0;
            return false;
        }
        e->tried = d->pass;
        e->want = true;
        for (const struct claim *c = e->claims; c; c = c->next)
            scan_mark(d, c->file->name)->force = true;
        return false;
    }
    struct object *o = owner->pending;
    owner->pending = NULL;
    if (with_record(d, e, owner, &o))
        index_upsert(d, e, o);
    e->owner = owner;
    e->in_force = owner->good;
    e->gone_us = 0;
    e->want = false;
    return true;
}

/* Nothing readable claims it. What its record says holds for as long as it may still stand
 * in a document that is bad, or, before any file claimed it, in a file that is. While a folder
 * cannot be listed nothing goes, since it may have been moved there. */
static void resolve_unclaimed(struct dir *d, struct entry *e)
{
    e->owner = NULL;
    e->in_force = 0;
    if (record_kind(e->kind) && e->record &&
        (e->claims || (!e->claimed && (d->unknown || d->unlisted)))) {
        struct object *o;
        if ((!e->present || e->want) &&
            !record_read(d, e->kind, e->ns, e->name, &o, &e->record, NULL))
            index_upsert(d, e, o);
        return;
    }
    if (d->unlisted)
        return;
    if (e->present) {
        free(e->last);
        e->last = NULL;
        e->present = false;
        d->changed = true;
        d->source.sink.removed(d->source.sink.user, e->kind, e->ns, e->name);
    }
    if (e->claims)
        return;
    if (!e->record && !e->queued) {
        free_entry(d, e);
    } else if (e->record && !e->gone_us && d->follow) {
        e->gone_us = clock_mono_us();
        d->gone = true;
    }
}

bool index_resolve(struct dir *d)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->touched.n; i++) {
        struct entry *e = d->touched.v[i];
        struct claim *owner = e->claims;
        while (owner && !owner->good)
            owner = owner->next;
        e->touched = false;
        if (!owner) {
            drop_pending(e);
            resolve_unclaimed(d, e);
        } else if (resolve_claimed(d, e, owner)) {
            drop_pending(e);
            note_conflicts(d, owner);
        } else {
            e->touched = true;
            d->touched.v[kept++] = e;
        }
    }
    d->touched.n = kept;
    if (!kept)
        vec_done(&d->touched);
    return !kept;
}

void index_free(struct dir *d)
{
    size_t i = 0;
    void *v;
    while (map_next(&d->entries, &i, NULL, NULL, &v)) {
        struct entry *e = v;
        drop_pending(e);
        for (struct claim *c = e->claims, *next; c; c = next) {
            next = c->next;
            free(c);
        }
        free(e->last);
        free(e);
    }
    map_done(&d->entries);
}
