#include "kernel/kubeproxy.h"

#include <string.h>

#include "model/ipvs.h"

/* pkg/proxy/iptables and pkg/proxy/ipvs of Kubernetes 1.20 to 1.35. */
static bool is_its(const char *table, const char *chain)
{
    static const char *const names[] = {
        "KUBE-SERVICES",
        "KUBE-EXTERNAL-SERVICES",
        "KUBE-NODEPORTS",
        "KUBE-NODE-PORT",
        "KUBE-POSTROUTING",
        "KUBE-MARK-MASQ",
        "KUBE-FORWARD",
        "KUBE-LOAD-BALANCER",
        "KUBE-PROXY-FIREWALL",
        "KUBE-PROXY-CANARY",
        "KUBE-SOURCE-RANGES-FIREWALL",
        "KUBE-IPVS-FILTER",
        "KUBE-IPVS-OUT-FILTER",
    };
    static const char *const prefixes[] = {
        "KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-SEP-", "KUBE-FW-", "KUBE-XLB-",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(chain, names[i]))
            return true;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (!strncmp(chain, prefixes[i], strlen(prefixes[i])))
            return true;
    return !strcmp(table, "nat") && !strcmp(chain, "KUBE-FIREWALL");
}

static bool is_ours(const char *table, const char *chain)
{
    for (size_t i = 0; i < IPVS_CHAIN_COUNT; i++)
        if (!strcmp(table, ipvs_chains[i].table) && !strcmp(chain, ipvs_chains[i].name))
            return true;
    return false;
}

bool kubeproxy_is_chain(enum kubeproxy_whose whose, const char *table, const char *chain)
{
    switch (whose) {
    case KUBEPROXY_ITS:
        return is_its(table, chain);
    case KUBEPROXY_BESIDE:
        return is_its(table, chain) && !is_ours(table, chain);
    case KUBEPROXY_OURS:
        break;
    }
    return is_ours(table, chain);
}

bool kubeproxy_chain_goes(const struct kubeproxy_chain *c)
{
    return c->leftover && !c->user;
}

static void find_users(struct kubeproxy_table *t)
{
    bool news = true;
    while (news) {
        news = false;
        for (size_t i = 0; i < t->jumps.n; i++) {
            const struct kubeproxy_chain *from = &t->chains.v[t->jumps.v[i].from];
            struct kubeproxy_chain *to = &t->chains.v[t->jumps.v[i].to];
            if (from->base || kubeproxy_chain_goes(from) || to->user)
                continue;
            to->user = from->name;
            news = true;
        }
    }
}

bool kubeproxy_settle(struct kubeproxy_table *t, const char *where, struct buf *out)
{
    size_t n_jumps = 0, n_chains = 0;
    find_users(t);
    for (size_t i = 0; i < t->jumps.n; i++)
        n_jumps += t->chains.v[t->jumps.v[i].from].base;
    for (size_t i = 0; i < t->chains.n; i++) {
        const struct kubeproxy_chain *c = &t->chains.v[i];
        n_chains += kubeproxy_chain_goes(c);
        if (c->user)
            buf_printf(out, "! %s: chain %s stays, because chain %s uses it\n", where, c->name,
                       c->user);
    }
    if (!n_jumps && !n_chains)
        return false;
    buf_printf(out, "- %s: %zu chains of %s, and %zu jumps to them\n", where, n_chains,
               t->whose == KUBEPROXY_OURS ? "Portolan" : "kube-proxy", n_jumps);
    return true;
}

void kubeproxy_table_reset(struct kubeproxy_table *t)
{
    arena_reset(&t->mem);
    t->chains.n = t->jumps.n = 0;
}

void kubeproxy_table_done(struct kubeproxy_table *t)
{
    arena_done(&t->mem);
    vec_done(&t->chains);
    vec_done(&t->jumps);
}
