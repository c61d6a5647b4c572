#include "kernel/iptables_child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define PATIENCE_US 10000000
#define LOOK_US     500000  /* at most between two looks */
#define KILLING_US  1000000 /* more than that is a call of the kernel that does not return */
#define ARGS_MAX    8
#define SBIN        "/usr/local/sbin:/usr/sbin:/sbin"

extern char **environ;

enum end { INPUT, OUTPUT, ERRORS, ENDS };

struct child {
    pid_t pid;
    int fd[ENDS]; /* -1: closed */
    const char *input;
    size_t left;
    struct buf *out, said;
};

static bool find_in(const char *path, const char *program, char *ret, size_t size)
{
    while (*path) {
        size_t n = strcspn(path, ":");
        if (n && (size_t)snprintf(ret, size, "%.*s/%s", (int)n, path, program) < size &&
            !access(ret, X_OK))
            return true;
        path += n + (path[n] == ':');
    }
    return false;
}

static void close_end(struct child *c, enum end e)
{
    if (c->fd[e] >= 0)
        close(c->fd[e]);
    c->fd[e] = -1;
}

/* Sockets, since writing to one can be kept from raising SIGPIPE. A group of its own, to end what it
 * starts as well. An ignored SIGCHLD, which may be inherited, would lose its status. */
static int start(struct child *c, const char *file, const char *const *args)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int pair[ENDS][2], r = 0, made = 0;
    const char *argv[ARGS_MAX + 2] = { file };
    for (size_t i = 0; i < ARGS_MAX && args[i]; i++)
        argv[i + 1] = args[i];
    signal(SIGCHLD, SIG_DFL);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_init(&actions);
    for (; made < ENDS && !r; made++) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair[made]))
            r = -errno;
        else
            posix_spawn_file_actions_adddup2(&actions, pair[made][1], made);
    }
    if (r)
        made--;
    else
        r = -posix_spawn(&c->pid, file, &actions, &attributes, (char *const *)(uintptr_t)argv,
                         environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    for (int i = 0; i < made; i++) {
        close(pair[i][1]);
        c->fd[i] = pair[i][0];
        if (r)
            close_end(c, (enum end)i);
    }
    return r;
}

static void feed(struct child *c)
{
    ssize_t n = c->left ? send(c->fd[INPUT], c->input, c->left, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        c->input += n;
        c->left -= (size_t)n;
    }
    if (n < 0 || !c->left)
        close_end(c, INPUT);
}

static void hear(struct child *c, enum end e, struct buf *into)
{
    char text[4096];
    ssize_t n = recv(c->fd[e], text, sizeof(text), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        buf_put(into, text, (size_t)n);
    else
        close_end(c, e);
}

/* A machine that stood still meanwhile, as virtual ones do, let the program do nothing either. */
static void spend(int64_t *patience, int64_t since)
{
    int64_t took = clock_mono_us() - since;
    *patience -= took < 2 * LOOK_US ? took : 2 * LOOK_US;
}

/* False when it took too long. */
static bool talk(struct child *c, int64_t *patience)
{
    while (c->fd[INPUT] >= 0 || c->fd[OUTPUT] >= 0 || c->fd[ERRORS] >= 0) {
        struct pollfd p[ENDS];
        int64_t since = clock_mono_us();
        for (int i = 0; i < ENDS; i++)
            p[i] = (struct pollfd){ .fd = c->fd[i], .events = i == INPUT ? POLLOUT : POLLIN };
        if (*patience <= 0)
            return false;
        poll(p, ENDS, LOOK_US / 1000);
        spend(patience, since);
        if (p[INPUT].fd >= 0 && p[INPUT].revents)
            feed(c);
        if (p[OUTPUT].fd >= 0 && p[OUTPUT].revents)
            hear(c, OUTPUT, c->out);
        if (p[ERRORS].fd >= 0 && p[ERRORS].revents)
            hear(c, ERRORS, &c->said);
    }
    return true;
}

/* A program may close all it was given, and go on. */
static bool has_ended(const struct child *c, int64_t patience, int *ret_status)
{
    static const struct timespec pause = { .tv_nsec = 1000000 };
    while (waitpid(c->pid, ret_status, WNOHANG) != c->pid) {
        int64_t since = clock_mono_us();
        if (patience <= 0)
            return false;
        nanosleep(&pause, NULL);
        spend(&patience, since);
    }
    return true;
}

static int reap(struct child *c, const char *program, struct err *err)
{
    int64_t patience = PATIENCE_US;
    int status = 0;
    bool in_time = talk(c, &patience) && has_ended(c, patience, &status);
    if (!in_time) {
        kill(-c->pid, SIGKILL);
        has_ended(c, KILLING_US, &status);
    }
    if (!in_time)
        return err_set(err, ETIMEDOUT, "%s did not end within %d s", program,
                       PATIENCE_US / 1000000);
    if (WIFEXITED(status) && !WEXITSTATUS(status))
        return 0;
    for (size_t i = 0; i < c->said.n; i++)
        if (c->said.p[i] == '\n')
            c->said.p[i] = ' ';
    return err_set(err, EIO, "%s failed (%s %d): %s", program,
                   WIFEXITED(status) ? "status" : "signal",
                   WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
                   c->said.n ? buf_str(&c->said) : "it says nothing");
}

int iptables_child(const char *program, const char *const *args, const char *input, struct buf *out,
                   struct err *err)
{
    char file[512];
    const char *path = getenv("PATH");
    struct child c = { .fd = { -1, -1, -1 }, .input = input, .left = strlen(input), .out = out };
    if (!find_in(path ? path : "", program, file, sizeof(file)) &&
        !find_in(SBIN, program, file, sizeof(file)))
        return err_set(err, ENOENT, "there is no program %s; install iptables", program);
    int r = start(&c, file, args);
    if (r)
        return err_set(err, -r, "cannot start %s: %s", file, strerror(-r));
    r = reap(&c, program, err);
    for (int i = 0; i < ENDS; i++)
        close_end(&c, (enum end)i);
    buf_done(&c.said);
    return r;
}
