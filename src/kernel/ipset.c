#include "kernel/ipset.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/ipset/ip_set.h>
#include <linux/netfilter/nfnetlink.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/vec.h"
#include "netlink/nl_attr.h"

#define PATIENCE_US 1000000

/* Names without KUBE- or KUBE-6-: pkg/proxy/ipvs of Kubernetes, and kpng's one other. */
static const char *const names[] = {
    "LOOP-BACK",
    "CLUSTER-IP",
    "EXTERNAL-IP",
    "EXTERNAL-IP-LOCAL",
    "LOAD-BALANCER",
    "LOAD-BALANCER-FW",
    "LOAD-BALANCER-LOCAL",
    "LOAD-BALANCER-SOURCE-IP",
    "LOAD-BALANCER-SOURCE-CIDR",
    "LOAD-BALANCER-SRC-CIDR",
    "NODE-PORT-TCP",
    "NODE-PORT-LOCAL-TCP",
    "NODE-PORT-UDP",
    "NODE-PORT-LOCAL-UDP",
    "NODE-PORT-SCTP",
    "NODE-PORT-LOCAL-SCTP",
    "NODE-PORT-SCTP-HASH",
    "NODE-PORT-LOCAL-SCTP-HASH",
    "HEALTH-CHECK-NODE-PORT",
    "IPVS-IPS",
};

struct found {
    struct arena mem;
    VEC(const char *) sets;
};

static bool is_kube_proxys(const char *set)
{
    if (strncmp(set, "KUBE-", 5))
        return false;
    set += !strncmp(set, "KUBE-6-", 7) ? 7 : 5;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(set, names[i]))
            return true;
    return false;
}

static struct nlmsghdr *msg(struct nl_buf *b, struct nl_port *port, uint16_t command)
{
    struct nfgenmsg g = { .version = NFNETLINK_V0 };
    struct nlmsghdr *m = nl_msg(b, (uint16_t)(NFNL_SUBSYS_IPSET << 8 | command), NLM_F_REQUEST,
                                nl_seq(port), &g, sizeof(g));
    mnl_attr_put_u8(m, IPSET_ATTR_PROTOCOL, IPSET_PROTOCOL_MIN);
    return m;
}

static void restart(void *user)
{
    struct found *f = user;
    arena_reset(&f->mem);
    f->sets.n = 0;
}

static int read_set(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = { [IPSET_ATTR_SETNAME] = NL_STRING };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct found *f = user;
    if (nl_parse(m, sizeof(struct nfgenmsg), policy, NL_POLICY_COUNT(policy), tb))
        return -EBADMSG;
    const char *name = tb[IPSET_ATTR_SETNAME] ? mnl_attr_get_str(tb[IPSET_ATTR_SETNAME]) : "";
    if (is_kube_proxys(name))
        vec_push(&f->sets, arena_strdup(&f->mem, name));
    return 0;
}

static int destroy(struct nl_port *port, const char *set, struct err *err)
{
    struct nl_buf b = { 0 };
    struct nlmsghdr *m = msg(&b, port, IPSET_CMD_DESTROY);
    mnl_attr_put_strz(m, IPSET_ATTR_SETNAME, set);
    int r = nl_talk(port, m, err);
    nl_buf_done(&b);
    return r == -ENOENT ? 0 : r;
}

/* The kernel lets go of a set a while after it has removed the rule that used it. */
static int destroy_soon(struct nl_port *port, const char *set, int64_t until_us, struct err *err)
{
    static const struct timespec pause = { .tv_nsec = 10000000 };
    int r;
    while ((r = destroy(port, set, err)) == -IPSET_ERR_BUSY && clock_mono_us() < until_us)
        nanosleep(&pause, NULL);
    return r;
}

static int find(struct nl_port *port, struct found *f, struct err *err)
{
    struct nl_buf b = { 0 };
    struct nlmsghdr *m = msg(&b, port, IPSET_CMD_LIST);
    mnl_attr_put_u32(m, IPSET_ATTR_FLAGS, htonl(IPSET_FLAG_LIST_SETNAME));
    int r = nl_dump(port, m, read_set, restart, f, err);
    nl_buf_done(&b);
    return r == -EINVAL || r == -EOPNOTSUPP ? 0 : r; /* no such subsystem */
}

int ipset_kubeproxy_cleanup(struct nl_port *port, bool dry_run, struct buf *out, struct err *err)
{
    struct found f = { 0 };
    int64_t until = clock_mono_us() + PATIENCE_US;
    int r = find(port, &f, err);
    for (size_t i = 0; i < f.sets.n && !r; i++) {
        r = dry_run ? 0 : destroy_soon(port, f.sets.v[i], until, err);
        bool used = r == -IPSET_ERR_BUSY;
        if (used)
            r = 0;
        if (!r)
            buf_printf(out, used ? "! ipset %s stays, because a rule uses it\n" : "- ipset %s\n",
                       f.sets.v[i]);
    }
    if (r)
        err_prefix(err, "kube-proxy's ipsets");
    arena_done(&f.mem);
    vec_done(&f.sets);
    return r;
}
