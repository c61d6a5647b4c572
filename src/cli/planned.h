/* A plan made once from a source and a host: for `plan` and `diff`. */
#pragma once

#include "cli/features.h"
#include "cli/world.h"
#include "plan/plan.h"

struct planned {
    int64_t now; /* set before planned_make */
    struct features features;
    struct world world;
    struct arena host_mem;
    struct host host;
    struct snapshot snap;
    struct planner *planner;
    const struct plan *plan;
};

/* Reads --node, --cni-vxlan-port, and the source's and the features' options of `cmd`. `host_file` is
 * "" for this machine. Returns an exit status, the reason already printed. */
int planned_make(struct planned *p, const struct cli_command *cmd, const char *host_file);
void planned_done(struct planned *p);
