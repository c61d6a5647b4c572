#include "base/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

struct map_slot {
    const void *key; /* NULL: never used; TOMB: deleted */
    void *value;
    uint32_t len, hash;
};

static char tomb;
#define TOMB ((void *)&tomb)

uint64_t hash_bytes(const void *p, size_t n)
{
    const unsigned char *s = p;
    uint64_t h = 0x9e3779b97f4a7c15u ^ n;
    for (; n >= 8; n -= 8, s += 8) {
        uint64_t w;
        memcpy(&w, s, 8);
        h = (h ^ w) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    for (; n; n--, s++)
        h = (h ^ *s) * 0x100000001b3u;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53u;
    return h ^ (h >> 33);
}

static struct map_slot *find(const struct map *m, const void *key, size_t len, uint32_t h)
{
    if (!m->cap)
        return NULL;
    for (size_t i = h & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct map_slot *s = &m->slots[i];
        if (!s->key)
            return NULL;
        if (s->key != TOMB && s->hash == h && s->len == len && !memcmp(s->key, key, len))
            return s;
    }
}

static void rehash(struct map *m)
{
    size_t live = 0;
    for (size_t i = 0; i < m->cap; i++)
        live += m->slots[i].key && m->slots[i].key != TOMB;
    size_t cap = 16;
    while (cap < live * 2 + 2)
        cap *= 2;
    struct map_slot *slots = xcalloc(cap, sizeof(*slots));
    for (size_t i = 0; i < m->cap; i++) {
        struct map_slot *s = &m->slots[i];
        if (!s->key || s->key == TOMB)
            continue;
        size_t j = s->hash & (cap - 1);
        while (slots[j].key)
            j = (j + 1) & (cap - 1);
        slots[j] = *s;
    }
    free(m->slots);
    m->slots = slots;
    m->cap = cap;
    m->n = live;
}

void *map_get(const struct map *m, const void *key, size_t len)
{
    struct map_slot *s = find(m, key, len, (uint32_t)hash_bytes(key, len));
    return s ? s->value : NULL;
}

void *map_put(struct map *m, const void *key, size_t len, void *value)
{
    uint32_t h = (uint32_t)hash_bytes(key, len);
    struct map_slot *s = find(m, key, len, h);
    if (s) {
        void *old = s->value;
        s->value = value;
        return old;
    }
    if ((m->n + 1) * 4 > m->cap * 3)
        rehash(m);
    size_t i = h & (m->cap - 1);
    while (m->slots[i].key)
        i = (i + 1) & (m->cap - 1);
    if (!m->keys_stay)
        key = memcpy(xmalloc(len), key, len);
    m->slots[i] = (struct map_slot){ key, value, (uint32_t)len, h };
    m->n++; /* counts tombstones too, so that probing always ends */
    return NULL;
}

void *map_del(struct map *m, const void *key, size_t len)
{
    struct map_slot *s = find(m, key, len, (uint32_t)hash_bytes(key, len));
    if (!s)
        return NULL;
    void *old = s->value;
    if (!m->keys_stay)
        free((void *)s->key);
    s->key = TOMB;
    s->value = NULL;
    return old;
}

bool map_next(const struct map *m, size_t *i, const void **ret_key, size_t *ret_len,
              void **ret_value)
{
    for (; *i < m->cap; (*i)++) {
        struct map_slot *s = &m->slots[*i];
        if (!s->key || s->key == TOMB)
            continue;
        if (ret_key)
            *ret_key = s->key;
        if (ret_len)
            *ret_len = s->len;
        *ret_value = s->value;
        (*i)++;
        return true;
    }
    return false;
}

void map_done(struct map *m)
{
    for (size_t i = 0; i < m->cap && !m->keys_stay; i++)
        if (m->slots[i].key && m->slots[i].key != TOMB)
            free((void *)m->slots[i].key);
    free(m->slots);
    *m = (struct map){ .keys_stay = m->keys_stay };
}
