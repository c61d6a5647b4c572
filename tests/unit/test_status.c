#include "test.h"

#include <errno.h>

#include "base/clock.h"
#include "status/status.h"

/* A source that remembers what it was asked to write and answers as told. */
struct fake {
    struct source source;
    enum status_write_kind kinds[16];
    int answers[16]; /* by order of asking */
    size_t asked, failures;
    int64_t takes_us;
};

static int fake_write(struct source *s, const struct status_write *w, struct err *err)
{
    struct fake *f = (struct fake *)s;
    int64_t end = clock_mono_us() + f->takes_us;
    while (clock_mono_us() < end)
        ;
    int r = f->answers[f->asked];
    f->kinds[f->asked++] = w->kind;
    return r ? err_set(err, -r, "as told") : 0;
}

static void failed(const struct status_write *w, const char *text, void *user)
{
    assert_string_equal(w->name, "m");
    assert_string_equal(text, "as told");
    ((struct fake *)user)->failures++;
}

static const struct source_ops ops = { .write = fake_write };
static const struct status_write list[] = {
    { .kind = WRITE_PORTMAP_STATUS, .ns = "a", .name = "m" },
    { .kind = WRITE_PORTMAP_STATUS, .ns = "b", .name = "m" },
    { .kind = WRITE_PORTMAP_STATUS, .ns = "c", .name = "m" },
    { .kind = WRITE_CLASS_ROW, .ns = "", .name = "m" },
};

static struct status_outcome ask(struct fake *f, size_t n)
{
    f->source.ops = &ops;
    struct status_writes writes = { list, n };
    return status_send(&f->source, &writes, failed, f);
}

static void mappings_wait_for_their_class(void **state)
{
    (void)state;
    struct fake f = { 0 };
    struct status_outcome out = ask(&f, 4);
    assert_int_equal(f.asked, 1);
    assert_int_equal(f.kinds[0], WRITE_CLASS_ROW);
    assert_int_equal(out.written, 1);
    assert_int_equal(out.waiting, 3);
    struct fake async = { .answers = { -EINPROGRESS } };
    out = ask(&async, 4);
    assert_int_equal(out.written + out.failed + out.conflicts, 0);
    assert_int_equal(out.sent, 1);
    assert_int_equal(out.waiting, 3);
}

static void what_cannot_be_written_holds_up_nothing(void **state)
{
    (void)state;
    struct fake f = { .answers = { -EAGAIN, 0, -EIO, 0 } };
    struct status_outcome out = ask(&f, 4);
    assert_int_equal(f.asked, 4);
    assert_int_equal(out.written, 2);
    assert_int_equal(out.conflicts, 1);
    assert_int_equal(out.failed, 1);
    assert_int_equal(out.waiting, 0);
    assert_int_equal(f.failures, 1);
}

static void slow_writes_leave_the_rest_to_the_next_pass(void **state)
{
    (void)state;
    struct fake f = { .takes_us = 60000 };
    struct status_outcome out = ask(&f, 3);
    assert_int_equal(out.written, 1);
    assert_int_equal(out.waiting, 2);
}

static void services_wait_as_mappings_do(void **state)
{
    (void)state;
    static const struct status_write held[] = {
        { .kind = WRITE_PORTMAP_STATUS, .ns = "a", .name = "m" },
        { .kind = WRITE_NODE_ANNOTATIONS, .ns = "", .name = "m" },
        { .kind = WRITE_SERVICE_STATUS, .ns = "a", .name = "m" },
        { .kind = WRITE_SERVICE_STATUS, .ns = "b", .name = "m" },
    };
    const struct status_writes writes = { held, 4 };
    struct fake slow = { .source.ops = &ops, .answers = { -EAGAIN }, .takes_us = 60000 };
    struct status_outcome out = status_send(&slow.source, &writes, failed, &slow);
    assert_int_equal(slow.kinds[0], WRITE_NODE_ANNOTATIONS);
    assert_int_equal(slow.kinds[1], WRITE_PORTMAP_STATUS);
    assert_int_equal(out.written, 1);
    assert_int_equal(out.waiting, 2);
    struct fake first = { .source.ops = &ops };
    out = status_send(&first.source, &writes, failed, &first);
    assert_int_equal(out.written, 1);
    assert_int_equal(out.waiting, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mappings_wait_for_their_class),
        cmocka_unit_test(what_cannot_be_written_holds_up_nothing),
        cmocka_unit_test(slow_writes_leave_the_rest_to_the_next_pass),
        cmocka_unit_test(services_wait_as_mappings_do),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
