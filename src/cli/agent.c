#include "agent/agent.h"

#include <string.h>

#include "base/log.h"
#include "cli/source.h"

/* The features this build knows. */
static const char *const features[] = { "portmap" };

static int check_features(const struct cli_command *cmd, const char *list)
{
    if (!*list)
        return cli_usage(cmd, "--features: it is empty; known: portmap");
    while (*list) {
        size_t n = strcspn(list, ",");
        bool known = false;
        for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
            known |= strlen(features[i]) == n && !strncmp(features[i], list, n);
        if (!known)
            return cli_usage(cmd, "--features: '%.*s' is unknown; known: portmap", (int)n, list);
        list += n + (list[n] == ',');
    }
    return CLI_DONE;
}

static int run(const struct cli_command *cmd, char **args, size_t n_args)
{
    (void)args;
    (void)n_args;
    const char *node;
    unsigned port, audit;
    int level = log_level_parse(cli_value(cmd, "log-level"));
    if (level < 0)
        return cli_usage(cmd, "--log-level %s: one of error, warn, info, debug is needed",
                         cli_value(cmd, "log-level"));
    struct source_options source;
    if (cli_node(cmd, &node) || cli_source(cmd, &source))
        return CLI_USAGE;
    if (check_features(cmd, cli_value(cmd, "features")) ||
        cli_number(cmd, "cni-vxlan-port", 1, 65535, &port) ||
        cli_number(cmd, "audit-seconds", 1, 86400, &audit))
        return CLI_USAGE;
    const char *address = cli_value(cmd, "metrics-address");
    log_set_level((enum log_level)level);
    const struct agent_options opt = { .node = node,
                                       .source = source.spec,
                                       .kubeconfig = source.kubeconfig,
                                       .context = source.context,
                                       .features = cli_value(cmd, "features"),
                                       .state_dir = cli_value(cmd, "state-dir"),
                                       .metrics_address = strcmp(address, "none") ? address : "",
                                       .cni_vxlan_port = port,
                                       .audit_seconds = audit };
    struct err err = { 0 };
    int r = agent_run(&opt, &err);
    return r ? cli_fail_kernel(r, err.text) : CLI_DONE;
}

const struct cli_command cmd_agent = {
    .name = "agent",
    .args = "",
    .summary = "Runs the node agent until SIGTERM; what is in the kernel stays there.",
    .options =
        (struct cli_option[]){
            { 0, "node", "NAME", "name of this node's Node object, or $NODE_NAME", "", false },
            CLI_SOURCE_OPTIONS,
            { 0, "features", "LIST", "features to run, comma separated", "portmap", false },
            { 0, "log-level", "LEVEL", "error, warn, info or debug", "info", false },
            { 0, "state-dir", "DIR", "remembers sysctls as they were", "/run/portolan", false },
            { 0, "cni-vxlan-port", "PORT", "UDP port of the CNI's own VXLAN", "8472", false },
            { 0, "metrics-address", "IP:PORT", "health and metrics over HTTP, or none",
              "127.0.0.1:10266", false },
            { 0, "audit-seconds", "N", "full audit of the kernel every N seconds", "300", false },
            { 0 },
        },
    .run = run,
};
