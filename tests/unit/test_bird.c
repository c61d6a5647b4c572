/* bird.conf, and what BIRD answers, without BIRD. */
#include "test.h"

#include <string.h>

#include "bird/render.h"
#include "bird/reply.h"
#include "bird_world.h"

static char *rendered(const struct bird_config *c)
{
    struct buf out = { 0 };
    bird_render(c, &out);
    return out.p;
}

#define assert_in(text, part)                                            \
    do {                                                                 \
        if (!strstr(text, part))                                         \
            fail_msg("\"%s\" is not in:\n%s", part, (const char *)text); \
    } while (0)

static void hybrid_has_neighbours_alone(void **state)
{
    (void)state;
    char *text = rendered(bird_world(BIRD_HYBRID, false));
    assert_in(text, "router id 10.46.0.1;\n");
    assert_in(text, "graceful restart wait 20;\n");
    assert_in(text, "\n# trafficclass/pods\ntemplate bgp tc47_mesh {\n\thold time 9;\n"
                    "\tkeepalive time 3;\n");
    assert_in(text, "protocol static tc47_own_4 {\n\tipv4 { table tc47_4; };\n"
                    "\troute 10.244.1.0/24 unreachable;\n}\n");
    assert_in(text, "\tkernel table 47;\n\tscan time 10;\n\tgraceful restart;\n"
                    "\tipv6 { table tc47_6; import none; export where proto != \"tc47_own_6\"; };");
    assert_in(text, "from tc47_mesh {\n\tlocal fd00:48::1 as 64512;\n"
                    "\tneighbor fd00:48::3 as 64512;\n\tipv6 {\n\t\ttable tc47_6;\n"
                    "\t\timport where net ~ [ fd00:244:3::/64 ];\n"
                    "\t\texport where proto = \"tc47_own_6\";\n\t\tnext hop self;\n\t};\n}\n");
    assert_null(strstr(text, "protocol direct"));
    assert_null(strstr(text, "gateway"));
    assert_null(strstr(text, "bfd"));
    free(text);
}

static void one_table_has_everything(void **state)
{
    (void)state;
    char *text = rendered(bird_world(BIRD_ONE_TABLE, true));
    assert_in(text, "interface \"mgmt0\", \"ingress0\", \"pod0\", \"node0\";\n");
    assert_in(text, "\troute 10.244.1.0/24 via \"cilium_host\";\n");
    assert_in(text, "\troute 0.0.0.0/0 via 10.47.0.254%'ingress0';\n");
    assert_in(text, "\troute ::/0 via fd00:47::fe%'ingress0';\n");
    assert_in(text, "\tipv4 { table tc47_4; import none; export all; };\n");
    assert_in(text, "\tinterface \"pod0\" { interval 200 ms; multiplier 3; };\n");
    assert_in(text, "\tbfd;\n");
    free(text);
}

/* The lines of `less` are lines of `more`, in this order. */
static bool is_part_of(const char *less, const char *more)
{
    while (*less) {
        size_t n = strcspn(less, "\n") + 1;
        while (*more && strncmp(less, more, n))
            more += strcspn(more, "\n") + 1;
        if (!*more)
            return false;
        less += n;
        more += n;
    }
    return true;
}

static void a_node_more_changes_nothing_else(void **state)
{
    (void)state;
    struct bird_config config = *bird_world(BIRD_HYBRID, false);
    char *more = rendered(&config);
    struct bird_mesh mesh = *config.tables[0].mesh;
    struct bird_table table = config.tables[0];
    mesh.peers += 2; /* without k8s-2, the first */
    mesh.n_peers -= 2;
    table.mesh = &mesh;
    config.tables = &table;
    char *less = rendered(&config);
    assert_true(is_part_of(less, more));
    assert_false(is_part_of(more, less));
    char *again = rendered(bird_world(BIRD_HYBRID, false));
    assert_string_equal(again, more);
    free(less);
    free(more);
    free(again);
}

static void a_family_left_out_is_left_out(void **state)
{
    (void)state;
    struct bird_config config = *bird_world(BIRD_ONE_TABLE, false);
    struct bird_table table = config.tables[0];
    table.families[1] = false;
    config.tables = &table;
    char *text = rendered(&config);
    assert_null(strstr(text, "ipv6"));
    assert_null(strstr(text, "fd00:"));
    assert_in(text, "10.244.2.0/24");
    free(text);
}

static void sessions_have_names_of_their_own(void **state)
{
    (void)state;
    static const char *const nodes[] = {
        "a",
        "a.b",
        "a-b",
        "a_b",
        "A-b",
        "",
        "a-name-of-which-the-first-twenty-four-are-alike-1",
        "a-name-of-which-the-first-twenty-four-are-alike-2",
        "x; protocol pipe { }",
        "\"quoted\"",
        "\xc3\xbc",
    };
    enum { N = sizeof(nodes) / sizeof(nodes[0]) };
    char names[N][BIRD_SYMBOL_MAX];
    for (size_t i = 0; i < N; i++) {
        bird_session_name(4294967295, nodes[i], IP_V4, names[i]);
        assert_true(strlen(names[i]) < BIRD_SYMBOL_MAX - 1); /* not cut */
        assert_int_equal(strspn(names[i], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789_"),
                         strlen(names[i]));
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(names[i], names[j]);
    }
    /* Another name would end all sessions on an upgrade. */
    char name[BIRD_SYMBOL_MAX];
    assert_string_equal(bird_session_name(47, "k8s-2", IP_V6, name),
                        "tc47_k8s_2_188167f2846029ec_6");
}

/* ---- replies ---- */

static enum bird_taken take(struct bird_reply *r, const char *line)
{
    return bird_reply_take(r, line, strlen(line));
}

static void replies_are_read_line_by_line(void **state)
{
    (void)state;
    struct bird_reply r = { 0 };
    assert_int_equal(take(&r, "1000-BIRD 2.0.12"), BIRD_MORE);
    assert_int_equal(take(&r, "+log line"), BIRD_MORE);
    assert_int_equal(take(&r, "1011-Router ID is 10.48.0.1"), BIRD_MORE);
    assert_int_equal(take(&r, " Current server time is now"), BIRD_MORE);
    assert_int_equal(take(&r, "0013 Daemon is up and running"), BIRD_LAST);
    assert_int_equal(r.lines.n, 4);
    assert_int_equal(r.lines.v[2].code, 1011);
    assert_string_equal(r.lines.v[2].text, "Current server time is now");
    assert_int_equal(bird_reply_code(&r), BIRD_STATUS);
    assert_string_equal(bird_reply_find(&r, 1011), "Router ID is 10.48.0.1");
    assert_null(bird_reply_find(&r, 9001));
    bird_reply_reset(&r);
    assert_int_equal(take(&r, "0000"), BIRD_LAST);
    assert_string_equal(r.lines.v[0].text, "");
    bird_reply_done(&r);
}

static void what_no_bird_says_is_odd(void **state)
{
    (void)state;
    static const char *const lines[] = { "",       "0",      "12",
                                         "123",    "abcd x", " first",
                                         "00013x", "0013_",  "HTTP/1.1 400 Bad Request",
                                         "-013 x" };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct bird_reply r = { 0 };
        assert_int_equal(take(&r, lines[i]), BIRD_ODD);
        bird_reply_done(&r);
    }
}

static void established_is_known_by_name(void **state)
{
    (void)state;
    struct bird_reply r = { 0 };
    take(&r, "2002-Name       Proto      Table      State  Since         Info");
    take(&r, "1002-tc47_a_4   BGP        ---        up     2026-11-30 16:00:00  Established   ");
    take(&r, " tc47_a_6   BGP        ---        start  16:00:00.1  Active        Socket: refused");
    take(&r, " tc47_a_44  BGP        ---        start  2026-11-30  Connect");
    take(&r, " tc47_b_4   BGP        ---        up     2026-11-30  Not Established yet");
    take(&r, " tc47_c_4   BGP        ---        up     2026-11-30  Unestablished");
    take(&r, "0000 ");
    assert_true(bird_reply_established(&r, "tc47_a_4"));
    assert_false(bird_reply_established(&r, "tc47_a_6"));
    assert_false(bird_reply_established(&r, "tc47_a"));
    assert_false(bird_reply_established(&r, "tc47_a_44"));
    assert_false(bird_reply_established(&r, "tc47_b_4"));
    assert_false(bird_reply_established(&r, "tc47_c_4"));
    assert_false(bird_reply_established(&r, "tc47_d_4"));
    bird_reply_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hybrid_has_neighbours_alone),
        cmocka_unit_test(one_table_has_everything),
        cmocka_unit_test(a_node_more_changes_nothing_else),
        cmocka_unit_test(a_family_left_out_is_left_out),
        cmocka_unit_test(sessions_have_names_of_their_own),
        cmocka_unit_test(replies_are_read_line_by_line),
        cmocka_unit_test(what_no_bird_says_is_odd),
        cmocka_unit_test(established_is_known_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
