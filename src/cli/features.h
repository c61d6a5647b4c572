/* The options that say what a plan is for: --features and, under kube-proxy's names, those of the
 * service proxy. docs/serviceproxy.md tells where they differ from kube-proxy's. */
#pragma once

#include "base/arena.h"
#include "cli/cli.h"
#include "plan/plan.h"

/* For a command's table. */
/* clang-format off */
#define CLI_FEATURE_OPTIONS                                                                        \
    { 0, "features", "LIST", "portmap, serviceproxy, trafficclass", "portmap", false },            \
    { 0, "proxy-mode", "MODE", "how services are proxied: nft", "nft", false },                    \
    { 0, "cluster-cidr", "CIDRS", "who is a pod: the pods' ranges", "", false },                   \
    { 0, "detect-local-mode", "MODE", "ClusterCIDR, or NodeCIDR: by the Node's podCIDRs",          \
      "ClusterCIDR", false },                                                                      \
    { 0, "nodeport-addresses", "CIDRS", "where node ports answer, or primary", "primary", false }, \
    { 0, "masquerade-all", NULL, "masquerade every connection to a cluster IP", NULL, false },     \
    { 0, "masquerade-bit", "N", "of the packet mark, for masquerading", "14", false }
/* clang-format on */

struct features {
    const char *list; /* as given, checked */
    struct plan_options plan;
    bool nodeport_addresses_given;
    struct arena mem; /* owns the arrays of `plan` */
};

/* Returns an exit status, the reason already printed. */
int cli_features(const struct cli_command *cmd, struct features *ret);
/* Says that the option does nothing without the service proxy; CLI_USAGE. */
int cli_features_unused(const struct cli_command *cmd, const char *name);
void cli_features_done(struct features *f);
