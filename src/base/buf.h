/* A growing text buffer. Always NUL-terminated once something was written. Puts cannot fail. */
#pragma once

#include <stdarg.h>
#include <stddef.h>

struct buf {
    char *p; /* NULL while empty */
    size_t n, cap;
};

void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
void buf_puts(struct buf *b, const char *s);
void buf_put(struct buf *b, const void *p, size_t n);
/* The text, "" when nothing was written. */
const char *buf_str(const struct buf *b);
void buf_clear(struct buf *b);
void buf_done(struct buf *b);
