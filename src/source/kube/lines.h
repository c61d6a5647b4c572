/* Cuts a stream into lines. A line above the limit is passed over and told of. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"

/* The largest object an API server keeps is 1.5 MiB; JSON adds to that. */
#define LINE_MAX_BYTES (4u << 20)

struct lines {
    void *user;
    /* Without its end; NUL-terminated. Returning false ends the cutting: the rest is dropped. */
    bool (*line)(void *user, const char *p, size_t n);
    /* `start` is the first bytes of what was too long. */
    bool (*too_long)(void *user, const char *start);
    size_t max;
    struct buf partial;
    bool skipping;
};

/* False when a callback said so. */
bool lines_put(struct lines *l, const char *p, size_t n);
void lines_done(struct lines *l);
