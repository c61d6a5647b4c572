#include <stdlib.h>
#include <yajl/yajl_gen.h>

#include "source/writer.h"

struct json_writer {
    struct writer w;
    yajl_gen gen;
};

static yajl_gen gen(struct writer *w)
{
    return ((struct json_writer *)w)->gen;
}

static void on_map(struct writer *w)
{
    yajl_gen_map_open(gen(w));
}

static void on_map_end(struct writer *w)
{
    yajl_gen_map_close(gen(w));
}

static void on_list(struct writer *w)
{
    yajl_gen_array_open(gen(w));
}

static void on_list_end(struct writer *w)
{
    yajl_gen_array_close(gen(w));
}

static void on_string(struct writer *w, const char *s, size_t n)
{
    yajl_gen_string(gen(w), (const unsigned char *)s, n);
}

static void on_int(struct writer *w, int64_t n)
{
    yajl_gen_integer(gen(w), n);
}

static void on_bool(struct writer *w, bool b)
{
    yajl_gen_bool(gen(w), b);
}

static void on_null(struct writer *w)
{
    yajl_gen_null(gen(w));
}

static void on_free(struct writer *w)
{
    yajl_gen_free(gen(w));
    free(w);
}

static const struct writer_ops json_ops = {
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

static void print(void *out, const char *s, size_t n)
{
    buf_put(out, s, n);
}

struct writer *writer_json_new(struct buf *out, bool indented)
{
    struct json_writer *j = xcalloc(1, sizeof(*j));
    j->w.ops = &json_ops;
    j->gen = yajl_gen_alloc(NULL);
    if (!j->gen)
        abort();
    yajl_gen_config(j->gen, yajl_gen_print_callback, print, out);
    yajl_gen_config(j->gen, yajl_gen_beautify, indented);
    yajl_gen_config(j->gen, yajl_gen_indent_string, "    ");
    return &j->w;
}
