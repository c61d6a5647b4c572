/* The manifest files: which there are, and what they claim. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

#include "source/dir/dir.h"

static bool has_ending(const char *name, int (*compare)(const char *a, const char *b))
{
    static const char *const endings[] = { ".yaml", ".yml", ".json" };
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        size_t m = strlen(endings[i]);
        if (n > m && !compare(name + n - m, endings[i]))
            return true;
    }
    return false;
}

bool scan_is_manifest(const char *name)
{
    return *name != '.' && has_ending(name, strcmp);
}

static void note_once(struct dir *d, const char *file, struct place place, const char *text)
{
    if (!map_put(&d->told, text, strlen(text), d))
        dir_note(d, false, file, place, text);
}

void scan_note_ending(struct dir *d, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct err err;
    if (*name == '.' || !has_ending(name, strcasecmp))
        return;
    err_set(&err, 0, "%.300s is not read: make its name end in .yaml, .yml or .json", path);
    note_once(d, path, (struct place){ 0 }, err.text);
}

static struct file *get_file(struct dir *d, const char *name)
{
    size_t n = strlen(name);
    struct file *f = map_get(&d->files, name, n);
    if (!f) {
        f = xcalloc(1, sizeof(*f) + n + 1);
        f->name = memcpy((char *)(f + 1), name, n + 1);
        map_put(&d->files, f->name, n, f);
    }
    return f;
}

static void mark(struct dir *d, struct file *f)
{
    if (!f->dirty)
        vec_push(&d->dirty, f);
    f->dirty = true;
}

struct file *scan_mark(struct dir *d, const char *name)
{
    struct file *f = get_file(d, name);
    mark(d, f);
    return f;
}

void scan_free(struct file *f)
{
    vec_done(&f->claims);
    free(f->unknown);
    free(f);
}

/* ---- one file ---- */

/* One object of a file being read. */
struct found {
    enum object_kind kind;
    char *ns, *name;
    uint64_t hash;
    struct place place;
    bool known;         /* looked at before: nothing to do */
    struct object *obj; /* NULL: bad, see error */
    char *error;
    struct place error_place;
};

struct reading {
    struct dir *d;
    struct file *f;
    VEC(struct found) found;
    bool nameless;
    struct buf unknown; /* as in struct file */
};

/* Who reads once wants to hear of it only where it may be why nothing is there. */
static void note_foreign(struct dir *d, const struct file *f, const struct doc *doc)
{
    struct err err;
    err_set(&err, 0, "apiVersion %.200s, kind %.200s is none that Portolan reads: skipped",
            doc->api_version, doc->kind_name);
    if (d->follow)
        note_once(d, f->name, doc->place, err.text);
    else if (!*d->foreign.text)
        d->foreign = err;
}

static bool known_already(const struct reading *r, const struct found *found)
{
    const struct entry *e = index_find(r->d, found->kind, found->ns, found->name);
    if (!e || e->want)
        return false;
    for (const struct claim *c = e->claims; c; c = c->next)
        if (c->file == r->f)
            return c->seen == found->hash;
    return false;
}

static void on_doc(void *user, const struct doc *doc)
{
    struct reading *r = user;
    enum object_kind kind = doc_meant(doc);
    if (kind == KIND_COUNT && *doc->api_version && *doc->kind_name) {
        note_foreign(r->d, r->f, doc);
        return;
    }
    struct found found = { .kind = kind, .hash = doc->hash, .place = doc->place };
    struct err err;
    bool cluster = kind != KIND_COUNT && !kind_info[kind].namespaced;
    found.ns = xstrdup(cluster ? "" : doc->ns);
    found.name = xstrdup(doc->name);
    found.known = kind != KIND_COUNT && *doc->name && known_already(r, &found);
    if (!found.known && doc_decode(doc, false, &found.obj, &found.error_place, &err))
        found.error = xstrdup(err.text);
    vec_push(&r->found, found);
}

/* Takes `why`. */
static void set_unknown(struct dir *d, struct file *f, char *why)
{
    d->unknown += (uint32_t) !!why - (uint32_t) !!f->unknown;
    free(f->unknown);
    f->unknown = why;
}

static void put_reason(struct buf *b, const struct file *f, struct place place, const char *text)
{
    buf_puts(b, f->name);
    if (place.line)
        buf_printf(b, ":%u:%u", place.line, place.column);
    buf_printf(b, ": %s", text);
}

/* What the object is or was cannot be told; the first of a file is told of. */
static void note_unknown(struct reading *r, const struct found *found)
{
    if (r->unknown.n)
        return;
    if (found->error)
        put_reason(&r->unknown, r->f, found->error_place, found->error);
    else /* looked at before */
        put_reason(&r->unknown, r->f, found->place, "this object is bad, the log says why");
}

static void note_error(struct reading *r, const struct found *found, const struct entry *e)
{
    bool held = e && e->record && record_kind(e->kind);
    for (const struct claim *c = e ? e->claims : NULL; c; c = c->next)
        held = held || c->good;
    struct buf b = { 0 };
    buf_printf(&b, "%s%s", found->error, held ? STAYS : "");
    dir_note(r->d, true, r->f->name, found->error_place, b.p);
    buf_done(&b);
}

static void take(struct reading *r, struct found *found, bool quiet)
{
    struct dir *d = r->d;
    bool named = found->kind != KIND_COUNT && *found->name;
    struct entry *e = named ? index_entry(d, found->kind, found->ns, found->name) : NULL;
    struct claim *c = named ? index_claim(d, r->f, e) : NULL;
    if (found->error && !quiet)
        note_error(r, found, e);
    if (!named) {
        note_unknown(r, found);
        r->nameless = true;
        return;
    }
    if (c->reading == d->readings) {
        struct err err;
        err_set(&err, 0,
                "%s %.64s%s%.253s is already at line %u of this file, which is the one in force: "
                "remove one of the two",
                kind_info[e->kind].kind, e->ns, *e->ns ? "/" : "", e->name, c->place.line);
        if (!quiet)
            dir_note(d, true, r->f->name, found->place, err.text);
        return;
    }
    c->reading = d->readings;
    c->place = found->place;
    if (!found->obj && !c->good && !record_kind(e->kind))
        note_unknown(r, found);
    if (found->known)
        return;
    c->seen = found->hash;
    index_touch(d, e);
    if (found->obj) {
        c->good = found->hash;
        object_free(c->pending);
        c->pending = found->obj;
        found->obj = NULL;
    }
}

static void drop_claims(struct dir *d, struct file *f, bool all)
{
    size_t kept = 0;
    for (size_t i = 0; i < f->claims.n; i++) {
        struct claim *c = f->claims.v[i];
        if (all || c->reading != d->readings)
            index_drop_claim(d, c);
        else
            f->claims.v[kept++] = c;
    }
    f->claims.n = kept;
}

static void file_gone(struct dir *d, struct file *f)
{
    drop_claims(d, f, true);
    set_unknown(d, f, NULL);
    map_del(&d->files, f->name, strlen(f->name));
    scan_free(f);
}

static void file_bad(struct dir *d, struct file *f, struct place place, const char *text,
                     bool quiet)
{
    struct buf b = { 0 };
    buf_printf(&b, "%s%s", text,
               f->claims.n ? "; the last good version of the file stays in force" : "");
    if (!quiet)
        dir_note(d, true, f->name, place, b.p);
    buf_done(&b);
    f->unread = true;
    if (!f->unknown && f->parsed)
        return;
    struct buf why = { 0 };
    put_reason(&why, f, place, text);
    set_unknown(d, f, why.p);
}

static void parse(struct dir *d, struct file *f, const char *text, size_t n, bool quiet)
{
    struct reading r = { .d = d, .f = f };
    struct codec_handler handler = { .user = &r, .object = on_doc };
    struct place place = { 0 };
    struct err err;
    int bad = codec_parse(text, n, codec_format(f->name), &handler, &place, &err);
    d->readings++;
    for (size_t i = 0; i < r.found.n; i++) {
        struct found *found = &r.found.v[i];
        if (!bad)
            take(&r, found, quiet);
        object_free(found->obj);
        free(found->error);
        free(found->ns);
        free(found->name);
    }
    vec_done(&r.found);
    if (bad) {
        buf_done(&r.unknown);
        file_bad(d, f, place, err.text, quiet);
        return;
    }
    /* An object whose name cannot be read may be any of those that seem to be gone. */
    if (!r.nameless)
        drop_claims(d, f, false);
    f->parsed = true;
    f->unread = false;
    set_unknown(d, f, r.unknown.p);
}

static char *path_of(const struct dir *d, const char *name)
{
    struct buf b = { 0 };
    buf_printf(&b, "%s/%s", d->path, name);
    return b.p;
}

static void put_stamp(struct file *f, const struct stat *st)
{
    f->inode = st->st_ino;
    f->size = (uint64_t)st->st_size;
    f->mtime = (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
}

static bool same_stamp(const struct file *f, const struct stat *st)
{
    struct file now;
    put_stamp(&now, st);
    return f->inode == now.inode && f->size == now.size && f->mtime == now.mtime;
}

void scan_read(struct dir *d, struct file *f)
{
    char *path = path_of(d, f->name), *text;
    struct stat st;
    struct err err;
    size_t n;
    bool force = f->force;
    f->dirty = f->force = false;
    int r = stat(path, &st) ? -errno : 0;
    if (!r) {
        put_stamp(f, &st); /* before reading: a later change is seen by the next scan */
        r = codec_read_file(path, &text, &n, &err);
    } else {
        err_set(&err, -r, "cannot read %s: %s", path, strerror(-r));
    }
    free(path);
    if (r == -ENOENT || r == -ENOTDIR || r == -EISDIR) {
        file_gone(d, f);
        return;
    }
    if (r) {
        file_bad(d, f, (struct place){ 0 }, err.text, f->unread && !f->hash);
        f->hash = 0;
        dir_retry(d);
        return;
    }
    uint64_t hash = hash_bytes(text, n) | 1;
    bool same = f->hash == hash;
    f->hash = hash;
    if (!same || (force && !f->unread))
        parse(d, f, text, n, same);
    free(text);
}

/* ---- the folder ---- */

static bool is_folder(const char *path, const struct dirent *entry)
{
    struct stat st;
    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
        return entry->d_type == DT_DIR;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static void see_file(struct dir *d, const char *name, const char *path)
{
    struct file *f = get_file(d, name);
    struct stat st;
    f->found = true;
    if (!f->hash || stat(path, &st) || !same_stamp(f, &st))
        mark(d, f);
}

/* Files in a folder that cannot be listed are as they were. */
static void keep_folder(struct dir *d, const char *sub, const char *folder, int error)
{
    size_t i = 0, n = strlen(sub);
    void *v;
    struct err err;
    err_set(&err, error, "cannot list %s: %s: make it readable", folder, strerror(error));
    dir_trouble(d, sub, &err);
    d->unlisted = true;
    while (map_next(&d->files, &i, NULL, NULL, &v)) {
        struct file *f = v;
        if (!n || (!strncmp(f->name, sub, n) && f->name[n] == '/'))
            f->found = true;
    }
}

/* readdir tells an error from the end by errno alone. */
static struct dirent *next_entry(DIR *dir, int *reterr)
{
    errno = 0;
    struct dirent *entry = readdir(dir);
    if (!entry)
        *reterr = errno;
    return entry;
}

static void list_folder(struct dir *d, const char *sub)
{
    char *folder = path_of(d, sub);
    /* Before the listing, so that what comes after it is seen. */
    watch_folder(d, sub);
    DIR *dir = opendir(folder);
    int error = dir || (*sub && (errno == ENOENT || errno == ENOTDIR)) ? 0 : errno;
    for (struct dirent *entry; dir && (entry = next_entry(dir, &error));) {
        struct buf name = { 0 };
        buf_printf(&name, "%s%s%s", sub, *sub ? "/" : "", entry->d_name);
        char *path = path_of(d, name.p);
        if (*entry->d_name != '.' && is_folder(path, entry)) {
            if (!*sub)
                list_folder(d, entry->d_name);
        } else if (scan_is_manifest(entry->d_name)) {
            see_file(d, name.p, path);
        } else {
            scan_note_ending(d, name.p);
        }
        free(path);
        buf_done(&name);
    }
    if (dir)
        closedir(dir);
    if (error)
        keep_folder(d, sub, folder, error);
    free(folder);
}

void scan_folder(struct dir *d)
{
    d->unlisted = false;
    list_folder(d, "");
    size_t i = 0;
    void *v;
    while (map_next(&d->files, &i, NULL, NULL, &v)) {
        struct file *f = v;
        if (!f->found)
            mark(d, f);
        f->found = false;
    }
}
