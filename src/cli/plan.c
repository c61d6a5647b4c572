#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/timestamp.h"
#include "cli/plan_json.h"
#include "cli/planned.h"
#include "cli/source.h"
#include "model/nft_text.h"
#include "plan/plan_text.h"

static void print_text(const struct plan_options *options, const struct plan *plan,
                       const struct status_writes *writes)
{
    struct buf out = { 0 };
    const struct ipvs_want *ipvs = plan->desired.ipvs_node;
    if (plan_needs_nft(options)) {
        const struct nft_table table = plan_ruleset(options);
        nft_text_table(&out, &table);
        buf_puts(&out, "\n");
    }
    if (ipvs)
        buf_printf(&out, "# iptables-restore --noflush\n%s\n# ip6tables-restore --noflush\n%s\n",
                   ipvs->rules4, ipvs->rules6);
    plan_text(plan, writes, &out);
    fputs(buf_str(&out), stdout);
    buf_done(&out);
}

static int run(const struct cli_command *cmd, char **args, size_t n_args)
{
    (void)args;
    (void)n_args;
    const char *format = cli_value(cmd, "output");
    bool json = !strcmp(format, "json");
    if (!json && strcmp(format, "text"))
        return cli_usage(cmd, "--output %s: one of text, json is needed", format);
    int64_t now = clock_wall();
    if (*cli_value(cmd, "now") && !time_parse(cli_value(cmd, "now"), &now))
        return cli_usage(cmd, "--now %s: a time such as 2026-01-02T03:04:05Z is needed",
                         cli_value(cmd, "now"));
    struct planned p = { .now = now };
    int r = planned_make(&p, cmd, cli_value(cmd, "host"));
    if (!r) {
        /* As if the kernel had taken everything: what the statuses would become. */
        const struct applied applied = { .acknowledged = true };
        struct status_writes writes = plan_statuses(p.planner, &p.snap, &applied);
        if (json)
            plan_print_json(&p.features.plan, p.plan, &writes);
        else
            print_text(&p.features.plan, p.plan, &writes);
        r = p.world.errors ? CLI_FAILED : CLI_DONE;
    }
    planned_done(&p);
    return r;
}

const struct cli_command cmd_plan = {
    .name = "plan",
    .args = "",
    .summary = "Prints what the agent of a node would want; touches nothing, needs no root.",
    .options =
        (struct cli_option[]){
            { 0, "node", "NAME", "the node to plan for, or $NODE_NAME", "", false },
            CLI_SOURCE_OPTIONS,
            CLI_FEATURE_OPTIONS,
            { 'o', "output", "FORMAT", "text or json", "text", false },
            { 0, "host", "FILE", "interfaces and addresses from FILE, not this machine", "",
              false },
            { 0, "now", "TIME", "plan for this RFC 3339 time", "", false },
            { 0, "cni-vxlan-port", "PORT", "UDP port of the CNI's own VXLAN", "8472", false },
            { 0 },
        },
    .run = run,
};
