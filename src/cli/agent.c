#include "agent/agent.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/features.h"
#include "cli/source.h"

static int read_address(const struct cli_command *cmd, const char *name, struct http_address *ret)
{
    const char *text = cli_value(cmd, name);
    *ret = (struct http_address){ 0 };
    if (!*text || !strcmp(text, "none") || http_address_parse(text, ret))
        return CLI_DONE;
    return cli_usage(cmd, "--%s %s: IP:PORT, [IP6]:PORT or none is needed", name, text);
}

/* As Go writes it: "15m", "1h30m0s". */
static int read_duration(const struct cli_command *cmd, const char *name, uint32_t *ret)
{
    static const struct {
        const char *unit;
        uint32_t seconds;
    } units[] = { { "h", 3600 }, { "m", 60 }, { "s", 1 } };
    const char *text = cli_value(cmd, name), *p = text;
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t digits = strspn(p, "0123456789");
        if (!digits || digits > 5 || p[digits] != *units[i].unit)
            continue;
        sum += strtoul(p, NULL, 10) * units[i].seconds;
        p += digits + 1;
    }
    if (*p || sum < 1 || sum > 7 * 86400)
        return cli_usage(cmd, "--%s %s: a time such as 15m or 1h30m is needed, from 1s to 168h",
                         name, text);
    *ret = (uint32_t)sum;
    return CLI_DONE;
}

static int read_proxy(const struct cli_command *cmd, const struct features *features,
                      struct proxy_options *ret)
{
    static const char *const names[] = {
        "healthz-bind-address",
        "metrics-bind-address",
        "config-sync-period",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !features->plan.serviceproxy; i++)
        if (cli_given(cmd, names[i]))
            return cli_features_unused(cmd, names[i]);
    ret->plan = &features->plan;
    ret->nodeport_addresses_given = features->nodeport_addresses_given;
    if (read_address(cmd, "healthz-bind-address", &ret->healthz) ||
        read_address(cmd, "metrics-bind-address", &ret->metrics))
        return CLI_USAGE;
    return read_duration(cmd, "config-sync-period", &ret->config_sync_seconds);
}

static int read_mesh(const struct cli_command *cmd, const struct features *features,
                     struct mesh_options *ret)
{
    static const char *const names[] = { "bird-conf", "bird-socket", "bird-away-seconds" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !features->plan.trafficclass; i++)
        if (cli_given(cmd, names[i]))
            return cli_usage(cmd, "--%s: it goes with --features trafficclass only", names[i]);
    ret->conf = cli_value(cmd, "bird-conf");
    ret->socket = cli_value(cmd, "bird-socket");
    if (strpbrk(ret->conf, "\"\n"))
        return cli_usage(cmd,
                         "--bird-conf %s: a path without quotation marks is needed: it stands "
                         "between them in what BIRD is told",
                         ret->conf);
    return cli_number(cmd, "bird-away-seconds", 1, 3600, &ret->away_seconds);
}

static int read_options(const struct cli_command *cmd, struct features *features,
                        struct agent_options *ret)
{
    struct source_options source;
    unsigned port, audit;
    int level = log_level_parse(cli_value(cmd, "log-level"));
    if (level < 0)
        return cli_usage(cmd, "--log-level %s: one of error, warn, info, debug is needed",
                         cli_value(cmd, "log-level"));
    if (cli_node(cmd, &ret->node) || cli_source(cmd, &source) || cli_features(cmd, features) ||
        cli_number(cmd, "cni-vxlan-port", 1, 65535, &port) ||
        cli_number(cmd, "audit-seconds", 1, 86400, &audit))
        return CLI_USAGE;
    if (read_address(cmd, "metrics-address", &ret->metrics) ||
        read_proxy(cmd, features, &ret->proxy) || read_mesh(cmd, features, &ret->mesh))
        return CLI_USAGE;
    log_set_level((enum log_level)level);
    ret->source = source.spec;
    ret->kubeconfig = source.kubeconfig;
    ret->context = source.context;
    ret->features = features->list;
    ret->plan = &features->plan;
    ret->state_dir = cli_value(cmd, "state-dir");
    ret->cni_vxlan_port = port;
    ret->iptables_mode = features->iptables_mode;
    ret->audit_seconds = audit;
    ret->proxy.node = ret->node;
    return CLI_DONE;
}

static int run(const struct cli_command *cmd, char **args, size_t n_args)
{
    struct features features = { 0 };
    struct agent_options opt = { 0 };
    int r = read_options(cmd, &features, &opt);
    if (!r && cli_given(cmd, "dry-run")) {
        r = cmd_diff.run(cmd, args, n_args);
    } else if (!r) {
        struct err err = { 0 };
        r = agent_run(&opt, &err);
        if (r)
            r = cli_fail_kernel(r, err.text);
    }
    cli_features_done(&features);
    return r;
}

const struct cli_command cmd_agent = {
    .name = "agent",
    .args = "",
    .summary = "Runs the node agent until SIGTERM; what is in the kernel stays there.",
    .options =
        (struct cli_option[]){
            { 0, "node", "NAME", "name of this node's Node object, or $NODE_NAME", "", false },
            CLI_SOURCE_OPTIONS,
            CLI_FEATURE_OPTIONS,
            { 0, "log-level", "LEVEL", "error, warn, info or debug", "info", false },
            { 0, "state-dir", "DIR", "remembers sysctls as they were", "/run/portolan", false },
            { 0, "cni-vxlan-port", "PORT", "UDP port of the CNI's own VXLAN", "8472", false },
            { 0, "metrics-address", "IP:PORT", "health and metrics over HTTP, or none",
              "127.0.0.1:10266", false },
            { 0, "healthz-bind-address", "IP:PORT", "the service proxy's health, or none",
              "0.0.0.0:10256", false },
            { 0, "metrics-bind-address", "IP:PORT", "its mode, metrics, configuration, or none",
              "127.0.0.1:10249", false },
            { 0, "config-sync-period", "TIME", "everything is planned anew this often", "15m",
              false },
            { 0, "bird-conf", "PATH", "the configuration written for BIRD", "/run/bird/bird.conf",
              false },
            { 0, "bird-socket", "PATH", "BIRD's control socket", "/run/bird/bird.ctl", false },
            { 0, "bird-away-seconds", "N", "BIRD's routes are flushed when it is gone so long",
              "10", false },
            { 0, "audit-seconds", "N", "full audit of the kernel every N seconds", "300", false },
            { 0, "dry-run", NULL, "print what would be applied, as diff does, and end", NULL,
              false },
            { 0 },
        },
    .run = run,
};
