/* TrafficClasses in manifests: defaults, and what the CRD refuses is refused here too. */
#include "test.h"

#include <string.h>

#include "codec_help.h"
#include "model/trafficclass.h"

#define CLASS(spec)                                                                  \
    "apiVersion: net.renner.uno/v1alpha1\nkind: TrafficClass\nmetadata: {name: c}\n" \
    "spec:\n" spec "\n"
#define TABLE          "  table: 47\n"
#define RULES          "  rules: [{family: IPv4, priority: 1001, from: [PodCIDRs]}]\n"
#define RULE(fields)   TABLE "  rules: [{family: IPv4, " fields "}]\n"
#define ROUTES(fields) TABLE RULES "  routes: {" fields "}\n"
#define ANNOTATIONS    "addressAnnotations: {ipv4: a/v4}"

static struct decoded manifest(const char *text)
{
    return decode_as(text, strlen(text), CODEC_YAML, true);
}

static void defaults_are_those_of_the_crd(void **state)
{
    (void)state;
    struct decoded d = manifest(
        CLASS(TABLE "  rules: [{family: IPv6, priority: 980, from: [PodCIDRs], to: [fd00::/8]}]\n"
                    "  routes: {mesh: {link: pod0, " ANNOTATIONS "}, gateway: {link: ingress0, "
                    "addressAnnotations: {ipv6: gw}}}"));
    assert_int_equal(d.errors.n, 0);
    const struct traffic_class *c = (const void *)d.objects.v[0];
    assert_int_equal(c->table, 47);
    assert_int_equal(c->families, FAMILIES_V4 | FAMILIES_V6);
    assert_false(c->has_selector);
    assert_int_equal(c->n_rules, 1);
    assert_int_equal(c->rules[0].family, IP_V6);
    assert_string_equal(c->rules[0].from.v[0], PREFIXES_PODS);
    assert_string_equal(c->rules[0].to.v[0], "fd00::/8");
    assert_string_equal(c->routes->mesh->annotations.ipv4, "a/v4");
    assert_string_equal(c->routes->mesh->annotations.ipv6, "");
    assert_int_equal(c->routes->mesh->asn, 64512);
    assert_int_equal(c->routes->mesh->hold_time, 9);
    assert_false(c->routes->mesh->bfd);
    assert_true(c->routes->mesh->graceful_restart);
    assert_int_equal(c->routes->gateway->manager, GATEWAY_AGENT);
    assert_int_equal(c->routes->fall_through.n, 2);
    assert_string_equal(c->routes->fall_through.v[1], PREFIXES_ATTACHED);
    assert_string_equal(c->routes->pod_device, "");
    assert_int_equal(c->cleanup, CLEANUP_DELETE);
    decoded_done(&d);
}

static void an_empty_fall_through_stays_empty(void **state)
{
    (void)state;
    struct decoded d = manifest(CLASS(ROUTES("fallThrough: []")));
    assert_int_equal(d.errors.n, 0);
    assert_int_equal(
        ((const struct traffic_class *)(const void *)d.objects.v[0])->routes->fall_through.n, 0);
    decoded_done(&d);
}

static void what_the_crd_refuses_is_refused_and_told_why(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        { CLASS(RULES), "spec.table is missing" },
        { CLASS(TABLE), "spec.rules is missing" },
        { CLASS("  table: 253\n" RULES), "spec.table is one of 253 and 255" },
        { CLASS("  table: 255\n" RULES), "spec.table is one of 253 and 255" },
        { CLASS("  table: 131072\n" RULES), "spec.table is one of 131072 to 131322" },
        { CLASS("  table: 131322\n" RULES), "spec.table is one of 131072 to 131322" },
        { CLASS("  table: 0\n" RULES), "spec.table is 0; an integer from 1 to 4294967295" },
        { CLASS("  table: 254\n" RULES "  routes: {}"), "spec.routes are given, but a class that" },
        { CLASS(TABLE RULES "  cleanupPolicy: Leave"), "spec.cleanupPolicy is Leave; Delete" },
        { CLASS(TABLE "  rules: []"), "spec.rules is an empty list" },
        { CLASS(RULE("priority: 106, to: [PodCIDRs]")), "spec.rules[0].priority is 106" },
        { CLASS(RULE("priority: 107")), "spec.rules[0] has neither from nor to" },
        { CLASS(RULE("priority: 107, from: []")), "spec.rules[0].from is an empty list" },
        { CLASS(RULE("priority: 107, from: [Pods]")), "spec.rules[0].from[0] is Pods; PodCIDRs," },
        { CLASS(RULE("priority: 107, to: [PodCIDRs, 10.0.0.0/33]")),
          "rules[0].to[1] is 10.0.0.0/33" },
        { CLASS(RULE("priority: 107, to: ['10.0.0.0/8; route 0.0.0.0/0 blackhole']")),
          "rules[0].to[0] is \"10.0.0.0/8; route" },
        { CLASS(RULE("priority: 107, to: [PodCIDRs, PodCIDRs]")), "to[1] is there twice" },
        { CLASS(RULE("priority: 107, to: [fd00::/8]")), "to[0] is fd00::/8; an IPv4 prefix" },
        { CLASS(TABLE RULES "  families: [IPv6]"), "spec.rules[0] is of a family that is not in" },
        { CLASS(TABLE RULES "  families: []"), "spec.families is an empty list" },
        { CLASS(TABLE RULES "  families: [IPv4, IPv4]"), "spec.families[1] is there twice" },
        { CLASS(TABLE "  rules: [{family: IPv4, priority: 1001, to: [PodCIDRs]}, "
                      "{family: IPv4, priority: 1001, from: [PodCIDRs]}]"),
          "spec.rules[1] has the family and priority of one before it" },
        { CLASS(ROUTES("gateway: {link: 'a\"b', " ANNOTATIONS "}")), "gateway.link is \"a\"b\"" },
        { CLASS(ROUTES("gateway: {link: 'a%b', " ANNOTATIONS "}")), "gateway.link is \"a%b\"" },
        { CLASS(ROUTES("gateway: {link: 'eth*', " ANNOTATIONS "}")), "gateway.link is \"eth*\"" },
        { CLASS(ROUTES("mesh: {link: 'a?', " ANNOTATIONS "}")), "mesh.link is \"a?\"" },
        { CLASS(ROUTES("mesh: {link: '-a', " ANNOTATIONS "}")), "mesh.link is \"-a\"" },
        { CLASS(ROUTES("mesh: {link: 'a\\b', " ANNOTATIONS "}")), "mesh.link is \"a" },
        { CLASS(ROUTES("mesh: {link: 'a b', " ANNOTATIONS "}")), "mesh.link is \"a b\"" },
        { CLASS(ROUTES("mesh: {link: a, addressAnnotations: {}}")),
          "addressAnnotations is an empty" },
        { CLASS(ROUTES("mesh: {link: a, addressAnnotations: {ipv4: 'a b'}}")), "ipv4 is \"a b\"" },
        { CLASS(ROUTES("mesh: {link: a, holdTimeSeconds: 2, " ANNOTATIONS "}")),
          "holdTimeSeconds is 2; an integer from 3 to 240" },
        { CLASS(ROUTES("attached: {links: []}")), "attached.links is an empty list" },
        { CLASS(ROUTES("localPods: {}")), "localPods.device is missing" },
        { CLASS(ROUTES("fallThrough: [Services]")), "fallThrough[0] is Services" },
        { CLASS(ROUTES("reject: [10/8]")), "reject[0] is 10/8" },
        { CLASS(ROUTES("reject: [1.1.1.1/32, 1.1.1.2/32, 1.1.1.3/32, 1.1.1.4/32, 1.1.1.5/32, "
                       "1.1.1.6/32, 1.1.1.7/32, 1.1.1.8/32, 1.1.1.9/32, 1.1.2.1/32, 1.1.2.2/32, "
                       "1.1.2.3/32, 1.1.2.4/32, 1.1.2.5/32, 1.1.2.6/32, 1.1.2.7/32, "
                       "1.1.2.8/32]")),
          "reject has 17 entries: leave some out, 16 are the most" },
        { CLASS(TABLE RULES "  tabel: 3"), "spec.tabel" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct decoded d = manifest(cases[i].text);
        if (d.errors.n != 1 || !strstr(d.errors.v[0], cases[i].words))
            fail_msg("%s: \"%s\" is not in \"%s\"", cases[i].text, cases[i].words,
                     d.errors.n ? d.errors.v[0] : "(nothing)");
        decoded_done(&d);
    }
}

static void the_samples_are_right(void **state)
{
    (void)state;
    static const char *const names[] = { "hybrid", "one-table", "two-tables" };
    size_t n_objects = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[512], *text;
        size_t n;
        snprintf(path, sizeof(path), "%s/../../deploy/samples/%s.yaml", getenv("UNIT_DATA"),
                 names[i]);
        assert_int_equal(codec_read_file(path, &text, &n, NULL), 0);
        struct decoded d = manifest(text);
        assert_int_equal(d.errors.n, 0);
        n_objects += d.objects.n;
        decoded_done(&d);
        free(text);
    }
    assert_int_equal(n_objects, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_crd),
        cmocka_unit_test(an_empty_fall_through_stays_empty),
        cmocka_unit_test(what_the_crd_refuses_is_refused_and_told_why),
        cmocka_unit_test(the_samples_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
