/* What classes left to stay, over restarts. */
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/keep.h"

static char dir[64];
static struct err err;

static const struct traffic_class pods = { .o.meta.name = "pods" },
                                  local = { .o.meta.name = "local" };
static const struct traffic_class *const both[] = { &local, &pods };
static const struct desired_keep keeps[] = { { "local", IP_V4, 991, 254 },
                                             { "pods", IP_V6, 1000, 47 },
                                             { "pods", IP_V4, 1001, 47 } };

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/portolan-keep.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return keep_cleanup(dir, &err);
}

static const char *file(void)
{
    static char text[1024];
    char path[80];
    snprintf(path, sizeof(path), "%s/kept", dir);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    return text;
}

static void put_file(const char *text)
{
    char path[80];
    snprintf(path, sizeof(path), "%s/kept", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* One pass of an agent that was just started; how many rules are left alone. */
static size_t pass(const struct traffic_class *const *classes, size_t n, struct desired d)
{
    const struct snapshot s = { .traffic_classes = classes, .n_traffic_classes = n };
    struct keep *k;
    assert_int_equal(keep_open(dir, &k, &err), 0);
    keep_apply(k, &s, &d);
    assert_int_equal(keep_write(k, &err), 0);
    keep_close(k);
    return d.n_kept;
}

static void what_is_to_stay_is_remembered(void **state)
{
    (void)state;
    const struct desired d = { .keeps = keeps, .n_keeps = 3 }, nothing = { 0 };
    const struct desired one = { .keeps = keeps, .n_keeps = 1 };
    assert_int_equal(pass(both, 2, d), 0);
    assert_string_equal(file(), "local 4 991 254\npods 6 1000 47\npods 4 1001 47\n");
    assert_int_equal(pass(both, 1, one), 2); /* pods is gone */
    assert_int_equal(pass(NULL, 0, nothing), 3);
    assert_int_equal(pass(NULL, 0, nothing), 3);
    assert_int_equal(pass(both + 1, 1, nothing), 1); /* a class pods that keeps nothing */
    assert_string_equal(file(), "local 4 991 254\n");
    assert_int_equal(keep_cleanup(dir, &err), 0);
    assert_int_equal(pass(NULL, 0, nothing), 0);
}

static void whoever_takes_priority_or_table_ends_it(void **state)
{
    (void)state;
    const struct desired all = { .keeps = keeps, .n_keeps = 3 };
    const struct desired_rule main4 = { .family = IP_V4, .priority = 992, .table = 254 },
                              same = { .family = IP_V4, .priority = 991, .table = 254 },
                              to47 = { .family = IP_V4,
                                       .priority = 46,
                                       .action = RULE_GOTO,
                                       .goto_priority = 47 };
    const struct desired_route in47 = { .table = 47 };
    pass(both, 2, all);
    assert_int_equal(pass(NULL, 0, (struct desired){ .rules = &main4, .n_rules = 1 }), 3);
    assert_int_equal(pass(NULL, 0, (struct desired){ .rules = &to47, .n_rules = 1 }), 3);
    assert_int_equal(pass(NULL, 0, (struct desired){ .routes = &in47, .n_routes = 1 }), 1);
    assert_int_equal(pass(NULL, 0, (struct desired){ .rules = &same, .n_rules = 1 }), 0);
    assert_string_equal(file(), "");
}

static void a_file_of_other_lines_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "pods 5 1001 47\n",
        "pods 4 1001\n",
        "pods 4 1001 47 48\n",
        "pods 4 -1 47\n",
        "pods 4 1001 99999999999\n",
        " 4 1001 47\n",
        "pods 4 1001 4", /* the half of 47 */
        "pods  4 1001 47\n",
        "pods 4 1001 +7\n",
        "\n",
    };
    struct keep *k;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char text[200];
        snprintf(text, sizeof(text), "pods 4 1001 47\n%s", wrong[i]);
        put_file(text);
        assert_true(keep_open(dir, &k, &err) < 0);
        assert_non_null(strstr(err.text, "/kept: line 2 is not CLASS FAMILY PRIORITY TABLE"));
    }
}

static void a_file_that_cannot_be_read_is_told(void **state)
{
    (void)state;
    struct keep *k;
    char path[200];
    snprintf(path, sizeof(path), "%s/kept", dir);
    unlink(path);
    assert_int_equal(mkdir(path, 0755), 0);
    int r = keep_open(dir, &k, &err);
    rmdir(path);
    assert_int_equal(r, -EISDIR);
    assert_non_null(strstr(err.text, "/kept: Is a directory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_to_stay_is_remembered, setup, teardown),
        cmocka_unit_test_setup_teardown(whoever_takes_priority_or_table_ends_it, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_of_other_lines_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_be_read_is_told, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
