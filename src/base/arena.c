#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN         sizeof(uint64_t)
#define DEFAULT_CHUNK 4096
#define CHUNK_MAX     (256 * 1024)

struct arena_chunk {
    struct arena_chunk *next;
    uint32_t size, used;
    uint64_t data[];
};

static void out_of_memory(void)
{
    fputs("portolan: out of memory\n", stderr);
    abort();
}

void *xmalloc(size_t size)
{
    void *p = malloc(size ? size : 1);
    if (!p)
        out_of_memory();
    return p;
}

void *xcalloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);
    if (!p)
        out_of_memory();
    return p;
}

void *xrealloc(void *p, size_t size)
{
    void *q = realloc(p, size ? size : 1);
    if (!q)
        out_of_memory();
    return q;
}

char *xstrdup(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(xmalloc(n), s, n);
}

static void *alloc(struct arena *a, size_t size, size_t align)
{
    struct arena_chunk *c = a->head;
    size_t at = c ? (c->used + align - 1) / align * align : 0;
    if (!c || at > c->size || c->size - at < size) {
        size_t want = a->chunk_size ? a->chunk_size : DEFAULT_CHUNK;
        if (want < size)
            want = size;
        if (want > UINT32_MAX)
            out_of_memory();
        struct arena_chunk *fresh = xcalloc(1, sizeof(*fresh) + want);
        fresh->size = (uint32_t)want;
        fresh->next = c;
        a->head = c = fresh;
        at = 0;
        /* A fifth at most lies idle: a cluster's objects, each an arena, live for days. */
        if (want < CHUNK_MAX)
            a->chunk_size = want + want / 4;
    }
    c->used = (uint32_t)(at + size);
    return (char *)c->data + at;
}

void *arena_alloc(struct arena *a, size_t size)
{
    return alloc(a, size ? size : 1, ALIGN);
}

void *arena_array(struct arena *a, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        out_of_memory();
    return arena_alloc(a, bytes);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *p = alloc(a, n + 1, 1);
    memcpy(p, s, n);
    return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = alloc(a, n < 0 ? 1 : (size_t)n + 1, 1);
    if (n >= 0)
        vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

size_t arena_used(const struct arena *a)
{
    size_t sum = 0;
    for (const struct arena_chunk *c = a->head; c; c = c->next)
        sum += c->used;
    return sum;
}

size_t arena_held(const struct arena *a)
{
    size_t sum = 0;
    for (const struct arena_chunk *c = a->head; c; c = c->next)
        sum += c->size;
    return sum;
}

void arena_reset(struct arena *a)
{
    struct arena_chunk *keep = a->head;
    if (!keep)
        return;
    for (struct arena_chunk *c = keep->next, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    keep->next = NULL;
    memset(keep->data, 0, keep->used);
    keep->used = 0;
}

void arena_done(struct arena *a)
{
    for (struct arena_chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    *a = (struct arena){ 0 };
}
