/* Random histories of classes, Nodes and hosts: a planner that lived through all of it plans what a
 * fresh one does, byte for byte, and so does one that met the objects in another order. PORTOLAN_SEED
 * runs one seed. */
#include "../unit/test.h"

#include <inttypes.h>

#include "../unit/codec_help.h"
#include "bird/render.h"
#include "plan/plan_text.h"
#include "store/store.h"

#define HISTORIES 60
#define STEPS     40
#define NODES     4
#define CLASSES   4

static uint64_t rng;

static unsigned below(unsigned n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(rng >> 33) % n;
}

#define PICK(...)                                          \
    ({                                                     \
        static const char *const v_[] = { __VA_ARGS__ };   \
        v_[below((unsigned)(sizeof(v_) / sizeof(v_[0])))]; \
    })

/* What is written of each object now; "" when there is none. */
struct world {
    char nodes[NODES][900], classes[CLASSES][1200], services[200];
    struct host host;
    struct host_iface ifaces[2];
    struct host_address addresses[2];
    struct host_rule rule;
    struct host_table table;
};

static void write_node(struct world *w, unsigned i)
{
    snprintf(w->nodes[i], sizeof(w->nodes[i]),
             "apiVersion: v1\nkind: Node\nmetadata:\n  name: n%u\n  labels: {t: %s}\n"
             "  annotations: {p4: '%s%u', p6: 'fd00:48::%u', g4: '%s', g6: '%s'}\n"
             "spec: {podCIDRs: [10.244.%u.0/24%s]}\n"
             "status: {addresses: [{type: InternalIP, address: 10.46.0.%u}]}\n",
             i, PICK("a", "b"), PICK("10.48.0.", "10.48.0.", "x"), i + 1, below(3),
             PICK("10.47.0.254", "10.40.0.1", "", "1; }"), PICK("fd00:47::fe", "fe80::1"), i,
             PICK("", ", 'fd00:244::/64'"), i + 1);
}

static void write_class(struct world *w, unsigned i)
{
    snprintf(w->classes[i], sizeof(w->classes[i]),
             "apiVersion: net.renner.uno/v1alpha1\nkind: TrafficClass\n"
             "metadata: {name: c%u, resourceVersion: '%u', creationTimestamp: "
             "'2026-01-01T00:00:0%uZ'}\n"
             "spec:\n  table: %s\n  nodeSelector: {matchLabels: %s}\n"
             "  rules:\n  - {family: IPv4, priority: %s, from: [%s]}\n"
             "  - {family: IPv6, priority: %s, to: [%s]}\n%s",
             i, below(1000), below(3), PICK("47", "48", "49", "254"),
             PICK("{}", "{t: a}", "{t: b}"), PICK("1000", "1001", "1002"),
             PICK("PodCIDRs", "NodePodCIDR", "10.0.0.0/8"), PICK("1000", "1001"),
             PICK("ServiceCIDRs", "fd00::/8", "AttachedNetworks"), "");
    if (strstr(w->classes[i], "table: 254"))
        return;
    size_t n = strlen(w->classes[i]);
    snprintf(w->classes[i] + n, sizeof(w->classes[i]) - n, "  routes: {fallThrough: [%s]%s%s}\n",
             PICK("", "PodCIDRs", "PodCIDRs, ServiceCIDRs, AttachedNetworks"),
             PICK("", ", mesh: {link: l0, addressAnnotations: {ipv4: p4, ipv6: p6}}"),
             PICK("", ", gateway: {link: l1, addressAnnotations: {ipv4: g4, ipv6: g6}}",
                  ", gateway: {link: l1, addressAnnotations: {ipv4: g4}, manager: BIRD}"));
}

static void write_host(struct world *w)
{
    static const char *const names[] = { "l0", "l1" };
    static const char *const texts[] = { "10.48.0.1", "10.47.0.1" };
    for (unsigned i = 0; i < 2; i++) {
        w->addresses[i] = (struct host_address){ .prefix_len = 24 };
        assert_true(ip_parse(texts[i], &w->addresses[i].ip));
        w->ifaces[i] = (struct host_iface){ .name = names[i],
                                            .mtu = 1500,
                                            .up = below(4),
                                            .addresses = &w->addresses[i],
                                            .n_addresses = below(4) ? 1 : 0,
                                            .rp_filter = (uint8_t)below(3) };
    }
    w->rule = (struct host_rule){ .family = IP_V4, .priority = 999 + below(3), .text = "x" };
    w->table = (struct host_table){ .table = 47, .protocol = 3 };
    w->host = (struct host){ .ifaces = w->ifaces,
                             .n_ifaces = 2,
                             .rules = &w->rule,
                             .n_rules = below(2),
                             .foreign_tables = &w->table,
                             .n_foreign_tables = below(4) ? 0 : 1,
                             .forwarding4_error = "",
                             .forwarding6_error = "" };
}

/* Brings a store to one object's text; true when it is another than before. */
static void put(struct store *s, const char *text, enum object_kind kind, const char *name)
{
    if (!*text) {
        store_remove(s, kind, "", name);
        return;
    }
    struct decoded d = decode(text, strlen(text), CODEC_YAML);
    if (d.errors.n)
        fail_msg("%s\n%s", d.errors.v[0], text);
    store_upsert(s, d.objects.v[0]);
    d.objects.n = 0;
    decoded_done(&d);
}

static void put_all(const struct world *w, struct store *s, bool backwards)
{
    char name[8];
    for (unsigned k = 0; k < NODES; k++) {
        unsigned i = backwards ? NODES - 1 - k : k;
        snprintf(name, sizeof(name), "n%u", i);
        put(s, w->nodes[i], KIND_NODE, name);
        snprintf(name, sizeof(name), "c%u", i);
        put(s, w->classes[i], KIND_TRAFFICCLASS, name);
    }
    put(s, w->services, KIND_SERVICECIDR, "s");
}

static struct buf planned(struct planner *p, struct store *s, const struct world *w, bool all)
{
    struct snapshot snap = { .node = "n0", .now = 1767355200, .host = &w->host };
    struct buf out = { 0 };
    store_snapshot(s, &snap);
    snap.changes_known &= !all;
    const struct plan *plan = plan_build(p, &snap);
    const struct applied applied = { .acknowledged = true };
    struct status_writes writes = plan_statuses(p, &snap, &applied);
    plan_text(plan, &writes, &out);
    if (plan->desired.bird)
        bird_render(plan->desired.bird, &out);
    store_commit(s);
    return out;
}

static void step(struct world *w, bool *ret_host)
{
    unsigned i = below(NODES);
    *ret_host = false;
    switch (below(8)) {
    case 0:
        write_host(w);
        *ret_host = true;
        break;
    case 1:
        snprintf(w->services, sizeof(w->services), "%s%s",
                 "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: s}\n",
                 PICK("spec: {cidrs: [10.96.0.0/16]}\n", "spec: {cidrs: ['fd00:96::/112']}\n"));
        break;
    case 2:
        if (i)
            w->nodes[i][0] = '\0';
        break;
    case 3:
        w->classes[i][0] = '\0';
        break;
    case 4:
    case 5:
        write_node(w, i);
        break;
    default:
        write_class(w, i);
        break;
    }
}

static void compare(const struct buf *lived, const struct world *w,
                    const struct plan_options *options, uint64_t seed, unsigned n, bool backwards)
{
    struct store *s = store_new();
    struct planner *p = planner_new(options);
    put_all(w, s, backwards);
    struct buf fresh = planned(p, s, w, true);
    if (strcmp(buf_str(lived), buf_str(&fresh)))
        fail_msg("seed %" PRIu64 " step %u:\n--- lived\n%s\n--- fresh\n%s", seed, n, buf_str(lived),
                 buf_str(&fresh));
    buf_done(&fresh);
    planner_free(p);
    store_free(s);
}

static void a_history_leaves_no_trace(void **state)
{
    (void)state;
    const struct plan_options options = { .trafficclass = true };
    const char *one = getenv("PORTOLAN_SEED");
    uint64_t first = one ? strtoull(one, NULL, 0) : 1, last = one ? first : HISTORIES;
    size_t with_bird = 0, with_rules = 0, with_problems = 0;
    for (uint64_t seed = first; seed <= last; seed++) {
        static struct world w;
        struct store *s = store_new();
        struct planner *p = planner_new(&options);
        rng = seed;
        memset(&w, 0, sizeof(w));
        write_host(&w);
        write_node(&w, 0);
        for (unsigned n = 0; n < STEPS; n++) {
            bool host;
            step(&w, &host);
            put_all(&w, s, below(2));
            struct buf lived = planned(p, s, &w, host);
            with_bird += strstr(buf_str(&lived), "protocol bgp") != NULL;
            with_rules += strstr(buf_str(&lived), "rule IPv4") != NULL;
            with_problems += strstr(buf_str(&lived), "problem ") != NULL;
            compare(&lived, &w, &options, seed, n, n % 2);
            buf_done(&lived);
        }
        planner_free(p);
        store_free(s);
    }
    /* A property of things that never happen proves nothing. */
    assert_true(one || (with_bird > 100 && with_rules > 1000 && with_problems > 100));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_history_leaves_no_trace) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
