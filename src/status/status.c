#include "status/status.h"

#include <errno.h>

#include "base/clock.h"

#define MAPPINGS_US 50000

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
    } else {
        s->out.failed++;
        s->failed(w, err.text, s->user);
    }
}

struct status_outcome status_send(struct source *source, const struct status_writes *writes,
                                  void (*failed)(const struct status_write *w, const char *text,
                                                 void *user),
                                  void *user)
{
    struct sending s = { .source = source, .failed = failed, .user = user };
    size_t n = 0, i = 0; /* mappings come first in the list */
    while (n < writes->n && writes->v[n].kind == WRITE_PORTMAP_STATUS)
        n++;
    for (size_t c = n; c < writes->n; c++)
        send_one(&s, &writes->v[c]);
    int64_t end = clock_mono_us() + (s.out.written || s.out.sent ? 0 : MAPPINGS_US);
    while (i < n && clock_mono_us() < end)
        send_one(&s, &writes->v[i++]);
    s.out.waiting = n - i;
    return s.out;
}
