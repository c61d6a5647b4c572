/* Records that other hands have changed while agents run. */
#include "test.h"

#include "dir_help.h"

#define RECORD ".status/portmaps/games/web.json"
#define MAPPING(port)                                                                          \
    "---\napiVersion: kuport.wlz.li/v1alpha1\nkind: PortMap\nmetadata: {name: web, "           \
    "namespace: games}\nspec: {className: public, protocol: TCP, serviceRef: {name: s, port: " \
    "p}, interfaces: [eth0], port: " port "}\n"

static const struct portmap *mapping(const struct agent *a)
{
    return agent_get(a, KIND_PORTMAP, "games", "web");
}

/* The record with another text in the place of one. */
static void edit(const struct world *w, const char *record, const char *from, const char *to)
{
    char *text = world_get(w, record);
    char *at = strstr(text, from);
    struct buf b = { 0 };
    assert_non_null(at);
    buf_printf(&b, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    world_put(w, record, b.p);
    buf_done(&b);
    free(text);
}

static bool record_has(const struct world *w, const char *record, const char *text)
{
    char *found = world_get(w, record);
    bool has = found && strstr(found, text);
    free(found);
    return has;
}

static void a_spec_edited_in_the_record_is_put_right(void **state)
{
    (void)state;
    static const struct {
        const char *was, *is;
    } cases[] = { { "\"eth0\"", "\"eth9\"" }, { "\"port\": 80", "\"port\": 81" } };
    struct world w;
    struct agent a, b;
    world_open(&w);
    world_put(&w, "m.yaml", MAPPING("80"));
    agent_start(&a, &w);
    agent_start(&b, &w);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char uid[40];
        int64_t generation = mapping(&a)->o.meta.generation;
        snprintf(uid, sizeof(uid), "%s", mapping(&a)->o.meta.uid);
        edit(&w, RECORD, cases[i].was, cases[i].is);
        world_until(&w, record_has(&w, RECORD, cases[i].was) &&
                            mapping(&a)->o.meta.generation > generation &&
                            object_equal(&mapping(&a)->o, &mapping(&b)->o));
        assert_int_equal(mapping(&a)->port, 80);
        assert_string_equal(mapping(&a)->interfaces.v[0], "eth0");
        assert_string_equal(mapping(&a)->o.meta.uid, uid);
        assert_int_equal(mapping(&a)->o.meta.generation, generation + 1);
    }
    assert_int_equal(a.notes.n + b.notes.n, 0);
    /* What the record keeps from a manifest that is refused is not put right. */
    world_put(&w, "m.yaml", MAPPING("81"));
    world_until(&w, a.notes.n == 1 && b.notes.n == 1);
    assert_int_equal(mapping(&a)->port, 80);
    assert_true(record_has(&w, RECORD, "\"port\": 80"));
    agent_close(&a);
    agent_close(&b);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spec_edited_in_the_record_is_put_right),
    };
    return cmocka_run_group_tests_name("source dir edited", tests, NULL, NULL);
}
