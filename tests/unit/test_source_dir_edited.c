/* Records that other hands have changed while agents run. */
#include "test.h"

#include "dir_class.h"

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
    world_begin(&w, &a, &b, "m.yaml", MAPPING("80"));
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
    world_end(&w, &a, &b);
}

static bool at_version(const struct agent *a, const char *version)
{
    return class(a) && !strcmp(class(a)->o.meta.resource_version, version);
}

/* Claims are what links live by: no agent gives them up because a file was lost. */
static void a_lost_class_record_is_written_again(void **state)
{
    (void)state;
    struct world w;
    struct agent a, b;
    world_begin(&w, &a, &b, "c.yaml", CLASS);
    struct link_claim claim = {
        .key = "a/b", .peer = { "a", "b" }, .subnet = "169.254.77.0/31", .slot = 0
    };
    assert_int_equal(agent_write(&a, links_write("1", &claim, 1)), 0);
    world_until(&w, at_version(&a, "2") && at_version(&b, "2"));
    char uid[40];
    snprintf(uid, sizeof(uid), "%s", class(&a)->o.meta.uid);
    unlink(world_path(&w, CLASS_RECORD));
    world_until(&w, at_version(&a, "3") && at_version(&b, "3"));
    world_put(&w, CLASS_RECORD, "{\"kind\":");
    world_until(&w, at_version(&a, "4") && at_version(&b, "4"));
    assert_int_equal(agent_noted(&a, "public.json was removed: it is written again") +
                         agent_noted(&b, "public.json was removed: it is written again"),
                     1);
    assert_int_equal(
        agent_noted(&a, "was made unreadable") + agent_noted(&b, "was made unreadable"), 1);
    /* Also where the manifest, too, is no good, or changes at the same time. */
    world_put(&w, "c.yaml", "spec: [\n");
    world_until(&w, agent_noted(&a, "not YAML") && agent_noted(&b, "not YAML"));
    unlink(world_path(&w, CLASS_RECORD));
    world_until(&w, at_version(&a, "5") && at_version(&b, "5"));
    world_put(&w, "c.yaml", CLASS "# changed\n");
    nftw(world_path(&w, ".status"), world_remove, 16, FTW_DEPTH | FTW_PHYS);
    world_until(&w, at_version(&a, "6") && at_version(&b, "6"));
    assert_int_equal(class(&a)->status.n_links, 1);
    assert_string_equal(class(&a)->o.meta.uid, uid);
    assert_true(object_equal(&class(&a)->o, &class(&b)->o));
    /* A class that is deleted is gone with its claims. */
    unlink(world_path(&w, "c.yaml"));
    world_until(&w, !class(&a) && !class(&b) && !world_has(&w, CLASS_RECORD));
    world_put(&w, "c.yaml", CLASS);
    world_until(&w, at_version(&a, "1") && at_version(&b, "1"));
    assert_int_equal(class(&a)->status.n_links, 0);
    assert_string_not_equal(class(&a)->o.meta.uid, uid);
    world_end(&w, &a, &b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spec_edited_in_the_record_is_put_right),
        cmocka_unit_test(a_lost_class_record_is_written_again),
    };
    return cmocka_run_group_tests_name("source dir edited", tests, NULL, NULL);
}
