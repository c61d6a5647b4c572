#include "agent/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int lock_take(const char *state_dir, int *ret_fd, struct err *err)
{
    if (mkdir(state_dir, 0755) && errno != EEXIST)
        return err_set(err, errno, "state directory %s: %s; create its parent or give --state-dir",
                       state_dir, strerror(errno));
    char path[4096];
    snprintf(path, sizeof(path), "%s/lock", state_dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_set(err, errno, "%s: %s", path, strerror(errno));
    char pid[32] = "";
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        ssize_t n = read(fd, pid, sizeof(pid) - 1);
        close(fd);
        pid[n > 0 ? n : 0] = 0;
        pid[strcspn(pid, "\n")] = 0;
        return err_set(err, EBUSY,
                       "another agent (pid %s) runs with state directory %s; stop it first",
                       *pid ? pid : "unknown", state_dir);
    }
    int n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    if (ftruncate(fd, 0) || write(fd, pid, (size_t)n) != n) {
        int e = errno;
        close(fd);
        return err_set(err, e, "%s: %s", path, strerror(e));
    }
    *ret_fd = fd;
    return 0;
}

void lock_remove(const char *state_dir)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/lock", state_dir);
    unlink(path);
    rmdir(state_dir);
}
