#include "test.h"

#include <string.h>

#include "agent/metrics.h"

static void text_counts_what_was_observed(void **state)
{
    (void)state;
    struct metrics m = { 0 };
    struct store *s = store_new();
    struct problem two[] = { { .reason = "PortConflict" }, { .reason = "PortConflict" } };
    struct problem one[] = { { .reason = "ClassNotFound" } };
    struct buf b = { 0 };
    prom_observe(&m.plan, metrics_bounds, 90);
    prom_observe(&m.plan, metrics_bounds, 101);
    prom_observe(&m.plan, metrics_bounds, 60000000);
    metrics_problems(&m, &(struct problems){ two, 2 });
    metrics_problems(&m, &(struct problems){ one, 1 });
    metrics_text(&m, s, &b);
    assert_non_null(strstr(b.p, "portolan_plan_duration_seconds_bucket{le=\"0.0001\"} 1\n"));
    assert_non_null(strstr(b.p, "portolan_plan_duration_seconds_bucket{le=\"0.00025\"} 2\n"));
    assert_non_null(strstr(b.p, "portolan_plan_duration_seconds_bucket{le=\"5\"} 2\n"));
    assert_non_null(strstr(b.p, "portolan_plan_duration_seconds_bucket{le=\"+Inf\"} 3\n"));
    assert_non_null(strstr(b.p, "portolan_plan_duration_seconds_sum 60.000191\n"));
    assert_non_null(strstr(b.p, "portolan_problems{reason=\"PortConflict\"} 0\n"));
    assert_non_null(strstr(b.p, "portolan_problems{reason=\"ClassNotFound\"} 1\n"));
    assert_non_null(strstr(b.p, "portolan_objects{kind=\"PortMap\"} 0\n"));
    buf_done(&b);
    metrics_done(&m);
    store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_counts_what_was_observed),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
