/* Round trips and new connections to several targets in turn.
 *
 *   bench-pingpong server PORT
 *       echoes TCP and UDP on every address; prints "ready".
 *   bench-pingpong rtt|new tcp|udp ROUNDS COUNT ADDR:PORT...
 *       each round does COUNT operations on every target, beginning with another target each
 *       time, and prints a line with the median us of each. `rtt`: one small message there and
 *       back. `new`: TCP connect, or a new UDP socket's first message there and back.
 *
 * Targets take turns because a machine's pace drifts: a ratio within a round stays fair. */
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
    char buf[2048];
    ssize_t n = read(fd, buf, sizeof(buf));
    if (n <= 0 || write(fd, buf, (size_t)n) != n)
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

static int dial(const struct sockaddr_in *to, bool udp)
{
    int fd = socket(AF_INET, (udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0), one = 1;
    struct timeval patience = { .tv_sec = 2 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
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

static double time_new(const struct sockaddr_in *to, bool udp)
{
    /* A reset leaves no socket in TIME_WAIT to run out of ports with. */
    struct linger reset = { .l_onoff = 1 };
    double start = now_us();
    int fd = dial(to, udp);
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

static struct sockaddr_in target(char *text)
{
    struct sockaddr_in a = { .sin_family = AF_INET };
    char *colon = strchr(text, ':');
    if (colon)
        *colon = 0;
    if (!colon || inet_pton(AF_INET, text, &a.sin_addr) != 1)
        fail(text);
    a.sin_port = htons((uint16_t)atoi(colon + 1));
    return a;
}

static void measure(bool fresh, bool udp, int rounds, size_t count, struct sockaddr_in *to, int n)
{
    int fd[TARGETS_MAX] = { 0 };
    double *took = calloc(count, sizeof(*took));
    for (int t = 0; t < n; t++) {
        fd[t] = dial(&to[t], udp);
        for (int i = 0; i < WARM_UP; i++)
            exchange(fd[t]);
    }
    for (int r = 0; r < rounds; r++) {
        double median[TARGETS_MAX];
        for (int k = 0; k < n; k++) {
            int t = (r + k) % n;
            for (size_t i = 0; i < count; i++)
                took[i] = fresh ? time_new(&to[t], udp) : time_exchange(fd[t]);
            qsort(took, count, sizeof(*took), ascending);
            median[t] = took[count / 2];
        }
        for (int t = 0; t < n; t++)
            printf("%.2f%c", median[t], t + 1 < n ? ' ' : '\n');
    }
    free(took);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "server"))
        serve((uint16_t)atoi(argv[2]));
    if (argc < 6 || argc - 5 > TARGETS_MAX) {
        fputs("usage: bench-pingpong server PORT | rtt|new tcp|udp ROUNDS COUNT ADDR:PORT...\n",
              stderr);
        return 2;
    }
    struct sockaddr_in to[TARGETS_MAX];
    for (int i = 5; i < argc; i++)
        to[i - 5] = target(argv[i]);
    measure(!strcmp(argv[1], "new"), !strcmp(argv[2], "udp"), atoi(argv[3]),
            strtoul(argv[4], NULL, 10), to, argc - 5);
    return 0;
}
