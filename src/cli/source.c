#include "cli/source.h"

#include <stdlib.h>

int cli_source(const struct cli_command *cmd, struct source_options *ret)
{
    const char *spec = cli_value(cmd, "source"), *kubeconfig = cli_value(cmd, "kubeconfig");
    if (!*spec && (*kubeconfig || getenv("KUBERNETES_SERVICE_HOST")))
        spec = "kube:";
    if (!*spec)
        return cli_usage(cmd, "--source dir:DIR or --kubeconfig FILE is needed: where the objects "
                              "are");
    *ret = (struct source_options){ .spec = spec,
                                    .kubeconfig = kubeconfig,
                                    .context = cli_value(cmd, "context") };
    return CLI_DONE;
}
