#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/keep.h"
#include "agent/kubeproxy.h"
#include "agent/lock.h"
#include "base/buf.h"
#include "cli/cli.h"
#include "kernel/nft.h"
#include "kernel/rtnl.h"
#include "kernel/sysctl.h"

/* The table first, so that no rule leads into a link that is going away; the sysctls last. */
static int remove_all(const char *state_dir, bool dry_run, struct buf *out, struct err *err)
{
    struct nl_port *nft = NULL, *route = NULL;
    struct rtnl *rtnl = NULL;
    bool existed = false;
    int r = nl_open(NETLINK_NETFILTER, NULL, &nft, err);
    if (!r)
        r = nl_open(NETLINK_ROUTE, NULL, &route, err);
    if (!r)
        r = nft_cleanup(nft, dry_run, &existed, err);
    if (!r) {
        if (existed)
            buf_puts(out, "- table inet portolan\n");
        r = kubeproxy_remove_ours(dry_run, out, err);
    }
    if (!r) {
        rtnl = rtnl_new(route);
        r = rtnl_cleanup(rtnl, dry_run, out, err);
        rtnl_free(rtnl);
    }
    if (!r && !dry_run)
        r = keep_cleanup(state_dir, err);
    if (!r)
        r = sysctl_cleanup(state_dir, dry_run, out, err);
    nl_close(nft);
    nl_close(route);
    return r;
}

/* An agent of ours may run beside. */
static int remove_kubeproxy(bool dry_run, struct buf *out, struct err *err)
{
    struct buf seen = { 0 };
    int r = 0;
    if (!dry_run && kubeproxy_runs(&seen))
        r = err_set(err, EBUSY,
                    "kube-proxy runs on this node: %s; stop it first, it would put "
                    "everything back",
                    buf_str(&seen));
    if (!r)
        r = kubeproxy_cleanup(dry_run, out, err);
    buf_done(&seen);
    return r;
}

static int run(const struct cli_command *cmd, char **args, size_t n_args)
{
    (void)args;
    (void)n_args;
    const char *state_dir = cli_value(cmd, "state-dir");
    bool dry_run = cli_given(cmd, "dry-run");
    struct err err = { 0 };
    struct buf out = { 0 };
    int lock = -1, r;
    if (cli_given(cmd, "kube-proxy")) {
        r = remove_kubeproxy(dry_run, &out, &err);
    } else {
        /* A running agent would put everything back. */
        r = dry_run ? 0 : lock_take(&lock, &err);
        if (!r)
            r = remove_all(state_dir, dry_run, &out, &err);
    }
    fputs(buf_str(&out), stdout);
    if (lock >= 0)
        close(lock);
    buf_done(&out);
    return r ? cli_fail_kernel(r, err.text) : CLI_DONE;
}

const struct cli_command cmd_cleanup = {
    .name = "cleanup",
    .args = "",
    .summary = "Removes everything Portolan owns on this node, or what kube-proxy left.",
    .options =
        (struct cli_option[]){
            { 0, "kube-proxy", NULL, "remove what kube-proxy left, and nothing of ours", NULL,
              false },
            { 0, "dry-run", NULL, "only list what would go", NULL, false },
            { 0, "state-dir", "DIR", "as given to the agent", "/run/portolan", false },
            { 0 },
        },
    .run = run,
};
