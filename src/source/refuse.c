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

static const char *type_name(const struct tokens *t, uint32_t at)
{
    const struct token *tok = &t->v.v[at];
    if (tok->type == TOKEN_MAP)
        return "a map";
    if (tok->type == TOKEN_LIST)
        return "a list";
    if (!tok->plain)
        return "a string";
    switch (token_scalar_type(token_text(t, at))) {
    case SCALAR_STRING:
        return "a string";
    case SCALAR_NULL:
        return "null";
    case SCALAR_BOOL:
        return "a boolean";
    case SCALAR_INT:
        return "an integer";
    case SCALAR_FLOAT:
        return "a fraction";
    }
    return "";
}

int decoder_refuse(struct decoder *d, uint32_t at, const char *what)
{
    const struct tokens *t = d->tokens;
    struct buf b = { 0 };
    put_subject(d, &b);
    put_place(d, at);
    buf_puts(&b, *d->path ? " is " : "it is ");
    if (t->v.v[at].type == TOKEN_SCALAR) {
        const char *quote = t->v.v[at].plain ? "" : "\"";
        buf_printf(&b, "%s%.60s%s (%s)", quote, token_text(t, at), quote, type_name(t, at));
    } else {
        buf_puts(&b, type_name(t, at));
    }
    int r = err_set(d->err, EINVAL, "%s, must be %s", buf_str(&b), what);
    buf_done(&b);
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
    struct buf b = { 0 }, what = { 0 };
    decoder_push_key(d, f->name);
    put_subject(d, &b);
    put_place(d, at);
    put_what(f, &what);
    int r = err_set(d->err, EINVAL, "%s is missing, must be %s", buf_str(&b), buf_str(&what));
    buf_done(&b);
    buf_done(&what);
    return r;
}

int decoder_check(struct decoder *d, const struct doc *doc)
{
    const struct tokens *t = doc->tokens;
    if (t->alias.line) {
        if (d->reterr_place)
            *d->reterr_place = t->alias;
        return err_set(d->err, EINVAL,
                       "%s %s: a YAML alias (*name) is not supported: write out "
                       "what it stands for",
                       *d->kind ? d->kind : "document", d->name);
    }
    if (t->v.v[doc->root].type == TOKEN_MAP && *doc->api_version && *doc->kind_name)
        return 0;
    if (!*d->kind)
        d->kind = "document";
    if (t->v.v[doc->root].type != TOKEN_MAP)
        return decoder_refuse(d, doc->root, "a map with apiVersion, kind and metadata");
    struct field missing = { .name = *doc->api_version ? "kind" : "apiVersion",
                             .type = FIELD_STRING };
    return decoder_refuse_missing(d, doc->root, &missing);
}
