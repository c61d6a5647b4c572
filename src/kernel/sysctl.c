#include "kernel/sysctl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"

#define NAME      "sysctls"
#define VALUE_MAX 512

/* What things were before us, in the order of STATE_DIR/sysctls: "net/ipv4/ip_forward 0". */
struct old {
    const char *path, *value;
};
struct memory {
    struct arena mem;
    VEC(struct old) v;
};

/* The switches that reset others of their family: the forwarding of each interface, and with
 * IPv4 conf/all/accept_redirects, to the opposite of the switch (kernel 6.18, measured). They
 * come last when setting and first when restoring. */
static const struct {
    const char *path, *conf, *opposite;
} switches[] = {
    { "net/ipv4/ip_forward", "net/ipv4/conf", "net/ipv4/conf/all/accept_redirects" },
    { "net/ipv6/conf/all/forwarding", "net/ipv6/conf", NULL },
};
#define N_SWITCHES (sizeof(switches) / sizeof(switches[0]))

static int value_read(const char *path, char out[static VALUE_MAX]);
static int value_write(const char *path, const char *value);
static int memory_read(const char *state_dir, struct memory *m, struct err *err);
static int memory_write(const char *state_dir, const struct memory *m, struct err *err);
static void memory_done(struct memory *m);
static size_t switch_of(const char *path);
static void set(const struct desired_sysctl *s, const char *state_dir, struct report *report);

void sysctl_sync(const struct desired *d, const char *state_dir, struct report *report)
{
    for (int last = 0; last < 2; last++)
        for (size_t i = 0; i < d->n_sysctls; i++)
            if ((switch_of(d->sysctls[i].path) < N_SWITCHES) == last)
                set(&d->sysctls[i], state_dir, report);
}

void sysctl_diff(const struct desired *d, struct buf *out)
{
    char now[VALUE_MAX];
    for (size_t i = 0; i < d->n_sysctls; i++) {
        const struct desired_sysctl *s = &d->sysctls[i];
        int e = value_read(s->path, now);
        if (e)
            buf_printf(out, "+ sysctl %s %s (%s)\n", s->path, s->value, strerror(-e));
        else if (strcmp(now, s->value))
            buf_printf(out, "+ sysctl %s %s -> %s\n", s->path, now, s->value);
    }
}

int sysctl_cleanup(const char *state_dir, bool dry_run, struct buf *out, struct err *err)
{
    struct memory m = { 0 };
    char now[VALUE_MAX];
    int r = memory_read(state_dir, &m, err);
    for (int others = 0; others < 2; others++)
        for (size_t i = 0; !r && i < m.v.n; i++) {
            const char *path = m.v.v[i].path, *value = m.v.v[i].value;
            /* An interface that is gone took its sysctls along. */
            if ((switch_of(path) == N_SWITCHES) != others || value_read(path, now) == -ENOENT)
                continue;
            if (strcmp(now, value))
                buf_printf(out, "- sysctl %s %s -> %s\n", path, now, value);
            int e = dry_run || !strcmp(now, value) ? 0 : value_write(path, value);
            if (e)
                r = err_set(err, -e, "cannot put sysctl %s back to %s: %s", path, value,
                            strerror(-e));
        }
    if (!r && !dry_run)
        r = file_remove(state_dir, NAME, err);
    memory_done(&m);
    return r;
}

static size_t switch_of(const char *path)
{
    size_t i = 0;
    while (i < N_SWITCHES && strcmp(switches[i].path, path))
        i++;
    return i;
}

/* Opens below `root` and nowhere else: part of a path is an interface's name. */
static int sysctl_open(const char *root, const char *path, int flags)
{
    char full[PATH_MAX];
    if (path[0] == '/' || strstr(path, "/../") || !strncmp(path, "../", 3) || strstr(path, "//") ||
        (size_t)snprintf(full, sizeof(full), "%s/%s", root, path) >= sizeof(full))
        return -EINVAL;
    int fd = open(full, flags | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

static int value_read(const char *path, char out[static VALUE_MAX])
{
    int fd = sysctl_open("/proc/sys", path, O_RDONLY);
    if (fd < 0)
        return fd;
    ssize_t n = read(fd, out, VALUE_MAX - 1);
    int e = n < 0 ? -errno : 0;
    close(fd);
    if (e)
        return e;
    while (n > 0 && out[n - 1] == '\n')
        n--;
    out[n] = '\0';
    return 0;
}

static int value_write(const char *path, const char *value)
{
    int fd = sysctl_open("/proc/sys", path, O_WRONLY);
    /* Container runtimes mount it read-only, and let nothing be mounted below /proc. */
    if (fd == -EROFS && (fd = sysctl_open("/host/proc/sys", path, O_WRONLY)) == -ENOENT)
        fd = -EROFS;
    if (fd < 0)
        return fd;
    ssize_t n = write(fd, value, strlen(value));
    int e = n < 0 ? -errno : 0;
    close(fd);
    return e;
}

static void memory_done(struct memory *m)
{
    vec_done(&m->v);
    arena_done(&m->mem);
}

static void remember(struct memory *m, const char *path, const char *value)
{
    for (size_t i = 0; i < m->v.n; i++)
        if (!strcmp(m->v.v[i].path, path))
            return; /* what was before us, not before the last time */
    vec_push(&m->v, (struct old){ arena_strdup(&m->mem, path), arena_strdup(&m->mem, value) });
}

static int memory_read(const char *state_dir, struct memory *m, struct err *err)
{
    char file[4096], line[1024];
    snprintf(file, sizeof(file), "%s/" NAME, state_dir);
    FILE *f = fopen(file, "re");
    if (!f)
        return errno == ENOENT ? 0
                               : err_set(err, errno, "cannot read %s: %s", file, strerror(errno));
    int r = 0;
    errno = 0;
    while (!r && fgets(line, sizeof(line), f)) {
        char *value = strchr(line, ' '), *end = strchr(line, '\n');
        if (value && end) {
            *value++ = *end = '\0';
            remember(m, line, value);
        } else {
            r = err_set(err, EINVAL,
                        "%s: line %zu is not SYSCTL VALUE: remove the file, and sysctls stay as "
                        "they are",
                        file, m->v.n + 1);
        }
    }
    if (!r && ferror(f))
        r = err_set(err, errno, "cannot read %s: %s", file, strerror(errno));
    fclose(f);
    return r;
}

/* Before the first value changes: a crash must not lose what was. */
static int memory_write(const char *state_dir, const struct memory *m, struct err *err)
{
    struct buf text = { 0 };
    for (size_t i = 0; i < m->v.n; i++)
        buf_printf(&text, "%s %s\n", m->v.v[i].path, m->v.v[i].value);
    int r = file_replace(state_dir, NAME, buf_str(&text), text.n, err);
    buf_done(&text);
    return r;
}

/* What flipping a switch back would not bring back. `value` is the switch's own. */
static void remember_others(struct memory *m, size_t i, const char *value)
{
    char path[PATH_MAX], now[VALUE_MAX];
    const char *opposite = *value == '0' ? "1" : "0";
    if (switches[i].opposite && !value_read(switches[i].opposite, now) && strcmp(now, opposite))
        remember(m, switches[i].opposite, now);
    snprintf(path, sizeof(path), "/proc/sys/%s", switches[i].conf);
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        if (e->d_name[0] == '.' && (!e->d_name[1] || !strcmp(e->d_name, "..")))
            continue;
        snprintf(path, sizeof(path), "%s/%s/forwarding", switches[i].conf, e->d_name);
        if (strcmp(e->d_name, "all") && !value_read(path, now) && strcmp(now, value))
            remember(m, path, now);
    }
    if (dir)
        closedir(dir);
}

static int keep_old(const struct desired_sysctl *s, const char *now, const char *state_dir,
                    struct err *err)
{
    struct memory m = { 0 };
    int r = memory_read(state_dir, &m, err);
    size_t n = m.v.n, i = switch_of(s->path);
    if (!r) {
        remember(&m, s->path, now);
        if (i < N_SWITCHES)
            remember_others(&m, i, now);
        if (m.v.n > n)
            r = memory_write(state_dir, &m, err);
    }
    memory_done(&m);
    return r;
}

static const char *advice(int error)
{
    switch (error) {
    case EROFS:
        return "; /proc/sys is read-only here: set it on the host, or mount the host's "
               "/proc/sys/net at /host/proc/sys/net";
    case EACCES:
    case EPERM:
        return "; the agent may not: set it on the host";
    case ENOENT:
        return "; this kernel, or this interface, does not have it";
    }
    return "";
}

static void set(const struct desired_sysctl *s, const char *state_dir, struct report *report)
{
    char now[VALUE_MAX], text[768];
    struct err err = { 0 };
    int e = value_read(s->path, now);
    if (!e && !strcmp(now, s->value))
        return;
    if (!e && s->restore) {
        e = keep_old(s, now, state_dir, &err);
        if (e) {
            report_refuse(report, s->owner, -e, err.text, "sysctl %s", s->path);
            return;
        }
    }
    if (!e)
        e = value_write(s->path, s->value);
    if (!e) {
        report->changes++;
        return;
    }
    snprintf(text, sizeof(text), "cannot be set to %s: %s%s", s->value, strerror(-e), advice(-e));
    report_refuse(report, s->owner, -e, text, "sysctl %s", s->path);
}
