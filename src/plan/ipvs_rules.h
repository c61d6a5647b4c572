/* The iptables rules of the IPVS mode: chains and rules of the tables nat and filter. They depend on
 * options and on whether pods are known, never on Services: those are in ipsets. Written as
 * iptables-save prints them. docs/serviceproxy.md tells what each chain is for. */
#pragma once

#include "base/buf.h"
#include "plan/plan.h"

/* `knows_pods`: KUBE-POD-RANGE of this family holds the pods' ranges. */
void ipvs_rules(const struct plan_options *options, uint8_t family, bool knows_pods,
                struct buf *out);
