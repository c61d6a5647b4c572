#include <stdlib.h>
#include <yaml.h>

#include "source/tokens.h"
#include "source/writer.h"

struct yaml_writer {
    struct writer w;
    yaml_emitter_t emitter;
};

/* The emitter fails on a wrong sequence of events only, since strings come clean. */
static void emit(struct writer *w, int ok, yaml_event_t *e)
{
    struct yaml_writer *y = (struct yaml_writer *)w;
    if (!ok || !yaml_emitter_emit(&y->emitter, e))
        abort();
}

static void on_map(struct writer *w)
{
    yaml_event_t e;
    emit(w, yaml_mapping_start_event_initialize(&e, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE), &e);
}

static void on_map_end(struct writer *w)
{
    yaml_event_t e;
    emit(w, yaml_mapping_end_event_initialize(&e), &e);
}

static void on_list(struct writer *w)
{
    yaml_event_t e;
    emit(w, yaml_sequence_start_event_initialize(&e, NULL, NULL, 1, YAML_BLOCK_SEQUENCE_STYLE), &e);
}

static void on_list_end(struct writer *w)
{
    yaml_event_t e;
    emit(w, yaml_sequence_end_event_initialize(&e), &e);
}

static void scalar(struct writer *w, const char *s, size_t n, yaml_scalar_style_t style)
{
    yaml_event_t e;
    emit(
        w,
        yaml_scalar_event_initialize(&e, NULL, NULL, (const unsigned char *)s, (int)n, 1, 1, style),
        &e);
}

/* Other readers follow YAML 1.1, where more words than ours are booleans, times and numbers
 * of base 60. */
static bool needs_quotes(const char *s)
{
    static const char *const words[] = { "y", "yes", "n", "no", "on", "off" };
    if (token_scalar_type(s) != SCALAR_STRING)
        return true;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!strcasecmp(s, words[i]))
            return true;
    return *s >= '0' && *s <= '9' && strpbrk(s, ":-_");
}

static void on_string(struct writer *w, const char *s, size_t n)
{
    bool multiline = memchr(s, '\n', n);
    scalar(w, s, n,
           multiline || needs_quotes(s) ? YAML_DOUBLE_QUOTED_SCALAR_STYLE
                                        : YAML_PLAIN_SCALAR_STYLE);
}

static void on_int(struct writer *w, int64_t n)
{
    char text[24];
    int len = snprintf(text, sizeof(text), "%lld", (long long)n);
    scalar(w, text, (size_t)len, YAML_PLAIN_SCALAR_STYLE);
}

static void on_bool(struct writer *w, bool b)
{
    scalar(w, b ? "true" : "false", b ? 4 : 5, YAML_PLAIN_SCALAR_STYLE);
}

static void on_null(struct writer *w)
{
    scalar(w, "null", 4, YAML_PLAIN_SCALAR_STYLE);
}

static void on_free(struct writer *w)
{
    struct yaml_writer *y = (struct yaml_writer *)w;
    yaml_event_t e;
    emit(w, yaml_document_end_event_initialize(&e, 1), &e);
    emit(w, yaml_stream_end_event_initialize(&e), &e);
    yaml_emitter_delete(&y->emitter);
    free(y);
}

static const struct writer_ops yaml_ops = {
    .map = on_map,
    .map_end = on_map_end,
    .list = on_list,
    .list_end = on_list_end,
    .string = on_string,
    .integer = on_int,
    .boolean = on_bool,
    .null = on_null,
    .free = on_free,
};

static int print(void *out, unsigned char *s, size_t n)
{
    buf_put(out, s, n);
    return 1;
}

struct writer *writer_yaml_new(struct buf *out)
{
    struct yaml_writer *y = xcalloc(1, sizeof(*y));
    yaml_event_t e;
    y->w.ops = &yaml_ops;
    if (!yaml_emitter_initialize(&y->emitter))
        abort();
    yaml_emitter_set_output(&y->emitter, print, out);
    yaml_emitter_set_unicode(&y->emitter, 1);
    yaml_emitter_set_width(&y->emitter, -1);
    emit(&y->w, yaml_stream_start_event_initialize(&e, YAML_UTF8_ENCODING), &e);
    emit(&y->w, yaml_document_start_event_initialize(&e, NULL, NULL, NULL, 1), &e);
    return &y->w;
}
