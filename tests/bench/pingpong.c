/* Round trips and new connections to several targets in turn.
 *
 *   bench-pingpong server PORT
 *       echoes TCP and UDP on every address, but reads away TCP that comes in bulk; prints "ready".
 *   bench-pingpong rtt|new|rate|stream tcp|udp ROUNDS COUNT [DEVICE@]ADDR[/SPREAD]:PORT...
 *       each round takes every target, beginning with another each time, and prints a line with a
 *       figure of each. `rtt`: median us of COUNT small messages there and back. `new`: median us
 *       of COUNT new connections, by TCP connect, or a new UDP socket's first message there
 *       and back. `rate`: new connections a second, made and reset one after the
 *       other, by the median of COUNT. `stream`: Mbit a second that one TCP connection takes in
 *       COUNT ms.
 *
 * With SPREAD, new connections go to that many addresses from ADDR on, far apart. DEVICE is the
 * interface the packets leave by. Targets take turns because a machine's pace drifts: a ratio
 * within a round stays fair. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TARGETS_MAX 8
#define MESSAGE     32
#define WARM_UP     500
#define STRIDE      7919 /* a prime: consecutive connections meet no common cache line */

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "bench-pingpong: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- server ---- */

static int listener(int type, uint16_t port)
{
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) ||
        (type == SOCK_STREAM && listen(fd, 1024)))
        fail("listen");
    return fd;
}

static void watch(int epoll, int fd)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.fd = fd };
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ev))
        fail("epoll");
}

static void echo_datagram(int fd)
{
    char buf[2048];
    struct sockaddr_in peer;
    socklen_t len = sizeof(peer);
    ssize_t n = recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *)&peer, &len);
    if (n > 0)
        sendto(fd, buf, (size_t)n, 0, (struct sockaddr *)&peer, len);
}

static void echo_stream(int fd)
{
    static char buf[256 << 10];
    ssize_t n = read(fd, buf, sizeof(buf));
    if (n <= 0 || (n <= MESSAGE && write(fd, buf, (size_t)n) != n))
        close(fd);
}

static _Noreturn void serve(uint16_t port)
{
    int tcp = listener(SOCK_STREAM, port), udp = listener(SOCK_DGRAM, port);
    int epoll = epoll_create1(EPOLL_CLOEXEC), one = 1;
    watch(epoll, tcp);
    watch(epoll, udp);
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct epoll_event ev[64];
        int n = epoll_wait(epoll, ev, 64, -1);
        for (int i = 0; i < n; i++) {
            int fd = ev[i].data.fd;
            if (fd == udp) {
                echo_datagram(fd);
            } else if (fd != tcp) {
                echo_stream(fd);
            } else if ((fd = accept4(tcp, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
                watch(epoll, fd);
            }
        }
    }
}

/* ---- client ---- */

struct target {
    const char *device; /* "": whichever leads there */
    struct sockaddr_in address;
    uint32_t spread, at;
    int fd; /* one connection for rtt */
};

static int dial(const struct target *t, const struct sockaddr_in *to, bool udp)
{
    int fd = socket(AF_INET, (udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0), one = 1;
    struct timeval patience = { .tv_sec = 2 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (*t->device &&
        setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, t->device, (socklen_t)strlen(t->device)))
        fail(t->device);
    if (!udp)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (fd < 0 || connect(fd, (const struct sockaddr *)to, sizeof(*to)))
        fail("connect");
    return fd;
}

static void exchange(int fd)
{
    char buf[MESSAGE] = "ping";
    if (write(fd, buf, sizeof(buf)) != sizeof(buf) || read(fd, buf, sizeof(buf)) != sizeof(buf))
        fail("round trip");
}

static double time_exchange(int fd)
{
    double start = now_us();
    exchange(fd);
    return now_us() - start;
}

static double time_new(struct target *t, bool udp)
{
    /* A reset leaves no socket in TIME_WAIT to run out of ports with. */
    struct linger reset = { .l_onoff = 1 };
    struct sockaddr_in to = t->address;
    t->at = (uint32_t)(((uint64_t)t->at + STRIDE) % t->spread);
    to.sin_addr.s_addr = htonl(ntohl(to.sin_addr.s_addr) + t->at);
    double start = now_us();
    int fd = dial(t, &to, udp);
    if (udp)
        exchange(fd);
    double took = now_us() - start;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(fd);
    return took;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(struct target *t, bool fresh, bool udp, size_t count, double *took)
{
    for (size_t i = 0; i < count; i++)
        took[i] = fresh ? time_new(t, udp) : time_exchange(t->fd);
    qsort(took, count, sizeof(*took), ascending);
    return took[count / 2];
}

static double rate_of(struct target *t, bool udp, size_t count, double *took)
{
    for (size_t i = 0; i < count; i++) {
        double start = now_us();
        time_new(t, udp);
        took[i] = now_us() - start;
    }
    qsort(took, count, sizeof(*took), ascending);
    return 1e6 / took[count / 2];
}

static double stream_of(const struct target *t, size_t ms)
{
    static const char buf[256 << 10];
    int fd = dial(t, &t->address, false);
    double start = now_us(), bytes = 0, took;
    do {
        ssize_t n = write(fd, buf, sizeof(buf));
        if (n < 0)
            fail("stream");
        bytes += (double)n;
        took = now_us() - start;
    } while (took < (double)ms * 1e3);
    close(fd);
    return bytes * 8 / took;
}

static struct target target(char *text)
{
    struct target t = { .device = "", .address = { .sin_family = AF_INET }, .spread = 1 };
    char *at = strchr(text, '@');
    if (at) {
        *at = 0;
        t.device = text;
        text = at + 1;
    }
    char *colon = strchr(text, ':'), *slash = strchr(text, '/');
    if (colon)
        *colon = 0;
    if (slash) {
        *slash = 0;
        t.spread = (uint32_t)strtoul(slash + 1, NULL, 10);
    }
    if (!colon || !t.spread || inet_pton(AF_INET, text, &t.address.sin_addr) != 1)
        fail(text);
    t.address.sin_port = htons((uint16_t)atoi(colon + 1));
    return t;
}

enum what { RTT, NEW, RATE, STREAM, UNKNOWN };

static void measure(enum what what, bool udp, int rounds, size_t count, struct target *to, int n)
{
    double *took = calloc(count, sizeof(*took));
    for (int t = 0; t < n; t++) {
        to[t].fd = dial(&to[t], &to[t].address, udp);
        for (int i = 0; i < WARM_UP; i++)
            exchange(to[t].fd);
    }
    for (int r = 0; r < rounds; r++) {
        double figure[TARGETS_MAX];
        for (int k = 0; k < n; k++) {
            int t = (r + k) % n;
            figure[t] = what == RATE     ? rate_of(&to[t], udp, count, took)
                        : what == STREAM ? stream_of(&to[t], count)
                                         : median_of(&to[t], what == NEW, udp, count, took);
        }
        for (int t = 0; t < n; t++)
            printf("%.2f%c", figure[t], t + 1 < n ? ' ' : '\n');
    }
    free(took);
}

static enum what what_of(const char *name)
{
    static const char *const names[] = { "rtt", "new", "rate", "stream" };
    enum what what = RTT;
    while (what < UNKNOWN && strcmp(name, names[what]))
        what++;
    return what;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "server"))
        serve((uint16_t)atoi(argv[2]));
    if (argc < 6 || argc - 5 > TARGETS_MAX || what_of(argv[1]) == UNKNOWN) {
        fputs("usage: bench-pingpong server PORT | rtt|new|rate|stream tcp|udp ROUNDS COUNT "
              "[DEVICE@]ADDR[/SPREAD]:PORT...\n",
              stderr);
        return 2;
    }
    struct target to[TARGETS_MAX];
    for (int i = 5; i < argc; i++)
        to[i - 5] = target(argv[i]);
    measure(what_of(argv[1]), !strcmp(argv[2], "udp"), atoi(argv[3]), strtoul(argv[4], NULL, 10),
            to, argc - 5);
    return 0;
}
