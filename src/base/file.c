#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"

bool file_says(const char *path, const char *text, bool begins)
{
    size_t n = strlen(text), more = begins ? 0 : 1;
    char *now = xmalloc(n + more);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, now, n + more);
    if (fd >= 0)
        close(fd);
    bool good = got == (ssize_t)n && !memcmp(now, text, n);
    free(now);
    return good;
}

int file_write(const char *path, const void *text, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int r = fd < 0 ? -errno : 0;
    for (size_t done = 0; done < n && !r;) {
        ssize_t some = write(fd, (const char *)text + done, n - done);
        if (some >= 0)
            done += (size_t)some;
        else if (errno != EINTR)
            r = -errno;
    }
    if (!r && fsync(fd))
        r = -errno;
    if (fd >= 0 && close(fd) && !r)
        r = -errno;
    return r;
}

int file_replace(const char *dir, const char *name, const void *text, size_t n, struct err *err)
{
    char path[PATH_MAX], fresh[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    snprintf(fresh, sizeof(fresh), "%s/%s.new", dir, name);
    if (mkdir(dir, 0755) && errno != EEXIST)
        return err_set(err, errno, "cannot make the directory %s: %s", dir, strerror(errno));
    int r = file_write(fresh, text, n);
    if (!r && rename(fresh, path))
        r = -errno;
    return r ? err_set(err, -r, "cannot write %s: %s", path, strerror(-r)) : 0;
}

int file_remove(const char *dir, const char *name, struct err *err)
{
    static const char *const ends[] = { "", ".new" };
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s%s", dir, name, ends[i]);
        if (unlink(path) && errno != ENOENT)
            return err_set(err, errno, "cannot remove %s: %s", path, strerror(errno));
    }
    rmdir(dir);
    return 0;
}
