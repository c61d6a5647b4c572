#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/timestamp.h"
#include "source/shape.h"
#include "source/tokens.h"

static int get_field(struct decoder *d, uint32_t at, void *base, const struct field *f);

/* ---- values ---- */

uint32_t token_next(const struct tokens *t, uint32_t *i)
{
    uint32_t at = *i;
    if (t->v.v[at].type == TOKEN_END)
        return 0;
    *i = t->v.v[at].end;
    return at;
}

static bool is_null(const struct tokens *t, uint32_t at)
{
    return t->v.v[at].type == TOKEN_SCALAR && t->v.v[at].plain &&
           token_scalar_type(token_text(t, at)) == SCALAR_NULL;
}

static bool is_type(const struct tokens *t, uint32_t at, enum scalar_type type)
{
    if (t->v.v[at].type != TOKEN_SCALAR)
        return false;
    if (!t->v.v[at].plain)
        return type == SCALAR_STRING;
    return token_scalar_type(token_text(t, at)) == type;
}

static const char *keep_string(struct decoder *d, const char *s, size_t n)
{
    const char **slot = &d->recent[hash_bytes(s, n) % RECENT_STRINGS];
    if (!*slot || strcmp(*slot, s))
        *slot = arena_strndup(d->mem, s, n);
    return *slot;
}

int decode_string(struct decoder *d, uint32_t at, const char *what, const char **ret)
{
    const struct tokens *t = d->tokens;
    if (t->v.v[at].type == TOKEN_SCALAR && !is_type(t, at, SCALAR_STRING)) {
        char hint[300];
        snprintf(hint, sizeof(hint), "%.250s: put it in quotes", what);
        return decoder_refuse(d, at, hint);
    }
    if (t->v.v[at].type != TOKEN_SCALAR)
        return decoder_refuse(d, at, what);
    const char *s = token_text(t, at);
    if (strlen(s) != t->v.v[at].len)
        return decoder_refuse_key(d, at, "holds a NUL byte: take it out");
    *ret = *s ? keep_string(d, s, t->v.v[at].len) : "";
    return 0;
}

static int get_string(struct decoder *d, uint32_t at, const char **ret, const struct field *f)
{
    const char *what = f->check ? f->check("") : "a string";
    const char *s;
    int r = decode_string(d, at, what, &s);
    if (r)
        return r;
    const char *why = f->check ? f->check(s) : NULL;
    if (why)
        return decoder_refuse(d, at, why);
    *ret = s;
    return 0;
}

static bool parse_int(const struct tokens *t, uint32_t at, int64_t *ret)
{
    if (!is_type(t, at, SCALAR_INT))
        return false;
    const char *s = token_text(t, at);
    char *end;
    errno = 0;
    long long n = !strncmp(s, "0x", 2)   ? strtoll(s + 2, &end, 16)
                  : !strncmp(s, "0o", 2) ? strtoll(s + 2, &end, 8)
                                         : strtoll(s, &end, 10);
    if (errno || *end)
        return false;
    *ret = n;
    return true;
}

static void put_int(void *p, uint8_t size, int64_t n)
{
    if (size == 1)
        *(uint8_t *)p = (uint8_t)n;
    else if (size == 2)
        *(uint16_t *)p = (uint16_t)n;
    else if (size == 4)
        *(uint32_t *)p = (uint32_t)n;
    else
        *(int64_t *)p = n;
}

static int get_int(struct decoder *d, uint32_t at, void *p, uint8_t size, const struct field *f)
{
    int64_t n;
    if (!parse_int(d->tokens, at, &n) || n < f->min || n > f->max)
        return decoder_refuse_field(d, at, f);
    put_int(p, size, n);
    return 0;
}

static int get_time(struct decoder *d, uint32_t at, int64_t *ret, const struct field *f)
{
    const struct tokens *t = d->tokens;
    if (!is_type(t, at, SCALAR_STRING) || !time_parse(token_text(t, at), ret))
        return decoder_refuse_field(d, at, f);
    return 0;
}

static int get_bool(struct decoder *d, uint32_t at, bool *ret, const struct field *f)
{
    if (!is_type(d->tokens, at, SCALAR_BOOL))
        return decoder_refuse_field(d, at, f);
    const char *s = token_text(d->tokens, at);
    *ret = *s == 't' || *s == 'T';
    return 0;
}

static int get_enum(struct decoder *d, uint32_t at, void *p, const struct field *f)
{
    if (is_type(d->tokens, at, SCALAR_STRING))
        for (const struct name_value *n = f->names; n->name; n++)
            if (token_is(d->tokens, at, n->name)) {
                put_int(p, f->size, n->value);
                return 0;
            }
    return decoder_refuse_field(d, at, f);
}

/* ---- collections ---- */

/* Every string of the model is "" when absent, never NULL. */
static void set_defaults(void *base, const struct shape *shape)
{
    for (const struct field *f = shape->fields; f->name; f++) {
        char *p = (char *)base + f->offset;
        switch (f->type) {
        case FIELD_STRING:
            *(const char **)p = f->text ? f->text : "";
            break;
        case FIELD_BOOL:
        case FIELD_INT:
        case FIELD_ENUM:
            put_int(p, f->size, f->initial);
            break;
        case FIELD_OBJECT:
            set_defaults(p, f->shape);
            break;
        case FIELD_TIME:
        case FIELD_LIST:
        case FIELD_MAP:
        case FIELD_STRINGS:
        case FIELD_INTS:
        case FIELD_PAIRS:
        case FIELD_POINTER:
        case FIELD_PRESENT:
        case FIELD_CUSTOM:
            break;
        }
    }
}

static int by_first_string(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static uint32_t count(const struct tokens *t, uint32_t at)
{
    uint32_t n = 0;
    for (uint32_t i = at + 1; token_next(t, &i);)
        n++;
    return n;
}

static void store_array(void *base, const struct field *f, void *v, uint32_t n)
{
    *(void **)((char *)base + f->offset) = n ? v : NULL;
    *(uint32_t *)((char *)base + f->count) = n;
}

static int get_list(struct decoder *d, uint32_t at, void *base, const struct field *f)
{
    const struct tokens *t = d->tokens;
    uint32_t n = t->v.v[at].type == TOKEN_LIST ? count(t, at) : 0;
    if (t->v.v[at].type != TOKEN_LIST || (!n && (f->flags & NONEMPTY)))
        return decoder_refuse_field(d, at, f);
    char *v = arena_array(d->mem, n, f->shape->size);
    uint32_t i = at + 1;
    for (uint32_t k = 0; k < n; k++) {
        size_t path = decoder_push_index(d, k);
        int r = decode_shape(d, token_next(t, &i), v + k * f->shape->size, f->shape);
        if (r)
            return r;
        decoder_pop(d, path);
    }
    if (f->flags & SORTED)
        qsort(v, n, f->shape->size, by_first_string);
    store_array(base, f, v, n);
    return 0;
}

/* Anybody who may write an annotation may write a NUL into it, which must not cost the object. */
static int get_any_text(struct decoder *d, uint32_t at, const char **ret)
{
    const struct token *token = &d->tokens->v.v[at];
    const char *text = token_text(d->tokens, at);
    if (!is_type(d->tokens, at, SCALAR_STRING) || strlen(text) == token->len)
        return decode_string(d, at, "a string", ret);
    struct buf clean = { 0 };
    for (uint32_t i = 0; i < token->len; i++) {
        if (text[i])
            buf_put(&clean, &text[i], 1);
        else
            buf_puts(&clean, "\xef\xbf\xbd");
    }
    *ret = keep_string(d, clean.p, clean.n);
    buf_done(&clean);
    return 0;
}

/* FIELD_PAIRS when `shape` is NULL: the value is then a string behind the key. */
static int get_map(struct decoder *d, uint32_t at, void *base, const struct field *f)
{
    const struct tokens *t = d->tokens;
    uint32_t n = t->v.v[at].type == TOKEN_MAP ? count(t, at) / 2 : 0;
    if (t->v.v[at].type != TOKEN_MAP || (!n && (f->flags & NONEMPTY)))
        return decoder_refuse_field(d, at, f);
    size_t size = f->shape ? f->shape->size : sizeof(struct label);
    char *v = arena_array(d->mem, n, size);
    uint32_t i = at + 1;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t key = token_next(t, &i), value = token_next(t, &i);
        const char **elem = (const char **)(void *)(v + k * size);
        const char *name, *text = "";
        int r = decode_string(d, key, "a string", &name);
        if (r)
            return r;
        size_t path = decoder_push_key(d, name);
        if (f->shape)
            r = decode_shape(d, value, elem, f->shape);
        else if (!is_null(t, value))
            r = f->flags & ANYTEXT ? get_any_text(d, value, &text)
                                   : decode_string(d, value, "a string", &text);
        if (r)
            return r;
        if (!f->shape)
            elem[1] = text;
        elem[0] = name;
        decoder_pop(d, path);
    }
    qsort(v, n, size, by_first_string);
    for (uint32_t k = 1; k < n; k++)
        if (!by_first_string(v + (k - 1) * size, v + k * size))
            return decoder_refuse_key(d, at, "has a key twice: keep one");
    store_array(base, f, v, n);
    return 0;
}

static int get_strings(struct decoder *d, uint32_t at, struct string_list *ret,
                       const struct field *f)
{
    const struct tokens *t = d->tokens;
    uint32_t n = t->v.v[at].type == TOKEN_LIST ? count(t, at) : 0;
    if (t->v.v[at].type != TOKEN_LIST || (!n && (f->flags & NONEMPTY)))
        return decoder_refuse_field(d, at, f);
    const char **v = arena_new_array(d->mem, n, const char *);
    uint32_t i = at + 1;
    for (uint32_t k = 0; k < n; k++) {
        size_t path = decoder_push_index(d, k);
        int r = get_string(d, token_next(t, &i), &v[k], f);
        if (r)
            return r;
        decoder_pop(d, path);
    }
    *ret = (struct string_list){ n ? v : NULL, n };
    return 0;
}

static int get_ints(struct decoder *d, uint32_t at, void *base, const struct field *f)
{
    const struct tokens *t = d->tokens;
    if (t->v.v[at].type != TOKEN_LIST)
        return decoder_refuse_field(d, at, f);
    struct field one = { .type = FIELD_INT, .min = f->min, .max = f->max };
    uint32_t n = count(t, at);
    uint16_t *v = arena_new_array(d->mem, n, uint16_t);
    uint32_t i = at + 1;
    for (uint32_t k = 0; k < n; k++) {
        size_t path = decoder_push_index(d, k);
        int r = get_int(d, token_next(t, &i), &v[k], sizeof(v[k]), &one);
        if (r)
            return r;
        decoder_pop(d, path);
    }
    store_array(base, f, v, n);
    return 0;
}

static int get_fields(struct decoder *d, uint32_t at, void *base, const struct shape *shape);

static int get_pointer(struct decoder *d, uint32_t at, void **ret, const struct field *f)
{
    *ret = arena_alloc(d->mem, f->shape->size);
    return decode_shape(d, at, *ret, f->shape);
}

static int get_field(struct decoder *d, uint32_t at, void *base, const struct field *f)
{
    void *p = (char *)base + f->offset;
    switch (f->type) {
    case FIELD_STRING:
        return get_string(d, at, p, f);
    case FIELD_TIME:
        return get_time(d, at, p, f);
    case FIELD_BOOL:
        return get_bool(d, at, p, f);
    case FIELD_INT:
        return get_int(d, at, p, f->size, f);
    case FIELD_ENUM:
        return get_enum(d, at, p, f);
    case FIELD_OBJECT:
        return get_fields(d, at, p, f->shape);
    case FIELD_LIST:
        return get_list(d, at, base, f);
    case FIELD_MAP:
    case FIELD_PAIRS:
        return get_map(d, at, base, f);
    case FIELD_STRINGS:
        return get_strings(d, at, p, f);
    case FIELD_INTS:
        return get_ints(d, at, base, f);
    case FIELD_POINTER:
        return get_pointer(d, at, p, f);
    case FIELD_PRESENT:
        *(bool *)p = true;
        return 0;
    case FIELD_CUSTOM:
        return f->custom->get(d, at, base);
    }
    return 0;
}

static uint32_t find_field(const struct decoder *d, uint32_t key, const struct shape *shape)
{
    uint32_t i = 0;
    while (shape->fields[i].name && !token_is(d->tokens, key, shape->fields[i].name))
        i++;
    return i;
}

/* What names the kind, in no shape since doc has it. */
static bool is_type_meta(const struct decoder *d, uint32_t key)
{
    return !d->path_n &&
           (token_is(d->tokens, key, "apiVersion") || token_is(d->tokens, key, "kind"));
}

static int get_fields(struct decoder *d, uint32_t at, void *base, const struct shape *shape)
{
    const struct tokens *t = d->tokens;
    if (t->v.v[at].type != TOKEN_MAP)
        return decoder_refuse(d, at, "a map");
    uint32_t seen = 0, key;
    for (uint32_t i = at + 1; (key = token_next(t, &i));) {
        uint32_t value = token_next(t, &i), index = find_field(d, key, shape);
        const struct field *f = &shape->fields[index];
        if (!f->name && d->strict && !shape->open && !is_type_meta(d, key))
            return decoder_refuse_unknown(d, key, shape);
        if (!f->name || ((f->flags & STATUS) && !d->with_status) || is_null(t, value))
            continue;
        size_t path = decoder_push_key(d, f->name);
        if (seen & 1u << index)
            return decoder_refuse_key(d, key, "is given twice: keep one");
        seen |= 1u << index;
        int r = get_field(d, value, base, f);
        if (r)
            return r;
        if (f->has)
            *(bool *)((char *)base + f->has) = true;
        decoder_pop(d, path);
    }
    for (const struct field *f = shape->fields; f->name; f++)
        if ((f->flags & REQUIRED) && !(seen & 1u << (f - shape->fields)))
            return decoder_refuse_missing(d, at, f);
    if (shape->finish)
        shape->finish(base, seen);
    return shape->check && d->strict ? shape->check(d, at, base) : 0;
}

int decode_shape(struct decoder *d, uint32_t at, void *base, const struct shape *shape)
{
    set_defaults(base, shape);
    return get_fields(d, at, base, shape);
}

static int decode_into(struct decoder *d, const struct doc *doc, struct object *o)
{
    d->mem = &o->mem;
    d->path_n = 0;
    memset(d->recent, 0, sizeof(d->recent));
    int r = decode_shape(d, doc->root, o, shape_of_kind[doc->kind]);
    if (!r && strcmp(o->meta.ns, doc->ns))
        o->meta.ns = *doc->ns ? arena_strdup(&o->mem, doc->ns) : "";
    return r;
}

int doc_decode(const struct doc *doc, bool with_status, struct object **ret,
               struct place *reterr_place, struct err *err)
{
    struct decoder d = { .tokens = doc->tokens,
                         .with_status = with_status,
                         .strict = !with_status &&
                                   (doc->kind == KIND_PORTMAP || doc->kind == KIND_PORTMAPCLASS ||
                                    doc->kind == KIND_TRAFFICCLASS),
                         .kind = doc->kind_name,
                         .ns = doc->ns,
                         .name = doc->name,
                         .reterr_place = reterr_place,
                         .err = err };
    int r = decoder_check(&d, doc);
    if (r)
        return r;
    struct object *draft = object_new_sized(doc->kind, 4096);
    r = decode_into(&d, doc, draft);
    if (!r) {
        /* A second time, into as much memory as it takes: objects are many and live long. */
        *ret = object_new_sized(doc->kind, arena_used(&draft->mem));
        r = decode_into(&d, doc, *ret);
        assert(!r);
    }
    object_free(draft);
    return r;
}

struct place doc_place(const struct doc *doc, const char *field)
{
    const struct tokens *t = doc->tokens;
    uint32_t spec = t->v.v[doc->root].type == TOKEN_MAP ? token_find(t, doc->root, "spec") : 0;
    uint32_t value = spec && t->v.v[spec].type == TOKEN_MAP ? token_find(t, spec, field) : 0;
    const struct token *at = &t->v.v[value ? value : spec ? spec : doc->root];
    return (struct place){ at->line, at->col };
}
