#include "agent/lock.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "\0portolan-agent" };
/* The name is its bytes, the first of them NUL; no NUL ends it. */
#define NAME_LEN \
    ((socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof("\0portolan-agent") - 1))

/* The process that listens on the name; 0 when it cannot be told. */
static int holder(void)
{
    struct ucred peer = { 0 };
    socklen_t len = sizeof(peer);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return 0;
    if (connect(fd, (const struct sockaddr *)&name, NAME_LEN) ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
        peer.pid = 0;
    close(fd);
    return peer.pid;
}

int lock_take(int *ret_fd, struct err *err)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set(err, errno, "lock: %s", strerror(errno));
    if (!bind(fd, (const struct sockaddr *)&name, NAME_LEN) && !listen(fd, SOMAXCONN)) {
        *ret_fd = fd;
        return 0;
    }
    int e = errno;
    close(fd);
    if (e != EADDRINUSE)
        return err_set(err, e, "lock: %s", strerror(e));
    int pid = holder();
    if (!pid)
        return err_set(err, EBUSY, "another agent or cleanup runs on this node; stop it first");
    return err_set(err, EBUSY, "another agent or cleanup (pid %d) runs on this node; stop it first",
                   pid);
}
