/* What an agent that starts cannot tell yet: it must not pass for absent. */
#include "test.h"

#include "dir_help.h"

#define SERVICE(port) \
    "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: " port "}]}\n"
#define MAPPING(name, port)                                                          \
    "---\napiVersion: kuport.wlz.li/v1alpha1\nkind: PortMap\nmetadata: {name: " name \
    "}\nspec: {className: c, protocol: TCP, port: " port ", serviceRef: {name: s, port: p}}\n"

static void a_file_never_parsed_is_waited_for(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        { SERVICE("80") "---\nfoo: [\n", "source: bad.yaml:7:1: not YAML: " },
        { SERVICE("x"), "source: bad.yaml:4:23: Service default/s: spec.ports[0].port is x" },
        { "apiVersion: v1\nkind: Service\nspec: {}\n", "source: bad.yaml:" },
        { "foo: bar\n", "source: bad.yaml:1:1: " },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world w;
        struct agent a, b;
        world_open(&w);
        world_put(&w, "bad.yaml", SERVICE("80"));
        world_put(&w, "m.yaml", MAPPING("m", "80"));
        agent_start(&a, &w);
        world_put(&w, "bad.yaml", cases[i].text);
        world_until(&w, a.notes.n);
        agent_begin(&b, &w);
        assert_non_null(agent_get(&b, KIND_PORTMAP, "default", "m"));
        assert_false(agent_synced(&b));
        assert_int_equal(strncmp(agent_unready(&b), cases[i].why, strlen(cases[i].why)), 0);
        /* Other files change nothing about it. */
        world_put(&w, "n.yaml", MAPPING("n", "81"));
        world_until(&w, agent_get(&b, KIND_PORTMAP, "default", "n"));
        assert_false(agent_synced(&b));
        /* Who knew the object still has it, and is ready. */
        assert_non_null(agent_get(&a, KIND_SERVICE, "default", "s"));
        assert_true(agent_synced(&a));
        assert_string_equal(agent_unready(&a), "");
        if (i & 1)
            world_put(&w, "bad.yaml", SERVICE("81"));
        else
            unlink(world_path(&w, "bad.yaml"));
        world_until(&w, agent_synced(&b));
        assert_string_equal(agent_unready(&b), "");
        assert_int_equal(agent_get(&b, KIND_SERVICE, "default", "s") != NULL, i & 1);
        agent_close(&a);
        agent_close(&b);
        world_close(&w);
    }
}

static void what_was_known_once_holds_nothing_up(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_open(&w);
    /* A mapping that was never accepted is in no kernel. */
    world_put(&w, "m.yaml", SERVICE("80") MAPPING("m", "x"));
    agent_start(&a, &w);
    /* A new file that is bad is the business of who starts later. */
    world_put(&w, "n.yaml", "foo: [\n");
    world_until(&w, a.notes.n == 2);
    assert_true(agent_synced(&a));
    assert_string_equal(agent_unready(&a), "");
    agent_close(&a);
    /* Who reads once gets what there is. */
    agent_load(&a, &w);
    assert_non_null(agent_get(&a, KIND_SERVICE, "default", "s"));
    agent_close(&a);
    world_close(&w);
}

/* Agents that ran and those that start see the same. */
static void a_folder_in_the_place_of_a_file_is_no_file(void **state)
{
    (void)state;
    struct world w;
    struct agent a, b;
    world_open(&w);
    world_put(&w, "s.yaml", SERVICE("80"));
    agent_start(&a, &w);
    unlink(world_path(&w, "s.yaml"));
    mkdir(world_path(&w, "s.yaml"), 0755);
    world_until(&w, !agent_get(&a, KIND_SERVICE, "default", "s"));
    world_put(&w, "s.yaml/t.yaml", MAPPING("m", "80"));
    world_until(&w, agent_get(&a, KIND_PORTMAP, "default", "m"));
    agent_start(&b, &w);
    assert_int_equal(a.objects.n, 1);
    assert_int_equal(b.objects.n, 1);
    assert_int_equal(a.notes.n + b.notes.n, 0);
    agent_close(&a);
    agent_close(&b);
    world_close(&w);
}

/* Bytes this process has read. */
static unsigned long long bytes_read(void)
{
    unsigned long long n = 0;
    FILE *f = fopen("/proc/self/io", "re");
    assert_true(f && fscanf(f, "rchar: %llu", &n) == 1);
    fclose(f);
    return n;
}

/* Looked at by its size: it would otherwise be read whole each second. */
static void a_file_too_large_is_told_once_and_not_read(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_open(&w);
    world_put(&w, "s.yaml", SERVICE("80"));
    world_put(&w, "large.yaml", "");
    assert_int_equal(truncate(world_path(&w, "large.yaml"), (off_t)1 << 40), 0);
    unsigned long long before = bytes_read();
    agent_begin(&a, &w);
    int64_t end = clock_mono_us() + 2500000;
    world_until(&w, clock_mono_us() > end);
    assert_int_equal(a.notes.n, 1);
    assert_in_range(bytes_read() - before, 0, 1 << 20);
    assert_int_equal(agent_noted(&a, "large.yaml is larger than 64 MiB: split it"), 1);
    assert_false(agent_synced(&a));
    world_put(&w, "large.yaml", SERVICE("80"));
    world_until(&w, agent_synced(&a));
    agent_close(&a);
    world_close(&w);
}

static void the_longest_name_has_a_record(void **state)
{
    (void)state;
    for (int n = 250; n <= 253; n++) {
        struct world w;
        struct agent a, b;
        struct buf text = { 0 };
        char name[254], record[300];
        world_open(&w);
        memset(name, 'n', sizeof(name));
        for (int i = 63; i < n; i += 64) /* a part between dots has 63 at most */
            name[i] = '.';
        name[n] = '\0';
        buf_printf(&text, MAPPING("%s", "80"), name);
        snprintf(record, sizeof(record), ".status/portmaps/default/%s.%s", name,
                 n == 250 ? "json" : "j");
        world_put(&w, "m.yaml", text.p);
        agent_start(&a, &w);
        assert_int_equal(a.notes.n, 0);
        const struct portmap *m = agent_get(&a, KIND_PORTMAP, "default", name);
        assert_non_null(m);
        assert_true(world_has(&w, record));
        agent_start(&b, &w);
        assert_true(object_equal(&m->o, agent_get(&b, KIND_PORTMAP, "default", name)));
        /* Another's write is seen; the record goes with the manifest, also after a restart. */
        struct status_write s = {
            .kind = WRITE_PORTMAP_STATUS, .ns = "default", .name = name, .resource_version = "1"
        };
        s.portmap = (struct portmap_status){ .has_endpoint = true,
                                             .endpoint_node = "n",
                                             .endpoint_address = "10.0.0.1",
                                             .observed_generation = 1 };
        assert_int_equal(agent_write(&b, s), 0);
        world_until(&w, (m = agent_get(&a, KIND_PORTMAP, "default", name)) != NULL &&
                            m->status.has_endpoint);
        agent_close(&a);
        agent_close(&b);
        unlink(world_path(&w, "m.yaml"));
        agent_start(&a, &w);
        world_until(&w, !world_has(&w, record));
        agent_close(&a);
        buf_done(&text);
        world_close(&w);
    }
}

static void a_record_that_cannot_be_removed_is_told_once(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "m.yaml", MAPPING("m", "80"));
    agent_close(&a);
    unlink(world_path(&w, "m.yaml"));
    unlink(world_path(&w, ".status/portmaps/default/m.json"));
    mkdir(world_path(&w, ".status/portmaps/default/m.json"), 0755);
    agent_start(&a, &w);
    world_until(&w, agent_noted(&a, "cannot remove "));
    /* Passes go on, also those that come to it because it cannot be read. */
    int64_t end = clock_mono_us() + 2500000;
    while (clock_mono_us() < end) {
        world_put(&w, "s.yaml", SERVICE("80"));
        uv_run(&w.loop, UV_RUN_ONCE);
    }
    assert_int_equal(agent_noted(&a, "cannot remove "), 1);
    assert_true(a.notes.n <= 2);
    /* A manifest that comes back has a record when the way is free. */
    rmdir(world_path(&w, ".status/portmaps/default/m.json"));
    world_put(&w, "m.yaml", MAPPING("m", "80"));
    world_until(&w, agent_get(&a, KIND_PORTMAP, "default", "m"));
    world_end(&w, &a, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_never_parsed_is_waited_for),
        cmocka_unit_test(what_was_known_once_holds_nothing_up),
        cmocka_unit_test(a_folder_in_the_place_of_a_file_is_no_file),
        cmocka_unit_test(a_file_too_large_is_told_once_and_not_read),
        cmocka_unit_test(the_longest_name_has_a_record),
        cmocka_unit_test(a_record_that_cannot_be_removed_is_told_once),
    };
    return cmocka_run_group_tests_name("source dir start", tests, NULL, NULL);
}
