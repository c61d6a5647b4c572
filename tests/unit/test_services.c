/* What a golden cannot show of services: what one pass keeps of the last, and who takes over from
 * whom. That the short way and the long way agree: tests/property. */
#include "test.h"

#include <string.h>

#include "model/nft_text.h"
#include "services_bench.h"

static const struct plan_options options = { .portmap = true, .serviceproxy = true };

static struct nft_group *group_of(const struct plan *p, const char *owner)
{
    for (size_t i = 0; i < p->desired.n_groups; i++)
        if (!strcmp(p->desired.groups[i]->owner, owner))
            return p->desired.groups[i];
    return NULL;
}

/* An element whose text begins so. */
static bool has(const struct nft_group *g, const char *text)
{
    struct buf b = { 0 };
    bool found = false;
    for (const struct nft_elem *e = NULL; g && !found && (e = nft_group_next(g, e));) {
        buf_clear(&b);
        nft_text_elem(&b, e);
        found = !strncmp(b.p, text, strlen(text));
    }
    buf_done(&b);
    return found;
}

/* ---- who takes over ---- */

#define SHARED  "ports: [{port: 80}], externalIPs: [192.0.2.1], clusterIP: "
#define DIALLED "192.0.2.1 . tcp . 80 : goto"

static void the_next_oldest_takes_over(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, &options);
    put(&b, SERVICE("old", "1", SHARED "10.96.0.1") SERVICE("mid", "2", SHARED "10.96.0.2")
                SERVICE("new", "3", SHARED "10.96.0.3"));
    assert_true(has(group_of(b.plan, "service/a/old"), DIALLED));
    assert_false(has(group_of(b.plan, "service/a/mid"), DIALLED));
    assert_int_equal(b.plan->problems.n, 2);
    assert_string_equal(b.plan->problems.v[0].message,
                        "TCP port 80 of 192.0.2.1 is held by Service a/old");
    take_away(&b, KIND_SERVICE, "old");
    assert_true(has(group_of(b.plan, "service/a/mid"), DIALLED));
    assert_int_equal(b.plan->problems.n, 1);
    assert_string_equal(b.plan->problems.v[0].name, "new");
    assert_string_equal(b.plan->problems.v[0].message,
                        "TCP port 80 of 192.0.2.1 is held by Service a/mid");
    put(&b, SERVICE("old", "9", SHARED "10.96.0.1"));
    assert_true(has(group_of(b.plan, "service/a/mid"), DIALLED));
    assert_int_equal(b.plan->problems.n, 2);
    end(&b);
}

/* Port names for which FNV-1a gives all three Services the id 1063255027. */
#define STAYS(name, port, ip) \
    "sessionAffinity: ClientIP, clusterIP: " ip ", ports: [{name: " port ", port: 80}]"
#define PODS(service, port, ip)                                                        \
    "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n"        \
    "metadata: {name: " service "-1, namespace: a, labels: "                           \
    "{kubernetes.io/service-name: " service "}}\nports: [{name: " port ", port: 1}]\n" \
    "endpoints: [{addresses: [" ip "]}]\n---\n"

static void ids_that_collide_go_by_age(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, &options);
    put(&b, SERVICE("s3", "3", STAYS("s3", "pzk3u", "10.96.0.3")) PODS("s3", "pzk3u", "10.1.0.3"));
    assert_true(has(group_of(b.plan, "service/a/s3"), "10.96.0.3 . tcp . 80 : 1063255027"));
    put(&b, SERVICE("s1", "1", STAYS("s1", "pes73m", "10.96.0.1")) PODS("s1", "pes73m", "10.1.0.1")
                SERVICE("s2", "2", STAYS("s2", "pctj1p", "10.96.0.2"))
                    PODS("s2", "pctj1p", "10.1.0.2"));
    assert_true(has(group_of(b.plan, "service/a/s1"), "10.96.0.1 . tcp . 80 : 1063255027"));
    assert_true(has(group_of(b.plan, "service/a/s2"), "10.96.0.2 . tcp . 80 : 1063255028"));
    assert_true(has(group_of(b.plan, "service/a/s3"), "10.96.0.3 . tcp . 80 : 1063255029"));
    take_away(&b, KIND_SERVICE, "s1");
    assert_true(has(group_of(b.plan, "service/a/s2"), "10.96.0.2 . tcp . 80 : 1063255027"));
    assert_true(has(group_of(b.plan, "service/a/s3"), "10.96.0.3 . tcp . 80 : 1063255028"));
    end(&b);
}

/* ---- what is left alone ---- */

#define PLAIN(ip)  "ports: [{port: 80}], clusterIP: " ip
#define HINT(zone) ", hints: {forZones: [{name: " zone "}]}"

static void only_what_changed_is_made_anew(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, &options);
    put(&b, SERVICE("one", "1", PLAIN("10.96.0.1")) SLICE("one", "10.1.0.1", "n", "")
                SERVICE("two", "1", PLAIN("10.96.0.2")) SLICE("two", "10.1.0.2", "n", ""));
    const struct nft_group *one = group_of(b.plan, "service/a/one");
    const struct nft_group *two = group_of(b.plan, "service/a/two");
    put(&b, SLICE("two", "10.1.0.9", "n", ""));
    assert_ptr_equal(group_of(b.plan, "service/a/one"), one);
    assert_ptr_not_equal(group_of(b.plan, "service/a/two"), two);
    assert_true(has(group_of(b.plan, "service/a/two"), "10.96.0.2 . tcp . 80 . 0 : 10.1.0.9"));
    two = group_of(b.plan, "service/a/two");
    put(&b, NODE("n", "10.0.0.1", "beat: '1'"));
    b.iface.n_addresses = 2;
    plan(&b, true);
    assert_ptr_equal(group_of(b.plan, "service/a/one"), one);
    assert_ptr_equal(group_of(b.plan, "service/a/two"), two);
    end(&b);
}

static void a_node_that_moves_to_another_zone_uses_other_endpoints(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, &options);
    put(&b, NODE("n", "10.0.0.1", "topology.kubernetes.io/zone: west")
                SERVICE("one", "1", PLAIN("10.96.0.1")) SLICE(
                    "one", "10.1.0.1", "n", HINT("west") "}, {addresses: [10.1.0.2]" HINT("east")));
    assert_true(has(group_of(b.plan, "service/a/one"), "10.96.0.1 . tcp . 80 : goto pick4-1"));
    assert_true(has(group_of(b.plan, "service/a/one"), "10.96.0.1 . tcp . 80 . 0 : 10.1.0.1"));
    put(&b, NODE("n", "10.0.0.1", "topology.kubernetes.io/zone: east"));
    assert_true(has(group_of(b.plan, "service/a/one"), "10.96.0.1 . tcp . 80 . 0 : 10.1.0.2"));
    put(&b, NODE("n", "10.0.0.1", ""));
    assert_true(has(group_of(b.plan, "service/a/one"), "10.96.0.1 . tcp . 80 : goto pick4-2"));
    end(&b);
}

static void a_plan_can_be_read_until_the_second_next(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, &options);
    const struct plan *before =
        put(&b, SERVICE("web", "1",
                        "type: LoadBalancer, externalTrafficPolicy: Local, "
                        "healthCheckNodePort: 30999, externalIPs: [nonsense], " PLAIN("10.96.0.1"))
                    SLICE("web", "10.1.0.1", "n", ""));
    assert_int_equal(before->desired.n_health_checks, 1);
    assert_int_equal(before->problems.n, 1);
    const struct plan *after = take_away(&b, KIND_SERVICE, "web");
    assert_int_equal(after->desired.n_health_checks, 0);
    assert_string_equal(before->desired.health_checks[0].name, "web");
    assert_string_equal(before->problems.v[0].value, "nonsense");
    assert_true(has(group_of(before, "service/a/web"), "10.96.0.1 . tcp . 80 . 0 : 10.1.0.1"));
    end(&b);
}

/* ---- limits ---- */

static void more_endpoints_than_indexes_are_left_out_and_told(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, &options);
    put(&b, SERVICE("web", "1", PLAIN("10.96.0.1")));
    struct endpoint_slice *s = object_new(KIND_ENDPOINTSLICE);
    struct arena *a = &s->o.mem;
    s->o.meta.ns = "a";
    s->o.meta.name = "web-1";
    s->service = "web";
    s->family = IP_V4;
    s->ports = arena_new(a, struct endpoint_port);
    s->n_ports = 1;
    s->ports[0] = (struct endpoint_port){ "", L4_TCP, 8080 };
    s->n_endpoints = NFT_INDEX_ALL + 1;
    s->endpoints = arena_new_array(a, s->n_endpoints, struct endpoint);
    for (uint32_t i = 0; i < s->n_endpoints; i++) {
        s->endpoints[i] = (struct endpoint){
            { arena_new(a, const char *), 1 }, true, true, false, "m", "", "", "", NULL
        };
        s->endpoints[i].addresses.v[0] = arena_printf(a, "10.1.%u.%u", i >> 8, i & 255);
    }
    store_upsert(b.store, &s->o);
    plan(&b, false);
    assert_true(has(group_of(b.plan, "service/a/web"), "10.96.0.1 . tcp . 80 : goto pick4-32768"));
    assert_true(
        has(group_of(b.plan, "service/a/web"), "10.96.0.1 . tcp . 80 . 32767 : 10.1.127.255"));
    assert_int_equal(b.plan->problems.n, 1);
    assert_string_equal(b.plan->problems.v[0].reason, "TooManyEndpoints");
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_oldest_takes_over),
        cmocka_unit_test(ids_that_collide_go_by_age),
        cmocka_unit_test(only_what_changed_is_made_anew),
        cmocka_unit_test(a_node_that_moves_to_another_zone_uses_other_endpoints),
        cmocka_unit_test(a_plan_can_be_read_until_the_second_next),
        cmocka_unit_test(more_endpoints_than_indexes_are_left_out_and_told),
    };
    return cmocka_run_group_tests_name("services", tests, NULL, NULL);
}
