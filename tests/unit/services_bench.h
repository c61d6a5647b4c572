/* A node's view of a few Services, and what it plans for them. */
#pragma once

#include "plan/plan.h"
#include "store/store.h"

struct bench {
    struct store *store;
    struct planner *planner;
    struct host host;
    struct host_iface iface;          /* eth0 */
    struct host_address addresses[2]; /* 10.0.0.1; 192.0.2.7 once iface.n_addresses is 2 */
    const struct plan *plan;          /* the last */
};

/* Node n alone. `options` must outlive the bench. */
void begin(struct bench *b, const struct plan_options *options);
void end(struct bench *b);

const struct plan *plan(struct bench *b, bool host_changed);
/* The plan once all objects of a text are there, or one is gone; namespace a unless it is a Node. */
const struct plan *put(struct bench *b, const char *yaml);
const struct plan *take_away(struct bench *b, enum object_kind kind, const char *name);

/* Texts for put(), which may follow each other. `second`: of its creation. */
#define NODE(name, address, labels)                                                  \
    "apiVersion: v1\nkind: Node\nmetadata: {name: " name ", labels: {" labels "}}\n" \
    "status: {addresses: [{type: InternalIP, address: " address "}]}\n---\n"
#define SERVICE(name, second, spec)                                            \
    "apiVersion: v1\nkind: Service\nmetadata: {name: " name ", namespace: a, " \
    "creationTimestamp: '2026-01-01T00:00:0" second "Z'}\nspec: {" spec "}\n---\n"
/* `more`: of the endpoint, and others. */
#define SLICE(service, address, node, more)                                     \
    "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n" \
    "metadata: {name: " service "-1, namespace: a, labels: "                    \
    "{kubernetes.io/service-name: " service "}}\nports: [{port: 8080}]\n"       \
    "endpoints: [{addresses: [" address "], nodeName: " node more "}]\n---\n"
