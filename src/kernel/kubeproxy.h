/* What the back ends share that take kube-proxy's chains out of iptables' tables, be they kept by
 * nftables (nft_kubeproxy.c) or by the older xtables (iptables.c). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/vec.h"

/* Our own mode ipvs has chains of the same names as kube-proxy's. */
enum kubeproxy_whose {
    KUBEPROXY_ITS,    /* all that kube-proxy makes */
    KUBEPROXY_BESIDE, /* but for those that are ours as well: we use them */
    KUBEPROXY_OURS,
};

struct kubeproxy_chain {
    const char *name;
    bool base;     /* the kernel enters here */
    bool leftover; /* kube-proxy made it */
    /* A chain of somebody else's that jumps here, or to one that does: this one stays. */
    const char *user;
};

/* A rule that jumps to a leftover; indexes of chains. */
struct kubeproxy_jump {
    size_t from, to;
    uint64_t handle; /* the back end's */
};

struct kubeproxy_table {
    enum kubeproxy_whose whose;
    struct arena mem; /* names */
    VEC(struct kubeproxy_chain) chains;
    VEC(struct kubeproxy_jump) jumps;
};

/* The chain is of these. Those of the kubelet and of others are called KUBE-... too. */
bool kubeproxy_is_chain(enum kubeproxy_whose whose, const char *table, const char *chain);
bool kubeproxy_chain_goes(const struct kubeproxy_chain *c);
/* Fills in the users, and lists into `out` what goes ("- ...") and what stays ("! ..."). `where`
 * names the table. True when anything goes. */
bool kubeproxy_settle(struct kubeproxy_table *t, const char *where, struct buf *out);
/* Empties it. */
void kubeproxy_table_reset(struct kubeproxy_table *t);
void kubeproxy_table_done(struct kubeproxy_table *t);
