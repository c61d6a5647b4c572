/* The load balancer's policy, branch by branch: who holds an address, who writes a status, who is told,
 * which mark a holder has. What is programmed then: tests/golden/held-*. Any world: tests/property. */
#include "test.h"

#include <string.h>

#include "addr_help.h"
#include "plan/plan.h"
#include "plan/plan_text.h"
#include "store_help.h"

#define IFACES 4

struct bench { /* one node's view of a cluster */
    struct store *store;
    const char *node;
    struct plan_options options;
    struct planner *planner;
    struct host host;
    bool host_changed;
    struct host_iface ifaces[IFACES];
    struct host_address addresses[IFACES][3];
    struct applied applied;
    const struct plan *plan;
    struct status_writes writes;
    struct buf text; /* of the last plan */
};

static void add_iface(struct bench *b, const char *name, const char *const *addresses)
{
    uint32_t i = b->host.n_ifaces++;
    b->ifaces[i] = (struct host_iface){ name, 1500, true, .addresses = b->addresses[i] };
    for (; addresses[b->ifaces[i].n_addresses]; b->ifaces[i].n_addresses++) {
        struct host_address *x = &b->addresses[i][b->ifaces[i].n_addresses];
        *x = (struct host_address){ .prefix_len = 24 };
        x->ip = ip_of(addresses[b->ifaces[i].n_addresses]);
    }
}

static void begin(struct bench *b, const char *node)
{
    *b = (struct bench){ .node = node, .applied.acknowledged = true };
    b->options = (struct plan_options){ .portmap = true, .loadbalancer = true, .overlay = "weave" };
    b->host = (struct host){ .ifaces = b->ifaces,
                             .forwarding4 = true,
                             .bridge_nf_call_iptables = 1,
                             .forwarding4_error = "",
                             .forwarding6_error = "" };
    add_iface(b, "weave", (const char *const[]){ "10.32.0.1", NULL });
    memcpy(b->ifaces[0].mac, "\x9e\0\0\0\0\x01", 6);
    b->store = store_new();
    b->planner = planner_new(&b->options);
}

static void end(struct bench *b)
{
    planner_free(b->planner);
    store_free(b->store);
    buf_done(&b->text);
}

static void plan(struct bench *b)
{
    struct snapshot s = { .node = b->node, .host = &b->host, .host_changed = b->host_changed };
    store_snapshot(b->store, &s);
    b->plan = plan_build(b->planner, &s);
    b->writes = plan_statuses(b->planner, &s, &b->applied);
    buf_clear(&b->text);
    plan_text(b->plan, &b->writes, &b->text);
    store_commit(b->store);
    b->host_changed = false;
}

static void put_node(struct bench *b, const char *name, const char *addresses, const char *overlay)
{
    struct buf y = { 0 };
    buf_printf(&y,
               "apiVersion: v1\nkind: Node\nmetadata: {name: %s, annotations: "
               "{reweave.levk.dev/addresses: '%s', reweave.levk.dev/weave: '%s'}}\n",
               name, addresses, overlay);
    store_put_yaml(b->store, y.p);
    buf_done(&y);
}

static void put_service(struct bench *b, const char *name, const char *ip, const char *ingress)
{
    struct buf y = { 0 };
    buf_printf(&y,
               "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: a}\n"
               "spec: {type: LoadBalancer, loadBalancerClass: reweave.levk.dev/node-address, "
               "loadBalancerIP: '%s', clusterIP: 10.96.0.1, ports: [{port: 80}]}\n"
               "status: {loadBalancer: {ingress: [%s]}}\n",
               name, ip, ingress);
    store_put_yaml(b->store, y.p);
    buf_done(&y);
}

static bool says(const struct bench *b, const char *line)
{
    return strstr(buf_str(&b->text), line);
}

static void assert_says(const struct bench *b, const char *line)
{
    if (!says(b, line))
        fail_msg("%s does not say %s, but\n%s", b->node, line, buf_str(&b->text));
}

/* The Event's problem of that reason, NULL: none or not this node's to tell. */
static const struct problem *told(const struct bench *b, const char *reason)
{
    for (size_t i = 0; i < b->plan->problems.n; i++)
        if (!strcmp(b->plan->problems.v[i].reason, reason) && b->plan->problems.v[i].event)
            return &b->plan->problems.v[i];
    return NULL;
}

/* ---- who holds, who writes, who tells ---- */

#define OVERLAY_A "10.32.0.1,9e:00:00:00:00:01"
#define OVERLAY_B "10.32.0.2,9e:00:00:00:00:02"
#define OVERLAY_C "10.32.0.3,9e:00:00:00:00:03"

static const struct decision {
    const char *ip, *ingress;
    const char *forwards; /* the node, NULL: none */
    const char *writer;   /* of the status, NULL: nobody writes */
    const char *writes;
    const char *reason; /* of the problem, NULL: none */
    const char *teller;
} decisions[] = {
    /* a holds 192.0.2.1, b 192.0.2.2, b and c 192.0.2.9 */
    { "192.0.2.1", "", "a", "a", "192.0.2.1", NULL, NULL },
    { "192.0.2.2", "", "b", "b", "192.0.2.2", NULL, NULL },
    { "::ffff:192.0.2.2", "", "b", "b", "192.0.2.2", NULL, NULL },
    { "192.0.2.2", "{ip: 192.0.2.2}", "b", NULL, NULL, NULL, NULL },
    { "192.0.2.2", "{ip: 192.0.2.1}", "b", "b", "192.0.2.2", NULL, NULL },
    { "192.0.2.2", "{ip: 192.0.2.2}, {ip: 192.0.2.3}", "b", "b", "192.0.2.2", NULL, NULL },
    { "192.0.2.2", "{hostname: lb.example}", "b", "b", "192.0.2.2", NULL, NULL },
    { "", "", NULL, NULL, NULL, "AddressInvalid", "a" },
    { "192.0.2", "", NULL, NULL, NULL, "AddressInvalid", "a" },
    { "2001:db8::1", "", NULL, NULL, NULL, "AddressInvalid", "a" },
    { "192.0.2.01", "{ip: 192.0.2.2}", NULL, "b", "none", "AddressInvalid", "b" },
    { "192.0.2.7", "", NULL, NULL, NULL, "NoHolder", "a" },
    { "192.0.2.7", "{ip: 192.0.2.7}", NULL, "a", "none", "NoHolder", "a" },
    { "192.0.2.7", "{ip: 192.0.2.2}", NULL, "b", "none", "NoHolder", "b" },
    { "192.0.2.7", "{ip: 192.0.2.2}, {ip: 192.0.2.2}", NULL, "a", "none", "NoHolder", "a" },
    { "192.0.2.9", "", NULL, NULL, NULL, "SeveralHolders", "a" },
    { "192.0.2.9", "{ip: 192.0.2.9}", NULL, "a", "none", "SeveralHolders", "a" },
};

static void check_decision(const struct decision *d, const char *node)
{
    struct bench b;
    char line[200];
    begin(&b, node);
    add_iface(&b, "eth0", (const char *const[]){ "192.0.2.1", "192.0.2.2", "192.0.2.9", NULL });
    put_node(&b, "a", "192.0.2.1", OVERLAY_A);
    put_node(&b, "b", "192.0.2.2,192.0.2.9,192.0.2.2", OVERLAY_B);
    put_node(&b, "c", " 192.0.2.9 ,192.0.2.9", OVERLAY_C);
    put_service(&b, "web", d->ip, d->ingress);
    plan(&b);
    bool forwards = d->forwards && !strcmp(d->forwards, node);
    bool writes = d->writer && !strcmp(d->writer, node);
    bool tells = d->teller && !strcmp(d->teller, node);
    if (says(&b, "service/a/web service4") != forwards)
        fail_msg("%s: %s forwards, or does not", d->ip, node);
    if (says(&b, "status Service") != writes)
        fail_msg("%s showing %s: %s writes, or does not", d->ip, d->ingress, node);
    snprintf(line, sizeof(line), "status Service a/web ingress %s\n", writes ? d->writes : "");
    if (writes)
        assert_says(&b, line);
    snprintf(line, sizeof(line),
             "problem Service a/web spec.loadBalancerIP%s%s%s %s: ", *d->ip ? " \"" : "", d->ip,
             *d->ip ? "\"" : "", d->reason ? d->reason : "");
    if (d->reason)
        assert_says(&b, line);
    else
        assert_false(says(&b, "problem Service"));
    assert_int_equal(d->reason && told(&b, d->reason), tells);
    end(&b);
}

static void one_forwards_one_writes_one_tells(void **state)
{
    (void)state;
    static const char *const nodes[] = { "a", "b", "c" };
    for (size_t i = 0; i < sizeof(decisions) / sizeof(decisions[0]); i++)
        for (size_t j = 0; j < 3; j++)
            check_decision(&decisions[i], nodes[j]);
}

static void what_is_of_another_class_or_type_is_left_alone(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "type: LoadBalancer, loadBalancerClass: other, loadBalancerIP: 192.0.2.1",
        "type: LoadBalancer, loadBalancerIP: 192.0.2.1",
        "type: ClusterIP, loadBalancerClass: reweave.levk.dev/node-address",
    };
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        struct bench b;
        struct buf y = { 0 };
        begin(&b, "a");
        add_iface(&b, "eth0", (const char *const[]){ "192.0.2.1", NULL });
        put_node(&b, "a", "192.0.2.1", OVERLAY_A);
        buf_printf(&y,
                   "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: a}\n"
                   "spec: {%s, clusterIP: 10.96.0.1, ports: [{port: 80}]}\n"
                   "status: {loadBalancer: {ingress: [{ip: 192.0.2.9}]}}\n",
                   specs[i]);
        store_put_yaml(b.store, y.p);
        plan(&b);
        assert_false(says(&b, "service") || says(&b, "Service") || says(&b, "route"));
        buf_done(&y);
        end(&b);
    }
}

static void an_address_is_shown_once_it_is_served(void **state)
{
    (void)state;
    struct bench b;
    struct refusal refused = { .owner = "service/a/web", .object = "x", .text = "" };
    begin(&b, "a");
    add_iface(&b, "eth0", (const char *const[]){ "192.0.2.1", NULL });
    put_node(&b, "a", "192.0.2.1", OVERLAY_A);
    put_service(&b, "web", "192.0.2.1", "");
    put_service(&b, "gone", "192.0.2.7", "{ip: 192.0.2.7}");
    b.applied.acknowledged = false;
    plan(&b);
    assert_false(says(&b, "status Service a/web"));
    assert_says(&b, "status Service a/gone ingress none\n"); /* at once */
    b.applied = (struct applied){ &refused, 1, true, NULL };
    plan(&b);
    assert_false(says(&b, "status Service a/web"));
    refused.owner = "service/a/other";
    plan(&b);
    assert_says(&b, "status Service a/web ingress 192.0.2.1\n");
    end(&b);
}

static void an_address_moves_and_nobody_serves_it_twice(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        int forwards; /* 0: a, 1: b, -1: nobody */
    } steps[] = { { "192.0.2.1", "", 0 },
                  { "192.0.2.1", "192.0.2.1", -1 },
                  { "", "192.0.2.1", 1 },
                  { "", "", -1 },
                  { "192.0.2.1", "192.0.2.2", 0 } };
    struct bench nodes[2];
    begin(&nodes[0], "a");
    begin(&nodes[1], "b");
    nodes[1].addresses[0][0].ip = ip_of("10.32.0.2");
    nodes[1].ifaces[0].mac[5] = 2;
    for (int j = 0; j < 2; j++)
        add_iface(&nodes[j], "eth0", (const char *const[]){ "192.0.2.1", NULL });
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        for (int j = 0; j < 2; j++) {
            struct bench *b = &nodes[j];
            put_node(b, "a", steps[i].a, OVERLAY_A);
            put_node(b, "b", steps[i].b, OVERLAY_B);
            if (!i)
                put_service(b, "web", "192.0.2.1", "");
            plan(b);
            assert_int_equal(says(b, "service/a/web held4"), steps[i].forwards == j);
            assert_int_equal(says(b, "loadbalancer holders"), steps[i].forwards == !j);
        }
    /* It ends with the address, before that is published; and begins again when it was a moment. */
    struct bench *a = &nodes[0];
    for (uint32_t n = 0; n < 2; n++) {
        a->ifaces[1].n_addresses = n;
        a->host_changed = true;
        plan(a);
        assert_int_equal(says(a, "service/a/web held4"), n);
    }
    end(&nodes[0]);
    end(&nodes[1]);
}

/* ---- annotations ---- */

static void garbage_costs_its_node_alone(void **state)
{
    (void)state;
    static const struct {
        const char *addresses, *overlay, *annotation;
    } bad[] = {
        { ",", "", "addresses" },
        { "192.0.2.1,", "", "addresses" },
        { " ", "", "addresses" },
        { "192.0.2.1 192.0.2.2", "", "addresses" },
        { "192.0.2.1,2001:db8::1", "", "addresses" },
        { "192.0.2.1,192.0.2.256", OVERLAY_B, "addresses" },
        { "192.0.2.1", "10.32.0.2", "weave" },
        { "192.0.2.1", "10.32.0.2,", "weave" },
        { "192.0.2.1", "10.32.0.2,9e:00:00:00:00", "weave" },
        { "192.0.2.1", "10.32.0.2,9e:00:00:00:00:0g", "weave" },
        { "192.0.2.1", "10.32.0.2,9e:00:00-00:00:02", "weave" },
        { "192.0.2.1", "10.32.0.2,9e:00:00:00:00:02,", "weave" },
        { "192.0.2.1", " 10.32.0.2,9e:00:00:00:00:02", "weave" },
        { "192.0.2.1", "fd00::2,9e:00:00:00:00:02", "weave" },
        { "192.0.2.1", "10.32.0.2,00:00:00:00:00:00", "weave" },
        { "192.0.2.1", "10.32.0.2,ff:ff:ff:ff:ff:ff", "weave" },
        { "192.0.2.1", "10.32.0.2,01:00:5e:00:00:02", "weave" },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct bench b;
        struct buf line = { 0 };
        begin(&b, "a");
        add_iface(&b, "eth0", (const char *const[]){ "192.0.2.2", NULL });
        put_node(&b, "a", "192.0.2.2", OVERLAY_A);
        put_node(&b, "b", bad[i].addresses, bad[i].overlay);
        put_node(&b, "c", "192.0.2.3", OVERLAY_C);
        put_service(&b, "garbage", "192.0.2.1", "");
        put_service(&b, "here", "192.0.2.2", "");
        put_service(&b, "there", "192.0.2.3", "");
        plan(&b);
        buf_printf(&line, "problem Node b reweave.levk.dev/%s \"%s\" InvalidAnnotation: ",
                   bad[i].annotation,
                   bad[i].annotation[0] == 'a' ? bad[i].addresses : bad[i].overlay);
        assert_says(&b, line.p);
        assert_non_null(told(&b, "InvalidAnnotation"));
        assert_says(&b, "problem Service a/garbage spec.loadBalancerIP \"192.0.2.1\" NoHolder: ");
        assert_says(&b, "element service/a/here held4 { 192.0.2.2 . tcp . 80 }");
        assert_says(&b, "element loadbalancer holders { 9e:00:00:00:00:03 : goto holder-");
        assert_false(says(&b, "holders { 9e:00:00:00:00:02"));
        buf_done(&line);
        end(&b);
    }
}

static void of_two_at_one_place_of_the_overlay_the_first_is_reached(void **state)
{
    (void)state;
    static const struct {
        const char *overlay, *why;
    } claims[] = {
        { "10.32.0.2,9e:00:00:00:00:03", "node b has published the same" },
        { "10.32.0.3,9e:00:00:00:00:02", "node b has published the same" },
        { OVERLAY_B, "node b has published the same" },
        { OVERLAY_A, "node a has published the same" },
        { "10.32.0.3,9e:00:00:00:00:01", "node a has published the same" },
        { "10.32.0.0,9e:00:00:00:00:03", "it is not behind weave" },
        { "10.32.0.255,9e:00:00:00:00:03", "it is not behind weave" },
    };
    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
        struct bench b;
        begin(&b, "a");
        put_node(&b, "a", "", OVERLAY_A);
        put_node(&b, "b", "192.0.2.2", OVERLAY_B);
        put_node(&b, "c", "192.0.2.3", claims[i].overlay);
        put_service(&b, "second", "192.0.2.2", "");
        put_service(&b, "third", "192.0.2.3", "");
        plan(&b);
        assert_says(&b, "problem Node c reweave.levk.dev/weave \"10.32.0.");
        assert_says(&b, claims[i].why);
        assert_false(says(&b, "problem Node b"));
        assert_says(&b, " via 10.32.0.2 dev weave\n");
        assert_false(says(&b, "via 10.32.0.3"));
        assert_says(&b, "holders { 9e:00:00:00:00:02 : goto holder-");
        assert_false(says(&b, "holders { 9e:00:00:00:00:03"));
        put_node(&b, "c", "192.0.2.3", OVERLAY_C);
        plan(&b);
        assert_false(says(&b, "problem Node"));
        assert_says(&b, "holders { 9e:00:00:00:00:03 : goto holder-");
        end(&b);
    }
}

static void what_is_published_is_sorted_and_of_the_host(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "a");
    b.options.address_exclude = (const char *const[]){ "veth*", "cni?" };
    b.options.n_address_exclude = 2;
    add_iface(&b, "eth0", (const char *const[]){ "9.9.9.9", "2001:db8::1", "169.254.3.4", NULL });
    add_iface(&b, "cni0", (const char *const[]){ "10.244.0.1", NULL });
    add_iface(&b, "vethernet", (const char *const[]){ "10.244.0.2", NULL });
    put_node(&b, "a", "", "");
    plan(&b);
    assert_says(&b, "annotate Node a addresses=9.9.9.9 overlay=" OVERLAY_A "\n");
    b.ifaces[2].name = "eth1"; /* sorted as text */
    b.ifaces[3].name = "kube-ipvs0";
    b.addresses[2][0].ip = ip_of("9.9.9.9");
    b.addresses[1][2].ip = ip_of("10.1.1.1");
    b.host_changed = true;
    plan(&b);
    assert_says(&b, "annotate Node a addresses=10.1.1.1,9.9.9.9 overlay=" OVERLAY_A "\n");
    put_node(&b, "a", "10.1.1.1,9.9.9.9", OVERLAY_A);
    plan(&b);
    assert_false(says(&b, "annotate"));
    b.ifaces[0].name = "other"; /* the overlay goes, and so does what was said of it */
    b.host.ifaces = b.ifaces + 1;
    b.host.n_ifaces = 3;
    b.host_changed = true;
    plan(&b);
    assert_says(&b, "annotate Node a addresses=10.1.1.1,9.9.9.9 overlay=\n");
    end(&b);
}

static void an_overlay_without_room_is_a_problem(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "c");
    b.options.overlay = OVERLAY_VXLAN;
    b.options.overlay_subnet = prefix_of("169.254.96.0/30");
    put_node(&b, "a", "", "169.254.96.1,02:6b:a9:fe:60:01");
    put_node(&b, "b", "", "169.254.96.2,02:6b:a9:fe:60:02");
    put_node(&b, "c", "", "169.254.96.2,02:6b:a9:fe:60:02"); /* b has it first */
    plan(&b);
    assert_says(&b, "annotate Node c addresses=10.32.0.1 overlay=\n");
    assert_says(&b, "problem Node c overlay \"169.254.96.0/30\" OverlayUnavailable: ");
    assert_true(store_remove(b.store, KIND_NODE, "", "a"));
    plan(&b);
    assert_says(&b, "overlay=169.254.96.1,02:6b:a9:fe:60:01\n");
    end(&b);
}

static void the_node_s_own_interface_is_no_overlay(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "a");
    b.options.overlay = "eth0";
    add_iface(&b, "eth0", (const char *const[]){ "192.0.2.1", "203.0.113.9", NULL });
    memcpy(b.ifaces[1].mac, "\x9e\0\0\0\0\x02", 6);
    store_put_yaml(b.store, "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n"
                            "status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n");
    plan(&b);
    assert_says(&b, "problem Node a overlay \"eth0\" OverlayUnavailable: it is no bridge but ");
    assert_non_null(told(&b, "OverlayUnavailable"));
    assert_says(&b, "annotate Node a addresses=10.32.0.1 overlay=\n");
    b.ifaces[1].bridge = true; /* one that pods share with the nodes' own network */
    b.host_changed = true;
    plan(&b);
    assert_false(says(&b, "OverlayUnavailable"));
    assert_says(&b, "overlay=192.0.2.1,9e:00:00:00:00:02\n");
    end(&b);
}

/* ---- holders ---- */

static void put_holder(struct bench *b, unsigned i, const char *name)
{
    char ip[IP_TEXT_MAX], overlay[64];
    snprintf(ip, sizeof(ip), "198.18.%u.%u", i / 256, i % 256);
    snprintf(overlay, sizeof(overlay), "10.32.0.%u,9e:00:00:01:%02x:%02x", 2 + i % 250, i / 256,
             i % 256);
    put_node(b, name, ip, overlay);
    put_service(b, name, ip, "");
}

static void marks_follow_from_names(void **state)
{
    (void)state;
    static const struct {
        const char *names[5];
        unsigned marks[5];
    } cases[] = {
        { { "edge-a" }, { 108 } },                                   /* 107 is taken for ever */
        { { "node-126", "node-144" }, { 106, 108 } },                /* both 106; past 107 */
        { { "node-121", "node-154", "node-259" }, { 249, 250, 1 } }, /* all 249 */
        { { "node-0", "node-37", "node-91" }, { 19, 20, 21 } },
        { { "node-37", "node-91" }, { 19, 20 } },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bench b;
        char line[100];
        begin(&b, "zz");
        put_node(&b, "zz", "", OVERLAY_A);
        for (unsigned j = 0; j < 5 && cases[i].names[j]; j++)
            put_holder(&b, j, cases[i].names[j]);
        plan(&b);
        for (unsigned j = 0; j < 5 && cases[i].names[j]; j++) {
            snprintf(line, sizeof(line), "holders { 9e:00:00:01:00:%02x : goto holder-%u }\n", j,
                     cases[i].marks[j]);
            assert_says(&b, line);
        }
        end(&b);
    }
}

static void there_are_249_marks(void **state)
{
    (void)state;
    struct bench b;
    char name[16];
    unsigned rules = 0, refused = 0;
    bool taken[256] = { [0] = true, [0x6b] = true, [251] = true, true, true, true, true };
    begin(&b, "aa");
    put_node(&b, "aa", "", OVERLAY_A);
    for (unsigned i = 0; i < 255; i++) {
        snprintf(name, sizeof(name), "node-%03u", i);
        put_holder(&b, i, name);
    }
    plan(&b);
    for (size_t i = 0; i < b.plan->desired.n_rules; i++) {
        const struct desired_rule *r = &b.plan->desired.rules[i];
        if (r->action != RULE_LOOKUP)
            continue; /* past them all, for packets without a mark */
        assert_int_equal(r->mask, 0xff000000);
        assert_false(taken[r->fwmark >> 24]);
        taken[r->fwmark >> 24] = true;
        assert_int_equal(r->table, 131072 + (r->fwmark >> 24));
        rules++;
    }
    for (size_t i = 0; i < b.plan->problems.n; i++)
        if (!strcmp(b.plan->problems.v[i].reason, "TooManyHolders")) {
            snprintf(name, sizeof(name), "node-%03u", 249 + refused++);
            assert_string_equal(b.plan->problems.v[i].name, name);
        }
    assert_int_equal(rules, 249);
    assert_int_equal(refused, 255 - 249);
    end(&b);
}

static void a_holder_without_overlay_has_no_mark(void **state)
{
    (void)state;
    static const char *const nodes[] = { "a", "b", "c" };
    for (size_t i = 0; i < 3; i++) {
        struct bench b;
        begin(&b, nodes[i]);
        put_node(&b, "a", "192.0.2.1", "");
        put_node(&b, "b", "192.0.2.2", OVERLAY_B);
        put_node(&b, "c", "", OVERLAY_C);
        put_service(&b, "one", "192.0.2.1", "");
        put_service(&b, "two", "192.0.2.2", "");
        plan(&b);
        /* It sees no fault in itself; of the others the first tells. */
        assert_int_equal(says(&b, "problem Node a reweave.levk.dev/weave HolderWithoutOverlay: "),
                         i != 0);
        assert_int_equal(told(&b, "HolderWithoutOverlay") != NULL, i == 1);
        assert_int_equal(says(&b, "goto holder-"), i != 1);
        assert_false(says(&b, "holders { 00:00"));
        end(&b);
    }
}

static void nobody_is_answered_at_an_address_of_ones_own(void **state)
{
    (void)state;
    static const char *const overlays[] = { "10.32.0.1,9e:00:00:00:00:02",
                                            "172.16.0.1,9e:00:00:00:00:02" };
    for (size_t i = 0; i < 2; i++) {
        struct bench b;
        begin(&b, "a");
        put_node(&b, "a", "", OVERLAY_A);
        put_node(&b, "b", "192.0.2.2", overlays[i]);
        put_service(&b, "web", "192.0.2.2", "");
        plan(&b);
        assert_says(&b, "problem Node b reweave.levk.dev/weave ");
        assert_non_null(told(&b, "InvalidAnnotation"));
        assert_false(says(&b, "holders") || says(&b, "route"));
        end(&b);
    }
}

/* ---- others' rules ---- */

/* Packets without a mark pass by 102 to 104, unless a rule of others is there (or at 101, behind it). */
static void no_rule_of_others_is_passed_by(void **state)
{
    (void)state;
    static const struct {
        uint8_t family;
        uint32_t priority;
        bool skips;
    } cases[] = { { IP_V4, 100, true },
                  { IP_V4, 101, false },
                  { IP_V4, 104, false },
                  { IP_V4, 105, true },
                  { IP_V6, 102, true } };
    struct bench b;
    begin(&b, "a");
    assert_true(plan_needs_rules(&b.options));
    put_node(&b, "a", "", OVERLAY_A);
    put_node(&b, "b", "192.0.2.2", OVERLAY_B);
    put_service(&b, "web", "192.0.2.2", "");
    plan(&b);
    assert_says(&b, "rule IPv4 101: fwmark 0x0/0xff000000 goto 105\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct host_rule rule = { cases[i].family, cases[i].priority, .text = "" };
        b.host.rules = &rule;
        b.host.n_rules = 1;
        b.host_changed = true;
        plan(&b);
        if (says(&b, "goto 105\n") != cases[i].skips || says(&b, " nop\n") != cases[i].skips)
            fail_msg("a rule at %u: %s", cases[i].priority, buf_str(&b.text));
    }
    end(&b);
}

/* ---- without the feature ---- */

static void what_was_published_is_taken_back_once(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "a");
    planner_free(b.planner);
    b.options.loadbalancer = false;
    b.planner = planner_new(&b.options);
    put_node(&b, "a", "192.0.2.1", "");
    put_node(&b, "b", "192.0.2.2", OVERLAY_B);
    for (int i = 0; i < 2; i++) { /* until it is read back */
        plan(&b);
        assert_int_equal(b.writes.n, 1);
        assert_says(&b, "annotate Node a addresses= overlay=\n");
        assert_true(b.writes.v[0].optional);
    }
    put_node(&b, "a", "", "");
    plan(&b);
    assert_int_equal(b.writes.n, 0);
    put_node(&b, "a", "192.0.2.1", OVERLAY_A); /* by somebody else */
    plan(&b);
    assert_int_equal(b.writes.n, 0);
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_forwards_one_writes_one_tells),
        cmocka_unit_test(what_is_of_another_class_or_type_is_left_alone),
        cmocka_unit_test(an_address_is_shown_once_it_is_served),
        cmocka_unit_test(an_address_moves_and_nobody_serves_it_twice),
        cmocka_unit_test(garbage_costs_its_node_alone),
        cmocka_unit_test(of_two_at_one_place_of_the_overlay_the_first_is_reached),
        cmocka_unit_test(what_is_published_is_sorted_and_of_the_host),
        cmocka_unit_test(an_overlay_without_room_is_a_problem),
        cmocka_unit_test(the_node_s_own_interface_is_no_overlay),
        cmocka_unit_test(marks_follow_from_names),
        cmocka_unit_test(there_are_249_marks),
        cmocka_unit_test(a_holder_without_overlay_has_no_mark),
        cmocka_unit_test(nobody_is_answered_at_an_address_of_ones_own),
        cmocka_unit_test(no_rule_of_others_is_passed_by),
        cmocka_unit_test(what_was_published_is_taken_back_once),
    };
    return cmocka_run_group_tests_name("load balancer", tests, NULL, NULL);
}
