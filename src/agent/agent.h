/* The daemon: one per node. Wires source, store, planner, kernel and status together on one
 * libuv loop. Next: agent/pass.h (what one pass does), agent/agent.c (when it runs). */
#pragma once

#include <stdint.h>

#include "agent/mesh.h"
#include "agent/proxy.h"

struct agent_options {
    const char *node;                          /* this node's name, as its Node object is called */
    const char *source, *kubeconfig, *context; /* as in struct source_options */
    const char *features;                      /* a list of names: what to read from the source */
    const struct plan_options *plan;           /* the same features, and how they work */
    const char *state_dir;
    struct http_address metrics; /* port 0: none */
    uint32_t cni_vxlan_port;
    enum iptables_mode iptables_mode; /* used when services are IPVS' */
    uint32_t audit_seconds;           /* full audit of the kernel */
    struct proxy_options proxy;       /* used when the plan is for the service proxy */
    struct mesh_options mesh;         /* used when the plan is for traffic classes */
};

/* Runs until SIGTERM or SIGINT. What is in the kernel stays there. 0 or -errno. */
int agent_run(const struct agent_options *opt, struct err *err);
