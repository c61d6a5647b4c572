/* The sentences of a decoder: who, where, what was found, what would be right. */
#include <errno.h>

#include "source/shape.h"
#include "source/tokens.h"

static size_t path_add(struct decoder *d, const char *text, size_t n)
{
    size_t before = d->path_n;
    size_t room = sizeof(d->path) - 1 - before;
    n = n < room ? n : room;
    memcpy(d->path + before, text, n);
    d->path_n += n;
    d->path[d->path_n] = '\0';
    return before;
}

size_t decoder_push_key(struct decoder *d, const char *key)
{
    size_t before = d->path_n;
    if (before)
        path_add(d, ".", 1);
    path_add(d, key, strlen(key));
    return before;
}

size_t decoder_push_index(struct decoder *d, uint32_t i)
{
    char text[16];
    int n = snprintf(text, sizeof(text), "[%u]", i);
    return path_add(d, text, (size_t)n);
}

void decoder_pop(struct decoder *d, size_t to)
{
    d->path_n = to;
    d->path[to] = '\0';
}

static void put_place(struct decoder *d, uint32_t at)
{
    const struct token *t = &d->tokens->v.v[at];
    if (d->reterr_place)
        *d->reterr_place = (struct place){ t->line, t->col };
}

/* "KIND NS/NAME: PATH" */
static void put_subject(const struct decoder *d, struct buf *b)
{
    if (*d->name)
        buf_printf(b, "%s %.64s%s%.253s: %s", d->kind, d->ns, *d->ns ? "/" : "", d->name, d->path);
    else
        buf_printf(b, "%s without a name: %s", d->kind, d->path);
}

/* "; WHAT is needed", with what explains it behind that. */
static void put_needed(struct buf *b, const char *what)
{
    const char *why = strstr(what, ": ");
    size_t n = why ? (size_t)(why - what) : strlen(what);
    buf_printf(b, "; %.*s is needed%s", (int)n, what, why ? why : "");
}

static void put_value(struct buf *b, const struct tokens *t, uint32_t at)
{
    const struct token *tok = &t->v.v[at];
    if (tok->type != TOKEN_SCALAR)
        buf_printf(b, "%s %s", tok->end == at + 2 ? "an empty" : "a",
                   tok->type == TOKEN_MAP ? "map" : "list");
    else if (!tok->plain)
        buf_printf(b, "\"%.60s\"", token_text(t, at));
    else
        buf_printf(b, "%.60s", tok->len ? token_text(t, at) : "null");
}

int decoder_refuse(struct decoder *d, uint32_t at, const char *what)
{
    struct buf problem = { 0 };
    buf_puts(&problem, "is ");
    put_value(&problem, d->tokens, at);
    put_needed(&problem, what);
    int r = decoder_refuse_key(d, at, buf_str(&problem));
    buf_done(&problem);
    return r;
}

int decoder_refuse_key(struct decoder *d, uint32_t at, const char *problem)
{
    struct buf b = { 0 };
    put_subject(d, &b);
    put_place(d, at);
    int r = err_set(d->err, EINVAL, "%s %s", buf_str(&b), problem);
    buf_done(&b);
    return r;
}

static void put_what(const struct field *f, struct buf *b)
{
    const char *why = f->check ? f->check("") : NULL;
    switch (f->type) {
    case FIELD_STRING:
        buf_puts(b, why ? why : f->flags & NONEMPTY ? "a string that is not empty" : "a string");
        return;
    case FIELD_TIME:
        buf_puts(b, "a time such as \"2026-01-02T03:04:05Z\"");
        return;
    case FIELD_BOOL:
        buf_puts(b, "true or false");
        return;
    case FIELD_INT:
        if (f->max == INT64_MAX)
            buf_printf(b, "an integer of at least %lld", (long long)f->min);
        else
            buf_printf(b, "an integer from %lld to %lld", (long long)f->min, (long long)f->max);
        return;
    case FIELD_ENUM:
        for (const struct name_value *n = f->names; n->name; n++)
            buf_printf(b, "%s%s", n == f->names ? "" : n[1].name ? ", " : " or ", n->name);
        return;
    case FIELD_OBJECT:
    case FIELD_POINTER:
        buf_puts(b, "a map");
        return;
    case FIELD_MAP:
        buf_puts(b, f->flags & NONEMPTY ? "a map with at least one entry" : "a map");
        return;
    case FIELD_LIST:
        buf_puts(b, "a list");
        return;
    case FIELD_STRINGS:
        buf_printf(b, "a list of %s%s", f->flags & NONEMPTY ? "at least one " : "",
                   f->flags & NONEMPTY ? "string" : "strings");
        return;
    case FIELD_INTS:
        buf_printf(b, "a list of integers from %lld to %lld", (long long)f->min, (long long)f->max);
        return;
    case FIELD_PAIRS:
        buf_puts(b, "a map of strings");
        return;
    case FIELD_PRESENT:
        buf_puts(b, "any string");
        return;
    case FIELD_CUSTOM:
        buf_puts(b, f->custom->what);
        return;
    }
}

int decoder_refuse_field(struct decoder *d, uint32_t at, const struct field *f)
{
    struct buf b = { 0 };
    put_what(f, &b);
    int r = decoder_refuse(d, at, buf_str(&b));
    buf_done(&b);
    return r;
}

int decoder_refuse_missing(struct decoder *d, uint32_t at, const struct field *f)
{
    struct buf what = { 0 }, problem = { 0 };
    decoder_push_key(d, f->name);
    put_what(f, &what);
    buf_puts(&problem, "is missing");
    put_needed(&problem, buf_str(&what));
    int r = decoder_refuse_key(d, at, buf_str(&problem));
    buf_done(&problem);
    buf_done(&what);
    return r;
}

int decoder_refuse_unknown(struct decoder *d, uint32_t at, const struct shape *shape)
{
    if (d->tokens->v.v[at].type != TOKEN_SCALAR)
        return decoder_refuse(d, at, "a map whose keys are names of fields");
    struct buf problem = { 0 };
    const char *meant = NULL;
    size_t best = SIZE_MAX;
    char given[64];
    snprintf(given, sizeof(given), "%s", token_text(d->tokens, at));
    for (const struct field *f = shape->fields; f->name; f++)
        if (near_name(given, f->name, &best))
            meant = f->name;
    if (meant)
        buf_printf(&problem, "is unknown; did you mean %s?", meant);
    else
        buf_puts(&problem,
                 d->path_n ? "is unknown; known are " : "is unknown; known are apiVersion, kind, ");
    for (const struct field *f = shape->fields; f->name && !meant; f++)
        buf_printf(&problem, "%s%s", f == shape->fields ? "" : f[1].name ? ", " : " and ", f->name);
    decoder_push_key(d, given);
    int r = decoder_refuse_key(d, at, buf_str(&problem));
    buf_done(&problem);
    return r;
}

/* ---- is it an object at all ---- */

static int refuse_kind(struct decoder *d, const struct doc *doc, enum object_kind meant)
{
    const struct kind_info *info = &kind_info[meant];
    bool kind = strcmp(doc->kind_name, info->kind);
    const char *field = kind ? "kind" : "apiVersion";
    char problem[160];
    snprintf(problem, sizeof(problem), "is %.60s; did you mean %s?",
             kind ? doc->kind_name : doc->api_version, kind ? info->kind : info->api_version);
    d->kind = info->kind;
    d->ns = info->namespaced ? d->ns : "";
    decoder_push_key(d, field);
    return decoder_refuse_key(d, token_find(d->tokens, doc->root, field), problem);
}

int decoder_check(struct decoder *d, const struct doc *doc)
{
    const struct tokens *t = doc->tokens;
    struct buf found = { 0 };
    if (t->alias.line) {
        if (d->reterr_place)
            *d->reterr_place = t->alias;
        return err_set(d->err, EINVAL,
                       "%s%s%s: a YAML alias (*name) is not supported: write out "
                       "what it stands for",
                       *d->kind ? d->kind : "document", *d->name ? " " : "", d->name);
    }
    enum object_kind meant = doc_meant(doc);
    if (*doc->api_version && *doc->kind_name)
        return meant == doc->kind ? 0 : refuse_kind(d, doc, meant);
    put_place(d, doc->root);
    if (t->v.v[doc->root].type != TOKEN_MAP) {
        put_value(&found, t, doc->root);
        int r = err_set(d->err, EINVAL,
                        "%s is no object: one needs apiVersion, kind and metadata with a name",
                        buf_str(&found));
        buf_done(&found);
        return r;
    }
    if (!*d->kind)
        d->kind = "object";
    decoder_push_key(d, *doc->api_version ? "kind" : "apiVersion");
    return decoder_refuse_key(
        d, doc->root, "is missing: an object needs apiVersion, kind and metadata with a name");
}
