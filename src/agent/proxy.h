/* The service proxy as it is seen from outside, which is as kube-proxy is: two HTTP listeners,
 * health-check node ports, metrics. What it does to the kernel is the pass's (agent/pass.h).
 *
 *   --healthz-bind-address   /healthz  JSON; 503 while a change is late (agent/health.h), or the
 *                                      node is going or gone: load balancers ask here
 *                            /livez    the same without the node
 *   --metrics-bind-address   /proxyMode, /metrics, /configz, /healthz ("ok") */
#pragma once

#include "agent/http.h"
#include "agent/notes.h"
#include "agent/proxy_metrics.h"
#include "plan/plan.h"
#include "store/store.h"

struct proxy;

struct proxy_options {
    struct http_address healthz, metrics; /* port 0: none */
    bool nodeport_addresses_given;        /* else health checks answer on every address */
    uint32_t config_sync_seconds;
    const char *node;
    const struct plan_options *plan;
};

struct proxy_handler {
    void *user;
    void (*metrics)(void *user, struct buf *out); /* for /metrics */
};

/* `options` and `store` are borrowed. */
int proxy_open(const struct proxy_options *options, const struct store *store, uv_loop_t *loop,
               const struct proxy_handler *handler, struct proxy **ret, struct err *err);
/* Listens no more; its handles close on the loop. Then proxy_free(). Both accept NULL. */
void proxy_close(struct proxy *x);
void proxy_free(struct proxy *x);

/* The source told of an object of this kind. */
void proxy_queue(struct proxy *x, enum object_kind kind);
void proxy_conntrack(struct proxy *x, int64_t took_us, int deleted);
/* A pass over `snap` ended. `full`: it looked at everything; `acknowledged`: the kernel has it. */
void proxy_synced(struct proxy *x, const struct snapshot *snap, bool full, bool acknowledged,
                  int64_t took_us);
/* Opens and closes health-check node ports; as health_checks_sync(). */
int proxy_sync_health_checks(struct proxy *x, const struct snapshot *snap, const struct desired *d,
                             struct notes *notes, struct err *err);
void proxy_metrics_put(const struct proxy *x, struct buf *out);
