/* Bump allocation with one lifetime.
 *
 * Everything allocated from an arena is freed by arena_done() or given back by
 * arena_reset(). Memory comes zeroed, aligned for pointers and 64-bit numbers; text is not
 * aligned. Out of memory aborts the program (it is safe to restart at any moment). A zeroed
 * struct arena is a valid empty arena. */
#pragma once

#include <stdarg.h>
#include <stddef.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *head;
    size_t chunk_size; /* bytes of the next chunk; 0 means the default of 4 KiB */
};

void *arena_alloc(struct arena *a, size_t size);
/* `n` elements of `size` bytes; an overflowing product aborts. */
void *arena_array(struct arena *a, size_t n, size_t size);
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Bytes handed out, and bytes held for that. */
size_t arena_used(const struct arena *a);
size_t arena_held(const struct arena *a);
/* Frees all but one chunk and empties it. */
void arena_reset(struct arena *a);
void arena_done(struct arena *a);

#define arena_new(a, type)          ((type *)arena_alloc((a), sizeof(type)))
#define arena_new_array(a, n, type) ((type *)arena_array((a), (n), sizeof(type)))

/* malloc family that aborts when memory is out. */
void *xmalloc(size_t size);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t size);
char *xstrdup(const char *s);
