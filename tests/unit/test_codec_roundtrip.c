/* decode(encode(x)) == x for random objects, in both formats, made by the same tables. */
#include "test.h"

#include <string.h>

#include "codec_help.h"
#include "model/trafficclass.h"
#include "source/shape.h"

static uint64_t rng;

static uint32_t below(uint32_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 33) % n;
}

static const char *random_string(struct arena *mem)
{
    static const char *const words[] = { "",           "true",
                                         "null",       "~",
                                         "8080",       "0x1f",
                                         "1e3",        ".inf",
                                         "no",         "a: b",
                                         "# x",        " lead",
                                         "trail ",     "\n",
                                         "a\nb",       "\t",
                                         "\"",         "'",
                                         "\\",         "- a",
                                         "ünïcödé",    "&a",
                                         "*a",         "!t",
                                         "%",          "@",
                                         "`",          "{",
                                         "[",          "1:30",
                                         "---",        "...",
                                         "a\r\nb",     "\xe2\x80\xa8",
                                         "\x7f",       "\x01",
                                         "\xc2\x85",   "?",
                                         ":",          "\xef\xbb\xbf",
                                         "name-1.x",   "10.0.0.1",
                                         "fd00::1/64", "|",
                                         ">" };
    const char *a = words[below(sizeof(words) / sizeof(words[0]))];
    return below(3) ? a
                    : arena_printf(mem, "%s%s", a, words[below(sizeof(words) / sizeof(words[0]))]);
}

static const char *name(struct arena *mem, uint32_t i)
{
    return arena_printf(mem, "n%c%u", 'a' + (int)below(26), i);
}

static void fill(struct arena *mem, void *base, const struct shape *shape);

static const char *string_for(struct arena *mem, const struct field *f, uint32_t i)
{
    return f->check ? name(mem, i) : random_string(mem);
}

static void fill_array(struct arena *mem, void *base, const struct field *f)
{
    uint32_t n = below(4) + (f->flags & NONEMPTY ? 1 : 0);
    size_t size = f->type == FIELD_INTS    ? sizeof(uint16_t)
                  : f->type == FIELD_PAIRS ? sizeof(struct label)
                                           : f->shape->size;
    char *v = arena_array(mem, n, size);
    for (uint32_t i = 0; i < n; i++) {
        char *e = v + i * size;
        if (f->type == FIELD_INTS) {
            *(uint16_t *)(void *)e = (uint16_t)(1 + below(65535));
            continue;
        }
        if (f->shape)
            fill(mem, e, f->shape);
        else
            ((const char **)(void *)e)[1] = random_string(mem);
        if (f->type != FIELD_LIST || f->flags & SORTED) /* ascending and unique */
            *(const char **)(void *)e = arena_printf(mem, "%c%s", 'a' + (int)i, random_string(mem));
    }
    *(void **)((char *)base + f->offset) = n ? v : NULL;
    *(uint32_t *)((char *)base + f->count) = n;
}

static void fill_int(void *p, const struct field *f)
{
    uint64_t span = (uint64_t)f->max - (uint64_t)f->min;
    uint64_t n = below(4) ? below(70000) : ((uint64_t)below(UINT32_MAX) << 31 | below(UINT32_MAX));
    int64_t v = f->min + (int64_t)(n % (span ? span : 1));
    memcpy(p, &v, f->size); /* little endian */
}

static void fill_enum(void *p, const struct field *f)
{
    uint32_t n = 0;
    while (f->names[n].name)
        n++;
    *(int *)p = f->names[below(n)].value;
}

static void fill_custom(struct arena *mem, void *base, const struct field *f)
{
    if (!strcmp(f->name, "peers")) {
        ((struct link_claim *)base)->peer[0] = random_string(mem);
        ((struct link_claim *)base)->peer[1] = random_string(mem);
        return;
    }
    if (!strcmp(f->name, "endpoints.kubernetes.io/last-change-trigger-time")) {
        ((struct endpoint_slice *)base)->trigger = below(2) * (int64_t)below(UINT32_MAX);
        return;
    }
    if (!strcmp(f->name, "families")) {
        ((struct traffic_class *)base)->families = (uint8_t)(1 + below(3));
        return;
    }
    struct node *node = base;
    if (!strcmp(f->name, "taints")) {
        node->to_be_deleted = below(2);
        return;
    }
    node->n_internal_ips = below(3);
    node->internal_ips = arena_new_array(mem, node->n_internal_ips, struct ip);
    for (uint32_t i = 0; i < node->n_internal_ips; i++)
        node->internal_ips[i] = ip_v4(10, 0, 0, (uint8_t)below(256));
}

static void fill(struct arena *mem, void *base, const struct shape *shape)
{
    for (const struct field *f = shape->fields; f->name; f++) {
        void *p = (char *)base + f->offset;
        if (f->has)
            *(bool *)((char *)base + f->has) = below(2);
        bool skip = f->has && !*(bool *)((char *)base + f->has);
        switch (f->type) {
        case FIELD_STRING:
            *(const char **)p = string_for(mem, f, 0);
            break;
        case FIELD_TIME:
            *(int64_t *)p = below(2) * (int64_t)below(UINT32_MAX);
            break;
        case FIELD_BOOL:
            *(bool *)p = below(2);
            break;
        case FIELD_INT:
            fill_int(p, f);
            break;
        case FIELD_ENUM:
            fill_enum(p, f);
            break;
        case FIELD_OBJECT:
            fill(mem, p, f->shape);
            break;
        case FIELD_LIST:
        case FIELD_MAP:
        case FIELD_INTS:
        case FIELD_PAIRS:
            fill_array(mem, base, f);
            break;
        case FIELD_STRINGS: {
            struct string_list *l = p;
            l->n = below(3) + (f->flags & NONEMPTY ? 1 : 0);
            l->v = arena_new_array(mem, l->n, const char *);
            for (uint32_t i = 0; i < l->n; i++)
                l->v[i] = string_for(mem, f, i);
            break;
        }
        case FIELD_POINTER:
            *(void **)p = below(2) ? arena_alloc(mem, f->shape->size) : NULL;
            if (*(void **)p)
                fill(mem, *(void **)p, f->shape);
            break;
        case FIELD_PRESENT:
            *(bool *)p = below(2);
            break;
        case FIELD_CUSTOM:
            fill_custom(mem, base, f);
            break;
        }
        if (skip && f->type == FIELD_OBJECT) { /* what is not there is empty */
            for (const struct field *sub = f->shape->fields; sub->name; sub++)
                if (sub->type == FIELD_STRING)
                    *(const char **)((char *)p + sub->offset) = "";
                else
                    *(uint32_t *)((char *)p + sub->count) = 0;
        }
    }
    if (shape->finish)
        shape->finish(base, ~0u);
}

static struct object *random_object(enum object_kind kind)
{
    struct object *o = object_new(kind);
    fill(&o->mem, o, shape_of_kind[kind]);
    if (!kind_info[kind].namespaced)
        o->meta.ns = "";
    return o;
}

static void check(const struct object *o, enum codec_format format, uint64_t seed)
{
    struct buf b = { 0 };
    struct writer *w = format == CODEC_YAML ? writer_yaml_new(&b) : writer_json_new(&b, seed & 1);
    encode_object(w, o);
    writer_free(w);
    struct decoded d = decode(b.p, b.n, format);
    bool good = d.objects.n == 1 && !d.errors.n && object_equal(d.objects.v[0], o);
    if (!good)
        print_error("seed %llu: %s\n%s\n", (unsigned long long)seed,
                    d.errors.n ? d.errors.v[0] : "differs", b.p);
    assert_true(good);
    assert_true(encode_same_spec(o, d.objects.v[0]) || o->meta.kind < KIND_SERVICE);
    decoded_done(&d);
    buf_done(&b);
}

static void what_is_written_reads_back_equal(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        rng = seed;
        below(2);
        struct object *o = random_object((enum object_kind)below(KIND_COUNT));
        check(o, CODEC_YAML, seed);
        check(o, CODEC_JSON, seed);
        object_free(o);
    }
}

static void bytes_that_are_no_text_are_replaced(void **state)
{
    (void)state;
    struct node *n = object_new(KIND_NODE);
    n->o.meta.name = "a";
    n->pod_cidr = "";
    n->o.meta.uid = "x\xff\xc3(\xed\xa0\x80\xf4\x90\x80\x80\xe2\x82";
    struct buf b = { 0 };
    struct writer *w = writer_json_new(&b, false);
    encode_object(w, &n->o);
    writer_free(w);
    assert_non_null(strstr(b.p, "\"uid\":\"x\xef\xbf\xbd\xef\xbf\xbd("));
    struct decoded d = decode(b.p, b.n, CODEC_JSON);
    assert_int_equal(d.objects.n, 1);
    decoded_done(&d);
    buf_clear(&b);
    w = writer_yaml_new(&b);
    encode_object(w, &n->o);
    writer_free(w);
    d = decode(b.p, b.n, CODEC_YAML);
    assert_int_equal(d.objects.n, 1);
    decoded_done(&d);
    buf_done(&b);
    object_free(&n->o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_reads_back_equal),
        cmocka_unit_test(bytes_that_are_no_text_are_replaced),
    };
    return cmocka_run_group_tests_name("codec roundtrip", tests, NULL, NULL);
}
