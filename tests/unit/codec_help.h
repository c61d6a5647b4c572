/* Reads a text and keeps every object and every error. */
#pragma once

#include "source/codec.h"

struct decoded {
    bool manifest; /* as someone wrote it, without status */
    VEC(struct object *) objects;
    VEC(char *) errors;  /* "line:column: sentence" */
    VEC(char *) unknown; /* "apiVersion kind" */
};

static inline void decoded_take(void *user, const struct doc *doc)
{
    struct decoded *d = user;
    struct place place = doc->place;
    struct object *o;
    struct err err;
    struct buf b = { 0 };
    if (doc_meant(doc) == KIND_COUNT && *doc->api_version && *doc->kind_name) {
        buf_printf(&b, "%s %s", doc->api_version, doc->kind_name);
        vec_push(&d->unknown, b.p);
    } else if (doc_decode(doc, !d->manifest, &o, &place, &err)) {
        buf_printf(&b, "%u:%u: %s", place.line, place.column, err.text);
        vec_push(&d->errors, b.p);
    } else {
        vec_push(&d->objects, o);
    }
}

static inline struct decoded decode_as(const char *text, size_t n, enum codec_format format,
                                       bool manifest)
{
    struct decoded d = { .manifest = manifest };
    struct codec_handler handler = { .user = &d, .object = decoded_take };
    struct place place = { 0 };
    struct err err;
    if (codec_parse(text, n, format, &handler, &place, &err)) {
        struct buf b = { 0 };
        buf_printf(&b, "%u:%u: %s", place.line, place.column, err.text);
        vec_push(&d.errors, b.p);
    }
    return d;
}

static inline struct decoded decode(const char *text, size_t n, enum codec_format format)
{
    return decode_as(text, n, format, false);
}

static inline void decoded_done(struct decoded *d)
{
    for (size_t i = 0; i < d->objects.n; i++)
        object_free(d->objects.v[i]);
    for (size_t i = 0; i < d->errors.n; i++)
        free(d->errors.v[i]);
    for (size_t i = 0; i < d->unknown.n; i++)
        free(d->unknown.v[i]);
    vec_done(&d->objects);
    vec_done(&d->errors);
    vec_done(&d->unknown);
}
