#include "agent/pass_ipvs.h"

#include <linux/netlink.h>
#include <stdio.h>
#include <sys/utsname.h>

#include "agent/kubeproxy.h"
#include "kernel/sysctl.h"

int pass_ipvs_open(const struct plan_options *options, enum iptables_mode iptables,
                   struct pass_ipvs **ret, struct err *err)
{
    if (!options->serviceproxy || options->proxy_mode != PROXY_IPVS)
        return 0;
    const struct ipvs_settings settings = { .exclude = options->ipvs.exclude_cidrs,
                                            .n_exclude = options->ipvs.n_exclude_cidrs,
                                            .iptables = iptables };
    struct pass_ipvs *x = *ret = xcalloc(1, sizeof(*x));
    int r = nl_open(NETLINK_ROUTE, NULL, &x->ports.route, err);
    if (!r)
        r = nl_open(NETLINK_GENERIC, NULL, &x->ports.generic, err);
    if (!r)
        r = nl_open(NETLINK_NETFILTER, NULL, &x->ports.netfilter, err);
    if (!r)
        r = ipvs_check(&x->ports, options->ipvs.scheduler, err);
    if (!r)
        r = ipvs_is_ours(x->ports.route, &x->was_ours, err);
    if (!r)
        x->ipvs = ipvs_new(&x->ports, &settings);
    return r;
}

void pass_ipvs_close(struct pass_ipvs *x)
{
    if (!x)
        return;
    ipvs_free(x->ipvs);
    nl_close(x->ports.route);
    nl_close(x->ports.generic);
    nl_close(x->ports.netfilter);
    free(x);
}

/* Thousands of addresses that we put there ourselves would flood it. */
static int stop_hearing(struct pass_ipvs *x, struct monitor *monitor, struct err *err)
{
    uint32_t index = ipvs_device_index(x->ipvs);
    if (index == x->deaf_to)
        return 0;
    int r = monitor_ignore_addresses(monitor, index, err);
    if (!r)
        x->deaf_to = index;
    return r;
}

/* From 4.1 to 5.8 a client's port that is used again waits a second, or misses conntrack. */
static void mend_reuse(const struct pass *p, struct report *report)
{
    static const struct desired_sysctl reuse = { "node", "net/ipv4/vs/conn_reuse_mode", "0", true };
    static const struct desired d = { .sysctls = &reuse, .n_sysctls = 1 };
    struct utsname name;
    unsigned major, minor;
    if (uname(&name) || sscanf(name.release, "%u.%u", &major, &minor) != 2)
        return;
    unsigned version = major * 1000 + minor;
    if (version >= 4001 && version <= 5008)
        sysctl_sync(&d, p->state_dir, report);
}

int pass_ipvs_apply(struct pass *p, const struct desired *d, unsigned needs, struct err *err)
{
    struct pass_ipvs *x = p->ipvs;
    enum iptables_mode used;
    unsigned look = (needs & PASS_AUDIT_IPVS ? IPVS_LOOK_AUDIT : 0) |
                    (needs & PASS_DRAINING ? IPVS_LOOK_DRAINING : 0);
    mend_reuse(p, &p->report);
    int r = x->deaf_to ? 0 : ipvs_make_device(x->ipvs, &p->report, err);
    if (!r)
        r = stop_hearing(x, p->monitor, err);
    if (!r)
        r = ipvs_sync(x->ipvs, d, look, &p->report, err);
    if (!r)
        r = stop_hearing(x, p->monitor, err);
    x->stood |= !r && ipvs_rules_stand(x->ipvs, &used);
    return r;
}

int pass_ipvs_remove_other_kind(const struct pass_ipvs *x, bool *ret_done, struct buf *out,
                                struct err *err)
{
    enum iptables_mode used;
    if (!x->was_ours) {
        *ret_done = true;
        return 0;
    }
    *ret_done = ipvs_rules_stand(x->ipvs, &used);
    return *ret_done ? kubeproxy_remove_other_kind(used, out, err) : 0;
}
