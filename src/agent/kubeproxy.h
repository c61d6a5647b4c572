/* kube-proxy beside us: one that runs, and what one left behind; and what our own mode ipvs made, which
 * looks as if kube-proxy had. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "model/ipvs.h"

/* Says into `out` how it is seen that kube-proxy runs in this network namespace: a process of that
 * name, where processes can be seen, or its answer to /proxyMode on 127.0.0.1:10249. False: it is
 * not seen. Takes a second when something listens there and does not answer. */
bool kubeproxy_runs(struct buf *out);

/* Removes what kube-proxy's modes left, and nothing else; lists it into `out`, one a line: "- ..."
 * for what goes, "! ..." for what stays and why. `dry_run` only lists. 0 or -errno. */
int kubeproxy_cleanup(bool dry_run, struct buf *out, struct err *err);
/* The same for all that the mode ipvs of ours made, when it is ours: kube-ipvs0 tells. */
int kubeproxy_remove_ours(bool dry_run, struct buf *out, struct err *err);
/* The same for the chains of ours in the iptables that is not the used one; none where that is
 * IPTABLES_AUTO. No program is started: the tools of that kind may be missing. */
int kubeproxy_remove_other_kind(enum iptables_mode used, struct buf *out, struct err *err);
