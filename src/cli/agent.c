#include "agent/agent.h"

#include <string.h>

#include "base/log.h"
#include "cli/features.h"
#include "cli/source.h"

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
    const char *address = cli_value(cmd, "metrics-address");
    log_set_level((enum log_level)level);
    ret->source = source.spec;
    ret->kubeconfig = source.kubeconfig;
    ret->context = source.context;
    ret->features = features->list;
    ret->plan = &features->plan;
    ret->state_dir = cli_value(cmd, "state-dir");
    ret->metrics_address = strcmp(address, "none") ? address : "";
    ret->cni_vxlan_port = port;
    ret->audit_seconds = audit;
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
            { 0, "audit-seconds", "N", "full audit of the kernel every N seconds", "300", false },
            { 0, "dry-run", NULL, "print what would be applied, as diff does, and end", NULL,
              false },
            { 0 },
        },
    .run = run,
};
