/* DIR/.status: what an API server keeps beside the manifests, one JSON file per PortMap,
 * PortMapClass and TrafficClass, and per Node and Service some agent said something of. Written
 * under .lock, as .tmp first and then renamed, so a reader needs no lock and a crash leaves nothing
 * but a .tmp that the next write replaces. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "source/dir/dir.h"

bool record_kind(enum object_kind kind)
{
    return kind == KIND_PORTMAP || kind == KIND_PORTMAPCLASS || kind == KIND_TRAFFICCLASS;
}

bool record_adds(enum object_kind kind)
{
    return kind == KIND_NODE || kind == KIND_SERVICE;
}

static char *status_path(const struct dir *d, const char *name)
{
    struct buf b = { 0 };
    buf_printf(&b, "%s/.status%s%s", d->path, *name ? "/" : "", name);
    return b.p;
}

/* Names have up to 253 characters, file names up to 255. */
static const char *ending(size_t name_len)
{
    return name_len + strlen(".json") <= NAME_MAX ? ".json" : ".j";
}

char *record_path(const struct dir *d, enum object_kind kind, const char *ns, const char *name)
{
    struct buf b = { 0 };
    buf_printf(&b, "%s/.status/%s", d->path, kind_info[kind].plural);
    if (*ns)
        buf_printf(&b, "/%s", ns);
    if (name)
        buf_printf(&b, "/%s%s", name, ending(strlen(name)));
    return b.p;
}

/* ---- the lock ---- */

static int make_folder(char *path, struct err *err)
{
    int r = mkdir(path, 0755) && errno != EEXIST ? -errno : 0;
    if (r)
        err_set(err, -r,
                "cannot make %s: %s: agents keep statuses there, so the folder must be "
                "writable",
                path, strerror(-r));
    free(path);
    return r;
}

int record_open(struct dir *d, struct err *err)
{
    record_close(d);
    int r = make_folder(status_path(d, ""), err);
    for (enum object_kind kind = 0; kind < KIND_COUNT && !r; kind++)
        if (record_kind(kind) || record_adds(kind))
            r = make_folder(record_path(d, kind, "", NULL), err);
    if (r)
        return r;
    char *path = status_path(d, ".lock");
    d->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (d->lock < 0)
        r = err_set(err, errno, "cannot open %s: %s: make it writable", path, strerror(errno));
    free(path);
    return r;
}

void record_close(struct dir *d)
{
    if (d->lock >= 0)
        close(d->lock);
    d->lock = -1;
}

/* The file the lock is on is still the one others find by its name. */
static bool lock_is_current(const struct dir *d)
{
    char *path = status_path(d, ".lock");
    struct stat here, there;
    bool same = !fstat(d->lock, &here) && !stat(path, &there) && here.st_ino == there.st_ino &&
                here.st_dev == there.st_dev;
    free(path);
    return same;
}

static int lock_failed(struct dir *d, int error, struct err *err)
{
    if (error != EWOULDBLOCK)
        return err_set(err, error, "cannot lock %s/.status/.lock: %s", d->path, strerror(error));
    if (!d->busy_us)
        d->busy_us = clock_mono_us();
    return err_set(err, EAGAIN,
                   "another agent holds %s/.status/.lock: if that lasts, look for one that is "
                   "stopped or hangs",
                   d->path);
}

int record_lock(struct dir *d, struct err *err)
{
    for (;;) {
        int r = d->lock < 0 ? record_open(d, err) : 0;
        if (r)
            return r;
        while (flock(d->lock, LOCK_EX | LOCK_NB))
            if (errno != EINTR)
                return lock_failed(d, errno, err);
        if (lock_is_current(d))
            break;
        record_close(d);
    }
    d->busy_us = 0;
    return 0;
}

void record_unlock(struct dir *d)
{
    flock(d->lock, LOCK_UN);
}

/* ---- one record ---- */

struct wanted {
    enum object_kind kind;
    const char *ns, *name;
    struct object *obj;
    struct err *err;
};

static void take_wanted(void *user, const struct doc *doc)
{
    struct wanted *w = user;
    if (!w->obj && doc->kind == w->kind && !strcmp(doc->ns, w->ns) && !strcmp(doc->name, w->name))
        doc_decode(doc, true, &w->obj, NULL, w->err);
}

int record_read(struct dir *d, enum object_kind kind, const char *ns, const char *name,
                struct object **ret, uint64_t *ret_hash, struct err *err)
{
    struct err local;
    struct wanted wanted = { .kind = kind, .ns = ns, .name = name, .err = err ? err : &local };
    struct codec_handler handler = { .user = &wanted, .object = take_wanted };
    struct place place;
    char *path = record_path(d, kind, ns, name), *text;
    size_t n;
    int r = codec_read_file(path, &text, &n, err);
    free(path);
    if (r)
        return r;
    err_set(wanted.err, EINVAL, "it does not hold %s %.64s%s%.253s", kind_info[kind].kind, ns,
            *ns ? "/" : "", name);
    r = codec_parse(text, n, CODEC_JSON, &handler, &place, wanted.err);
    uint64_t hash = hash_bytes(text, n) | 1;
    free(text);
    if (r || !wanted.obj) {
        object_free(wanted.obj);
        return -EINVAL;
    }
    *ret = wanted.obj;
    *ret_hash = hash;
    return 0;
}

static int write_file(const char *path, const struct buf *b)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    int r = 0;
    for (size_t done = 0; done < b->n && !r;) {
        ssize_t n = write(fd, b->p + done, b->n - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            r = -errno;
    }
    if (close(fd) && !r)
        r = -errno;
    return r;
}

int record_write(struct dir *d, struct object *o, uint64_t *ret_hash, struct err *err)
{
    struct buf b = { 0 };
    char *tmp = status_path(d, ".tmp");
    char *path = record_path(d, o->meta.kind, o->meta.ns, o->meta.name);
    o->meta.resource_version =
        arena_printf(&o->mem, "%llu", strtoull(o->meta.resource_version, NULL, 10) + 1);
    struct writer *w = writer_json_new(&b, true);
    encode_object(w, o);
    writer_free(w);
    int r = make_folder(record_path(d, o->meta.kind, o->meta.ns, NULL), err);
    if (!r) {
        r = write_file(tmp, &b);
        if (!r && rename(tmp, path))
            r = -errno;
        if (r) {
            err_set(err, -r, "cannot write %s: %s: make room or make it writable", path,
                    strerror(-r));
            unlink(tmp);
        }
    }
    if (!r)
        *ret_hash = hash_bytes(b.p, b.n) | 1;
    buf_done(&b);
    free(path);
    free(tmp);
    return r;
}

int record_delete(struct dir *d, const struct entry *e, struct err *err)
{
    char *path = record_path(d, e->kind, e->ns, e->name);
    int r = unlink(path) && errno != ENOENT
                ? err_set(err, errno, "cannot remove %s: %s: remove it", path, strerror(errno))
                : 0;
    free(path);
    return r;
}

/* ---- all of them ---- */

void record_mark(struct dir *d, struct entry *e)
{
    if (!e->record) {
        e->record = 1;
        index_touch(d, e);
    }
    e->record_dirty = true;
    if (!e->queued)
        vec_push(&d->records, e);
    e->queued = true;
}

void record_mark_file(struct dir *d, enum object_kind kind, const char *ns, const char *file)
{
    const char *end = strrchr(file, '.');
    size_t n = end ? (size_t)(end - file) : 0;
    if (!n || *file == '.' || strcmp(end, ending(n)))
        return;
    char *name = xstrdup(file);
    name[n] = '\0';
    record_mark(d, index_entry(d, kind, ns, name));
    free(name);
}

void record_scan_folder(struct dir *d, enum object_kind kind, const char *ns)
{
    char *path = record_path(d, kind, ns, NULL);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        record_mark_file(d, kind, ns, entry->d_name);
    if (dir)
        closedir(dir);
    free(path);
}

void record_folders(struct dir *d, enum object_kind kind,
                    void (*visit)(struct dir *d, enum object_kind kind, const char *ns))
{
    if (!record_kind(kind) && !record_adds(kind))
        return;
    if (!kind_info[kind].namespaced) {
        visit(d, kind, "");
        return;
    }
    char *path = record_path(d, kind, "", NULL);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (*entry->d_name != '.')
            visit(d, kind, entry->d_name);
    if (dir)
        closedir(dir);
    free(path);
}

void record_scan(struct dir *d)
{
    /* Those that are gone, too. */
    size_t i = 0;
    void *v;
    while (map_next(&d->entries, &i, NULL, NULL, &v))
        if (((struct entry *)v)->record)
            record_mark(d, v);
    for (enum object_kind kind = 0; kind < KIND_COUNT; kind++)
        record_folders(d, kind, record_scan_folder);
}
