/* Records that add to a manifest: a Node's addresses, the status of a Service whose address a node
 * holds. */
#include "test.h"

#include <errno.h>
#include <stdlib.h>

#include "dir_help.h"

#define NODE(name, annotations)                                            \
    "apiVersion: v1\nkind: Node\nmetadata: {name: " name ", annotations: " \
    "{" annotations "}}\n---\n"
#define SERVICE(name, spec)                                                                \
    "apiVersion: v1\nkind: Service\nmetadata: {name: " name ", namespace: games}\nspec: {" \
    "ports: [{port: 80}], " spec "}\n"
#define HELD                                                                 \
    "type: LoadBalancer, loadBalancerClass: reweave.levk.dev/node-address, " \
    "loadBalancerIP: 203.0.113.9"
#define NODE_RECORD    ".status/nodes/edge-a.json"
#define SERVICE_RECORD ".status/services/games/web.json"

static const char *says(const struct agent *a, const char *key)
{
    const struct node *n = agent_get(a, KIND_NODE, "", "edge-a");
    return n ? label_value(&n->o.meta.annotations, key) : "no such node";
}

static bool holds(const struct agent *a, const char *addresses)
{
    return !strcmp(says(a, ANNOTATION_ADDRESSES), addresses);
}

static const struct service *web(const struct agent *a)
{
    return agent_get(a, KIND_SERVICE, "games", "web");
}

/* "" when its status shows none. */
static bool shows(const struct agent *a, const char *ip)
{
    const struct service *s = web(a);
    return s && !strcmp(s->n_ingress ? s->ingress[0].ip : "", ip);
}

static struct status_write annotations(const char *addresses, const char *overlay)
{
    return (struct status_write){ .kind = WRITE_NODE_ANNOTATIONS,
                                  .ns = "",
                                  .name = "edge-a",
                                  .resource_version = "",
                                  .addresses = addresses,
                                  .overlay = overlay };
}

static struct status_write ingress(const char *version, const char *ip)
{
    return (struct status_write){ .kind = WRITE_SERVICE_STATUS,
                                  .ns = "games",
                                  .name = "web",
                                  .resource_version = version,
                                  .ingress = ip };
}

static void a_node_publishes_beside_what_its_manifest_says(void **state)
{
    (void)state;
    struct world w;
    struct agent a, b;
    world_begin(&w, &a, &b, "m.yaml",
                NODE("edge-a", "z: kept, reweave.levk.dev/addresses: 192.0.2.1,"
                               "reweave.levk.dev/weave: mine"));
    assert_true(holds(&a, "192.0.2.1"));
    assert_false(world_has(&w, NODE_RECORD));
    assert_int_equal(agent_write(&a, annotations("203.0.113.9,203.0.113.10", "")), 0);
    world_until(&w, holds(&a, "203.0.113.9,203.0.113.10") && holds(&b, "203.0.113.9,203.0.113.10"));
    const struct node *n = agent_get(&b, KIND_NODE, "", "edge-a");
    assert_false(label_present(&n->o.meta.annotations, ANNOTATION_OVERLAY));
    assert_string_equal(says(&b, "z"), "kept");
    /* What the manifest says of other things still counts, what it says of these does not. */
    world_put(&w, "m.yaml", NODE("edge-a", "z: new, reweave.levk.dev/addresses: 192.0.2.2"));
    world_until(&w, !strcmp(says(&b, "z"), "new"));
    assert_true(holds(&b, "203.0.113.9,203.0.113.10"));
    assert_int_equal(agent_write(&b, annotations("", "10.32.0.1,02:00:00:00:00:01")), 0);
    world_until(&w, holds(&a, ""));
    assert_string_equal(says(&a, ANNOTATION_OVERLAY), "10.32.0.1,02:00:00:00:00:01");
    agent_close(&a);
    agent_load(&a, &w);
    assert_string_equal(says(&a, ANNOTATION_OVERLAY), "10.32.0.1,02:00:00:00:00:01");
    world_end(&w, &a, &b);
}

static void nothing_is_written_when_nothing_changes(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "m.yaml", NODE("edge-a", ""));
    assert_int_equal(agent_write(&a, annotations("203.0.113.9", "")), 0);
    assert_int_equal(agent_write(&a, annotations("203.0.113.9", "")), 0);
    char *record = world_get(&w, NODE_RECORD);
    assert_non_null(strstr(record, "\"resourceVersion\": \"1\""));
    free(record);
    world_end(&w, &a, NULL);
}

static void a_status_is_written_once_for_each_version(void **state)
{
    (void)state;
    struct world w;
    struct agent a, b;
    world_begin(&w, &a, &b, "m.yaml", SERVICE("web", HELD));
    assert_string_equal(web(&a)->o.meta.resource_version, "");
    assert_int_equal(agent_write(&a, ingress("", "203.0.113.9")), 0);
    assert_int_equal(agent_write(&b, ingress("", "203.0.113.8")), -EAGAIN);
    world_until(&w, shows(&a, "203.0.113.9") && shows(&b, "203.0.113.9"));
    assert_int_equal(web(&b)->ingress[0].mode, IP_MODE_PROXY);
    assert_string_equal(web(&b)->o.meta.resource_version, "1");
    assert_int_equal(agent_write(&b, ingress("1", "")), 0);
    world_until(&w, shows(&a, ""));
    assert_string_equal(web(&a)->load_balancer_ip, "203.0.113.9");
    assert_int_equal(web(&a)->n_ports, 1);
    world_end(&w, &a, &b);
}

static const char *addresses_of(const struct agent *a, const char *node)
{
    const struct node *n = agent_get(a, KIND_NODE, "", node);
    return n ? label_value(&n->o.meta.annotations, ANNOTATION_ADDRESSES) : "no such node";
}

/* -EAGAIN while the other has the lock, or was first. */
static void write_at_last(struct world *w, struct agent *a, const struct status_write *write)
{
    int64_t end = clock_mono_us() + 10000000;
    while (agent_write(a, *write) && clock_mono_us() < end)
        uv_run(&w->loop, UV_RUN_ONCE);
}

static void two_that_write_while_the_manifest_changes_lose_nothing(void **state)
{
    (void)state;
    struct world w;
    struct agent a, b;
    char address[32], manifest[512];
    world_begin(&w, &a, &b, "m.yaml", NODE("edge-a", "") NODE("edge-b", "") SERVICE("web", HELD));
    for (int i = 0; i < 50; i++) {
        snprintf(manifest, sizeof(manifest),
                 NODE("edge-a", "z: v%d") NODE("edge-b", "") SERVICE("web", HELD), i);
        world_put(&w, "m.yaml", manifest);
        snprintf(address, sizeof(address), "203.0.113.%d", i);
        struct status_write one = annotations(address, ""), other = one;
        other.name = "edge-b";
        write_at_last(&w, &a, &one);
        write_at_last(&w, &b, &other);
        struct agent *writer = i % 2 ? &a : &b;
        struct status_write status = ingress(web(writer)->o.meta.resource_version, address);
        agent_write(writer, status);
        uv_run(&w.loop, UV_RUN_NOWAIT);
    }
    world_until(&w, !strcmp(says(&a, "z"), "v49") && !strcmp(says(&b, "z"), "v49"));
    world_until(&w,
                !strcmp(addresses_of(&a, "edge-b"), "203.0.113.49") && holds(&b, "203.0.113.49"));
    world_until(&w, object_equal(&web(&a)->o, &web(&b)->o));
    assert_true(atoi(web(&a)->o.meta.resource_version) > 1);
    assert_int_equal(a.notes.n + b.notes.n, 0);
    world_end(&w, &a, &b);
}

/* As `kubectl get -o yaml` gives it: an API server drops it, here the first write does. */
static void a_status_in_the_manifest_can_be_cleared(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "m.yaml",
                SERVICE("web", HELD) "status: {loadBalancer: {ingress: [{ip: 203.0.113.7}]}}\n");
    assert_true(shows(&a, "203.0.113.7"));
    assert_int_equal(agent_write(&a, ingress("", "")), 0);
    world_until(&w, shows(&a, ""));
    world_end(&w, &a, NULL);
}

static void a_service_that_leaves_the_class_loses_its_status(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "m.yaml", SERVICE("web", HELD));
    assert_int_equal(agent_write(&a, ingress("", "203.0.113.9")), 0);
    world_until(&w, shows(&a, "203.0.113.9"));
    world_put(&w, "m.yaml", SERVICE("web", "type: ClusterIP"));
    world_until(&w, shows(&a, ""));
    assert_false(world_has(&w, SERVICE_RECORD));
    world_put(&w, "m.yaml", SERVICE("web", HELD));
    world_until(&w, web(&a)->type == SERVICE_LOADBALANCER);
    assert_true(shows(&a, ""));
    world_end(&w, &a, NULL);
}

static void another_load_balancers_service_is_as_its_manifest_says(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_open(&w);
    world_put(
        &w, "m.yaml",
        SERVICE(
            "web",
            "type: LoadBalancer, loadBalancerClass: other.example/x") "status: "
                                                                      "{loadBalancer: {ingress: [{ip: 203.0.113.7}]}}\n");
    agent_start(&a, &w);
    assert_true(shows(&a, "203.0.113.7"));
    assert_string_equal(web(&a)->o.meta.resource_version, "");
    agent_close(&a);
    world_close(&w);
}

static void a_lost_or_bad_record_costs_only_what_it_said(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "m.yaml", NODE("edge-a", "z: kept"));
    assert_int_equal(agent_write(&a, annotations("203.0.113.9", "")), 0);
    world_until(&w, holds(&a, "203.0.113.9"));
    world_put(&w, NODE_RECORD, "{");
    world_until(&w, holds(&a, ""));
    assert_string_equal(says(&a, "z"), "kept");
    assert_int_equal(agent_noted(&a, "what it said is lost"), 1);
    assert_int_equal(agent_write(&a, annotations("203.0.113.9", "")), 0);
    world_until(&w, holds(&a, "203.0.113.9"));
    remove(world_path(&w, NODE_RECORD));
    world_until(&w, holds(&a, ""));
    assert_int_equal(agent_write(&a, annotations("203.0.113.8", "")), 0);
    world_until(&w, holds(&a, "203.0.113.8"));
    world_put(&w, NODE_RECORD, "{");
    world_until(&w, holds(&a, ""));
    remove(world_path(&w, "m.yaml"));
    world_until(&w, !world_has(&w, NODE_RECORD));
    world_end(&w, &a, NULL);
}

/* Moves of an address are seen while somebody's editor has the file half written. */
static void a_record_is_followed_while_its_manifest_is_bad(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "m.yaml", NODE("edge-a", "z: kept") SERVICE("web", HELD));
    world_put(&w, "m.yaml", "{");
    world_until(&w, a.notes.n);
    assert_int_equal(agent_write(&a, annotations("203.0.113.9", "")), 0);
    assert_int_equal(agent_write(&a, ingress("", "203.0.113.9")), 0);
    world_until(&w, holds(&a, "203.0.113.9") && shows(&a, "203.0.113.9"));
    assert_string_equal(says(&a, "z"), "kept");
    world_end(&w, &a, NULL);
}

static void a_record_alone_is_no_object(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "m.yaml", NODE("edge-a", "") SERVICE("web", HELD));
    assert_int_equal(agent_write(&a, annotations("203.0.113.9", "")), 0);
    agent_close(&a);
    world_put(&w, "m.yaml", NODE("edge-a", "z: [1]") SERVICE("web", "type: 5"));
    agent_begin(&a, &w);
    assert_false(agent_synced(&a));
    assert_int_equal(a.objects.n, 0);
    assert_int_equal(agent_write(&a, ingress("", "203.0.113.9")), -EAGAIN);
    assert_false(world_has(&w, SERVICE_RECORD));
    world_put(&w, "m.yaml", NODE("edge-a", ""));
    world_until(&w, holds(&a, "203.0.113.9"));
    world_end(&w, &a, NULL);
}

static void records_go_with_their_objects(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "m.yaml", NODE("edge-a", "") SERVICE("web", HELD));
    assert_int_equal(agent_write(&a, annotations("203.0.113.9", "")), 0);
    assert_int_equal(agent_write(&a, ingress("", "203.0.113.9")), 0);
    world_put(&w, "m.yaml", "");
    world_until(&w, !a.objects.n);
    world_until(&w, !world_has(&w, NODE_RECORD) && !world_has(&w, SERVICE_RECORD));
    assert_int_equal(agent_write(&a, annotations("203.0.113.9", "")), -EAGAIN);
    assert_int_equal(agent_write(&a, ingress("", "203.0.113.9")), -EAGAIN);
    world_put(&w, "m.yaml", NODE("edge-a", "") SERVICE("web", HELD));
    world_until(&w, a.objects.n == 2);
    assert_true(holds(&a, "") && shows(&a, ""));
    world_end(&w, &a, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_publishes_beside_what_its_manifest_says),
        cmocka_unit_test(nothing_is_written_when_nothing_changes),
        cmocka_unit_test(a_status_is_written_once_for_each_version),
        cmocka_unit_test(two_that_write_while_the_manifest_changes_lose_nothing),
        cmocka_unit_test(a_status_in_the_manifest_can_be_cleared),
        cmocka_unit_test(a_service_that_leaves_the_class_loses_its_status),
        cmocka_unit_test(another_load_balancers_service_is_as_its_manifest_says),
        cmocka_unit_test(a_lost_or_bad_record_costs_only_what_it_said),
        cmocka_unit_test(a_record_is_followed_while_its_manifest_is_bad),
        cmocka_unit_test(a_record_alone_is_no_object),
        cmocka_unit_test(records_go_with_their_objects),
    };
    return cmocka_run_group_tests_name("source dir added", tests, NULL, NULL);
}
