/* The manifest folder: what is read, and how changes are followed. */
#include "test.h"

#include <errno.h>

#include "dir_help.h"

#define MAPPING                                                                                  \
    "apiVersion: kuport.wlz.li/v1alpha1\nkind: PortMap\nmetadata: {name: m}\nspec: {className: " \
    "c, protocol: TCP, port: 80, serviceRef: {name: s, port: p}}\n"
#define NAMESPACE(name, label) \
    "apiVersion: v1\nkind: Namespace\nmetadata: {name: " name ", labels: {l: '" label "'}}\n"
#define SERVICE(name, port)                                                                       \
    "---\napiVersion: v1\nkind: Service\nmetadata: {name: " name "}\nspec: {ports: [{port: " port \
    "}]}\n"

static const char *label(const struct agent *a, const char *name)
{
    const struct object *o = agent_get(a, KIND_NAMESPACE, "", name);
    return o ? label_value(&o->meta.labels, "l") : "none";
}

#define HAS(a, name, value) (!strcmp(label((a), (name)), (value)))

static void the_folder_and_one_below_are_read(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_open(&w);
    mkdir(world_path(&w, "sub"), 0755);
    mkdir(world_path(&w, "sub/deep"), 0755);
    mkdir(world_path(&w, ".hidden"), 0755);
    mkdir(world_path(&w, "folder.yaml"), 0755);
    world_put(&w, "a.yaml", NAMESPACE("a", "1"));
    world_put(&w, "b.yml", NAMESPACE("b", "1"));
    world_put(&w, "c.json",
              "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"c\"}}");
    world_put(&w, "sub/d.yaml", NAMESPACE("d", "1"));
    static const char *const ignored[] = {
        ".e.yaml", "e.yaml~", "e.yaml.swp",      "e.yaml.tmp",
        "e.txt",   ".yaml",   "sub/deep/e.yaml", ".hidden/e.yaml"
    };
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        world_put(&w, ignored[i], NAMESPACE("e", "1"));
    agent_load(&a, &w);
    assert_int_equal(a.objects.n, 4);
    assert_null(agent_get(&a, KIND_NAMESPACE, "", "e"));
    assert_int_equal(a.notes.n, 0);
    assert_int_equal(a.changed, 1);
    assert_false(world_has(&w, ".status"));
    agent_close(&a);
    world_close(&w);
}

static void a_wrong_source_says_what_is_right(void **state)
{
    (void)state;
    struct source_sink sink = { 0 };
    struct source *s;
    struct err err;
    struct source_options opt = { .spec = "file:/x" };
    assert_int_equal(source_open(&opt, &sink, &s, &err), -EINVAL);
    assert_string_equal(err.text, "source \"file:/x\": give dir:DIR, a folder of manifests, or "
                                  "kube:, the API server");
    opt = (struct source_options){ .spec = "dir:/x", .context = "y" };
    assert_int_equal(source_open(&opt, &sink, &s, &err), -EINVAL);
    opt = (struct source_options){ .spec = "dir:/nonexistent/x" };
    assert_int_equal(source_open(&opt, &sink, &s, &err), 0);
    assert_int_equal(s->ops->load(s, &err), -ENOENT);
    assert_non_null(strstr(err.text, "give a folder that exists"));
    s->ops->free(s);
}

static void changes_are_seen_within_50_ms(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_open(&w);
    agent_start(&a, &w);
    int64_t best = INT64_MAX;
    for (int i = 0; i < 20; i++) {
        char value[8], text[128];
        snprintf(value, sizeof(value), "v%d", i);
        snprintf(text, sizeof(text), NAMESPACE("a", "%s"), value);
        int64_t start = clock_mono_us();
        world_put(&w, "a.yaml", text);
        world_until(&w, HAS(&a, "a", value));
        int64_t took = clock_mono_us() - start;
        best = took < best ? took : best;
    }
    assert_in_range(best, 0, 50000);
    agent_close(&a);
    world_close(&w);
}

static void a_half_written_file_is_left_alone(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "a.yaml", NAMESPACE("a", "old") SERVICE("s", "1"));
    FILE *f = fopen(world_path(&w, "a.yaml"), "we");
    fputs(NAMESPACE("a", "new"), f);
    fflush(f);
    world_put(&w, "b.yaml", NAMESPACE("b", "1"));
    world_until(&w, HAS(&a, "b", "1"));
    assert_true(HAS(&a, "a", "old"));
    assert_non_null(agent_get(&a, KIND_SERVICE, "default", "s"));
    fputs(SERVICE("s", "2"), f);
    fclose(f);
    world_until(&w, HAS(&a, "a", "new"));
    const struct service *s = agent_get(&a, KIND_SERVICE, "default", "s");
    assert_int_equal(s->ports[0].port, 2);
    assert_int_equal(a.notes.n, 0);
    world_end(&w, &a, NULL);
}

static void files_and_folders_come_and_go(void **state)
{
    (void)state;
    struct world w, elsewhere;
    struct agent a;
    world_open(&w);
    world_open(&elsewhere);
    agent_start(&a, &w);
    /* renamed over, moved in, moved out, linked, deleted */
    world_put(&w, "a.yaml", NAMESPACE("a", "1"));
    world_put(&w, ".a.tmp", NAMESPACE("a", "2"));
    rename(world_path(&w, ".a.tmp"), world_path(&w, "a.yaml"));
    world_until(&w, HAS(&a, "a", "2"));
    world_put(&elsewhere, "b.yaml", NAMESPACE("b", "1"));
    rename(world_path(&elsewhere, "b.yaml"), world_path(&w, "b.yaml"));
    world_until(&w, HAS(&a, "b", "1"));
    rename(world_path(&w, "b.yaml"), world_path(&elsewhere, "b.yaml"));
    world_until(&w, HAS(&a, "b", "none"));
    assert_int_equal(symlink(world_path(&elsewhere, "b.yaml"), world_path(&w, "b.yaml")), 0);
    world_until(&w, HAS(&a, "b", "1"));
    unlink(world_path(&w, "b.yaml"));
    world_until(&w, HAS(&a, "b", "none"));
    /* a folder: made, filled, moved away, moved back under another name, removed */
    mkdir(world_path(&w, "sub"), 0755);
    world_put(&w, "sub/c.yaml", NAMESPACE("c", "1"));
    world_until(&w, HAS(&a, "c", "1"));
    world_put(&w, "sub/c.yaml", NAMESPACE("c", "2"));
    world_until(&w, HAS(&a, "c", "2"));
    rename(world_path(&w, "sub"), world_path(&elsewhere, "sub"));
    world_until(&w, HAS(&a, "c", "none"));
    rename(world_path(&elsewhere, "sub"), world_path(&w, "other"));
    world_until(&w, HAS(&a, "c", "2"));
    world_put(&w, "other/c.yaml", NAMESPACE("c", "3"));
    world_until(&w, HAS(&a, "c", "3"));
    unlink(world_path(&w, "other/c.yaml"));
    rmdir(world_path(&w, "other"));
    world_until(&w, HAS(&a, "c", "none"));
    assert_int_equal(a.notes.n, 0);
    agent_close(&a);
    world_close(&elsewhere);
    world_close(&w);
}

static void a_bad_file_keeps_its_last_good_version(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "a.yaml", NAMESPACE("a", "1"));
    world_put(&w, "a.yaml", NAMESPACE("a", "2") "x: [\n");
    world_until(&w, a.notes.n == 1);
    assert_string_equal(a.notes.v[0],
                        "E a.yaml:5:1: not YAML: while parsing a flow node: did not find expected "
                        "node content; the last good version of the file stays in force");
    world_put(&w, "a.yaml", NAMESPACE("a", "2") "x: [\n"); /* the same: said once */
    world_put(&w, "b.yaml", NAMESPACE("b", "1"));
    world_until(&w, HAS(&a, "b", "1"));
    assert_true(HAS(&a, "a", "1"));
    assert_int_equal(a.notes.n, 1);
    world_put(&w, "a.yaml", NAMESPACE("a", "3"));
    world_until(&w, HAS(&a, "a", "3"));
    assert_int_equal(a.notes.n, 1);
    world_end(&w, &a, NULL);
}

static void a_bad_object_keeps_its_last_good_version(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "a.yaml", SERVICE("s", "1") "---\n" NAMESPACE("a", "1"));
    world_put(&w, "a.yaml", SERVICE("s", "x") "---\n" NAMESPACE("a", "2"));
    world_until(&w, HAS(&a, "a", "2"));
    assert_int_equal(
        ((const struct service *)agent_get(&a, KIND_SERVICE, "default", "s"))->ports[0].port, 1);
    assert_int_equal(agent_noted(&a, "E a.yaml:5:23: Service default/s: spec.ports[0].port is x"),
                     1);
    world_put(&w, "a.yaml", SERVICE("s", "x") "---\n" NAMESPACE("a", "3"));
    world_until(&w, HAS(&a, "a", "3"));
    assert_int_equal(a.notes.n, 1);
    /* Which one is nameless cannot be known: all stay. */
    world_put(&w, "a.yaml",
              "---\napiVersion: v1\nkind: Service\nspec: {}\n---\n" NAMESPACE("a", "4"));
    world_until(&w, HAS(&a, "a", "4"));
    assert_non_null(agent_get(&a, KIND_SERVICE, "default", "s"));
    assert_int_equal(a.notes.n, 2);
    world_put(&w, "a.yaml", NAMESPACE("a", "5"));
    world_until(&w, HAS(&a, "a", "5"));
    assert_null(agent_get(&a, KIND_SERVICE, "default", "s"));
    world_end(&w, &a, NULL);
}

static void the_first_file_by_name_wins(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "b.yaml", NAMESPACE("x", "b") "---\n" NAMESPACE("x", "twice"));
    assert_true(HAS(&a, "x", "b"));
    assert_int_equal(agent_noted(&a, "E b.yaml:5:1: Namespace x is already at line 1"), 1);
    world_put(&w, "c.yaml", "\n" NAMESPACE("x", "c"));
    world_until(&w, a.notes.n == 2);
    assert_string_equal(
        a.notes.v[1], "E c.yaml:2:1: Namespace x is also in b.yaml, which comes first by name and "
                      "is the one in force: remove one of the two");
    assert_true(HAS(&a, "x", "b"));
    world_put(&w, "a.yaml", NAMESPACE("x", "a"));
    world_until(&w, HAS(&a, "x", "a"));
    assert_int_equal(agent_noted(&a, "is also in a.yaml"), 2);
    unlink(world_path(&w, "a.yaml"));
    world_until(&w, HAS(&a, "x", "b"));
    unlink(world_path(&w, "b.yaml"));
    world_until(&w, HAS(&a, "x", "c"));
    unlink(world_path(&w, "c.yaml"));
    world_until(&w, HAS(&a, "x", "none"));
    world_end(&w, &a, NULL);
}

static void unknown_kinds_are_noted_once(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "a.yaml",
                "apiVersion: v1\nkind: Pod\n---\napiVersion: v1\nkind: Pod\n---\n"
                "apiVersion: v2\nkind: Pod\n");
    assert_int_equal(a.notes.n, 2);
    assert_string_equal(a.notes.v[0], "I a.yaml:1:1: apiVersion v1, kind Pod is none that Portolan "
                                      "reads: skipped");
    agent_close(&a);
    /* Who reads once hears of it where nothing else is there. */
    agent_load(&a, &w);
    assert_int_equal(a.notes.n, 1);
    assert_int_equal(agent_noted(&a, "I : apiVersion v1, kind Pod is none"), 1);
    agent_close(&a);
    world_put(&w, "b.yaml", NAMESPACE("b", "1"));
    agent_load(&a, &w);
    assert_int_equal(a.notes.n, 0);
    world_end(&w, &a, NULL);
}

static void a_burst_is_one_change(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_open(&w);
    agent_start(&a, &w);
    unsigned before = a.changed;
    for (int i = 0; i < 10; i++) {
        char name[16], text[128];
        snprintf(name, sizeof(name), "f%d.yaml", i);
        snprintf(text, sizeof(text), NAMESPACE("n%d", "1"), i);
        world_put(&w, name, text);
    }
    world_until(&w, a.objects.n == 10);
    assert_int_equal(a.changed, before + 1);
    agent_close(&a);
    world_close(&w);
}

static void lost_events_are_made_up_for(void **state)
{
    (void)state;
    int limit = 0;
    FILE *f = fopen("/proc/sys/fs/inotify/max_queued_events", "re");
    if (!f || fscanf(f, "%d", &limit) != 1 || limit > 100000)
        skip();
    fclose(f);
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "old.yaml", NAMESPACE("old", "1"));
    /* Alternating names, since equal events in a row are one. */
    for (int i = 0; i < limit; i++)
        world_put(&w, i & 1 ? "a.txt" : "b.txt", "");
    world_put(&w, "new.yaml", NAMESPACE("new", "1"));
    unlink(world_path(&w, "old.yaml"));
    world_until(&w, HAS(&a, "new", "1") && HAS(&a, "old", "none"));
    world_end(&w, &a, NULL);
}

static void the_folder_itself_may_come_back(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "a.yaml", NAMESPACE("a", "1"));
    char away[80];
    snprintf(away, sizeof(away), "%s.away", w.path);
    rename(w.path, away);
    world_until(&w, a.notes.n == 1);
    assert_true(HAS(&a, "a", "1"));
    assert_int_equal(agent_noted(&a, "give a folder that exists"), 1);
    assert_non_null(strstr(agent_unready(&a), "give a folder that exists\n"));
    rename(away, w.path);
    world_put(&w, "a.yaml", NAMESPACE("a", "2"));
    world_until(&w, HAS(&a, "a", "2"));
    assert_int_equal(a.notes.n, 2);
    assert_string_equal(a.notes.v[1], "I : the folder can be used again");
    assert_string_equal(agent_unready(&a), "");
    world_end(&w, &a, NULL);
}

static void a_folder_that_may_not_be_read_is_waited_for(void **state)
{
    (void)state;
    static const uid_t nobody = 65534;
    struct world w;
    struct agent a;
    bool root = !geteuid();
    world_open(&w);
    if (root)
        assert_int_equal(chown(w.path, nobody, nobody) || seteuid(nobody), 0);
    world_put(&w, "a.yaml", NAMESPACE("a", "1"));
    agent_start(&a, &w);
    chmod(w.path, 0300);
    world_until(&w, a.notes.n == 1);
    assert_int_equal(agent_noted(&a, "Permission denied: make it readable"), 1);
    assert_non_null(strstr(agent_unready(&a), "Permission denied: make it readable"));
    assert_true(HAS(&a, "a", "1"));
    chmod(w.path, 0700);
    world_until(&w, !*agent_unready(&a));
    assert_int_equal(a.notes.n, 2);
    assert_true(HAS(&a, "a", "1"));
    agent_close(&a);
    if (root)
        assert_int_equal(seteuid(0), 0);
    world_close(&w);
}

/* As the agent did when it had no rights or no file descriptors left: empty is something else. */
static void a_folder_not_listed_yet_is_not_an_empty_one(void **state)
{
    (void)state;
    static const uid_t nobody = 65534;
    static const char *const folders[] = { "", "sub" };
    bool root = !geteuid();
    for (size_t i = 0; i < 2; i++) {
        struct world w;
        struct agent a, b;
        world_open(&w);
        if (root)
            assert_int_equal(chown(w.path, nobody, nobody) || seteuid(nobody), 0);
        mkdir(world_path(&w, "sub"), 0755);
        world_put(&w, "sub/a.yaml", NAMESPACE("a", "1") "---\n" MAPPING);
        world_put(&w, "b.yaml", NAMESPACE("b", "1"));
        agent_start(&a, &w);
        chmod(world_path(&w, folders[i]), 0300);
        agent_begin(&b, &w);
        assert_false(agent_synced(&b));
        assert_non_null(strstr(agent_unready(&b), "Permission denied: make it readable"));
        /* More than the half second after which records go. */
        int64_t end = clock_mono_us() + 1500000;
        world_until(&w, clock_mono_us() > end);
        assert_false(agent_synced(&b));
        assert_true(world_has(&w, ".status/portmaps/default/m.json"));
        assert_true(HAS(&a, "a", "1"));
        assert_non_null(agent_get(&a, KIND_PORTMAP, "default", "m"));
        /* Nor does who runs give up what is no longer anywhere. */
        unlink(world_path(&w, "b.yaml"));
        world_put(&w, "c.yaml", NAMESPACE("c", "1"));
        world_until(&w, HAS(&a, "c", "1"));
        assert_true(HAS(&a, "b", "1"));
        chmod(world_path(&w, folders[i]), 0700);
        world_until(&w, agent_synced(&b) && HAS(&b, "a", "1"));
        world_until(&w, HAS(&a, "b", "none") && HAS(&b, "b", "none"));
        assert_true(HAS(&a, "a", "1"));
        assert_true(world_has(&w, ".status/portmaps/default/m.json"));
        assert_string_equal(agent_unready(&b), "");
        agent_close(&a);
        agent_close(&b);
        if (root)
            assert_int_equal(seteuid(0), 0);
        world_close(&w);
    }
}

static void what_only_looks_like_a_manifest_is_noted_once(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_open(&w);
    world_put(&w, "a.YAML", "");
    world_put(&w, ".b.YAML", "");
    world_put(&w, "c.txt", "");
    agent_start(&a, &w);
    assert_int_equal(a.notes.n, 1);
    assert_string_equal(a.notes.v[0], "I a.YAML: a.YAML is not read: make its name end in .yaml, "
                                      ".yml or .json");
    mkdir(world_path(&w, "sub"), 0755);
    world_put(&w, "sub/a.Json", "");
    world_put(&w, "a.YAML", "again");
    world_put(&w, "d.yaml", NAMESPACE("d", "1"));
    world_until(&w, HAS(&a, "d", "1") && a.notes.n == 2);
    assert_int_equal(agent_noted(&a, "I sub/a.Json: sub/a.Json is not read"), 1);
    agent_close(&a);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_folder_and_one_below_are_read),
        cmocka_unit_test(a_wrong_source_says_what_is_right),
        cmocka_unit_test(changes_are_seen_within_50_ms),
        cmocka_unit_test(a_half_written_file_is_left_alone),
        cmocka_unit_test(files_and_folders_come_and_go),
        cmocka_unit_test(a_bad_file_keeps_its_last_good_version),
        cmocka_unit_test(a_bad_object_keeps_its_last_good_version),
        cmocka_unit_test(the_first_file_by_name_wins),
        cmocka_unit_test(unknown_kinds_are_noted_once),
        cmocka_unit_test(a_burst_is_one_change),
        cmocka_unit_test(lost_events_are_made_up_for),
        cmocka_unit_test(the_folder_itself_may_come_back),
        cmocka_unit_test(a_folder_that_may_not_be_read_is_waited_for),
        cmocka_unit_test(a_folder_not_listed_yet_is_not_an_empty_one),
        cmocka_unit_test(what_only_looks_like_a_manifest_is_noted_once),
    };
    return cmocka_run_group_tests_name("source dir", tests, NULL, NULL);
}
