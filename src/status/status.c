#include "status/status.h"

#include <errno.h>

struct status_outcome status_send(struct source *source, const struct status_writes *writes,
                                  void (*failed)(const struct status_write *w, const char *text,
                                                 void *user),
                                  void *user)
{
    struct status_outcome out = { 0 };
    for (size_t i = 0; i < writes->n; i++) {
        struct err err = { 0 };
        int r = source->ops->write(source, &writes->v[i], &err);
        if (!r) {
            out.written++;
        } else if (r == -EAGAIN) {
            out.conflicts++;
        } else {
            out.failed++;
            failed(&writes->v[i], err.text, user);
        }
    }
    return out;
}
