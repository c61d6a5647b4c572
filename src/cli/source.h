/* The options by which a command finds its objects, and what they mean together. */
#pragma once

#include "cli/cli.h"
#include "source/source.h"

/* For a command's table. */
/* clang-format off */
#define CLI_SOURCE_OPTIONS                                                                         \
    { 0, "source", "SOURCE", "dir:DIR (manifests) or kube: (API server)", "", false },             \
    { 0, "kubeconfig", "FILE", "kube: by this file, not by the pod's account", "", false },        \
    { 0, "context", "NAME", "one of the kubeconfig's contexts", "", false }
/* clang-format on */

/* --source, --kubeconfig and --context. Without --source it is kube: when --kubeconfig is given,
 * and in a pod. All kinds. Returns an exit status, the reason already printed. */
int cli_source(const struct cli_command *cmd, struct source_options *ret);
