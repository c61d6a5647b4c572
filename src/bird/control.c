#include "bird/control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/buf.h"

#define REPLY_MS   10000
#define RETRY_MS   1000
#define LINE_BYTES 65536 /* a longer line is nobody's we speak to */

enum phase {
    PHASE_AWAY,       /* until the timer says to try again */
    PHASE_CONNECTING, /* or waiting for the greeting */
    PHASE_IDLE,
    PHASE_BUSY, /* a reply is due */
};

struct command {
    char *text; /* with its end */
    void (*done)(void *user, const struct bird_reply *reply, const char *why);
    void *user;
};

struct bird_control {
    struct bird_control_options opt;
    char *path, *why; /* why it is away: told once */
    uv_loop_t *loop;
    uv_pipe_t *pipe;  /* NULL while away */
    uv_timer_t timer; /* the next attempt, or the end of patience with a reply */
    uv_timer_t soon;  /* the queue waits to be looked at */
    enum phase phase;
    struct buf partial; /* of a line */
    struct bird_reply reply;
    VEC(struct command) queue; /* the first one is under way while busy */
    bool up, closed;
    int handles; /* of the two timers, still open */
};

static void on_timer(uv_timer_t *t);
static void on_soon(uv_timer_t *t);

/* ---- ends ---- */

static void free_pipe(uv_handle_t *handle)
{
    free(handle);
}

static void drop_pipe(struct bird_control *c)
{
    if (c->pipe)
        uv_close((uv_handle_t *)c->pipe, free_pipe);
    c->pipe = NULL;
    c->phase = PHASE_AWAY;
    buf_clear(&c->partial);
    bird_reply_reset(&c->reply);
}

/* Takes the first command out of the queue and tells its end. */
static void finish(struct bird_control *c, const struct bird_reply *reply, const char *why)
{
    struct command first = c->queue.v[0];
    vec_remove(&c->queue, 0);
    first.done(first.user, reply, why);
    free(first.text);
}

static void fail_all(struct bird_control *c, const char *why)
{
    size_t n = c->queue.n; /* those given meanwhile have their own turn */
    while (n-- && !c->closed)
        finish(c, NULL, why);
}

static void tell(struct bird_control *c, bool up, const char *why)
{
    bool news = c->up != up || (!up && (!c->why || strcmp(c->why, why)));
    c->up = up;
    free(c->why);
    c->why = xstrdup(why);
    if (news)
        c->opt.state(c->opt.user, up, c->why);
}

static void lose(struct bird_control *c, const char *why)
{
    char *text = xstrdup(why);
    drop_pipe(c);
    uv_timer_start(&c->timer, on_timer, c->opt.retry_ms, 0);
    tell(c, false, text);
    fail_all(c, text);
    free(text);
}

/* ---- lines ---- */

/* A reply is complete. */
static void on_reply(struct bird_control *c)
{
    if (c->phase == PHASE_CONNECTING) {
        if (bird_reply_code(&c->reply) != BIRD_WELCOME) {
            lose(c, "what answers is not BIRD");
            return;
        }
        c->phase = PHASE_IDLE;
        uv_timer_stop(&c->timer);
        bird_reply_reset(&c->reply);
        tell(c, true, "");
        return;
    }
    if (c->phase != PHASE_BUSY) {
        lose(c, "BIRD answers without being asked");
        return;
    }
    c->phase = PHASE_IDLE;
    uv_timer_stop(&c->timer);
    struct bird_reply reply = c->reply;
    c->reply = (struct bird_reply){ 0 };
    finish(c, &reply, NULL);
    bird_reply_done(&reply);
    if (!c->closed)
        uv_timer_start(&c->soon, on_soon, 0, 0);
}

/* False when the connection is no more. */
static bool take_line(struct bird_control *c, const char *line, size_t n)
{
    const uv_pipe_t *pipe = c->pipe;
    switch (bird_reply_take(&c->reply, line, n)) {
    case BIRD_MORE:
        break;
    case BIRD_LAST:
        on_reply(c);
        break;
    case BIRD_ODD:
        lose(c, "what answers is not BIRD");
        break;
    }
    return !c->closed && c->pipe == pipe;
}

static void take_bytes(struct bird_control *c, const char *p, size_t n)
{
    const char *end;
    while ((end = memchr(p, '\n', n))) {
        buf_put(&c->partial, p, (size_t)(end - p));
        n -= (size_t)(end + 1 - p);
        p = end + 1;
        struct buf line = c->partial;
        c->partial = (struct buf){ 0 };
        bool more = take_line(c, buf_str(&line), line.n);
        buf_done(&line);
        if (!more)
            return;
    }
    buf_put(&c->partial, p, n);
    if (c->partial.n > LINE_BYTES)
        lose(c, "what answers is not BIRD");
}

/* ---- the socket ---- */

static void on_alloc(uv_handle_t *handle, size_t hint, uv_buf_t *buf)
{
    (void)handle;
    buf->base = xmalloc(hint);
    buf->len = hint;
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct bird_control *c = stream->data;
    if (n > 0)
        take_bytes(c, buf->base, (size_t)n);
    else if (n == UV_EOF)
        lose(c, "BIRD has closed the connection");
    else if (n < 0)
        lose(c, uv_strerror((int)n));
    free(buf->base);
}

static void on_connect(uv_connect_t *req, int status)
{
    uv_stream_t *stream = req->handle;
    free(req);
    if (status == UV_ECANCELED)
        return;
    struct bird_control *c = stream->data;
    if (!status)
        status = uv_read_start(stream, on_alloc, on_read);
    if (status)
        lose(c, uv_strerror(status));
}

static void connect_now(struct bird_control *c)
{
    if (strlen(c->path) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
        lose(c, "the path of its control socket is longer than a socket's may be");
        return;
    }
    uv_connect_t *req = xmalloc(sizeof(*req));
    c->pipe = xmalloc(sizeof(*c->pipe));
    uv_pipe_init(c->loop, c->pipe, 0);
    c->pipe->data = c;
    c->phase = PHASE_CONNECTING;
    uv_timer_start(&c->timer, on_timer, c->opt.reply_ms, 0);
    uv_pipe_connect(req, c->pipe, c->path, on_connect);
}

static void on_timer(uv_timer_t *t)
{
    struct bird_control *c = t->data;
    if (c->phase == PHASE_AWAY)
        connect_now(c);
    else
        lose(c, "BIRD does not answer");
}

/* ---- commands ---- */

static void on_written(uv_write_t *req, int status)
{
    (void)status; /* a connection that cannot be written to cannot be read from, either */
    free(req->data);
    free(req);
}

static void send_first(struct bird_control *c)
{
    uv_write_t *req = xmalloc(sizeof(*req));
    char *text = xstrdup(c->queue.v[0].text);
    uv_buf_t buf = uv_buf_init(text, (unsigned)strlen(text));
    req->data = text;
    c->phase = PHASE_BUSY;
    uv_timer_start(&c->timer, on_timer, c->opt.reply_ms, 0);
    int r = uv_write(req, (uv_stream_t *)c->pipe, &buf, 1, on_written);
    if (r) {
        on_written(req, r);
        lose(c, uv_strerror(r));
    }
}

static void on_soon(uv_timer_t *t)
{
    struct bird_control *c = t->data;
    if (!c->queue.n || c->phase == PHASE_BUSY)
        return;
    if (c->phase == PHASE_IDLE)
        send_first(c);
    else
        fail_all(c, c->why ? c->why : "not connected yet");
    if (!c->closed && c->queue.n && c->phase != PHASE_BUSY)
        uv_timer_start(&c->soon, on_soon, 0, 0);
}

void bird_control_command(struct bird_control *c, const char *command,
                          void (*done)(void *user, const struct bird_reply *reply, const char *why),
                          void *user)
{
    struct buf text = { 0 };
    buf_printf(&text, "%s\n", command);
    vec_push(&c->queue, (struct command){ text.p, done, user });
    uv_timer_start(&c->soon, on_soon, 0, 0);
}

/* ---- life ---- */

struct bird_control *bird_control_open(uv_loop_t *loop, const struct bird_control_options *opt)
{
    struct bird_control *c = xcalloc(1, sizeof(*c));
    c->opt = *opt;
    c->opt.reply_ms = opt->reply_ms ? opt->reply_ms : REPLY_MS;
    c->opt.retry_ms = opt->retry_ms ? opt->retry_ms : RETRY_MS;
    c->path = xstrdup(opt->path);
    c->loop = loop;
    c->handles = 2;
    uv_timer_init(loop, &c->timer);
    uv_timer_init(loop, &c->soon);
    c->timer.data = c->soon.data = c;
    uv_timer_start(&c->timer, on_timer, 0, 0);
    return c;
}

bool bird_control_up(const struct bird_control *c)
{
    return c->up;
}

static void free_control(uv_handle_t *handle)
{
    struct bird_control *c = handle->data;
    if (--c->handles)
        return;
    for (size_t i = 0; i < c->queue.n; i++)
        free(c->queue.v[i].text);
    vec_done(&c->queue);
    buf_done(&c->partial);
    bird_reply_done(&c->reply);
    free(c->why);
    free(c->path);
    free(c);
}

void bird_control_close(struct bird_control *c)
{
    if (!c)
        return;
    c->closed = true;
    drop_pipe(c);
    uv_close((uv_handle_t *)&c->timer, free_control);
    uv_close((uv_handle_t *)&c->soon, free_control);
}
