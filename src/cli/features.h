/* The options that say what a plan is for: --features; under kube-proxy's names, those of the
 * service proxy (docs/serviceproxy.md tells where they differ from kube-proxy's); and those of the
 * load balancer. */
#pragma once

#include "base/arena.h"
#include "cli/cli.h"
#include "plan/plan.h"

/* Bridges and veths of the usual CNIs, docker's, and the dummies of other proxies. */
#define ADDRESS_EXCLUDE \
    "cni*,cbr*,docker*,br-*,veth*,cali*,cilium*,lxc*,flannel*,weave*,vethwe*,kube-*,nodelocaldns*"
/* For a command's table. */
/* clang-format off */
#define CLI_FEATURE_OPTIONS                                                                        \
    { 0, "features", "LIST", "portmap, serviceproxy, trafficclass, loadbalancer", "portmap",       \
      false },                                                                                     \
    { 0, "proxy-mode", "MODE", "how services are proxied: nft or ipvs", "nft", false },            \
    { 0, "cluster-cidr", "CIDRS", "who is a pod: the pods' ranges", "", false },                   \
    { 0, "detect-local-mode", "MODE", "ClusterCIDR, or NodeCIDR: by the Node's podCIDRs",          \
      "ClusterCIDR", false },                                                                      \
    { 0, "nodeport-addresses", "CIDRS", "where node ports answer, or primary", "primary", false }, \
    { 0, "masquerade-all", NULL, "masquerade every connection to a cluster IP", NULL, false },     \
    { 0, "masquerade-bit", "N", "of the packet mark, for masquerading", "14", false },             \
    { 0, "overlay", "DEV", "an L2 overlay's bridge, or vxlan", "", false },                        \
    { 0, "overlay-subnet", "CIDR", "of --overlay vxlan", OVERLAY_SUBNET, false },                  \
    { 0, "address-exclude", "GLOBS", "interfaces whose addresses are not held",                    \
      ADDRESS_EXCLUDE, false },                                                                    \
    { 0, "scheduling-method", "NAME", "of IPVS: rr,wrr,lc,wlc,lblc,lblcr,dh,sh,seq,nq", "rr",      \
      false },                                                                                     \
    { 0, "weight", "N", "of every destination of IPVS", "1", false },                              \
    { 0, "node-address", "IPS", "where node ports answer with IPVS", "", false },                  \
    { 0, "strict-arp", NULL, "answer ARP for no service's address, with IPVS", NULL, false },      \
    { 0, "ipvs-exclude-cidrs", "CIDRS", "where virtual servers are others'", "", false },          \
    { 0, "iptables-mode", "KIND", "of the rules beside IPVS: auto, nft or legacy", "auto", false }
/* clang-format on */

struct features {
    const char *list; /* as given, checked */
    struct plan_options plan;
    bool nodeport_addresses_given;
    enum iptables_mode iptables_mode;
    struct arena mem; /* owns the arrays of `plan` */
};

/* Returns an exit status, the reason already printed. */
int cli_features(const struct cli_command *cmd, struct features *ret);
/* Says that the option does nothing without the service proxy; CLI_USAGE. */
int cli_features_unused(const struct cli_command *cmd, const char *name);
void cli_features_done(struct features *f);
