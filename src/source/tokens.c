#include "source/tokens.h"

#include <errno.h>

#include "base/map.h"

static bool in_map(const struct tokens *t)
{
    return t->open.n && t->v.v[t->open.v[t->open.n - 1]].type == TOKEN_MAP;
}

static int push(struct tokens *t, struct token tok, const char *s, size_t n, struct err *err)
{
    if (t->v.n >= TOKENS_MAX || n > TOKENS_TEXT_MAX || t->text.n + n > TOKENS_TEXT_MAX)
        return err_set(err, E2BIG, "an object larger than %u MiB or %u values: split it",
                       TOKENS_TEXT_MAX >> 20, TOKENS_MAX);
    tok.text = (uint32_t)t->text.n;
    tok.len = (uint32_t)n;
    tok.end = (uint32_t)t->v.n + 1;
    buf_put(&t->text, s, n);
    buf_put(&t->text, "", 1);
    vec_push(&t->v, tok);
    return 0;
}

static void drop_after(struct tokens *t, uint32_t n, uint32_t text)
{
    t->v.n = n;
    t->text.n = text;
    t->alias = (struct place){ 0 };
}

static enum object_kind find_kind(const char *api_version, const char *kind)
{
    for (enum object_kind k = 0; k < KIND_COUNT; k++)
        if (!strcmp(kind_info[k].kind, kind) && !strcmp(kind_info[k].api_version, api_version))
            return k;
    return KIND_COUNT;
}

const char *token_string(const struct tokens *t, uint32_t map, const char *key)
{
    uint32_t i = t->v.v[map].type == TOKEN_MAP ? token_find(t, map, key) : 0;
    if (!i || t->v.v[i].type != TOKEN_SCALAR)
        return "";
    const char *s = token_text(t, i);
    bool string = !t->v.v[i].plain || token_scalar_type(s) == SCALAR_STRING;
    return string && strlen(s) == t->v.v[i].len ? s : "";
}

static uint64_t hash_tokens(const struct tokens *t, uint32_t root)
{
    uint64_t h[2] = { 0, 0 };
    for (uint32_t i = root; i < t->v.n; i++) {
        const struct token *tok = &t->v.v[i];
        h[1] = hash_bytes(token_text(t, i), tok->len) + tok->type * 2u + tok->plain;
        h[0] = hash_bytes(h, sizeof(h));
    }
    return h[0];
}

struct doc tokens_doc(const struct tokens *t, uint32_t at)
{
    const struct token *tok = &t->v.v[at];
    struct doc doc = { .place = { tok->line, tok->col },
                       .tokens = t,
                       .root = at,
                       .kind = KIND_COUNT,
                       .api_version = "",
                       .kind_name = "",
                       .ns = "",
                       .name = "" };
    if (tok->type != TOKEN_MAP)
        return doc;
    doc.api_version = token_string(t, at, "apiVersion");
    doc.kind_name = token_string(t, at, "kind");
    doc.kind = find_kind(doc.api_version, doc.kind_name);
    uint32_t meta = token_find(t, at, "metadata");
    if (meta) {
        doc.name = token_string(t, meta, "name");
        doc.ns = token_string(t, meta, "namespace");
    }
    if (doc.kind != KIND_COUNT && !kind_info[doc.kind].namespaced)
        doc.ns = "";
    else if (!*doc.ns)
        doc.ns = "default";
    return doc;
}

static void hand_out(struct tokens *t, uint32_t root)
{
    const struct token *tok = &t->v.v[root];
    if (tok->type == TOKEN_SCALAR && tok->plain &&
        token_scalar_type(token_text(t, root)) == SCALAR_NULL)
        return; /* an empty document */
    struct doc doc = tokens_doc(t, root);
    doc.hash = hash_tokens(t, root);
    t->handler->object(t->handler->user, &doc);
}

/* After each complete value: is an object complete? */
static void value_done(struct tokens *t, uint32_t start)
{
    if (!t->open.n) {
        if (!t->listed) {
            hand_out(t, start);
        } else if (t->handler->list) {
            struct doc doc = tokens_doc(t, start);
            t->handler->list(t->handler->user, &doc);
        }
        drop_after(t, 0, 0);
        t->listed = false;
    } else if (t->items && t->open.n == t->items) {
        hand_out(t, start);
        drop_after(t, t->root_n, t->root_text);
    }
}

/* ---- items that are too large ---- */

static bool is_open(const struct tokens *t, uint32_t at)
{
    for (size_t i = 0; i < t->open.n; i++)
        if (t->open.v[i] == at)
            return true;
    return false;
}

/* As token_find() in a map that has not ended; only complete values. */
static uint32_t find_so_far(const struct tokens *t, uint32_t map, const char *key)
{
    for (uint32_t i = map + 1; i < t->v.n;) {
        uint32_t value = t->v.v[i].end;
        if (value >= t->v.n || is_open(t, value))
            return 0;
        if (token_is(t, i, key))
            return value;
        i = t->v.v[value].end;
    }
    return 0;
}

static bool can_skip(const struct tokens *t)
{
    return t->handler->skipped && t->items && t->open.n >= t->items;
}

/* Passes over the item under way instead of refusing the text; -E2BIG where that cannot be. */
static int skip_item(struct tokens *t, bool starts)
{
    if (!can_skip(t))
        return -E2BIG;
    uint32_t meta = t->v.n > t->root_n && t->v.v[t->root_n].type == TOKEN_MAP
                        ? find_so_far(t, t->root_n, "metadata")
                        : 0;
    snprintf(t->skip_ns, sizeof(t->skip_ns), "%s", meta ? token_string(t, meta, "namespace") : "");
    snprintf(t->skip_name, sizeof(t->skip_name), "%s", meta ? token_string(t, meta, "name") : "");
    t->skip = t->open.n - t->items + starts;
    t->open.n = t->items;
    drop_after(t, t->root_n, t->root_text);
    if (!t->skip)
        t->handler->skipped(t->handler->user, t->skip_ns, t->skip_name);
    return 0;
}

int tokens_scalar(struct tokens *t, const char *s, size_t n, bool plain, struct place at,
                  struct err *err)
{
    if (t->skip)
        return 0;
    uint32_t start = (uint32_t)t->v.n;
    struct token tok = { .type = TOKEN_SCALAR, .plain = plain, .line = at.line, .col = at.column };
    if (push(t, tok, s, n, can_skip(t) ? NULL : err))
        return skip_item(t, false);
    value_done(t, start);
    return 0;
}

/* The root's keys and values alternate, so a list that follows the scalar "items" as the
 * root's direct child is the list of a kind: List. */
static bool starts_items(const struct tokens *t)
{
    if (t->open.n != 1 || !in_map(t))
        return false;
    bool has_key = false;
    uint32_t last = 0;
    for (uint32_t i = 1; i < t->v.n; i = t->v.v[i].end) {
        has_key = !has_key;
        last = i;
    }
    return has_key && t->v.v[last].type == TOKEN_SCALAR && token_is(t, last, "items");
}

int tokens_start(struct tokens *t, enum token_type type, struct place at, struct err *err)
{
    if (t->skip) {
        t->skip++;
        return 0;
    }
    struct err *told = can_skip(t) ? NULL : err;
    if (t->open.n >= DEPTH_MAX) {
        err_set(told, E2BIG, "nested deeper than %u levels", DEPTH_MAX);
        return skip_item(t, true);
    }
    bool items = type == TOKEN_LIST && !t->items && starts_items(t);
    uint32_t start = (uint32_t)t->v.n;
    if (push(t, (struct token){ .type = (uint8_t)type, .line = at.line, .col = at.column }, "", 0,
             told))
        return skip_item(t, true);
    vec_push(&t->open, start);
    if (items) {
        t->items = t->open.n;
        t->root_n = (uint32_t)t->v.n;
        t->root_text = (uint32_t)t->text.n;
        t->listed = true;
        t->alias = (struct place){ 0 };
    }
    return 0;
}

int tokens_end(struct tokens *t, struct place at, struct err *err)
{
    if (t->skip) {
        if (!--t->skip)
            t->handler->skipped(t->handler->user, t->skip_ns, t->skip_name);
        return 0;
    }
    if (t->items == t->open.n)
        t->items = 0;
    if (push(t, (struct token){ .type = TOKEN_END, .line = at.line, .col = at.column }, "", 0,
             can_skip(t) ? NULL : err)) {
        int r = skip_item(t, false);
        return r || !t->skip ? r : tokens_end(t, at, err);
    }
    uint32_t start = t->open.v[--t->open.n];
    t->v.v[start].end = (uint32_t)t->v.n;
    value_done(t, start);
    return 0;
}

void tokens_alias(struct tokens *t, struct place at)
{
    if (!t->alias.line)
        t->alias = at;
}

void tokens_done(struct tokens *t)
{
    vec_done(&t->v);
    vec_done(&t->open);
    buf_done(&t->text);
}

const char *token_text(const struct tokens *t, uint32_t i)
{
    return t->text.p + t->v.v[i].text;
}

bool token_is(const struct tokens *t, uint32_t i, const char *s)
{
    size_t n = strlen(s);
    return t->v.v[i].type == TOKEN_SCALAR && t->v.v[i].len == n && !memcmp(token_text(t, i), s, n);
}

uint32_t token_find(const struct tokens *t, uint32_t map, const char *key)
{
    for (uint32_t i = map + 1; t->v.v[i].type != TOKEN_END;) {
        uint32_t value = t->v.v[i].end;
        if (token_is(t, i, key))
            return value;
        i = t->v.v[value].end;
    }
    return 0;
}

static bool one_of(const char *s, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(s, *words))
            return true;
    return false;
}

static bool is_float(const char *s)
{
    static const char *const words[] = { ".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN", NULL };
    s += *s == '-' || *s == '+';
    if (one_of(s, words))
        return true;
    size_t whole = strspn(s, "0123456789");
    s += whole;
    size_t fraction = 0;
    if (*s == '.') {
        fraction = strspn(s + 1, "0123456789");
        s += 1 + fraction;
    }
    if (!whole && !fraction)
        return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '-' || *s == '+';
        size_t exponent = strspn(s, "0123456789");
        if (!exponent)
            return false;
        s += exponent;
    }
    return !*s;
}

enum scalar_type token_scalar_type(const char *s)
{
    static const char *const nulls[] = { "", "~", "null", "Null", "NULL", NULL };
    static const char *const bools[] = { "true", "True", "TRUE", "false", "False", "FALSE", NULL };
    if (*s && !strchr("~nNtTfF+-.0123456789", *s))
        return SCALAR_STRING; /* most are names: a seventh of all reading was the words below */
    if (one_of(s, nulls))
        return SCALAR_NULL;
    if (one_of(s, bools))
        return SCALAR_BOOL;
    if (!strncmp(s, "0x", 2) && s[2] && !s[2 + strspn(s + 2, "0123456789abcdefABCDEF")])
        return SCALAR_INT;
    if (!strncmp(s, "0o", 2) && s[2] && !s[2 + strspn(s + 2, "01234567")])
        return SCALAR_INT;
    const char *digits = s + (*s == '-' || *s == '+');
    if (*digits && !digits[strspn(digits, "0123456789")])
        return SCALAR_INT;
    return is_float(s) ? SCALAR_FLOAT : SCALAR_STRING;
}
