/* A hash map from bytes to a pointer. Keys are copied, or with keys_stay they belong to the
 * caller, who leaves them where they are as long as they are in. What is ordered anyway uses
 * sorted arrays. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_slot;

struct map {
    struct map_slot *slots;
    size_t cap, n;
    bool keys_stay;
};

/* The value, or NULL. */
void *map_get(const struct map *m, const void *key, size_t len);
/* Returns the value that was there before, or NULL. `value` must not be NULL. */
void *map_put(struct map *m, const void *key, size_t len, void *value);
/* Removes and returns the value, or NULL. */
void *map_del(struct map *m, const void *key, size_t len);
/* Iterates in no particular order: start with *i = 0; false at the end. */
bool map_next(const struct map *m, size_t *i, const void **ret_key, size_t *ret_len,
              void **ret_value);
void map_done(struct map *m);

uint64_t hash_bytes(const void *p, size_t n);
