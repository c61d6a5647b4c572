/* The manifest folder: files ending in .yaml, .yml and .json in DIR and one folder below.
 *
 * What is kept is small: for each file the objects it claims, by hash; the objects
 * themselves belong to the sink. Everything happens in passes (dir.c): read the files
 * that changed, decide for each object touched which file's version is in force
 * (index.c), admit PortMaps and classes into their records (admit.c), tell the sink. Passes
 * that may write hold the lock of the records, so that no agent acts on a manifest older than
 * one another agent has acted on.
 *
 * Files: dir.c passes and the source's face, scan.c manifest files, index.c who claims
 * what, record.c record files, admit.c manifest + record = object, write.c status writes,
 * watch.c inotify. */
#pragma once

#include "base/map.h"
#include "source/codec.h"
#include "source/rows.h"

struct entry;
struct file;

/* A file says it has an object. */
struct claim {
    struct file *file;
    struct entry *entry;
    struct claim *next; /* of the entry, by file name */
    uint64_t good;      /* hash of the last version that could be decoded, 0: none */
    uint64_t seen;      /* hash of the last version looked at */
    uint32_t reading;   /* the last one of the file that had it */
    struct place place;
    struct object *pending; /* `good`, decoded in this pass */
    uint64_t conflict;      /* hash of the file's name that was told to come first */
};

/* An object some file claims or a record tells of. */
struct entry {
    enum object_kind kind;
    uint32_t tried;        /* the pass in which its files were last read for it */
    const char *ns, *name; /* in text */
    struct claim *claims;
    const struct claim *owner; /* whose version is in force */
    uint64_t in_force;         /* its hash */
    uint64_t record;           /* hash of the record's bytes as last read, 0: no record known */
    uint64_t spec;             /* hash of the spec the sink has, of kinds with records */
    char *last;                /* a class as the sink has it, should its record be lost; what the
                                  manifest says of what a record adds to */
    int64_t gone_us;           /* since when nothing claims it (record kept), 0: claimed */
    bool present;              /* the sink has it */
    bool want;                 /* the version in force must be decoded again */
    bool touched;              /* to be resolved in this pass */
    bool claimed;              /* by some file, since we run */
    bool record_dirty;         /* its record may have changed */
    bool queued;               /* in dir.records */
    bool failing;              /* its record cannot be read or written; noted */
    bool stuck;                /* its record cannot be removed; noted */
    char text[];               /* its key in dir.entries */
};

struct file {
    const char *name; /* below DIR */
    VEC(struct claim *) claims;
    uint64_t hash; /* of the content last read, 0: none */
    uint64_t inode, size, mtime;
    bool dirty;
    bool force;  /* decode what its entries want, also if the content is the same */
    bool parsed; /* once at least */
    bool unread; /* the last version could not be read or parsed */
    bool found;  /* by the scan under way */
    /* Why what it holds cannot be told: never parsed, an object without a name, or one that
     * was never good and has no record. "FILE:LINE:COLUMN: text"; NULL when it can. */
    char *unknown;
};

struct watcher;

struct dir {
    struct source source;
    char *path;
    bool follow; /* may write, has a watcher */
    bool synced;
    struct map files;   /* name -> struct file */
    struct map entries; /* key -> struct entry */
    struct map told;    /* notes that are made once */
    struct err foreign; /* load(): the first object of another program's, "" for none */
    VEC(struct file *) dirty;
    VEC(struct entry *) touched;
    VEC(struct entry *) records; /* to be read */
    uint32_t pass, readings;
    uint32_t unknown;    /* files */
    bool rescan;         /* list the folder */
    bool unlisted;       /* some folder could not be: what it holds cannot be told */
    bool rescan_records; /* read all records */
    bool changed;        /* the sink must be told */
    bool troubled;       /* noted; until a pass is without trouble */
    struct err trouble;  /* the folders or the lock cannot be used; "" when they can */
    int64_t retry_us;    /* when to try again what could not be read or written, 0: nothing */
    int lock;            /* fd of .status/.lock, -1 */
    int64_t busy_us;     /* since when another agent holds it, 0: it does not */
    bool gone;           /* some entry may have gone_us */
    struct watcher *watcher;
    struct rows *rows; /* what this node says of itself; NULL: nothing yet */
};

/* ---- dir.c ---- */
#define RETRY_MS      1000
#define LOCK_RETRY_MS 5
void dir_note(struct dir *d, bool is_error, const char *file, struct place place, const char *text);
/* A pass is due in so many milliseconds. Nothing without a loop. */
void dir_schedule(struct dir *d, uint64_t ms);
void dir_pass(struct dir *d);
/* A folder, or "" for DIR, cannot be used: noted once, and another pass comes to it. */
void dir_trouble(struct dir *d, const char *folder, const struct err *err);
/* Something failed that may not fail later: another pass comes to it. */
void dir_retry(struct dir *d);

/* Ends the error of an object of which an older version holds. */
#define STAYS "; the last accepted version stays in force"

/* ---- scan.c ---- */
void scan_folder(struct dir *d); /* marks new, changed and vanished files dirty */
struct file *scan_mark(struct dir *d, const char *name);
void scan_read(struct dir *d, struct file *f);
bool scan_is_manifest(const char *name);
/* Tells once of a file that is none by its ending alone. `path` is below DIR. */
void scan_note_ending(struct dir *d, const char *path);
void scan_free(struct file *f);

/* ---- index.c ---- */
struct entry *index_entry(struct dir *d, enum object_kind kind, const char *ns, const char *name);
struct entry *index_find(const struct dir *d, enum object_kind kind, const char *ns,
                         const char *name);
void index_touch(struct dir *d, struct entry *e);
struct claim *index_claim(struct dir *d, struct file *f, struct entry *e);
void index_drop_claim(struct dir *d, struct claim *c); /* out of its entry; frees it */
/* Decides all touched entries. False: files must be read again first (they are dirty). */
bool index_resolve(struct dir *d);
void index_upsert(struct dir *d, struct entry *e, struct object *o);
void index_keep(struct entry *e, const struct object *o); /* as e->last */
void index_free(struct dir *d);

/* ---- record.c ---- */
/* Of kinds whose record holds the whole object. */
bool record_kind(enum object_kind kind);
/* Of kinds whose record, made by the first write, holds only what agents say: the addresses in a
 * Node's annotations, the status of a Service whose address a node holds. */
bool record_adds(enum object_kind kind);
/* Makes .status and opens the lock. */
int record_open(struct dir *d, struct err *err);
/* Does not wait: an agent may be stopped while it holds the lock. -EAGAIN: held by another. */
int record_lock(struct dir *d, struct err *err);
void record_unlock(struct dir *d);
void record_close(struct dir *d);
/* -ENOENT: none; -EINVAL: its content is bad; else what the system says. */
int record_read(struct dir *d, enum object_kind kind, const char *ns, const char *name,
                struct object **ret, uint64_t *ret_hash, struct err *err);
/* Under the lock. Gives the object the next resourceVersion and writes it. */
int record_write(struct dir *d, struct object *o, uint64_t *ret_hash, struct err *err);
int record_delete(struct dir *d, const struct entry *e, struct err *err);
/* Marks every record's entry to be read. */
void record_scan(struct dir *d);
/* Calls `visit` for each folder there is with records of that kind; ns "" for a cluster-wide one. */
void record_folders(struct dir *d, enum object_kind kind,
                    void (*visit)(struct dir *d, enum object_kind kind, const char *ns));
/* One namespace's, or the classes' when ns is "". */
void record_scan_folder(struct dir *d, enum object_kind kind, const char *ns);
void record_mark(struct dir *d, struct entry *e);
/* Of a record's file name; others are ignored. */
void record_mark_file(struct dir *d, enum object_kind kind, const char *ns, const char *file);
/* "DIR/.status/..." of a record, of a folder of records when name is NULL. Free it. */
char *record_path(const struct dir *d, enum object_kind kind, const char *ns, const char *name);

/* ---- admit.c ---- */
/* Takes a manifest's object. True and *ret: what the sink gets; false: nothing new (noted). */
bool admit(struct dir *d, struct entry *e, const struct claim *c, struct object *manifest,
           struct object **ret);
/* The same for kinds with a record that adds to the manifest. */
bool admit_added(struct dir *d, struct entry *e, const struct claim *c, struct object *manifest,
                 struct object **ret);
/* Reads the records marked and tells the sink of those that changed. */
void admit_records(struct dir *d);

/* ---- write.c ---- */
int dir_write(struct source *s, const struct status_write *w, struct err *err);
/* The object is gone; one of its name will be another. */
void write_forget(struct dir *d, const struct entry *e);

/* ---- watch.c ---- */
int watch_open(struct dir *d, uv_loop_t *loop, struct err *err);
void watch_close(struct dir *d);                   /* handles close on the loop */
void watch_folder(struct dir *d, const char *sub); /* "" is DIR itself */
void watch_records(struct dir *d);
void watch_record_folder(struct dir *d, enum object_kind kind, const char *ns);
/* Reads all events that wait and marks what they touch. */
void watch_drain(struct dir *d);
void watch_schedule(struct dir *d, uint64_t ms);
