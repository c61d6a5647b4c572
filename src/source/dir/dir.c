#include "source/dir/dir.h"
#include "source/dir/open.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/clock.h"

/* How long a record outlives its manifest. Editors and scripts that replace a file by
 * removing it first must not cost a class its links. */
#define GRACE_US 500000
/* When to try again to remove a record: it is in nobody's way. */
#define STUCK_US 60000000
/* A lock held for longer is worth telling; agents hold it for as long as a pass takes. */
#define BUSY_US 2000000

void dir_note(struct dir *d, bool is_error, const char *file, struct place place, const char *text)
{
    struct buf where = { 0 };
    buf_printf(&where, "%s%s%s", d->path, *file ? "/" : "", file);
    if (place.line)
        buf_printf(&where, ":%u:%u", place.line, place.column);
    d->source.sink.note(d->source.sink.user, is_error, where.p, text);
    buf_done(&where);
}

void dir_schedule(struct dir *d, uint64_t ms)
{
    if (d->watcher)
        watch_schedule(d, ms);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct file *const *)a)->name, (*(struct file *const *)b)->name);
}

static void read_dirty(struct dir *d)
{
    if (d->dirty.n)
        qsort(d->dirty.v, d->dirty.n, sizeof(d->dirty.v[0]), by_name);
    for (size_t i = 0; i < d->dirty.n; i++)
        scan_read(d, d->dirty.v[i]);
    vec_done(&d->dirty); /* the first pass's are all files, the next ones' few */
}

/* Objects nothing claims wait for the last file that cannot be read, and for the last folder
 * that cannot be listed: it may hold them. */
static void touch_unclaimed(struct dir *d)
{
    size_t i = 0;
    void *v;
    while (map_next(&d->entries, &i, NULL, NULL, &v))
        if (!((struct entry *)v)->claims)
            index_touch(d, v);
}

/* Deletes the records whose manifests have been gone long enough. */
static void purge(struct dir *d)
{
    int64_t now = clock_mono_us(), next = INT64_MAX;
    size_t i = 0;
    void *v;
    /* A walk over all objects would take longer than the rest of a pass. */
    if (!d->gone || d->unlisted)
        return;
    d->gone = false;
    while (map_next(&d->entries, &i, NULL, NULL, &v)) {
        struct entry *e = v;
        struct err err;
        if (!e->gone_us)
            continue;
        d->gone = true;
        if (e->claims || (!e->claimed && d->unknown))
            continue;
        if (now - e->gone_us < GRACE_US) {
            next = e->gone_us + GRACE_US < next ? e->gone_us + GRACE_US : next;
            continue;
        }
        if (record_delete(d, e, &err)) {
            if (!e->stuck)
                dir_note(d, true, "", (struct place){ 0 }, err.text);
            e->stuck = true;
            e->gone_us = now + STUCK_US - GRACE_US;
            next = now + STUCK_US < next ? now + STUCK_US : next;
            continue;
        }
        write_forget(d, e);
        e->stuck = false;
        e->record = 0;
        e->gone_us = 0;
        index_touch(d, e);
    }
    if (next != INT64_MAX)
        dir_schedule(d, (uint64_t)(next - now) / 1000 + 1);
    index_resolve(d);
}

static int check_folder(struct dir *d, struct err *err)
{
    struct stat st;
    if (stat(d->path, &st))
        return err_set(err, errno, "source dir:%s: %s: give a folder that exists", d->path,
                       strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ENOTDIR,
                       "source dir:%s: it is not a folder: give the folder that "
                       "holds the manifests",
                       d->path);
    return 0;
}

void dir_retry(struct dir *d)
{
    if (!d->retry_us)
        d->retry_us = clock_mono_us() + RETRY_MS * 1000;
}

/* Tries again what could not be read or written. */
static void retry(struct dir *d)
{
    size_t i = 0;
    void *v;
    d->retry_us = 0;
    while (map_next(&d->entries, &i, NULL, NULL, &v)) {
        struct entry *e = v;
        if (!e->failing)
            continue;
        record_mark(d, e);
        e->want = e->owner;
        index_touch(d, e);
    }
    i = 0;
    while (map_next(&d->files, &i, NULL, NULL, &v)) {
        const struct file *f = v;
        if (f->unread && !f->hash)
            scan_mark(d, f->name);
    }
}

void dir_trouble(struct dir *d, const char *folder, const struct err *err)
{
    if (!d->troubled)
        dir_note(d, true, folder, (struct place){ 0 }, err->text);
    d->troubled = true;
    d->trouble = *err;
    d->rescan = true;
    dir_schedule(d, RETRY_MS);
}

/* False when this must be tried again later; everything stays as it is. */
static bool begin(struct dir *d)
{
    struct err err;
    if (!d->follow)
        return true;
    int r = check_folder(d, &err);
    if (!r)
        r = record_lock(d, &err);
    if (r == -EAGAIN)
        dir_schedule(d, LOCK_RETRY_MS);
    if (r && (r != -EAGAIN || clock_mono_us() - d->busy_us > BUSY_US)) {
        dir_trouble(d, "", &err);
        d->rescan_records = true;
    }
    if (r)
        return false;
    d->trouble.text[0] = '\0';
    watch_drain(d);
    if (d->retry_us && clock_mono_us() >= d->retry_us)
        retry(d);
    return true;
}

void dir_pass(struct dir *d)
{
    if (!begin(d))
        return;
    bool rescan = d->rescan, unlisted = d->unlisted, unknown = d->unknown;
    d->rescan = false;
    if (rescan)
        scan_folder(d);
    if (d->rescan_records)
        record_scan(d);
    d->rescan_records = false;
    if (d->troubled && !*d->trouble.text) {
        dir_note(d, false, "", (struct place){ 0 }, "the folder can be used again");
        d->troubled = false;
    }
    d->pass++;
    read_dirty(d);
    if ((unlisted && !d->unlisted) || (unknown && !d->unknown))
        touch_unclaimed(d);
    while (!index_resolve(d))
        read_dirty(d);
    admit_records(d);
    while (!index_resolve(d))
        read_dirty(d);
    if (d->retry_us)
        dir_schedule(d, RETRY_MS + 1);
    if (d->follow) {
        purge(d);
        watch_records(d);
        record_unlock(d);
    }
    bool synced = d->synced;
    d->synced = synced || (!d->unlisted && (!d->unknown || d->source.fresh));
    if (d->changed || d->synced != synced) {
        d->changed = false;
        d->source.sink.changed(d->source.sink.user);
    }
}

static int dir_load(struct source *s, struct err *err)
{
    struct dir *d = (struct dir *)s;
    int r = check_folder(d, err);
    if (r)
        return r;
    d->rescan = d->rescan_records = true;
    dir_pass(d);
    if (!d->entries.n && *d->foreign.text)
        dir_note(d, false, "", (struct place){ 0 }, d->foreign.text);
    return 0;
}

static int dir_start(struct source *s, uv_loop_t *loop, struct err *err)
{
    struct dir *d = (struct dir *)s;
    int r = check_folder(d, err);
    if (!r)
        r = record_open(d, err);
    if (!r)
        r = watch_open(d, loop, err);
    if (r)
        return r;
    d->follow = true;
    d->rescan = d->rescan_records = true;
    dir_pass(d);
    return 0;
}

static bool dir_synced(struct source *s)
{
    return ((struct dir *)s)->synced;
}

static void dir_unready(struct source *s, struct buf *out)
{
    const struct dir *d = (struct dir *)s;
    if (*d->trouble.text)
        buf_printf(out, "source: %s\n", d->trouble.text);
    if (d->rows)
        rows_unready(d->rows, out);
    size_t i = 0;
    void *v;
    while (!d->synced && map_next(&d->files, &i, NULL, NULL, &v)) {
        const struct file *f = v;
        if (f->unknown)
            buf_printf(out, "source: %s: mend it, or take the file away\n", f->unknown);
    }
}

static void dir_stop(struct source *s)
{
    struct dir *d = (struct dir *)s;
    watch_close(d);
    d->follow = false;
}

static void dir_free(struct source *s)
{
    struct dir *d = (struct dir *)s;
    dir_stop(s);
    size_t i = 0;
    void *v;
    while (map_next(&d->files, &i, NULL, NULL, &v))
        scan_free(v);
    index_free(d);
    map_done(&d->files);
    map_done(&d->told);
    vec_done(&d->dirty);
    vec_done(&d->touched);
    vec_done(&d->records);
    record_close(d);
    rows_free(d->rows);
    free(d->path);
    free(d);
}

static const struct source_ops dir_ops = {
    .load = dir_load,
    .start = dir_start,
    .synced = dir_synced,
    .write = dir_write,
    .unready = dir_unready,
    .stop = dir_stop,
    .free = dir_free,
};

struct source *dir_open(const char *path, const struct source_sink *sink)
{
    struct dir *d = xcalloc(1, sizeof(*d));
    d->source = (struct source){ .ops = &dir_ops, .sink = *sink };
    d->path = xstrdup(path);
    for (size_t n = strlen(d->path); n > 1 && d->path[n - 1] == '/'; n--)
        d->path[n - 1] = '\0';
    d->lock = -1;
    d->files.keys_stay = d->entries.keys_stay = true;
    return &d->source;
}
