/* What a golden cannot show: acknowledgement, refusals, and what one pass keeps of the last.
 * Clusters are those of the goldens. */
#include "test.h"

#include <string.h>

#include "model/names.h"
#include "plan/internal.h"
#include "plan/plan_text.h"
#include "source/codec.h"
#include "store/store.h"

struct bench { /* one node's view of a golden case */
    struct store *store;
    struct arena mem;
    struct host host;
    struct planner *planner;
    struct snapshot snap;
};

static void upsert(void *user, struct object *obj)
{
    store_upsert(user, obj);
}

static void note(void *user, bool is_error, const char *where, const char *text)
{
    (void)user;
    if (is_error)
        fail_msg("%s: %s", where, text);
}

static void look(struct bench *b)
{
    store_snapshot(b->store, &b->snap);
}

/* `own`: the case's folder where it has a file of hosts, else "". */
static void load_with(struct bench *b, const struct plan_options *options, const char *name,
                      const char *own, const char *node)
{
    char path[1024];
    struct err err;
    memset(b, 0, sizeof(*b));
    b->store = store_new();
    b->planner = planner_new(options);
    struct source_sink sink = { .user = b->store, .upsert = upsert, .note = note };
    snprintf(path, sizeof(path), "%s/../golden/%s/cluster.yaml", getenv("UNIT_DATA"), name);
    if (codec_load_file(path, &sink, &err))
        fail_msg("%s", err.text);
    snprintf(path, sizeof(path), "%s/../golden/%shosts.yaml", getenv("UNIT_DATA"), own);
    if (host_decode_file(path, node, &b->mem, &b->host, &err))
        fail_msg("%s", err.text);
    b->snap = (struct snapshot){ .node = node, .host = &b->host, .now = 1767355200 };
    look(b);
}

static void load(struct bench *b, const char *name, const char *node)
{
    load_with(b, &plan_options_default, name, "", node);
}

static void unload(struct bench *b)
{
    planner_free(b->planner);
    store_free(b->store);
    arena_done(&b->mem);
}

static const struct condition *written(const struct status_writes *w, const char *name,
                                       const char *type)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->v[i].kind == WRITE_PORTMAP_STATUS && !strcmp(w->v[i].name, name))
            return condition_find(&w->v[i].portmap.conditions, type);
    return NULL;
}

static const struct nft_group *group_of(const struct plan *plan, const char *owner)
{
    for (size_t i = 0; i < plan->desired.n_groups; i++)
        if (!strcmp(plan->desired.groups[i]->owner, owner))
            return plan->desired.groups[i];
    return NULL;
}

/* ---- acknowledgement and refusals ---- */

static void programmed_waits_for_the_kernel(void **state)
{
    (void)state;
    struct bench b;
    load(&b, "local", "edge-a");
    plan_build(b.planner, &b.snap);
    struct status_writes w = plan_statuses(b.planner, &b.snap, &(struct applied){ 0 });
    assert_int_equal(written(&w, "game", "Accepted")->status, TRI_TRUE);
    assert_null(written(&w, "game", "Programmed"));
    w = plan_statuses(b.planner, &b.snap, &(struct applied){ .acknowledged = true });
    assert_int_equal(written(&w, "game", "Programmed")->status, TRI_TRUE);
    unload(&b);
}

static void what_stands_is_kept_while_nothing_is_acknowledged(void **state)
{
    (void)state;
    struct bench b;
    load(&b, "status-kept", "edge-a");
    plan_build(b.planner, &b.snap);
    struct status_writes w = plan_statuses(b.planner, &b.snap, &(struct applied){ 0 });
    assert_null(written(&w, "same", "Accepted"));
    assert_null(written(&w, "becomes-true", "Accepted"));
    assert_string_equal(written(&w, "other-reason", "Programmed")->reason, "NoReadyEndpoint");
    assert_int_equal(written(&w, "old-generation", "Accepted")->observed_generation, 1);
    assert_int_equal(written(&w, "old-generation", "Programmed")->observed_generation, 0);
    w = plan_statuses(b.planner, &b.snap, &(struct applied){ .acknowledged = true });
    assert_null(written(&w, "same", "Accepted"));
    assert_int_equal(written(&w, "becomes-true", "Programmed")->status, TRI_TRUE);
    unload(&b);
}

static void a_refusal_shows_in_what_needs_it(void **state)
{
    (void)state;
    static const struct {
        const char *owner;
        bool shows;
    } cases[] = { { "portmap/games/game", true },
                  { "class/public link edge-a/worker-b", true },
                  { "node", true },
                  { "node ipv6", false },
                  { "portmap/games/gam", false },
                  { "class/public link edge-a/worker-c", false } };
    struct bench b;
    load(&b, "remote-landed", "edge-a");
    plan_build(b.planner, &b.snap);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct refusal r = { cases[i].owner, "link pl4242", 28, "No space left on device" };
        struct applied applied = { .refusals = &r, .n_refusals = 1, .acknowledged = true };
        struct status_writes w = plan_statuses(b.planner, &b.snap, &applied);
        const struct condition *c = written(&w, "game", "Programmed");
        assert_non_null(c);
        assert_int_equal(c->status, cases[i].shows ? TRI_FALSE : TRI_TRUE);
        if (!cases[i].shows)
            continue;
        assert_string_equal(c->reason, "NodeNotReady");
        assert_string_equal(c->message, "node edge-a: link pl4242: No space left on device");
    }
    unload(&b);
}

/* ---- admission that no decoder lets through ---- */

static void end_below_port_is_refused(void **state)
{
    (void)state;
    struct bench b;
    load(&b, "local", "edge-a");
    struct portmap *m = (struct portmap *)(void *)store_get(b.store, KIND_PORTMAP, "games", "game");
    m->has_end_port = true;
    m->end_port = 2999;
    const struct plan *plan = plan_build(b.planner, &b.snap);
    struct status_writes w =
        plan_statuses(b.planner, &b.snap, &(struct applied){ .acknowledged = true });
    assert_string_equal(written(&w, "game", "Accepted")->reason, "InvalidPortRange");
    assert_string_equal(written(&w, "game", "Accepted")->message,
                        "endPort 2999 is below port 3000");
    assert_null(written(&w, "game", "Programmed"));
    assert_null(group_of(plan, "portmap/games/game"));
    assert_string_equal(plan->problems.v[0].field, "spec.endPort");
    unload(&b);
}

/* ---- from pass to pass ---- */

static void remove_portmap(struct bench *b, const char *name)
{
    store_commit(b->store);
    assert_true(store_remove(b->store, KIND_PORTMAP, "games", name));
    look(b);
    assert_true(b->snap.changes_known);
}

static void unchanged_mappings_keep_their_group(void **state)
{
    (void)state;
    struct bench b;
    load(&b, "endpoint-choice", "edge-a");
    const struct plan *first = plan_build(b.planner, &b.snap);
    remove_portmap(&b, "then-pod");
    const struct plan *second = plan_build(b.planner, &b.snap);
    assert_non_null(group_of(first, "portmap/games/then-pod")); /* both plans are good */
    assert_null(group_of(second, "portmap/games/then-pod"));
    assert_int_equal(first->desired.n_groups, second->desired.n_groups + 1);
    for (size_t i = 0; i < second->desired.n_groups; i++) {
        const struct nft_group *g = second->desired.groups[i];
        assert_ptr_equal(group_of(first, g->owner), g);
    }
    b.snap.changes_known = false; /* and a full pass keeps them too */
    const struct plan *third = plan_build(b.planner, &b.snap);
    assert_int_equal(third->desired.n_groups, second->desired.n_groups);
    for (size_t i = 0; i < third->desired.n_groups; i++)
        assert_ptr_equal(third->desired.groups[i], second->desired.groups[i]);
    unload(&b);
}

static void a_change_of_one_endpoint_leaves_the_node_alone(void **state)
{
    (void)state;
    struct bench b;
    load(&b, "remote-landed", "edge-a");
    const struct plan *first = plan_build(b.planner, &b.snap);
    store_commit(b.store);
    const struct object *old = store_get(b.store, KIND_ENDPOINTSLICE, "games", "game-ipv4");
    struct endpoint_slice *s = object_new(KIND_ENDPOINTSLICE);
    struct arena mem = s->o.mem;
    *s = *(const struct endpoint_slice *)(const void *)old;
    s->o.mem = mem;
    s->endpoints = arena_new(&s->o.mem, struct endpoint);
    s->endpoints[0] = ((const struct endpoint_slice *)(const void *)old)->endpoints[0];
    s->endpoints[0].target_name = "pod-2";
    store_upsert(b.store, &s->o);
    look(&b);
    const struct plan *second = plan_build(b.planner, &b.snap);
    assert_ptr_equal(first->desired.links, second->desired.links);
    assert_ptr_equal(first->desired.rules, second->desired.rules);
    assert_int_equal(first->desired.n_groups, second->desired.n_groups);
    for (size_t i = 0; i < first->desired.n_groups; i++)
        assert_ptr_equal(first->desired.groups[i], second->desired.groups[i]);
    unload(&b);
}

static const struct problem *problem_of(const struct plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->problems.n; i++)
        if (!strcmp(plan->problems.v[i].name, name))
            return &plan->problems.v[i];
    return NULL;
}

static void a_service_that_goes_is_missed(void **state)
{
    (void)state;
    struct bench b;
    struct applied applied = { .acknowledged = true };
    load(&b, "no-endpoint", "edge-a");
    assert_string_equal(problem_of(plan_build(b.planner, &b.snap), "no-slice")->message,
                        "Service games/no-slice has no EndpointSlice: does it have a selector?");
    plan_statuses(b.planner, &b.snap, &applied);
    store_commit(b.store);
    assert_true(store_remove(b.store, KIND_SERVICE, "games", "no-slice"));
    look(&b);
    assert_true(b.snap.changes_known);
    const struct plan *plan = plan_build(b.planner, &b.snap);
    struct status_writes w = plan_statuses(b.planner, &b.snap, &applied);
    assert_string_equal(written(&w, "no-slice", "Programmed")->message,
                        "there is no EndpointSlice of Service games/no-slice: does the Service "
                        "exist, and does it have a selector?");
    assert_string_equal(problem_of(plan, "no-slice")->message,
                        written(&w, "no-slice", "Programmed")->message);
    unload(&b);
}

static bool opens(const struct plan *plan, const char *owner)
{
    const struct nft_group *g = group_of(plan, owner);
    return g && nft_group_next(g, NULL)->set == NFT_OPEN4;
}

static void a_lane_is_free_when_its_holder_goes(void **state)
{
    (void)state;
    struct bench b;
    load(&b, "lane", "edge-a");
    assert_false(opens(plan_build(b.planner, &b.snap), "portmap/games/two"));
    remove_portmap(&b, "one");
    assert_true(opens(plan_build(b.planner, &b.snap), "portmap/games/two"));
    unload(&b);
}

static void a_slot_is_free_when_the_older_link_goes(void **state)
{
    (void)state;
    struct bench b;
    load(&b, "slots-collide", "edge-b");
    assert_false(opens(plan_build(b.planner, &b.snap), "portmap/games/two"));
    remove_portmap(&b, "one");
    const struct plan *plan = plan_build(b.planner, &b.snap);
    assert_true(opens(plan, "portmap/games/two"));
    assert_int_equal(plan->desired.n_links, 1);
    struct status_writes w =
        plan_statuses(b.planner, &b.snap, &(struct applied){ .acknowledged = true });
    assert_int_equal(written(&w, "two", "Programmed")->status, TRI_TRUE);
    unload(&b);
}

/* How many rules lead answers by the class's table, and that of main's nearer routes. */
static unsigned ways_back(const struct plan *plan, uint32_t table)
{
    unsigned n = 0;
    for (size_t i = 0; i < plan->desired.n_rules; i++) {
        const struct desired_rule *r = &plan->desired.rules[i];
        n += r->fwmark == (EDGE_MARK_BASE | table) && r->mask == UINT32_MAX;
    }
    return n;
}

static void answers_follow_the_classes_that_go(void **state)
{
    (void)state;
    static const struct plan_options options = { .portmap = true, .trafficclass = true };
    struct bench b;
    load_with(&b, &options, "traffic-answers", "traffic-answers/", "k8s-1");
    const struct plan *plan = plan_build(b.planner, &b.snap);
    assert_int_equal(ways_back(plan, 46), 2); /* IPv6 */
    assert_int_equal(ways_back(plan, 47), 2); /* IPv4 */
    store_commit(b.store);
    assert_true(store_remove(b.store, KIND_TRAFFICCLASS, "", "lan"));
    look(&b);
    assert_true(b.snap.changes_known);
    plan = plan_build(b.planner, &b.snap);
    assert_int_equal(ways_back(plan, 46), 0);
    assert_int_equal(ways_back(plan, 47), 4);
    unload(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programmed_waits_for_the_kernel),
        cmocka_unit_test(what_stands_is_kept_while_nothing_is_acknowledged),
        cmocka_unit_test(a_refusal_shows_in_what_needs_it),
        cmocka_unit_test(end_below_port_is_refused),
        cmocka_unit_test(unchanged_mappings_keep_their_group),
        cmocka_unit_test(a_change_of_one_endpoint_leaves_the_node_alone),
        cmocka_unit_test(a_service_that_goes_is_missed),
        cmocka_unit_test(a_lane_is_free_when_its_holder_goes),
        cmocka_unit_test(a_slot_is_free_when_the_older_link_goes),
        cmocka_unit_test(answers_follow_the_classes_that_go),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
