/* Any bytes decode or are refused; what decodes is written and read back equal. */
#pragma once

#include <stdint.h>

#include "source/codec.h"

static void codec_again(const struct object *o, enum codec_format format);

/* doc_decode() of whatever is there; `user` is the object it must equal, or NULL. */
static void codec_take(void *user, const struct doc *doc)
{
    const struct object *want = user;
    struct object *o;
    struct place place;
    struct err err;
    if (doc->kind == KIND_COUNT || doc_decode(doc, true, &o, &place, &err)) {
        if (want || (doc->kind != KIND_COUNT && !place.line))
            abort();
        return;
    }
    if (want) {
        if (!object_equal(o, want))
            abort();
    } else {
        codec_again(o, CODEC_YAML);
        codec_again(o, CODEC_JSON);
    }
    object_free(o);
}

static void codec_again(const struct object *o, enum codec_format format)
{
    struct codec_handler handler = { .user = (void *)(uintptr_t)o, .object = codec_take };
    struct place place;
    struct buf b = { 0 };
    struct writer *w = format == CODEC_YAML ? writer_yaml_new(&b) : writer_json_new(&b, true);
    encode_object(w, o);
    writer_free(w);
    if (codec_parse(b.p, b.n, format, &handler, &place, NULL))
        abort();
    buf_done(&b);
}

static int codec_fuzz(const uint8_t *data, size_t n, enum codec_format format)
{
    struct codec_handler handler = { .user = NULL, .object = codec_take };
    struct place place = { 0 };
    struct err err;
    if (codec_parse((const char *)data, n, format, &handler, &place, &err) && !place.line)
        abort(); /* every error has a place */
    return 0;
}
