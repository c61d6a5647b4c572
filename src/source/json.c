/* JSON to tokens, by yajl's events. */
#include <errno.h>
#include <stdlib.h>
#include <yajl/yajl_parse.h>

#include "source/tokens.h"

struct json {
    yajl_handle yajl;
    struct tokens *tokens;
    const char *text; /* NULL: it comes in pieces, and places are not known */
    size_t n;
    size_t at;          /* end of the last event's text */
    struct place place; /* of `at` */
    struct place start; /* of the last event */
    size_t silent;      /* bytes since the last event, in whole pieces */
    int error;
    struct err *err;
};

static void walk(struct json *j, size_t to)
{
    for (; j->at < to; j->at++) {
        j->place.column++;
        if (j->text[j->at] == '\n') {
            j->place.line++;
            j->place.column = 1;
        }
    }
}

/* yajl tells where an event's text ends; it began behind the last one and what separates. */
static void next_event(struct json *j)
{
    j->silent = 0;
    if (!j->text)
        return;
    while (j->at < j->n && strchr(" \t\r\n,:", j->text[j->at]) && j->text[j->at])
        walk(j, j->at + 1);
    j->start = j->place;
    size_t end = yajl_get_bytes_consumed(j->yajl);
    walk(j, end < j->n ? end : j->n);
}

static int scalar(struct json *j, const char *s, size_t n, bool plain)
{
    next_event(j);
    j->error = tokens_scalar(j->tokens, s, n, plain, j->start, j->err);
    return !j->error;
}

static int on_null(void *user)
{
    return scalar(user, "null", 4, true);
}

static int on_bool(void *user, int value)
{
    return value ? scalar(user, "true", 4, true) : scalar(user, "false", 5, true);
}

static int on_number(void *user, const char *s, size_t n)
{
    return scalar(user, s, n, true);
}

static int on_string(void *user, const unsigned char *s, size_t n)
{
    return scalar(user, (const char *)s, n, false);
}

static int start(struct json *j, enum token_type type)
{
    next_event(j);
    j->error = tokens_start(j->tokens, type, j->start, j->err);
    return !j->error;
}

static int on_map(void *user)
{
    return start(user, TOKEN_MAP);
}

static int on_list(void *user)
{
    return start(user, TOKEN_LIST);
}

static int on_end(void *user)
{
    struct json *j = user;
    next_event(j);
    j->error = tokens_end(j->tokens, j->start, j->err);
    return !j->error;
}

static int parse_error(struct json *j, struct place *reterr_place)
{
    if (!j->error)
        next_event(j);
    *reterr_place = j->start;
    if (j->error)
        return j->error;
    unsigned char *said = yajl_get_error(j->yajl, 0, NULL, 0);
    const char *text = said ? (const char *)said : "unknown error";
    int r = err_set(j->err, EINVAL, "not JSON: %.*s", (int)strcspn(text, "\n"), text);
    yajl_free_error(j->yajl, said);
    return r;
}

static const yajl_callbacks callbacks = { .yajl_null = on_null,
                                          .yajl_boolean = on_bool,
                                          .yajl_number = on_number,
                                          .yajl_string = on_string,
                                          .yajl_start_map = on_map,
                                          .yajl_map_key = on_string,
                                          .yajl_end_map = on_end,
                                          .yajl_start_array = on_list,
                                          .yajl_end_array = on_end };

static void open_parser(struct json *j)
{
    j->place = j->start = (struct place){ 1, 1 };
    j->yajl = yajl_alloc(&callbacks, NULL, j);
    if (!j->yajl)
        abort();
    yajl_config(j->yajl, yajl_allow_multiple_values, 1);
}

int json_parse(const char *text, size_t n, struct tokens *t, struct place *reterr_place,
               struct err *err)
{
    struct json j = { .tokens = t, .text = text, .n = n, .err = err };
    open_parser(&j);
    int r = 0;
    if (yajl_parse(j.yajl, (const unsigned char *)text, n) != yajl_status_ok ||
        yajl_complete_parse(j.yajl) != yajl_status_ok)
        r = parse_error(&j, reterr_place);
    yajl_free(j.yajl);
    return r;
}

/* ---- in pieces ---- */

/* yajl looks at a value from its beginning with each piece, so an endless one would take the
 * square of its length. */
#define SILENCE_MAX (8u << 20)

struct codec_stream {
    struct json json;
    struct tokens tokens;
    struct codec_handler handler;
};

struct codec_stream *codec_stream_new(const struct codec_handler *handler)
{
    struct codec_stream *s = xcalloc(1, sizeof(*s));
    s->handler = *handler;
    s->tokens.handler = &s->handler;
    s->json.tokens = &s->tokens;
    open_parser(&s->json);
    return s;
}

int codec_stream_put(struct codec_stream *s, const char *p, size_t n, struct err *err)
{
    struct place place;
    s->json.err = err;
    s->json.silent += n;
    if (s->json.silent > SILENCE_MAX)
        return err_set(err, E2BIG, "a value larger than %u MiB", SILENCE_MAX >> 20);
    if (yajl_parse(s->json.yajl, (const unsigned char *)p, n) != yajl_status_ok)
        return parse_error(&s->json, &place);
    return 0;
}

int codec_stream_end(struct codec_stream *s, struct err *err)
{
    struct place place;
    s->json.err = err;
    if (yajl_complete_parse(s->json.yajl) != yajl_status_ok)
        return parse_error(&s->json, &place);
    return 0;
}

void codec_stream_free(struct codec_stream *s)
{
    if (!s)
        return;
    yajl_free(s->json.yajl);
    tokens_done(&s->tokens);
    free(s);
}
