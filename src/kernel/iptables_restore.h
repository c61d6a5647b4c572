/* Our chains in iptables' tables, and the jumps into them: read with iptables-save, written with
 * iptables-restore --noflush. Everybody else's chains, rules and policies stay as they are.
 *
 * What the kernel holds is compared when that is asked for; a rule of another text is put back
 * together with the whole of its table, in one go. */
#pragma once

#include "base/err.h"
#include "kernel/kernel.h"

struct iptables;

struct iptables *iptables_new(enum iptables_mode mode);
void iptables_free(struct iptables *t); /* accepts NULL */

/* Makes both families match, those that the kernel has. Without `audit` nothing is looked at once they were right. What does
 * not work goes into the report and is tried again by the next call; after a program that did not end,
 * when it has rested for a while. True when rules were written. */
bool iptables_sync(struct iptables *t, const struct ipvs_want *wanted, bool audit,
                   struct report *report);
/* "+ iptables nat KUBE-SERVICES" for a chain whose rules differ, and for a jump that lacks. */
int iptables_diff(struct iptables *t, const struct ipvs_want *want, struct buf *out,
                  struct err *err);
/* Whether the wanted rules stand in both families, and in which iptables: *ret, IPTABLES_AUTO where the
 * installed one was taken because neither kind had a rule. */
bool iptables_stand(const struct iptables *t, enum iptables_mode *ret);
