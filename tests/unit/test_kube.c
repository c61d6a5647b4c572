#include "test.h"

#include <errno.h>
#include <string.h>

#include "source/kube/backoff.h"
#include "source/kube/bucket.h"
#include "source/kube/config.h"
#include "source/kube/kube.h"
#include "source/kube/lines.h"

/* ---- backoff, bucket ---- */

static void backoff_doubles_up_to_its_cap_and_spreads_half(void **state)
{
    (void)state;
    assert_int_equal(backoff_ms(1, 0), 250);
    assert_int_equal(backoff_ms(1, 250), 500);
    assert_int_equal(backoff_ms(2, 0), 500);
    assert_int_equal(backoff_ms(6, 0), 8000);
    assert_int_equal(backoff_within_ms(3, 5000, 0), 1000);
    assert_int_equal(backoff_within_ms(99, 5000, 0), 2500);
    assert_int_equal(backoff_within_ms(99, 5000, 2500), 5000);
    for (unsigned failures = 7; failures < 100; failures++)
        assert_int_equal(backoff_ms(failures, 0), 15000);
    uint64_t low = UINT64_MAX, high = 0;
    for (uint32_t r = 0; r < 100000; r++) {
        uint64_t ms = backoff_ms(50, r * 2654435761u);
        low = ms < low ? ms : low;
        high = ms > high ? ms : high;
    }
    assert_in_range(low, 15000, 15100);
    assert_in_range(high, 29900, 30000);
}

static void a_server_is_not_asked_before_it_said(void **state)
{
    (void)state;
    assert_int_equal(backoff_after_ms(1, 0, 0), 250);
    for (uint32_t r = 0; r < 1000; r++)
        assert_in_range(backoff_after_ms(1, 7000, r * 2654435761u), 7125, 7250);
    assert_int_equal(backoff_after_ms(1, 86400000, 0), RETRY_AFTER_MAX_MS + 125);
}

static void writers_of_one_object_take_turns(void **state)
{
    (void)state;
    uint64_t low = UINT64_MAX, high = 0;
    for (uint32_t r = 0; r < 100000; r++) {
        uint64_t ms = backoff_turn_ms(100, 0, r * 2654435761u);
        low = ms < low ? ms : low;
        high = ms > high ? ms : high;
        assert_int_equal(backoff_turn_ms(0, 3, r) + backoff_turn_ms(1, 3, r), 0);
        assert_true(backoff_turn_ms(5000, 99, r * 2654435761u) <= BACKOFF_MAX_MS);
    }
    assert_in_range(low, 0, 10);
    assert_in_range(high, 99 * TURN_MS - 10, 99 * TURN_MS);
    assert_int_equal(backoff_turn_ms(3, 1, 4 * TURN_MS), 4 * TURN_MS);
    assert_int_equal(backoff_turn_ms(3, 1, 4 * TURN_MS + 1), 0);
}

static void a_bucket_gives_a_burst_and_then_its_rate(void **state)
{
    (void)state;
    struct bucket b = { .per_second = 10, .burst = 5 };
    int64_t now = 1000000000, wait, begin = now;
    unsigned taken = 0;
    while (now < begin + 2000000) {
        if (bucket_take(&b, now, &wait)) {
            taken++;
        } else {
            assert_in_range(wait, 1, 100000);
            now += wait;
        }
    }
    assert_int_equal(taken, 5 + 20 - 1);
    now += 3600000000; /* an hour of rest is a full bucket and no more */
    for (unsigned i = 0; i < 5; i++)
        assert_true(bucket_take(&b, now, &wait));
    assert_false(bucket_take(&b, now, &wait));
}

/* A thousand agents whose server went: when do they come back? */
static void agents_that_failed_together_come_back_apart(void **state)
{
    (void)state;
    unsigned per_100_ms[400] = { 0 }, most = 0;
    const int64_t away_ms = 60000;
    for (uint32_t agent = 0; agent < 1000; agent++) {
        uint32_t random = agent * 2654435761u + 12345;
        int64_t at = 0;
        for (unsigned failures = 1; at < away_ms; failures++) {
            random = random * 1664525u + 1013904223u;
            at += (int64_t)backoff_ms(failures, random >> 8);
        }
        assert_true(at - away_ms < 30000);
        most = ++per_100_ms[(at - away_ms) / 100] > most ? per_100_ms[(at - away_ms) / 100] : most;
    }
    assert_true(most < 40); /* of 1,000; evenly over 22 s it would be 5 */
}

/* ---- lines ---- */

struct heard {
    struct buf text;
    unsigned stop_at, n;
};

static bool hear_line(void *user, const char *p, size_t n)
{
    struct heard *h = user;
    assert_int_equal(strlen(p), n);
    buf_printf(&h->text, "%s|", p);
    return ++h->n != h->stop_at;
}

static bool hear_long(void *user, const char *start)
{
    struct heard *h = user;
    buf_printf(&h->text, "<%s>", start);
    return true;
}

static void lines_are_the_same_however_they_come(void **state)
{
    (void)state;
    static const char text[] = "one\n\ntwo\r\n0123456789abc\nthree\n0123456789abcd\nlast";
    for (size_t piece = 1; piece < sizeof(text); piece++) {
        struct heard h = { 0 };
        struct lines l = { .user = &h, .line = hear_line, .too_long = hear_long, .max = 10 };
        for (size_t at = 0; at < sizeof(text) - 1; at += piece) {
            size_t left = sizeof(text) - 1 - at;
            assert_true(lines_put(&l, text + at, left < piece ? left : piece));
        }
        assert_string_equal(h.text.p, "one|two\r|<0123456789>three|<0123456789>");
        lines_done(&l);
        buf_done(&h.text);
    }
}

static void cutting_ends_when_it_is_told(void **state)
{
    (void)state;
    struct heard h = { .stop_at = 2 };
    struct lines l = { .user = &h, .line = hear_line, .too_long = hear_long, .max = 10 };
    assert_false(lines_put(&l, "a\nb\nc\n", 6));
    assert_string_equal(h.text.p, "a|b|");
    lines_done(&l);
    buf_done(&h.text);
}

static void versions_compare_as_numbers(void **state)
{
    (void)state;
    assert_true(rv_number("9") < rv_number("10"));
    assert_true(rv_number("") > rv_number("999999999999999999"));
    assert_false(rv_is_number(rv_number("x1")));
    assert_false(rv_is_number(rv_number("12345678901234567890123")));
    assert_true(rv_number("x1") != rv_number("x2"));
    assert_true(rv_number("x1") == rv_number("x1"));
}

/* ---- JSON in pieces ---- */

static void hear_object(void *user, const struct doc *doc)
{
    buf_printf(user, "%s/%s ", doc->ns, doc->name);
}

static void hear_rest(void *user, const struct doc *doc)
{
    buf_printf(user, "rest:%s ", doc->kind_name);
}

static void hear_skipped(void *user, const char *ns, const char *name)
{
    buf_printf(user, "skipped:%s/%s ", ns, name);
}

static const char *stream(const char *text, size_t piece, struct buf *out, bool skip)
{
    const struct codec_handler handler = {
        .user = out, .object = hear_object, .list = hear_rest, .skipped = skip ? hear_skipped : NULL
    };
    struct codec_stream *s = codec_stream_new(&handler);
    struct err err;
    int r = 0;
    buf_clear(out);
    for (size_t at = 0, n = strlen(text); at < n && !r; at += piece)
        r = codec_stream_put(s, text + at, n - at < piece ? n - at : piece, &err);
    if (!r)
        r = codec_stream_end(s, &err);
    if (r)
        buf_printf(out, "error:%s", err.text);
    codec_stream_free(s);
    return buf_str(out);
}

static void a_list_may_come_in_pieces(void **state)
{
    (void)state;
    static const char text[] =
        "{\"items\": [{\"metadata\": {\"name\": \"a\", \"namespace\": \"n\"}}, {\"metadata\": "
        "{\"name\": \"b\"}}], \"kind\": \"List\"}";
    struct buf out = { 0 };
    for (size_t piece = 1; piece < sizeof(text); piece++)
        assert_string_equal(stream(text, piece, &out, false), "n/a default/b rest:List ");
    assert_non_null(strstr(stream("{\"items\": [{\"metadata\"", 5, &out, false), "error:not JSON"));
    buf_done(&out);
}

static void an_item_beyond_the_limits_costs_only_itself(void **state)
{
    (void)state;
    struct buf text = { 0 }, out = { 0 };
    buf_puts(&text,
             "{\"items\": [{\"metadata\": {\"name\": \"deep\", \"namespace\": \"n\"}, \"x\": ");
    for (unsigned i = 0; i < 100; i++)
        buf_puts(&text, i % 2 ? "{\"y\":" : "[");
    buf_puts(&text, "1");
    for (unsigned i = 100; i-- > 0;)
        buf_puts(&text, i % 2 ? "}" : "]");
    buf_puts(&text, "}, {\"metadata\": {\"name\": \"a\"}}, {\"x\": \"");
    for (unsigned i = 0; i < 5 << 16; i++)
        buf_puts(&text, "0123456789abcdef");
    buf_puts(&text, "\", \"metadata\": {\"name\": \"large\"}}, [");
    for (unsigned i = 0; i < 400001; i++)
        buf_puts(&text, i ? ",1" : "1");
    buf_puts(&text, "], {\"metadata\": {\"name\": \"b\"}}], \"kind\": \"List\"}");
    assert_string_equal(stream(text.p, 65536, &out, true),
                        "skipped:n/deep default/a skipped:/ skipped:/ default/b rest:List ");
    assert_string_equal(stream(text.p, 65536, &out, false), "error:nested deeper than 64 levels");
    buf_done(&text);
    buf_done(&out);
}

/* ---- kubeconfig ---- */

#define CONFIG(cluster, user)                                                                   \
    "kind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n" \
    "clusters: [{name: c, cluster: {" cluster "}}]\nusers: [{name: u, user: {" user "}}]\n"

static void a_kubeconfig_is_read(void **state)
{
    (void)state;
    static const char text[] =
        CONFIG("server: 'https://h:1/x//', certificate-authority: ca.crt, tls-server-name: t, "
               "proxy-url: 'http://p'",
               "token: 't0', tokenFile: /abs, client-certificate-data: 'YWI=', client-key: ../k");
    struct kube_config c;
    struct err err;
    assert_int_equal(kube_config_parse(text, strlen(text), "/etc/kube/config", NULL, &c, &err), 0);
    assert_string_equal(c.server, "https://h:1/x");
    assert_string_equal(c.ca_file, "/etc/kube/ca.crt");
    assert_string_equal(c.key_file, "/etc/kube/../k");
    assert_string_equal(c.token_file, "/abs");
    assert_string_equal(c.token, "t0");
    assert_string_equal(c.tls_server_name, "t");
    assert_string_equal(c.proxy_url, "http://p");
    assert_int_equal(c.cert.n, 2);
    assert_memory_equal(c.cert.p, "ab", 2);
    assert_null(c.ca.p);
    assert_false(c.insecure);
    kube_config_done(&c);
}

static void a_wrong_kubeconfig_is_told_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *context, *says;
    } cases[] = {
        { "", NULL, "f: it is empty" },
        { "[1]", NULL, "f:1:1: not a kubeconfig" },
        { "a: [", NULL, "f:2:1: not YAML" },
        { "kind: Config", NULL, "current-context is not set" },
        { CONFIG("server: 'https://h'", ""), "b", "no entry of contexts is called \"b\"" },
        { CONFIG("", ""), NULL, "f:4:31: server is \"\"" },
        { CONFIG("server: 'h:1'", ""), NULL, "server is \"h:1\"" },
        { CONFIG("server: 'https://'", ""), NULL, "server is \"https://\"" },
        { CONFIG("server: 'https://u:p@h'", ""), NULL, "scheme, host, port and path only" },
        { CONFIG("server: [1]", ""), NULL, "f:4:40: server must be a string" },
        { CONFIG("server: 'https://h', certificate-authority-data: '!'", ""), NULL,
          "certificate-authority-data must be base64" },
        { CONFIG("server: 'https://h', certificate-authority-data: 'YWI'", ""), NULL, "base64" },
        { CONFIG("server: 'https://h', insecure-skip-tls-verify: 1", ""), NULL, "true or false" },
        { CONFIG("server: 'https://h', insecure-skip-tls-verify: true, certificate-authority: x",
                 ""),
          NULL, "exclude each other" },
        { CONFIG("server: 'https://h'", "exec: {command: x}"), NULL,
          "user.exec is not supported: no program is run" },
        { CONFIG("server: 'https://h'", "auth-provider: {name: x}"), NULL,
          "user.auth-provider is not supported" },
        { CONFIG("server: 'https://h'", "client-key: x"), NULL, "give both" },
        { CONFIG("server: 'https://h'", "token: \"a\\r\\nX-Admin: 1\""), NULL,
          "token holds a blank, a line's end or a control character" },
        { CONFIG("server: 'https://h'", "token: \"a\\x7f\""), NULL, "token holds" },
        { CONFIG("server: 'https://h', tls-server-name: \"a\\nb\"", ""), NULL,
          "tls-server-name holds" },
        { CONFIG("server: 'https://h', proxy-url: \"http://p\\n\"", ""), NULL, "proxy-url holds" },
        { "a: &x 1\nb: *x\n", NULL, "f:2:4: a YAML alias" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kube_config c;
        struct err err;
        assert_int_equal(kube_config_parse(cases[i].text, strlen(cases[i].text), "f",
                                           cases[i].context, &c, &err),
                         -EINVAL);
        if (!strstr(err.text, cases[i].says))
            fail_msg("case %zu says: %s", i, err.text);
    }
}

static void features_say_which_kinds_they_read(void **state)
{
    (void)state;
    unsigned all = source_kinds("portmap");
    assert_true(all & KIND_BIT(KIND_ENDPOINTSLICE) && all & KIND_BIT(KIND_PORTMAPCLASS));
    assert_false(all & KIND_BIT(KIND_SERVICE));
    assert_int_equal(source_kinds("portmap,portmap"), all);
    assert_int_equal(source_kinds(""), 0);
    unsigned proxy = source_kinds("serviceproxy");
    assert_true(proxy & KIND_BIT(KIND_SERVICE) && proxy & KIND_BIT(KIND_SERVICECIDR));
    assert_false(proxy & (KIND_BIT(KIND_PORTMAP) | KIND_BIT(KIND_NAMESPACE)));
    assert_int_equal(source_kinds("portmap,serviceproxy"), all | proxy);
    unsigned balancer = source_kinds("loadbalancer");
    assert_int_equal(balancer,
                     KIND_BIT(KIND_NODE) | KIND_BIT(KIND_SERVICE) | KIND_BIT(KIND_ENDPOINTSLICE));
}

static void assert_patch(const struct status_write *w, const char *path, const char *body)
{
    struct patch p;
    patch_build(w, NULL, &p);
    assert_string_equal(p.path.p, path);
    assert_string_equal(p.body.p, body);
    assert_string_equal(p.content_type, "application/merge-patch+json");
    patch_done(&p);
}

static void what_a_node_says_goes_beside_what_others_say(void **state)
{
    (void)state;
    struct status_write w = { .kind = WRITE_NODE_ANNOTATIONS,
                              .ns = "",
                              .name = "edge-a",
                              .addresses = "203.0.113.9",
                              .overlay = "" };
    assert_patch(&w, "/api/v1/nodes/edge-a?fieldManager=portolan",
                 "{\"metadata\":{\"annotations\":{\"reweave.levk.dev/addresses\":\"203.0.113.9\","
                 "\"reweave.levk.dev/weave\":null}}}");
}

static void a_services_status_is_shown_and_cleared_by_version(void **state)
{
    (void)state;
    static const char path[] = "/api/v1/namespaces/games/services/web/status?fieldManager=portolan";
    struct status_write w = { .kind = WRITE_SERVICE_STATUS,
                              .ns = "games",
                              .name = "web",
                              .resource_version = "7",
                              .ingress = "203.0.113.9" };
    assert_patch(&w, path,
                 "{\"metadata\":{\"resourceVersion\":\"7\"},\"status\":{\"loadBalancer\":{"
                 "\"ingress\":[{\"ip\":\"203.0.113.9\",\"ipMode\":\"Proxy\"}]}}}");
    w.ingress = "";
    assert_patch(&w, path,
                 "{\"metadata\":{\"resourceVersion\":\"7\"},\"status\":{\"loadBalancer\":{"
                 "\"ingress\":null}}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backoff_doubles_up_to_its_cap_and_spreads_half),
        cmocka_unit_test(a_server_is_not_asked_before_it_said),
        cmocka_unit_test(writers_of_one_object_take_turns),
        cmocka_unit_test(a_bucket_gives_a_burst_and_then_its_rate),
        cmocka_unit_test(agents_that_failed_together_come_back_apart),
        cmocka_unit_test(lines_are_the_same_however_they_come),
        cmocka_unit_test(cutting_ends_when_it_is_told),
        cmocka_unit_test(versions_compare_as_numbers),
        cmocka_unit_test(a_list_may_come_in_pieces),
        cmocka_unit_test(an_item_beyond_the_limits_costs_only_itself),
        cmocka_unit_test(a_kubeconfig_is_read),
        cmocka_unit_test(a_wrong_kubeconfig_is_told_with_its_place),
        cmocka_unit_test(features_say_which_kinds_they_read),
        cmocka_unit_test(what_a_node_says_goes_beside_what_others_say),
        cmocka_unit_test(a_services_status_is_shown_and_cleared_by_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
