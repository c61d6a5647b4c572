/* Puts all objects of a text into a store; each must decode. */
#pragma once

#include "test.h"

#include <string.h>

#include "codec_help.h"
#include "store/store.h"

static inline void store_put_yaml(struct store *s, const char *yaml)
{
    struct decoded d = decode(yaml, strlen(yaml), CODEC_YAML);
    if (d.errors.n)
        fail_msg("%s", d.errors.v[0]);
    for (size_t i = 0; i < d.objects.n; i++)
        store_upsert(s, d.objects.v[i]);
    d.objects.n = 0;
    decoded_done(&d);
}
