
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/ip.h"
#include "base/map.h"
#include "base/timestamp.h"
#include "base/vec.h"

static void arena_gives_zeroed_memory_again_after_reset(void **state)
{
    (void)state;
    struct arena a = { 0 };
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 1000; i++) {
            unsigned char *p = arena_alloc(&a, 17);
            for (int j = 0; j < 17; j++)
                assert_int_equal(p[j], 0);
            memset(p, 0xff, 17);
        }
        arena_reset(&a);
    }
    assert_string_equal(arena_printf(&a, "%s-%d", "x", 7), "x-7");
    arena_done(&a);
}

static void arena_packs_text_and_aligns_the_rest(void **state)
{
    (void)state;
    struct arena a = { 0 };
    const char *x = arena_strdup(&a, "abc"), *y = arena_strdup(&a, "d");
    assert_ptr_equal(y, x + 4);
    uint64_t *n = arena_new(&a, uint64_t);
    assert_int_equal((uintptr_t)n % sizeof(*n), 0);
    *n = UINT64_MAX;
    assert_string_equal(x, "abc");
    assert_string_equal(y, "d");
    for (int i = 0; i < 10000; i++)
        arena_alloc(&a, 100);
    assert_in_range(arena_used(&a), 10000 * 100, 10000 * 104);
    assert_in_range(arena_held(&a), arena_used(&a), arena_used(&a) * 4 / 3);
    arena_done(&a);
}

static void map_keeps_what_a_model_array_keeps(void **state)
{
    (void)state;
    struct map m = { 0 };
    static int model[257];
    memset(model, 0, sizeof(model));
    unsigned seed = 1;
    for (int i = 0; i < 20000; i++) {
        seed = seed * 1103515245u + 12345u;
        uint32_t k = (seed >> 8) % 257;
        if (seed & 0x10000) {
            model[k] = i + 1;
            map_put(&m, &k, sizeof(k), &model[k]);
        } else {
            void *had = map_del(&m, &k, sizeof(k));
            assert_int_equal(had != NULL, model[k] != 0);
            model[k] = 0;
        }
    }
    size_t n = 0, want = 0, i = 0;
    void *v;
    while (map_next(&m, &i, NULL, NULL, &v))
        n++;
    for (uint32_t k = 0; k < 257; k++) {
        want += model[k] != 0;
        assert_int_equal(map_get(&m, &k, sizeof(k)) != NULL, model[k] != 0);
    }
    assert_int_equal(n, want);
    map_done(&m);
}

static void addresses_parse_strictly_and_print_canonically(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } good[] = { { "203.0.113.9", "203.0.113.9" },
                 { "2001:DB8:0::1", "2001:db8::1" },
                 { "::", "::" } };
    static const char *const bad[] = { "",          "1.2.3",        "1.2.3.4.5", "01.2.3.4",
                                       "1.2.3.256", "fe80::1%eth0", "x" };
    char text[IP_TEXT_MAX];
    struct ip ip;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(ip_parse(good[i].in, &ip));
        assert_string_equal(ip_format(&ip, text), good[i].out);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(ip_parse(bad[i], &ip));
    struct ip_prefix p;
    static const char *const bad_prefix[] = { "1.2.3.4",  "1.2.3.4/33", "1.2.3.4/-1",
                                              "1.2.3.4/", "1.2.3.4/08", "::/129" };
    for (size_t i = 0; i < sizeof(bad_prefix) / sizeof(bad_prefix[0]); i++)
        assert_false(ip_prefix_parse(bad_prefix[i], &p));
}

static void prefixes_contain_overlap_and_add(void **state)
{
    (void)state;
    struct ip_prefix a, b;
    struct ip ip, sum;
    char text[IP_TEXT_MAX];
    assert_true(ip_prefix_parse("169.254.77.9/24", &a));
    assert_true(ip_prefix_parse("169.254.77.128/25", &b));
    assert_true(ip_prefix_overlaps(&a, &b));
    assert_true(ip_prefix_overlaps(&b, &a));
    assert_true(ip_parse("169.254.78.0", &ip));
    assert_false(ip_prefix_contains(&a, &ip));
    a = ip_prefix_masked(&a);
    assert_true(ip_add(&a.ip, 511, &sum));
    assert_string_equal(ip_format(&sum, text), "169.254.78.255");
    assert_true(ip_parse("255.255.255.255", &ip));
    assert_false(ip_add(&ip, 1, &sum));
    assert_true(ip_prefix_parse("0.0.0.0/0", &a));
    assert_true(ip_prefix_contains(&a, &ip));
    assert_true(ip_parse("::1", &ip));
    assert_false(ip_prefix_contains(&a, &ip));
}

static void special_addresses_are_told_from_a_machines_own(void **state)
{
    (void)state;
    static const struct {
        const char *address, *what;
    } cases[] = {
        { "0.0.0.0", "an unspecified address" },   { "127.0.0.53", "a loopback address" },
        { "224.0.0.1", "a multicast address" },    { "239.255.255.255", "a multicast address" },
        { "240.0.0.1", "a reserved address" },     { "255.255.255.255", "a reserved address" },
        { "169.254.0.1", "a link-local address" }, { "::", "an unspecified address" },
        { "::1", "a loopback address" },           { "ff02::1", "a multicast address" },
        { "febf::1", "a link-local address" },     { "::ffff:10.0.0.1", "an IPv4-mapped address" },
    };
    static const char *const own[] = { "10.244.1.7", "169.253.0.1", "223.255.255.255",
                                       "::2",        "fec0::1",     "fd64::7" };
    struct ip ip;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_true(ip_parse(cases[i].address, &ip));
        assert_non_null(ip_special(&ip));
        assert_string_equal(ip_special(&ip), cases[i].what);
    }
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        assert_true(ip_parse(own[i], &ip));
        assert_null(ip_special(&ip));
    }
}

static void times_parse_and_print(void **state)
{
    (void)state;
    int64_t t;
    char text[TIME_TEXT_MAX];
    assert_true(time_parse("2026-11-29T17:00:00Z", &t));
    assert_string_equal(time_format(t, text), "2026-11-29T17:00:00Z");
    int64_t u;
    assert_true(time_parse("2026-11-29T18:30:00.123+01:30", &u));
    assert_int_equal(t, u);
    assert_true(time_parse("1970-01-01T00:00:00Z", &t));
    assert_int_equal(t, 0);
    static const char *const ends[] = { "0000-01-01T00:00:00Z", "0044-02-02T03:04:05Z",
                                        "9999-12-31T23:59:59Z" };
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        assert_true(time_parse(ends[i], &t));
        assert_string_equal(time_format(t, text), ends[i]);
    }
    static const char *const bad[] = { "",
                                       "2026-11-29",
                                       "2026-02-30T00:00:00Z",
                                       "2026-11-29T17:00:00",
                                       "2026-11-29T17:00:00Zx",
                                       "0000-01-01T00:00:00+00:01",
                                       "9999-12-31T23:59:59-00:01" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(time_parse(bad[i], &t));
}

static void errors_take_context_in_front(void **state)
{
    (void)state;
    struct err e;
    assert_int_equal(err_set(&e, 22, "port %d", 70000), -22);
    err_prefix(&e, "PortMap %s", "a/b");
    assert_string_equal(e.text, "PortMap a/b: port 70000");
    err_prefix(NULL, "x");
}

static void assert_says(const char *path, const char *text)
{
    char now[64] = "";
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    now[fread(now, 1, sizeof(now) - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(now, text);
}

static void a_file_is_there_whole_or_as_it_was(void **state)
{
    (void)state;
    char dir[] = "/tmp/portolan-base.XXXXXX", own[64], path[80], fresh[80];
    struct err err;
    assert_non_null(mkdtemp(dir));
    snprintf(own, sizeof(own), "%s/state", dir);
    snprintf(path, sizeof(path), "%s/x", own);
    snprintf(fresh, sizeof(fresh), "%s/x.new", own);
    assert_int_equal(file_replace(own, "x", "one\n", 4, &err), 0); /* and makes its folder */
    assert_int_equal(file_replace(own, "x", "2\n", 2, &err), 0);
    assert_says(path, "2\n");
    assert_int_equal(access(fresh, F_OK), -1);
    assert_int_equal(symlink("/dev/full", fresh), 0);
    assert_int_equal(file_replace(own, "x", "3\n", 2, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "/state/x: No space left on device"));
    assert_says(path, "2\n");
    assert_int_equal(file_remove(own, "x", &err), 0);
    assert_int_equal(access(own, F_OK), -1); /* went with the last file */
    assert_int_equal(file_remove(own, "x", &err), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void buffers_grow(void **state)
{
    (void)state;
    struct buf b = { 0 };
    assert_string_equal(buf_str(&b), "");
    for (int i = 0; i < 1000; i++)
        buf_printf(&b, "%04d", i);
    assert_int_equal(b.n, 4000);
    assert_memory_equal(b.p + 3996, "0999", 5);
    buf_done(&b);
}

static size_t calls;
static size_t counted(size_t i)
{
    calls++;
    return i;
}

static void vectors_evaluate_an_index_once(void **state)
{
    (void)state;
    VEC(int) v = { 0 };
    for (int i = 0; i < 8; i++)
        vec_push(&v, i);
    calls = 0;
    *vec_insert(&v, counted(2)) = 42;
    assert_int_equal(calls, 1);
    vec_remove(&v, counted(0));
    assert_int_equal(calls, 2);
    assert_int_equal(v.v[1], 42);
    assert_int_equal(v.v[7], 7);
    vec_done(&v);
}

static void vectors_say_where_something_belongs(void **state)
{
    (void)state;
    VEC(int) v = { 0 };
    assert_int_equal(vec_lower_bound(&v, e, *e < 5), 0);
    for (int i = 0; i < 10; i++)
        vec_push(&v, 2 * (i / 2)); /* 0 0 2 2 4 4 6 6 8 8 */
    for (int want = -1; want <= 9; want++) {
        size_t first = 0;
        while (first < v.n && v.v[first] < want)
            first++;
        assert_int_equal(vec_lower_bound(&v, e, *e < want), first);
    }
    vec_done(&v);
}

static void vectors_insert_and_remove(void **state)
{
    (void)state;
    VEC(int) v = { 0 };
    for (int i = 0; i < 10; i++)
        vec_push(&v, i);
    *vec_insert(&v, 3) = 99;
    assert_int_equal(v.v[3], 99);
    assert_int_equal(v.v[4], 3);
    vec_remove(&v, 3);
    assert_int_equal(v.v[3], 3);
    assert_int_equal(v.n, 10);
    vec_done(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_gives_zeroed_memory_again_after_reset),
        cmocka_unit_test(arena_packs_text_and_aligns_the_rest),
        cmocka_unit_test(map_keeps_what_a_model_array_keeps),
        cmocka_unit_test(addresses_parse_strictly_and_print_canonically),
        cmocka_unit_test(prefixes_contain_overlap_and_add),
        cmocka_unit_test(special_addresses_are_told_from_a_machines_own),
        cmocka_unit_test(times_parse_and_print),
        cmocka_unit_test(errors_take_context_in_front),
        cmocka_unit_test(a_file_is_there_whole_or_as_it_was),
        cmocka_unit_test(buffers_grow),
        cmocka_unit_test(vectors_insert_and_remove),
        cmocka_unit_test(vectors_say_where_something_belongs),
        cmocka_unit_test(vectors_evaluate_an_index_once),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
