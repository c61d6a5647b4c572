#include "test.h"

#include "store/store.h"

#include <string.h>

static struct object *slice(const char *ns, const char *name, const char *service, uint16_t port)
{
    struct endpoint_slice *s = object_new(KIND_ENDPOINTSLICE);
    s->o.meta.ns = arena_strdup(&s->o.mem, ns);
    s->o.meta.name = arena_strdup(&s->o.mem, name);
    s->service = arena_strdup(&s->o.mem, service);
    s->ports = arena_new_array(&s->o.mem, 1, struct endpoint_port);
    s->ports[0] = (struct endpoint_port){ .name = "", .protocol = L4_TCP, .port = port };
    s->n_ports = 1;
    return &s->o;
}

static void keeps_slices_by_service_and_lists_changes(void **state)
{
    (void)state;
    struct store *s = store_new();
    struct snapshot snap = { 0 };
    assert_true(store_upsert(s, slice("b", "z", "web", 80)));
    assert_true(store_upsert(s, slice("a", "y", "web", 80)));
    assert_true(store_upsert(s, slice("b", "a", "zoo", 80)));
    assert_true(store_upsert(s, slice("b", "c", "web", 80)));
    store_snapshot(s, &snap);
    assert_false(snap.changes_known);
    assert_int_equal(snap.n_slices, 4);
    size_t n;
    assert_string_equal(snapshot_slices(&snap, "b", "web", &n)[0]->o.meta.name, "c");
    assert_int_equal(n, 2);
    assert_null(snapshot_slices(&snap, "b", "nope", &n));
    assert_int_equal(n, 0);
    store_commit(s);

    assert_false(store_upsert(s, slice("b", "z", "web", 80)));
    store_snapshot(s, &snap);
    assert_true(snap.changes_known);
    assert_int_equal(snap.n_changes, 0);

    assert_true(store_upsert(s, slice("b", "z", "zoo", 81)));
    store_snapshot(s, &snap);
    assert_int_equal(snap.n_changes, 2);
    assert_string_equal(snap.changes[0].service, "web");
    assert_string_equal(snap.changes[1].service, "zoo");
    assert_non_null(snapshot_slices(&snap, "b", "zoo", &n));
    assert_int_equal(n, 2);
    store_commit(s);

    assert_true(store_remove(s, KIND_ENDPOINTSLICE, "b", "z"));
    assert_false(store_remove(s, KIND_ENDPOINTSLICE, "b", "z"));
    store_snapshot(s, &snap);
    assert_int_equal(snap.n_changes, 1);
    assert_int_equal(snap.n_slices, 3);
    assert_null(store_get(s, KIND_ENDPOINTSLICE, "b", "z"));
    assert_non_null(store_get(s, KIND_ENDPOINTSLICE, "b", "a"));
    store_free(s);
}

/* Random puts and removals against a plain list: order, lookup and count stay right. */
static void random_histories_stay_sorted(void **state)
{
    (void)state;
    struct store *s = store_new();
    bool model[40] = { 0 };
    unsigned seed = 7;
    for (int i = 0; i < 5000; i++) {
        seed = seed * 1103515245u + 12345u;
        unsigned k = (seed >> 8) % 40;
        char name[8], service[8];
        snprintf(name, sizeof(name), "n%u", k);
        snprintf(service, sizeof(service), "s%u", (seed >> 20) % 3);
        if (seed & 0x80) {
            store_upsert(s, slice("ns", name, service, (uint16_t)(seed >> 16)));
            model[k] = true;
        } else {
            assert_int_equal(store_remove(s, KIND_ENDPOINTSLICE, "ns", name), model[k]);
            model[k] = false;
        }
        if (i % 7)
            continue;
        struct snapshot snap = { 0 };
        store_snapshot(s, &snap);
        size_t want = 0;
        for (unsigned j = 0; j < 40; j++)
            want += model[j];
        assert_int_equal(snap.n_slices, want);
        for (size_t j = 1; j < snap.n_slices; j++) {
            int c = strcmp(snap.slices[j - 1]->service, snap.slices[j]->service);
            assert_true(c < 0 || (!c && strcmp(snap.slices[j - 1]->o.meta.name,
                                               snap.slices[j]->o.meta.name) < 0));
        }
        store_commit(s);
    }
    store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_slices_by_service_and_lists_changes),
        cmocka_unit_test(random_histories_stay_sorted),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
