#include <stdlib.h>

#include "base/map.h"
#include "base/timestamp.h"
#include "source/shape.h"

static void put_fields(struct writer *w, const void *base, const struct shape *shape);

static int64_t get_int(const void *p, uint8_t size)
{
    if (size == 1)
        return *(const uint8_t *)p;
    if (size == 2)
        return *(const uint16_t *)p;
    if (size == 4)
        return *(const uint32_t *)p;
    return *(const int64_t *)p;
}

static const void *first_of(const void *base, const struct field *f)
{
    return *(const void *const *)((const char *)base + f->offset);
}

static uint32_t count_of(const void *base, const struct field *f)
{
    return *(const uint32_t *)((const char *)base + f->count);
}

static bool absent(const void *base, const struct field *f)
{
    const void *p = (const char *)base + f->offset;
    if (f->has)
        return !*(const bool *)((const char *)base + f->has);
    if (f->flags & ALWAYS)
        return false;
    switch (f->type) {
    case FIELD_STRING:
        return !**(const char *const *)p;
    case FIELD_TIME:
        return !*(const int64_t *)p;
    case FIELD_BOOL:
        return !*(const bool *)p;
    case FIELD_INT:
        return !get_int(p, f->size);
    case FIELD_ENUM:
        return false;
    case FIELD_OBJECT:
        for (const struct field *sub = f->shape->fields; sub->name; sub++)
            if (!absent(p, sub))
                return false;
        return true;
    case FIELD_LIST:
    case FIELD_MAP:
    case FIELD_INTS:
    case FIELD_PAIRS:
        return !count_of(base, f);
    case FIELD_STRINGS:
        return !((const struct string_list *)p)->n;
    case FIELD_POINTER:
        return !first_of(base, f);
    case FIELD_PRESENT:
        return !*(const bool *)p;
    case FIELD_CUSTOM:
        return f->custom->absent && f->custom->absent(base);
    }
    return false;
}

static void put_strings(struct writer *w, const struct string_list *l)
{
    writer_list(w);
    for (uint32_t i = 0; i < l->n; i++)
        writer_string(w, l->v[i]);
    writer_list_end(w);
}

static void put_ints(struct writer *w, const uint16_t *v, uint32_t n)
{
    writer_list(w);
    for (uint32_t i = 0; i < n; i++)
        writer_int(w, v[i]);
    writer_list_end(w);
}

static void put_list(struct writer *w, const char *v, uint32_t n, const struct shape *shape)
{
    writer_list(w);
    for (uint32_t i = 0; i < n; i++)
        put_fields(w, v + i * shape->size, shape);
    writer_list_end(w);
}

static void put_map(struct writer *w, const char *v, uint32_t n, const struct shape *shape)
{
    writer_map(w);
    for (uint32_t i = 0; i < n; i++) {
        const void *elem = v + i * shape->size;
        writer_key(w, *(const char *const *)elem);
        put_fields(w, elem, shape);
    }
    writer_map_end(w);
}

static void put_pairs(struct writer *w, const struct label *v, uint32_t n)
{
    writer_map(w);
    for (uint32_t i = 0; i < n; i++) {
        writer_key(w, v[i].key);
        writer_string(w, v[i].value);
    }
    writer_map_end(w);
}

static void put_enum(struct writer *w, int value, const struct name_value *names)
{
    while (names->name && names->value != value)
        names++;
    writer_string(w, names->name ? names->name : "");
}

static void put_field(struct writer *w, const void *base, const struct field *f)
{
    const void *p = (const char *)base + f->offset;
    char text[TIME_TEXT_MAX];
    switch (f->type) {
    case FIELD_STRING:
        writer_string(w, first_of(base, f));
        return;
    case FIELD_TIME:
        writer_string(w, time_format(*(const int64_t *)p, text));
        return;
    case FIELD_BOOL:
        writer_bool(w, *(const bool *)p);
        return;
    case FIELD_INT:
        writer_int(w, get_int(p, f->size));
        return;
    case FIELD_ENUM:
        put_enum(w, (int)get_int(p, f->size), f->names);
        return;
    case FIELD_OBJECT:
        put_fields(w, p, f->shape);
        return;
    case FIELD_LIST:
        put_list(w, first_of(base, f), count_of(base, f), f->shape);
        return;
    case FIELD_MAP:
        put_map(w, first_of(base, f), count_of(base, f), f->shape);
        return;
    case FIELD_STRINGS:
        put_strings(w, p);
        return;
    case FIELD_INTS:
        put_ints(w, first_of(base, f), count_of(base, f));
        return;
    case FIELD_PAIRS:
        put_pairs(w, first_of(base, f), count_of(base, f));
        return;
    case FIELD_POINTER:
        put_fields(w, first_of(base, f), f->shape);
        return;
    case FIELD_PRESENT:
        writer_string(w, "");
        return;
    case FIELD_CUSTOM:
        f->custom->put(w, base);
        return;
    }
}

/* The fields without the braces of the map. */
static void put_each(struct writer *w, const void *base, const struct shape *shape)
{
    for (const struct field *f = shape->fields; f->name; f++)
        if (!absent(base, f)) {
            writer_key(w, f->name);
            put_field(w, base, f);
        }
}

static void put_fields(struct writer *w, const void *base, const struct shape *shape)
{
    writer_map(w);
    put_each(w, base, shape);
    writer_map_end(w);
}

void encode_object(struct writer *w, const struct object *o)
{
    const struct kind_info *info = &kind_info[o->meta.kind];
    writer_map(w);
    writer_key(w, "apiVersion");
    writer_string(w, info->api_version);
    writer_key(w, "kind");
    writer_string(w, info->kind);
    put_each(w, o, shape_of_kind[o->meta.kind]);
    writer_map_end(w);
}

void encode_status_field(struct writer *w, const struct object *o, const char *name)
{
    for (const struct field *f = shape_of_kind[o->meta.kind]->fields; f->name; f++)
        if (f->flags & STATUS)
            for (const struct field *sub = f->shape->fields; sub->name; sub++)
                if (!strcmp(sub->name, name))
                    put_field(w, (const char *)o + f->offset, sub);
}

void encode_node_row(struct writer *w, const struct node_row *row)
{
    put_fields(w, row, &node_row_shape);
}

void encode_traffic_row(struct writer *w, const struct traffic_row *row)
{
    put_fields(w, row, &traffic_row_shape);
}

static void put_spec(struct buf *out, const struct object *o)
{
    struct writer *w = writer_json_new(out, false);
    for (const struct field *f = shape_of_kind[o->meta.kind]->fields; f->name; f++)
        if (!strcmp(f->name, "spec"))
            put_field(w, o, f);
    writer_free(w);
}

bool encode_same_spec(const struct object *a, const struct object *b)
{
    struct buf x = { 0 }, y = { 0 };
    put_spec(&x, a);
    put_spec(&y, b);
    bool same = !strcmp(buf_str(&x), buf_str(&y));
    buf_done(&x);
    buf_done(&y);
    return same;
}

uint64_t encode_spec_hash(const struct object *o)
{
    struct buf b = { 0 };
    put_spec(&b, o);
    uint64_t hash = hash_bytes(buf_str(&b), b.n);
    buf_done(&b);
    return hash;
}
