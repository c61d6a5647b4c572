#include "source/kube/lines.h"

#include <string.h>

#define START_BYTES 1024

static bool end_line(struct lines *l)
{
    bool more = true;
    if (l->skipping)
        l->skipping = false;
    else if (l->partial.n)
        more = l->line(l->user, l->partial.p, l->partial.n);
    buf_clear(&l->partial);
    return more;
}

static bool begin_skipping(struct lines *l)
{
    l->skipping = true;
    if (l->partial.n > START_BYTES)
        l->partial.p[START_BYTES] = '\0';
    bool more = l->too_long(l->user, buf_str(&l->partial));
    buf_done(&l->partial);
    return more;
}

bool lines_put(struct lines *l, const char *p, size_t n)
{
    for (const char *end = p + n; p < end;) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t piece = (size_t)((newline ? newline : end) - p);
        if (!l->skipping) {
            size_t room = l->max - l->partial.n;
            buf_put(&l->partial, p, piece < room ? piece : room);
            if (piece > room && !begin_skipping(l))
                return false;
        }
        p += piece + (newline != NULL);
        if (newline && !end_line(l))
            return false;
    }
    return true;
}

void lines_done(struct lines *l)
{
    buf_done(&l->partial);
    l->skipping = false;
}
