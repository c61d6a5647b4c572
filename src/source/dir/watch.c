/* inotify: what changed, as marks on files and records; then a pass a moment later. */
#include <errno.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "source/dir/dir.h"

/* What appears is read at once; what comes while a pass runs is the next one. A file that
 * vanished may be about to be put back, as by an editor: short against the 50 ms promised. */
#define VANISHED_MS 20
#define APPEARED    (IN_CLOSE_WRITE | IN_MOVED_TO)

enum watch_type {
    WATCH_FOLDER,     /* DIR or a folder in it */
    WATCH_NAMESPACES, /* .status/portmaps, .status/services */
    WATCH_RECORDS,    /* a folder of records */
};

struct watch {
    int wd;
    enum watch_type type;
    enum object_kind kind; /* of the records */
    char name[];           /* folder below DIR, or namespace */
};

/* Outlives the source until the loop has closed the handles. */
struct watcher {
    uv_poll_t poll;
    uv_timer_t timer;
    struct dir *d;
    int fd;
    int open;           /* handles not closed yet */
    struct map watches; /* wd -> struct watch */
    bool lost;          /* record folders must be watched anew */
    bool appeared;      /* something did, among the events drained */
};

static void on_timer(uv_timer_t *timer)
{
    struct watcher *w = timer->data;
    dir_pass(w->d);
}

static void on_event(uv_poll_t *poll, int status, int events)
{
    struct watcher *w = poll->data;
    (void)status;
    (void)events;
    struct dir *d = w->d;
    w->appeared = false;
    watch_drain(d);
    if (d->dirty.n || d->records.n || d->rescan)
        watch_schedule(d, w->appeared ? 0 : VANISHED_MS);
}

void watch_schedule(struct dir *d, uint64_t ms)
{
    uv_timer_t *t = &d->watcher->timer;
    if (uv_is_active((uv_handle_t *)t) && uv_timer_get_due_in(t) <= ms)
        return;
    uv_update_time(t->loop); /* a pass may have taken long */
    uv_timer_start(t, on_timer, ms, 0);
}

int watch_open(struct dir *d, uv_loop_t *loop, struct err *err)
{
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd < 0)
        return err_set(
            err, errno,
            "inotify: %s: raise fs.inotify.max_user_instances or the limit of open files",
            strerror(errno));
    struct watcher *w = xcalloc(1, sizeof(*w));
    w->d = d;
    w->fd = fd;
    w->open = 2;
    w->lost = true;
    uv_timer_init(loop, &w->timer);
    uv_poll_init(loop, &w->poll, fd);
    w->timer.data = w->poll.data = w;
    uv_poll_start(&w->poll, UV_READABLE, on_event);
    d->watcher = w;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct watcher *w = handle->data;
    if (!--w->open)
        free(w);
}

void watch_close(struct dir *d)
{
    struct watcher *w = d->watcher;
    if (!w)
        return;
    d->watcher = NULL;
    uv_close((uv_handle_t *)&w->timer, on_closed);
    uv_close((uv_handle_t *)&w->poll, on_closed);
    close(w->fd);
    size_t i = 0;
    void *v;
    while (map_next(&w->watches, &i, NULL, NULL, &v))
        free(v);
    map_done(&w->watches);
}

/* ---- what is watched ---- */

static void add(struct dir *d, const char *path, enum watch_type type, enum object_kind kind,
                const char *name)
{
    static const uint32_t masks[] = {
        [WATCH_FOLDER] = IN_CLOSE_WRITE | IN_MOVE | IN_CREATE | IN_DELETE | IN_ATTRIB |
                         IN_DELETE_SELF | IN_MOVE_SELF,
        [WATCH_NAMESPACES] = IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF,
        [WATCH_RECORDS] = IN_CLOSE_WRITE | IN_MOVE | IN_DELETE | IN_DELETE_SELF,
    };
    struct watcher *w = d->watcher;
    int wd = inotify_add_watch(w->fd, path, masks[type] | IN_ONLYDIR);
    if (wd < 0) {
        if (errno == ENOSPC)
            dir_note(d, true, "", (struct place){ 0 },
                     "changes of a folder will not be seen: raise fs.inotify.max_user_watches");
        return;
    }
    struct watch *watch = xcalloc(1, sizeof(*watch) + strlen(name) + 1);
    watch->wd = wd;
    watch->type = type;
    watch->kind = kind;
    strcpy(watch->name, name);
    free(map_put(&w->watches, &wd, sizeof(wd), watch));
}

void watch_folder(struct dir *d, const char *sub)
{
    if (!d->watcher)
        return;
    struct buf path = { 0 };
    buf_printf(&path, "%s/%s", d->path, sub);
    add(d, path.p, WATCH_FOLDER, KIND_COUNT, sub);
    buf_done(&path);
}

void watch_record_folder(struct dir *d, enum object_kind kind, const char *ns)
{
    char *path = record_path(d, kind, ns, NULL);
    add(d, path, WATCH_RECORDS, kind, ns);
    free(path);
}

void watch_records(struct dir *d)
{
    if (!d->watcher->lost)
        return;
    d->watcher->lost = false;
    for (enum object_kind kind = 0; kind < KIND_COUNT; kind++) {
        if (kind_info[kind].namespaced && (record_kind(kind) || record_adds(kind))) {
            char *path = record_path(d, kind, "", NULL);
            add(d, path, WATCH_NAMESPACES, kind, "");
            free(path);
        }
        record_folders(d, kind, watch_record_folder);
    }
}

/* ---- what happened ---- */

/* A link appears complete; a file that was created is looked at when it is closed. */
static bool is_link(const struct dir *d, const char *name)
{
    struct buf path = { 0 };
    struct stat st;
    buf_printf(&path, "%s/%s", d->path, name);
    bool link = !lstat(path.p, &st) && (S_ISLNK(st.st_mode) || st.st_nlink > 1);
    buf_done(&path);
    return link;
}

static void folder_event(struct dir *d, const struct watch *watch, const struct inotify_event *e)
{
    if (e->mask & IN_ISDIR) {
        d->rescan = d->rescan || (!*watch->name && *e->name != '.');
        return;
    }
    struct buf name = { 0 };
    buf_printf(&name, "%s%s%s", watch->name, *watch->name ? "/" : "", e->name);
    if (!scan_is_manifest(e->name)) {
        scan_note_ending(d, name.p);
        buf_done(&name);
        return;
    }
    const struct file *f = map_get(&d->files, name.p, name.n);
    if (e->mask & IN_CREATE ? is_link(d, name.p) : !(e->mask & IN_ATTRIB) || (f && f->unread))
        scan_mark(d, name.p);
    buf_done(&name);
}

static void take_event(struct dir *d, const struct inotify_event *e)
{
    struct watcher *w = d->watcher;
    if (e->mask & (IN_Q_OVERFLOW | IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)) {
        d->rescan = d->rescan_records = w->lost = true;
        if (e->mask & IN_IGNORED)
            free(map_del(&w->watches, &e->wd, sizeof(e->wd)));
        return;
    }
    const struct watch *watch = map_get(&w->watches, &e->wd, sizeof(e->wd));
    if (!watch)
        return;
    if (!e->len) { /* of the folder itself: who may read it */
        d->rescan = d->rescan || watch->type == WATCH_FOLDER;
        return;
    }
    switch (watch->type) {
    case WATCH_FOLDER:
        folder_event(d, watch, e);
        return;
    case WATCH_NAMESPACES:
        if ((e->mask & IN_ISDIR) && *e->name != '.') {
            watch_record_folder(d, watch->kind, e->name);
            record_scan_folder(d, watch->kind, e->name);
        }
        return;
    case WATCH_RECORDS:
        record_mark_file(d, watch->kind, watch->name, e->name);
        return;
    }
}

void watch_drain(struct dir *d)
{
    _Alignas(struct inotify_event) char buf[16384];
    ssize_t n;
    while ((n = read(d->watcher->fd, buf, sizeof(buf))) > 0)
        for (char *p = buf; p < buf + n;) {
            const struct inotify_event *e = (const void *)p;
            take_event(d, e);
            d->watcher->appeared |= !!(e->mask & APPEARED);
            p += sizeof(*e) + e->len;
        }
}
