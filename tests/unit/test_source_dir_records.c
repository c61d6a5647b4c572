/* The records: a folder that behaves as an API server does. */
#include "test.h"

#include <errno.h>

#include "dir_class.h"

#define RECORD ".status/portmaps/games/web.json"
#define MAPPING(name, meta, spec)                                                        \
    "---\napiVersion: kuport.wlz.li/v1alpha1\nkind: PortMap\nmetadata: {name: " name     \
    ", namespace: games" meta "}\nspec: {className: public, protocol: TCP, serviceRef: " \
    "{name: s, port: p}, " spec "}\n"

static const struct portmap *mapping(const struct agent *a, const char *name)
{
    return agent_get(a, KIND_PORTMAP, "games", name);
}

static int64_t generation(const struct agent *a)
{
    const struct portmap *m = mapping(a, "web");
    return m ? m->o.meta.generation : -1;
}

static bool at_version(const struct agent *a, const char *version)
{
    const struct portmap *m = mapping(a, "web");
    return m && !strcmp(m->o.meta.resource_version, version);
}

static struct status_write portmap_write(const char *version, const char *address)
{
    struct status_write w = {
        .kind = WRITE_PORTMAP_STATUS, .ns = "games", .name = "web", .resource_version = version
    };
    w.portmap = (struct portmap_status){ .has_endpoint = true,
                                         .endpoint_node = "edge-a",
                                         .endpoint_address = address,
                                         .observed_generation = 1 };
    return w;
}

static void a_manifest_is_admitted_once_by_whoever_comes_first(void **state)
{
    (void)state;
    struct world w;
    struct agent a, b, c;
    int64_t before = clock_wall();
    world_begin(&w, &a, &b, "m.yaml", CLASS MAPPING("web", ", labels: {x: y}", "port: 80"));
    const struct portmap *m = mapping(&a, "web");
    assert_non_null(m);
    assert_int_equal(strlen(m->o.meta.uid), 36);
    assert_int_equal(m->o.meta.generation, 1);
    assert_string_equal(m->o.meta.resource_version, "1");
    assert_in_range(m->o.meta.creation, before, clock_wall());
    assert_true(object_equal(&m->o, &mapping(&b, "web")->o));
    assert_true(object_equal(&class(&a)->o, &class(&b)->o));
    char *record = world_get(&w, RECORD);
    assert_non_null(strstr(record, "\"className\": \"public\""));
    free(record);
    assert_true(world_has(&w, CLASS_RECORD));
    assert_false(world_has(&w, ".status/.tmp"));
    /* Reading for once tells the same. */
    agent_load(&c, &w);
    assert_true(object_equal(&m->o, &mapping(&c, "web")->o));
    agent_close(&c);
    world_end(&w, &a, &b);
}

static void what_the_manifest_says_of_itself_is_kept(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_open(&w);
    world_put(&w, "m.yaml",
              MAPPING("web", ", generation: 7, uid: mine, creationTimestamp: 2024-01-01T00:00:00Z",
                      "port: 80"));
    agent_load(&a, &w);
    assert_int_equal(generation(&a), 7);
    assert_false(world_has(&w, ".status"));
    agent_close(&a);
    agent_start(&a, &w);
    assert_int_equal(generation(&a), 7);
    assert_string_equal(mapping(&a, "web")->o.meta.uid, "mine");
    assert_int_equal(mapping(&a, "web")->o.meta.creation, 1704067200);
    agent_close(&a);
    world_put(&w, "m.yaml", MAPPING("web", "", "port: 80"));
    world_close(&w);
}

static void reading_for_once_without_records(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_open(&w);
    world_put(&w, "m.yaml", MAPPING("web", "", "port: 80"));
    agent_load(&a, &w);
    assert_int_equal(generation(&a), 1);
    assert_int_equal(mapping(&a, "web")->o.meta.creation, 0);
    assert_string_equal(mapping(&a, "web")->o.meta.resource_version, "");
    agent_close(&a);
    world_close(&w);
}

static void a_new_spec_is_a_new_generation_for_all(void **state)
{
    (void)state;
    struct world w;
    struct agent a, b;
    world_begin(&w, &a, &b, "m.yaml", MAPPING("web", "", "port: 80"));
    world_put(&w, "m.yaml", MAPPING("web", "", "port: 80, interfaces: [eth0]"));
    world_until(&w, generation(&a) == 2 && generation(&b) == 2);
    assert_string_equal(mapping(&b, "web")->interfaces.v[0], "eth0");
    assert_true(at_version(&a, "2"));
    /* Labels alone are no new generation; comments are nothing at all. */
    world_put(&w, "m.yaml", MAPPING("web", ", labels: {x: y}", "port: 80, interfaces: [eth0]"));
    world_until(&w, at_version(&a, "3") && at_version(&b, "3"));
    assert_int_equal(generation(&a), 2);
    world_put(&w, "m.yaml",
              "# said\n" MAPPING("web", ", labels: {x: y}", "port: 80, interfaces: [eth0]"));
    world_put(&w, "n.yaml", MAPPING("other", "", "port: 81"));
    world_until(&w, mapping(&a, "other") && mapping(&b, "other"));
    assert_true(at_version(&a, "3"));
    world_end(&w, &a, &b);
}

static void statuses_reach_every_agent(void **state)
{
    (void)state;
    struct world w;
    struct agent a, b;
    world_begin(&w, &a, &b, "m.yaml", MAPPING("web", "", "port: 80"));
    assert_int_equal(agent_write(&a, portmap_write("1", "10.0.0.1")), 0);
    assert_true(at_version(&a, "1")); /* not from within the call */
    world_until(&w, at_version(&a, "2") && at_version(&b, "2"));
    assert_string_equal(mapping(&b, "web")->status.endpoint_address, "10.0.0.1");
    assert_true(object_equal(&mapping(&a, "web")->o, &mapping(&b, "web")->o));
    /* An old version is refused, the same status is no write. */
    assert_int_equal(agent_write(&b, portmap_write("1", "10.0.0.2")), -EAGAIN);
    assert_int_equal(agent_write(&b, portmap_write("2", "10.0.0.1")), 0);
    assert_int_equal(agent_write(&b, portmap_write("2", "10.0.0.2")), 0);
    world_until(&w, at_version(&a, "3") && at_version(&b, "3"));
    /* The status survives a new spec, and an agent. */
    world_put(&w, "m.yaml", MAPPING("web", "", "port: 80, interfaces: [eth0]"));
    world_until(&w, generation(&a) == 2);
    assert_string_equal(mapping(&a, "web")->status.endpoint_address, "10.0.0.2");
    agent_close(&a);
    agent_start(&a, &w);
    assert_string_equal(mapping(&a, "web")->status.endpoint_address, "10.0.0.2");
    assert_true(at_version(&a, "4"));
    struct status_write s = portmap_write("4", "");
    s.name = "none";
    assert_int_equal(agent_write(&b, s), -EAGAIN);
    world_end(&w, &a, &b);
}

static void class_status_has_its_parts(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "c.yaml", CLASS);
    static const char *const nodes[] = { "c", "a", "b" };
    for (int i = 0; i < 3; i++)
        assert_int_equal(agent_write(&a, row_write(nodes[i], 1400)), 0);
    assert_int_equal(agent_write(&a, row_write("b", 1300)), 0);
    world_until(&w,
                class(&a)->status.n_nodes == 3 && class(&a)->status.nodes[1].underlay_mtu == 1300);
    assert_string_equal(class(&a)->status.nodes[0].name, "a");
    assert_string_equal(class(&a)->status.nodes[2].name, "c");
    char version[24];
    snprintf(version, sizeof(version), "%s", class(&a)->o.meta.resource_version);
    struct link_claim claim = {
        .key = "a/b", .peer = { "a", "b" }, .subnet = "169.254.77.0/31", .slot = 0
    };
    struct status_write s = links_write(version, &claim, 1);
    assert_int_equal(agent_write(&a, s), 0);
    assert_int_equal(agent_write(&a, s), -EAGAIN);
    world_until(&w, class(&a)->status.n_links == 1);
    assert_string_equal(class(&a)->status.links[0].peer[1], "b");
    snprintf(version, sizeof(version), "%s", class(&a)->o.meta.resource_version);
    struct condition ready = {
        .type = "Ready", .status = TRI_TRUE, .reason = "Valid", .message = ""
    };
    const char *drop[] = { "b", "x" };
    s = (struct status_write){ .kind = WRITE_CLASS_CONDITION,
                               .ns = "",
                               .name = "public",
                               .resource_version = version,
                               .conditions = { &ready, 1 },
                               .observed_generation = 1,
                               .drop_rows = { drop, 2 } };
    assert_int_equal(agent_write(&a, s), 0);
    world_until(&w, class(&a)->status.conditions.n == 1);
    assert_int_equal(class(&a)->status.n_nodes, 2);
    assert_int_equal(class(&a)->status.n_links, 1);
    assert_int_equal(class(&a)->status.observed_generation, 1);
    world_end(&w, &a, NULL);
}

/* However a manifest goes wrong, the mapping stays, also for an agent that starts now. */
static void a_mistake_takes_no_mapping_away(void **state)
{
    (void)state;
#define WRONG(version, kind, spec)                                                             \
    "apiVersion: kuport.wlz.li/" version "\nkind: " kind                                       \
    "\nmetadata: {name: web, namespace: games}\nspec:\n  className: public\n  protocol: TCP\n" \
    "  port: 80\n  serviceRef: {name: s, port: p}\n" spec
#define STAYS "; the last accepted version stays in force"
    static const struct {
        const char *text, *note;
    } cases[] = {
        { WRONG("v1alpha1", "PortMap", "  interface: [eth0]\n"),
          "E m.yaml:9:3: PortMap games/web: spec.interface is unknown; did you mean "
          "interfaces?" STAYS },
        { WRONG("v1alpha1", "Portmap", ""),
          "E m.yaml:2:7: PortMap games/web: kind is Portmap; did you mean PortMap?" STAYS },
        { WRONG("v1", "PortMap", ""),
          "E m.yaml:1:13: PortMap games/web: apiVersion is kuport.wlz.li/v1; did you mean "
          "kuport.wlz.li/v1alpha1?" STAYS },
        { WRONG("v1alpha1", "PortMap", "  endPort: 70000\n"),
          "E m.yaml:9:12: PortMap games/web: spec.endPort is 70000; an integer from 1 to 65535 is "
          "needed" STAYS },
    };
    struct world w;
    struct agent a, b;
    world_begin(&w, &a, NULL, "m.yaml", MAPPING("web", "", "port: 80"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        world_put(&w, "m.yaml", cases[i].text);
        world_until(&w, a.notes.n == i + 1);
        assert_string_equal(a.notes.v[i], cases[i].note);
        assert_int_equal(mapping(&a, "web")->port, 80);
        agent_start(&b, &w);
        assert_int_equal(b.notes.n, 1);
        assert_string_equal(b.notes.v[0], cases[i].note);
        assert_int_equal(mapping(&b, "web")->port, 80);
        agent_close(&b);
    }
    /* Nothing stays of what never was. */
    world_put(&w, "n.yaml", MAPPING("new", "", "prt: 80"));
    world_until(&w, a.notes.n == 5);
    assert_string_equal(
        a.notes.v[4], "E n.yaml:5:74: PortMap games/new: spec.prt is unknown; did you mean port?");
    assert_null(mapping(&a, "new"));
    world_end(&w, &a, NULL);
}

static void immutable_fields_stay(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } cases[] = {
        { MAPPING("web", "", "port: 81"),
          "E m.yaml:5:80: PortMap games/web: spec.port is 81, but was accepted as 80" },
        { MAPPING("web", "", "port: 80, endPort: 90"),
          "E m.yaml:5:93: PortMap games/web: spec.endPort is 90, but was accepted as absent" },
        { "---\napiVersion: kuport.wlz.li/v1alpha1\nkind: PortMap\nmetadata: {name: web, namespace: "
          "games}\nspec: {className: other, protocol: TCP, port: 80, serviceRef: {name: s, port: p}}\n",
          "E m.yaml:5:19: PortMap games/web: spec.className is other, but was accepted as public" },
        { "---\napiVersion: kuport.wlz.li/v1alpha1\nkind: PortMap\nmetadata: {name: web, namespace: "
          "games}\nspec: {className: public, protocol: UDP, port: 80, serviceRef: {name: s, port: "
          "p}}\n",
          "E m.yaml:5:37: PortMap games/web: spec.protocol is UDP, but was accepted as TCP" },
    };
    struct world w;
    struct agent a, b;
    world_begin(&w, &a, NULL, "m.yaml", MAPPING("web", "", "port: 80"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        world_put(&w, "m.yaml", cases[i].text);
        world_until(&w, agent_noted(&a, cases[i].said));
        assert_int_equal(a.notes.n, i + 1);
    }
    assert_non_null(strstr(a.notes.v[0], "cannot change: set it back, or delete the manifest and "
                                         "create it again" STAYS));
    assert_int_equal(mapping(&a, "web")->port, 80);
    assert_int_equal(generation(&a), 1);
    /* So it is for an agent that starts now, and for who reads once. */
    agent_start(&b, &w);
    assert_int_equal(mapping(&b, "web")->protocol, L4_TCP);
    assert_int_equal(b.notes.n, 1);
    agent_close(&b);
    agent_load(&b, &w);
    assert_int_equal(mapping(&b, "web")->protocol, L4_TCP);
    assert_int_equal(b.notes.n, 1);
    agent_close(&b);
    world_put(&w, "m.yaml", MAPPING("web", "", "port: 80, interfaces: [eth0]"));
    world_until(&w, generation(&a) == 2);
    world_end(&w, &a, NULL);
}

static void deleted_and_created_again_is_another_object(void **state)
{
    (void)state;
    struct world w;
    struct agent a, b;
    world_begin(&w, &a, &b, "m.yaml", MAPPING("web", "", "port: 80"));
    char uid[40];
    /* The same spec soon after: an editor's way of writing, nothing is lost. On a busy machine
     * it may not be soon enough; then again. */
    int64_t took = INT64_MAX;
    for (int i = 0; i < 20 && took > 400000; i++) {
        snprintf(uid, sizeof(uid), "%s", mapping(&a, "web")->o.meta.uid);
        int64_t start = clock_mono_us();
        unlink(world_path(&w, "m.yaml"));
        world_until(&w, !mapping(&a, "web") && !mapping(&b, "web"));
        world_put(&w, "m.yaml", MAPPING("web", "", "port: 80, interfaces: [eth0]"));
        world_until(&w, mapping(&a, "web") && mapping(&b, "web"));
        took = clock_mono_us() - start;
    }
    assert_in_range(took, 0, 400000);
    assert_string_equal(mapping(&a, "web")->o.meta.uid, uid);
    /* Another spec: a new object. */
    unlink(world_path(&w, "m.yaml"));
    world_until(&w, !mapping(&a, "web") && !mapping(&b, "web"));
    world_put(&w, "m.yaml", MAPPING("web", "", "port: 81"));
    world_until(&w, mapping(&a, "web") && mapping(&b, "web"));
    assert_int_equal(mapping(&a, "web")->port, 81);
    assert_int_equal(generation(&a), 1);
    assert_string_not_equal(mapping(&a, "web")->o.meta.uid, uid);
    assert_true(object_equal(&mapping(&a, "web")->o, &mapping(&b, "web")->o));
    /* The same spec, but the manifest says when it was made: a new object as well. */
    unlink(world_path(&w, "m.yaml"));
    world_until(&w, !mapping(&a, "web") && !mapping(&b, "web"));
    world_put(&w, "m.yaml",
              MAPPING("web", ", creationTimestamp: 2024-01-01T00:00:00Z", "port: 81"));
    world_until(&w, mapping(&a, "web") && mapping(&b, "web"));
    assert_int_equal(mapping(&b, "web")->o.meta.creation, 1704067200);
    /* Gone for good: the record goes too. */
    unlink(world_path(&w, "m.yaml"));
    world_until(&w, !world_has(&w, RECORD));
    assert_null(mapping(&a, "web"));
    assert_int_equal(a.notes.n + b.notes.n, 0);
    world_end(&w, &a, &b);
}

static void a_bad_or_lost_record_is_made_anew(void **state)
{
    (void)state;
    struct world w;
    struct agent a, b;
    world_begin(&w, &a, &b, "m.yaml", MAPPING("web", "", "port: 80"));
    assert_int_equal(agent_write(&a, portmap_write("1", "10.0.0.1")), 0);
    world_until(&w, at_version(&a, "2"));
    char uid[40];
    snprintf(uid, sizeof(uid), "%s", mapping(&a, "web")->o.meta.uid);
    world_put(&w, RECORD, "{\"kind\":");
    world_until(&w, at_version(&a, "1") && at_version(&b, "1"));
    assert_string_not_equal(mapping(&a, "web")->o.meta.uid, uid);
    assert_true(object_equal(&mapping(&a, "web")->o, &mapping(&b, "web")->o));
    assert_false(mapping(&a, "web")->status.has_endpoint);
    assert_int_equal(agent_noted(&a, "web.json is bad, what it said is lost") +
                         agent_noted(&b, "web.json is bad, what it said is lost"),
                     1);
    snprintf(uid, sizeof(uid), "%s", mapping(&a, "web")->o.meta.uid);
    unlink(world_path(&w, RECORD));
    world_until(&w, mapping(&a, "web") && strcmp(mapping(&a, "web")->o.meta.uid, uid) &&
                        object_equal(&mapping(&a, "web")->o, &mapping(&b, "web")->o));
    world_end(&w, &a, &b);
}

static void all_records_lost_at_once_come_back(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "m.yaml", CLASS MAPPING("web", "", "port: 80"));
    nftw(world_path(&w, ".status"), world_remove, 16, FTW_DEPTH | FTW_PHYS);
    world_until(&w, world_has(&w, RECORD) && world_has(&w, CLASS_RECORD));
    assert_int_equal(agent_write(&a, portmap_write("1", "10.0.0.1")), 0);
    world_until(&w, at_version(&a, "2"));
    world_end(&w, &a, NULL);
}

static void what_cannot_be_written_is_tried_again(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_open(&w);
    mkdir(world_path(&w, ".status"), 0755);
    mkdir(world_path(&w, ".status/portmaps"), 0755);
    world_put(&w, ".status/portmaps/games", "in the way");
    world_put(&w, "m.yaml", CLASS MAPPING("web", "", "port: 80"));
    agent_start(&a, &w);
    assert_non_null(class(&a));
    assert_null(mapping(&a, "web"));
    assert_int_equal(a.notes.n, 1);
    assert_int_equal(agent_noted(&a, "games/web.json: Not a directory"), 1);
    unlink(world_path(&w, ".status/portmaps/games"));
    world_until(&w, mapping(&a, "web"));
    assert_int_equal(a.notes.n, 1);
    /* The watch on the new folder of records works. */
    struct agent b;
    agent_load(&b, &w);
    assert_int_equal(agent_write(&b, portmap_write("1", "10.0.0.1")), 0);
    agent_close(&b);
    world_until(&w, at_version(&a, "2"));
    agent_close(&a);
    world_close(&w);
}

static void records_carry_the_last_good_version_over_a_restart(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "m.yaml",
                MAPPING("web", "", "port: 80") MAPPING("two", "", "port: 81"));
    agent_close(&a);
    /* the file is bad */
    world_put(&w, "m.yaml", "{");
    world_put(&w, ".status/.tmp", "left by a crash");
    agent_begin(&a, &w);
    assert_int_equal(mapping(&a, "web")->port, 80);
    assert_int_equal(mapping(&a, "two")->port, 81);
    agent_close(&a);
    agent_load(&a, &w);
    assert_int_equal(mapping(&a, "web")->port, 80);
    agent_close(&a);
    /* one object is bad, the other is gone */
    world_put(&w, "m.yaml", MAPPING("web", "", "port: x"));
    agent_start(&a, &w);
    assert_int_equal(mapping(&a, "web")->port, 80);
    assert_null(mapping(&a, "two"));
    world_until(&w, !world_has(&w, ".status/portmaps/games/two.json"));
    assert_true(world_has(&w, RECORD));
    world_put(&w, "m.yaml", MAPPING("web", "", "port: 80"));
    world_put(&w, "n.yaml", MAPPING("three", "", "port: 82"));
    world_until(&w, mapping(&a, "three"));
    assert_int_equal(generation(&a), 1);
    world_end(&w, &a, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manifest_is_admitted_once_by_whoever_comes_first),
        cmocka_unit_test(what_the_manifest_says_of_itself_is_kept),
        cmocka_unit_test(reading_for_once_without_records),
        cmocka_unit_test(a_new_spec_is_a_new_generation_for_all),
        cmocka_unit_test(statuses_reach_every_agent),
        cmocka_unit_test(class_status_has_its_parts),
        cmocka_unit_test(a_mistake_takes_no_mapping_away),
        cmocka_unit_test(immutable_fields_stay),
        cmocka_unit_test(deleted_and_created_again_is_another_object),
        cmocka_unit_test(a_bad_or_lost_record_is_made_anew),
        cmocka_unit_test(all_records_lost_at_once_come_back),
        cmocka_unit_test(what_cannot_be_written_is_tried_again),
        cmocka_unit_test(records_carry_the_last_good_version_over_a_restart),
    };
    return cmocka_run_group_tests_name("source dir records", tests, NULL, NULL);
}
