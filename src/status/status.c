#include "status/status.h"

#include <errno.h>

#include "base/clock.h"

#define MANY_US 50000

struct sending {
    struct source *source;
    void (*failed)(const struct status_write *w, const char *text, void *user);
    void *user;
    struct status_outcome out;
};

static void send_one(struct sending *s, const struct status_write *w)
{
    struct err err = { 0 };
    int r = s->source->ops->write(s->source, w, &err);
    if (!r) {
        s->out.written++;
    } else if (r == -EINPROGRESS) {
        s->out.sent++;
    } else if (r == -EAGAIN) {
        s->out.conflicts++;
    } else if (r != -EPERM || !w->optional) {
        s->out.failed++;
        s->failed(w, err.text, s->user);
    }
}

/* Of kinds there may be ten thousand of. */
static bool is_of_many(enum status_write_kind kind)
{
    return kind == WRITE_PORTMAP_STATUS || kind == WRITE_SERVICE_STATUS;
}

struct status_outcome status_send(struct source *source, const struct status_writes *writes,
                                  void (*failed)(const struct status_write *w, const char *text,
                                                 void *user),
                                  void *user)
{
    struct sending s = { .source = source, .failed = failed, .user = user };
    for (size_t i = 0; i < writes->n; i++)
        if (!is_of_many(writes->v[i].kind))
            send_one(&s, &writes->v[i]);
    int64_t end = clock_mono_us() + (s.out.written || s.out.sent ? 0 : MANY_US);
    for (size_t i = 0; i < writes->n; i++) {
        if (!is_of_many(writes->v[i].kind))
            continue;
        if (clock_mono_us() < end)
            send_one(&s, &writes->v[i]);
        else
            s.out.waiting++;
    }
    return s.out;
}
