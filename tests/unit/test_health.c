#include "test.h"

#include <string.h>

#include "agent/configz.h"
#include "agent/health.h"
#include "agent/proxy_metrics.h"

#define SECOND INT64_C(1000000)
#define NOON   1767355200 /* 2026-01-02T12:00:00Z */

static void a_change_may_wait_for_a_minute(void **state)
{
    (void)state;
    struct health h = { 0 };
    health_update(&h, NOON);
    assert_true(health_ok(&h, 3600 * SECOND)); /* nothing waits */
    health_queue(&h, 100 * SECOND);
    health_queue(&h, 130 * SECOND); /* the oldest counts */
    assert_true(health_ok(&h, 160 * SECOND - 1));
    assert_false(health_ok(&h, 160 * SECOND));
    health_update(&h, NOON + 1);
    assert_true(health_ok(&h, 160 * SECOND));
}

static void nothing_is_late_before_the_first_sync(void **state)
{
    (void)state;
    struct health h = { 0 };
    health_queue(&h, SECOND);
    assert_true(health_ok(&h, 3600 * SECOND));
}

static void expect_json(const struct health *h, int64_t now_us, const bool *eligible,
                        const char *json)
{
    struct buf b = { 0 };
    health_put(h, now_us, NOON + 9, eligible, &b);
    assert_string_equal(buf_str(&b), json);
    buf_done(&b);
}

static void json_tells_the_last_sync_only_when_something_is_wrong(void **state)
{
    (void)state;
    struct health h = { 0 };
    const bool yes = true, no = false;
    health_update(&h, NOON);
    expect_json(
        &h, SECOND, &yes,
        "{\"lastUpdated\":\"2026-01-02T12:00:09Z\",\"currentTime\":\"2026-01-02T12:00:09Z\","
        "\"nodeEligible\":true}\n");
    expect_json(
        &h, SECOND, &no,
        "{\"lastUpdated\":\"2026-01-02T12:00:00Z\",\"currentTime\":\"2026-01-02T12:00:09Z\","
        "\"nodeEligible\":false}\n");
    health_queue(&h, SECOND);
    expect_json(&h, 61 * SECOND, NULL,
                "{\"lastUpdated\":\"2026-01-02T12:00:00Z\","
                "\"currentTime\":\"2026-01-02T12:00:09Z\"}\n");
}

static void expect_lines(const struct proxy_metrics *m, const char *const *lines)
{
    struct buf b = { 0 };
    proxy_metrics_text(m, &b);
    for (; *lines; lines++) {
        char line[200];
        snprintf(line, sizeof(line), "\nkubeproxy_%s\n", *lines);
        if (!strstr(buf_str(&b), line))
            fail_msg("no line '%s' in\n%s", *lines, buf_str(&b));
    }
    buf_done(&b);
}

static void counts_are_kube_proxys(void **state)
{
    (void)state;
    struct proxy_metrics m = { .started_wall_us = 1000 * SECOND };
    proxy_metrics_queue(&m, KIND_SERVICE, 1001 * SECOND);
    proxy_metrics_queue(&m, KIND_ENDPOINTSLICE, 1002 * SECOND);
    expect_lines(&m, (const char *[]){ "sync_proxy_rules_service_changes_pending 1",
                                       "sync_proxy_rules_endpoint_changes_pending 1", NULL });
    proxy_metrics_sync(&m, true, 1000, 1003 * SECOND + 5);
    proxy_metrics_queue(&m, KIND_ENDPOINTSLICE, 1004 * SECOND);
    proxy_metrics_sync(&m, false, 16384001, 1004 * SECOND);
    proxy_metrics_conntrack(&m, 2000, 7);
    expect_lines(
        &m, (const char *[]){ "sync_proxy_rules_service_changes_pending 0",
                              "sync_proxy_rules_service_changes_total 1",
                              "sync_proxy_rules_endpoint_changes_total 2",
                              "sync_proxy_rules_duration_seconds_bucket{le=\"0.001\"} 1",
                              "sync_proxy_rules_duration_seconds_bucket{le=\"16.384\"} 1",
                              "sync_proxy_rules_duration_seconds_count 2",
                              "sync_full_proxy_rules_duration_seconds_count 1",
                              "sync_partial_proxy_rules_duration_seconds_count 1",
                              "sync_proxy_rules_last_timestamp_seconds 1004.000000",
                              "sync_proxy_rules_last_queued_timestamp_seconds 1004.000000",
                              "conntrack_reconciler_deleted_entries_total 7",
                              "conntrack_reconciler_sync_duration_seconds_bucket{le=\"0.002\"} 1",
                              NULL });
}

static void programming_counts_from_our_start_on(void **state)
{
    (void)state;
    struct proxy_metrics m = { .started_wall_us = 1000 * SECOND };
    proxy_metrics_programmed(&m, 999 * SECOND, 1001 * SECOND);
    proxy_metrics_programmed(&m, 1002 * SECOND, 1001 * SECOND); /* clocks differ */
    proxy_metrics_programmed(&m, 1001 * SECOND, 1001 * SECOND + SECOND / 2);
    proxy_metrics_programmed(&m, 1001 * SECOND, 1119 * SECOND);
    expect_lines(&m, (const char *[]){ "network_programming_duration_seconds_bucket{le=\"0.25\"} 0",
                                       "network_programming_duration_seconds_bucket{le=\"0.5\"} 1",
                                       "network_programming_duration_seconds_bucket{le=\"59\"} 1",
                                       "network_programming_duration_seconds_bucket{le=\"115\"} 1",
                                       "network_programming_duration_seconds_bucket{le=\"120\"} 2",
                                       "network_programming_duration_seconds_bucket{le=\"300\"} 2",
                                       "network_programming_duration_seconds_count 2", NULL });
}

static void configz_is_a_kube_proxy_configuration(void **state)
{
    (void)state;
    struct ip_prefix pods[2];
    assert_true(ip_prefix_parse("10.244.0.0/16", &pods[0]));
    assert_true(ip_prefix_parse("fd00:10::/56", &pods[1]));
    const struct plan_options plan = { .cluster_cidrs = pods,
                                       .n_cluster_cidrs = 2,
                                       .masquerade_bit = 14 };
    struct proxy_options o = { .node = "edge-a", .config_sync_seconds = 5400, .plan = &plan };
    assert_true(http_address_parse("[::1]:10249", &o.metrics));
    struct buf b = { 0 };
    configz_put(&o, &b);
    assert_string_equal(
        buf_str(&b),
        "{\"kubeproxy.config.k8s.io\":{\"apiVersion\":\"kubeproxy.config.k8s.io/v1alpha1\","
        "\"kind\":\"KubeProxyConfiguration\",\"mode\":\"nftables\",\"hostnameOverride\":\"edge-a\","
        "\"healthzBindAddress\":\"\",\"metricsBindAddress\":\"[::1]:10249\","
        "\"configSyncPeriod\":\"1h30m0s\",\"detectLocalMode\":\"ClusterCIDR\","
        "\"clusterCIDR\":\"10.244.0.0/16,fd00:10::/56\",\"nodePortAddresses\":[\"primary\"],"
        "\"nftables\":{\"masqueradeAll\":false,\"masqueradeBit\":14}}}");
    buf_done(&b);
}

static void configz_shows_node_addresses_as_ranges(void **state)
{
    (void)state;
    struct ip addresses[2];
    assert_true(ip_parse("192.0.2.10", &addresses[0]));
    assert_true(ip_parse("2001:db8::10", &addresses[1]));
    const struct plan_options plan = {
        .proxy_mode = PROXY_IPVS, .ipvs = { .node_addresses = addresses, .n_node_addresses = 2 }
    };
    const struct proxy_options o = { .node = "edge-a", .plan = &plan };
    struct buf b = { 0 };
    configz_put(&o, &b);
    assert_non_null(
        strstr(buf_str(&b), "\"nodePortAddresses\":[\"192.0.2.10/32\",\"2001:db8::10/128\"],"));
    buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_may_wait_for_a_minute),
        cmocka_unit_test(nothing_is_late_before_the_first_sync),
        cmocka_unit_test(json_tells_the_last_sync_only_when_something_is_wrong),
        cmocka_unit_test(counts_are_kube_proxys),
        cmocka_unit_test(programming_counts_from_our_start_on),
        cmocka_unit_test(configz_is_a_kube_proxy_configuration),
        cmocka_unit_test(configz_shows_node_addresses_as_ranges),
    };
    return cmocka_run_group_tests_name("health", tests, NULL, NULL);
}
