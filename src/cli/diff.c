#include <linux/netlink.h>
#include <stdio.h>

#include "agent/keep.h"
#include "agent/pass_ipvs.h"
#include "base/buf.h"
#include "base/clock.h"
#include "cli/planned.h"
#include "cli/source.h"
#include "kernel/nft.h"
#include "kernel/rtnl.h"
#include "kernel/sysctl.h"

static int compare_nft(const struct plan_options *options, const struct desired *d, struct buf *out,
                       struct err *err)
{
    struct nl_port *netfilter = NULL;
    int r = nl_open(NETLINK_NETFILTER, NULL, &netfilter, err);
    if (!r) {
        struct nft *nft = nft_new(netfilter, plan_ruleset(options));
        r = nft_diff(nft, d->groups, d->n_groups, out, err);
        nft_free(nft);
    }
    nl_close(netfilter);
    return r;
}

static int compare_ipvs(const struct features *f, const struct desired *d, struct buf *out,
                        struct err *err)
{
    struct pass_ipvs *x = NULL;
    int r = pass_ipvs_open(&f->plan, f->iptables_mode, &x, err);
    if (!r && x)
        r = ipvs_diff(x->ipvs, d, out, err);
    pass_ipvs_close(x);
    return r;
}

static int compare(const struct features *f, const struct desired *d, struct buf *out,
                   struct err *err)
{
    struct nl_port *route = NULL;
    int r = plan_needs_nft(&f->plan) ? compare_nft(&f->plan, d, out, err) : 0;
    if (!r)
        r = compare_ipvs(f, d, out, err);
    if (!r)
        r = nl_open(NETLINK_ROUTE, NULL, &route, err);
    if (!r) {
        struct rtnl *rtnl = rtnl_new(route);
        r = rtnl_diff(rtnl, d, out, err);
        rtnl_free(rtnl);
    }
    if (!r)
        sysctl_diff(d, out);
    nl_close(route);
    return r;
}

/* What a class left to stay goes with nobody. */
static int compare_all(const struct cli_command *cmd, const struct planned *p, struct buf *out,
                       struct err *err)
{
    struct keep *keep = NULL;
    struct desired d = p->plan->desired;
    int r = keep_open(cli_value(cmd, "state-dir"), &keep, err);
    if (!r) {
        keep_apply(keep, &p->snap, &d);
        r = compare(&p->features, &d, out, err);
    }
    keep_close(keep);
    return r;
}

static int run(const struct cli_command *cmd, char **args, size_t n_args)
{
    (void)args;
    (void)n_args;
    struct planned p = { .now = clock_wall() };
    struct buf out = { 0 };
    struct err err = { 0 };
    int r = planned_make(&p, cmd, "");
    if (!r) {
        int e = compare_all(cmd, &p, &out, &err);
        if (e)
            r = cli_fail_kernel(e, err.text);
        else
            r = p.world.errors ? CLI_FAILED : CLI_DONE;
        fputs(buf_str(&out), stdout);
    }
    buf_done(&out);
    planned_done(&p);
    return r;
}

const struct cli_command cmd_diff = {
    .name = "diff",
    .args = "",
    .summary = "Prints what the agent would change on this node; changes nothing.",
    .options =
        (struct cli_option[]){
            { 0, "node", "NAME", "name of this node's Node object, or $NODE_NAME", "", false },
            CLI_SOURCE_OPTIONS,
            CLI_FEATURE_OPTIONS,
            { 0, "cni-vxlan-port", "PORT", "UDP port of the CNI's own VXLAN", "8472", false },
            { 0, "state-dir", "DIR", "as given to the agent", "/run/portolan", false },
            { 0 },
        },
    .run = run,
};
