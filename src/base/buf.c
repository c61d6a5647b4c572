#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

static void reserve(struct buf *b, size_t more)
{
    if (b->cap - b->n > more)
        return;
    size_t cap = b->cap ? b->cap * 2 : 256;
    while (cap - b->n <= more)
        cap *= 2;
    b->p = xrealloc(b->p, cap);
    b->cap = cap;
}

void buf_put(struct buf *b, const void *p, size_t n)
{
    reserve(b, n);
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = 0;
}

void buf_puts(struct buf *b, const char *s)
{
    buf_put(b, s, strlen(s));
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n > 0) {
        reserve(b, (size_t)n);
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

const char *buf_str(const struct buf *b)
{
    return b->p ? b->p : "";
}

void buf_clear(struct buf *b)
{
    b->n = 0;
    if (b->p)
        b->p[0] = 0;
}

void buf_done(struct buf *b)
{
    free(b->p);
    *b = (struct buf){ 0 };
}
