#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "diff/diff.h"

struct known {
    int key, value;
    char more[8];
};
struct wanted {
    int key, value;
};
struct result {
    VEC(struct wanted) v;
    size_t adds, changes, keeps, dels;
    int last; /* keys come in order */
};

static int cmp(const void *have, const void *want)
{
    return ((const struct known *)have)->key - ((const struct wanted *)want)->key;
}
static bool equal(const void *have, const void *want)
{
    return ((const struct known *)have)->value == ((const struct wanted *)want)->value;
}
static void in_order(struct result *r, int key)
{
    assert_true(key >= r->last);
    r->last = key;
}
static void add(const void *want, void *user)
{
    struct result *r = user;
    in_order(r, ((const struct wanted *)want)->key);
    vec_push(&r->v, *(const struct wanted *)want);
    r->adds++;
}
static void change(const void *have, const void *want, void *user)
{
    (void)have;
    add(want, user);
    ((struct result *)user)->adds--;
    ((struct result *)user)->changes++;
}
static void keep(const void *have, const void *want, void *user)
{
    (void)want;
    struct wanted w = { ((const struct known *)have)->key, ((const struct known *)have)->value };
    add(&w, user);
    ((struct result *)user)->adds--;
    ((struct result *)user)->keeps++;
}
static void del(const void *have, void *user)
{
    struct result *r = user;
    in_order(r, ((const struct known *)have)->key);
    r->dels++;
}

static const struct diff_ops ops = {
    .cmp = cmp,
    .equal = equal,
    .add = add,
    .change = change,
    .keep = keep,
    .del = del,
};

static void applying_the_difference_gives_the_wanted(void **state)
{
    (void)state;
    srand(7);
    for (int round = 0; round < 3000; round++) {
        VEC(struct known) have = { 0 };
        VEC(struct wanted) want = { 0 };
        int range = rand() % 40;
        for (int key = 0; key < range; key++) {
            for (int copies = rand() % 3; copies; copies--)
                vec_push(&have, (struct known){ .key = key, .value = rand() % 3 });
            if (rand() % 2)
                vec_push(&want, (struct wanted){ .key = key, .value = rand() % 3 });
        }
        struct result r = { .last = -1 };
        diff_run((struct diff_array){ have.v, have.n, sizeof(struct known) },
                 (struct diff_array){ want.v, want.n, sizeof(struct wanted) }, &ops, &r);
        assert_int_equal(r.v.n, want.n);
        for (size_t i = 0; i < want.n; i++)
            assert_memory_equal(&r.v.v[i], &want.v[i], sizeof(want.v[i]));
        assert_int_equal(r.adds + r.changes + r.keeps, want.n);
        assert_int_equal(r.dels + r.changes + r.keeps, have.n);
        vec_done(&have);
        vec_done(&want);
        vec_done(&r.v);
    }
}

static void equal_sides_cause_nothing(void **state)
{
    (void)state;
    struct known have[] = { { 1, 1, "" }, { 2, 5, "" } };
    struct wanted want[] = { { 1, 1 }, { 2, 5 } };
    struct diff_ops quiet = ops;
    quiet.keep = NULL;
    const struct diff_array left = { have, 2, sizeof(have[0]) },
                            right = { want, 2, sizeof(want[0]) };
    struct result r = { 0 };
    diff_run(left, right, &quiet, &r);
    diff_run((struct diff_array){ 0 }, (struct diff_array){ 0 }, &quiet, &r);
    assert_int_equal(r.adds + r.changes + r.keeps + r.dels, 0);
    diff_run(left, right, &ops, &r); /* both were compared */
    assert_int_equal(r.keeps, 2);
    assert_int_equal(r.adds + r.changes + r.dels, 0);
    vec_done(&r.v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(applying_the_difference_gives_the_wanted),
        cmocka_unit_test(equal_sides_cause_nothing),
    };
    return cmocka_run_group_tests_name("diff", tests, NULL, NULL);
}
