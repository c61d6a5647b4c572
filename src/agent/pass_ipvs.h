/* The part of a pass that belongs to the service proxy's mode ipvs: kernel/ipvs.h with ports of its
 * own, and the device the monitor does not listen to. */
#pragma once

#include "agent/pass.h"
#include "kernel/ipvs.h"

struct pass_ipvs {
    struct ipvs_ports ports;
    struct ipvs *ipvs;
    uint32_t deaf_to;   /* kube-ipvs0's index for the monitor */
    bool stood;         /* once everything was applied, and the rules of iptables stood */
    bool follows_table; /* there was a table of ours other than this start's */
    bool was_ours;      /* a former start made what there was */
};

/* In another mode *ret is NULL. Fails where the kernel cannot. */
int pass_ipvs_open(const struct plan_options *options, enum iptables_mode iptables,
                   struct pass_ipvs **ret, struct err *err);
void pass_ipvs_close(struct pass_ipvs *x); /* accepts NULL */

/* `needs` is a set of enum pass_need. As ipvs_sync(), into p->report. */
int pass_ipvs_apply(struct pass *p, const struct desired *d, unsigned needs, struct err *err);
/* Removes what a former start of this mode wrote to the iptables of the other kind (nft, legacy), once the
 * rules of this one stand; until then *ret_done is false. Without a former start such chains are kube-proxy's. */
int pass_ipvs_remove_other_kind(const struct pass_ipvs *x, bool *ret_done, struct buf *out,
                                struct err *err);
