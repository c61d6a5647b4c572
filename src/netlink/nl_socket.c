#include <errno.h>
#include <linux/netlink.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "netlink/nl.h"

/* Limits, not allocations. The whole table in one batch needs about 150 bytes an element. */
#define SEND_BUFFER (64 * 1024 * 1024)
#define RECV_BUFFER (16 * 1024 * 1024)

static int socket_send(struct nl_port *p, const void *buf, size_t len);
static ssize_t socket_recv(struct nl_port *p, void *buf, size_t len, int timeout_ms);
static void socket_close(struct nl_port *p);
static void set_options(int fd, int bus);

static const struct nl_port_ops socket_ops = {
    .send = socket_send,
    .recv = socket_recv,
    .close = socket_close,
};

int nl_open(int bus, const uint32_t *groups, struct nl_port **ret, struct err *err)
{
    struct sockaddr_nl addr = { .nl_family = AF_NETLINK };
    socklen_t addr_len = sizeof(addr);
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, bus);
    if (fd < 0)
        return err_set(err, errno, "cannot open a netlink socket of family %d: %s", bus,
                       strerror(errno));
    set_options(fd, bus);
    int r = bind(fd, (struct sockaddr *)&addr, addr_len);
    if (!r)
        r = getsockname(fd, (struct sockaddr *)&addr, &addr_len);
    for (; !r && groups && *groups; groups++)
        r = setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, groups, sizeof(*groups));
    if (r) {
        r = err_set(err, errno, "cannot set up a netlink socket of family %d: %s", bus,
                    strerror(errno));
        close(fd);
        return r;
    }
    struct nl_port *p = xcalloc(1, sizeof(*p));
    *p = (struct nl_port){ .ops = &socket_ops, .fd = fd, .portid = addr.nl_pid };
    *ret = p;
    return 0;
}

static void set_options(int fd, int bus)
{
    static const int on = 1, send_size = SEND_BUFFER, recv_size = RECV_BUFFER;
    /* The plain forms stop at net.core.[rw]mem_max, and are for those without CAP_NET_ADMIN. */
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &send_size, sizeof(send_size)))
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_size, sizeof(send_size));
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &recv_size, sizeof(recv_size)))
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &recv_size, sizeof(recv_size));
    /* Older kernels lack one or another: the answers then only say less. */
    (void)setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof(on));
    (void)setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof(on));
    if (bus == NETLINK_ROUTE)
        (void)setsockopt(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, &on, sizeof(on));
}

static int socket_send(struct nl_port *p, const void *buf, size_t len)
{
    struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
    ssize_t n = sendto(p->fd, buf, len, 0, (struct sockaddr *)&kernel, sizeof(kernel));
    return n < 0 ? -errno : 0;
}

static ssize_t socket_recv(struct nl_port *p, void *buf, size_t len, int timeout_ms)
{
    for (;;) {
        struct sockaddr_nl from = { 0 };
        struct iovec iov = { .iov_base = buf, .iov_len = len };
        struct msghdr msg = {
            .msg_name = &from,
            .msg_namelen = sizeof(from),
            .msg_iov = &iov,
            .msg_iovlen = 1,
        };
        ssize_t n = recvmsg(p->fd, &msg, 0);
        if (n >= 0 && from.nl_pid != 0)
            continue; /* any process may write to us; only the kernel is believed */
        if (n >= 0)
            return msg.msg_flags & MSG_TRUNC ? -EMSGSIZE : n;
        if (errno != EAGAIN || timeout_ms == 0)
            return -errno;
        struct pollfd wait = { .fd = p->fd, .events = POLLIN };
        int r = poll(&wait, 1, timeout_ms);
        if (r <= 0)
            return r < 0 ? -errno : -EAGAIN;
    }
}

static void socket_close(struct nl_port *p)
{
    close(p->fd);
    free(p);
}
