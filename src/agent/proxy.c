#include "agent/proxy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/configz.h"
#include "agent/health_check.h"
#include "base/clock.h"

struct proxy {
    const struct proxy_options *options;
    const struct store *store;
    struct proxy_handler handler;
    struct http *healthz, *bind;
    struct health health;
    struct health_checks checks;
    struct proxy_metrics metrics;
};

/* ---- what HTTP asks ---- */

/* Until the source has told of the node nothing speaks against it. */
static bool node_eligible(const struct proxy *x)
{
    const struct node *n =
        (const struct node *)store_get(x->store, KIND_NODE, "", x->options->node);
    return n ? !n->deletion && !n->to_be_deleted : !x->health.updated_wall;
}

static void answer_health(void *user, const char *path, struct http_answer *ret)
{
    struct proxy *x = user;
    bool livez = !strcmp(path, "/livez"), eligible = node_eligible(x);
    if (!livez && strcmp(path, "/healthz")) {
        ret->status = 404;
        buf_puts(&ret->body, "/healthz or /livez\n");
        return;
    }
    int64_t now = clock_mono_us();
    bool ok = health_ok(&x->health, now) && (livez || eligible);
    x->metrics.livez_ok += livez && ok;
    x->metrics.livez_bad += livez && !ok;
    x->metrics.healthz_ok += !livez && ok;
    x->metrics.healthz_bad += !livez && !ok;
    ret->status = ok ? 200 : 503;
    ret->type = HTTP_JSON;
    health_put(&x->health, now, clock_wall(), livez ? NULL : &eligible, &ret->body);
}

static void answer_bind(void *user, const char *path, struct http_answer *ret)
{
    struct proxy *x = user;
    if (!strcmp(path, "/proxyMode")) {
        buf_puts(&ret->body, x->options->plan->proxy_mode == PROXY_IPVS ? "ipvs" : "nftables");
    } else if (!strcmp(path, "/healthz")) {
        buf_puts(&ret->body, "ok");
    } else if (!strcmp(path, "/metrics")) {
        ret->type = PROMETHEUS_TYPE;
        x->handler.metrics(x->handler.user, &ret->body);
    } else if (!strcmp(path, "/configz")) {
        ret->type = HTTP_JSON;
        configz_put(x->options, &ret->body);
    } else {
        ret->status = 404;
        buf_puts(&ret->body, "/proxyMode, /metrics, /configz or /healthz\n");
    }
}

/* ---- start and stop ---- */

static int listen_for(const struct http_address *a, const char *flag, uv_loop_t *loop,
                      struct proxy *x, void (*answer)(void *, const char *, struct http_answer *),
                      struct http **ret, struct err *err)
{
    const struct http_handler handler = { x, answer };
    struct err why;
    int r = a->port ? http_open(a, loop, &handler, ret, &why) : 0;
    if (r)
        return err_set(err, -r, "%s %s; %sgive another one, or none", flag, why.text,
                       r == -EADDRINUSE ? "stop kube-proxy if it is that, else " : "");
    return 0;
}

int proxy_open(const struct proxy_options *options, const struct store *store, uv_loop_t *loop,
               const struct proxy_handler *handler, struct proxy **ret, struct err *err)
{
    struct proxy *x = xcalloc(1, sizeof(*x));
    x->options = options;
    x->store = store;
    x->handler = *handler;
    x->checks.loop = loop;
    x->checks.health = &x->health;
    x->metrics.started_wall_us = clock_wall() * 1000000; /* triggers are whole seconds */
    *ret = x; /* also on error: closed and freed the same way */
    int r = listen_for(&options->healthz, "--healthz-bind-address", loop, x, answer_health,
                       &x->healthz, err);
    if (!r)
        r = listen_for(&options->metrics, "--metrics-bind-address", loop, x, answer_bind, &x->bind,
                       err);
    return r;
}

void proxy_close(struct proxy *x)
{
    if (!x)
        return;
    http_close(x->healthz);
    http_close(x->bind);
    health_checks_close(&x->checks);
}

void proxy_free(struct proxy *x)
{
    free(x);
}

/* ---- what the agent tells ---- */

void proxy_queue(struct proxy *x, enum object_kind kind)
{
    if (kind != KIND_SERVICE && kind != KIND_ENDPOINTSLICE)
        return;
    health_queue(&x->health, clock_mono_us());
    proxy_metrics_queue(&x->metrics, kind, clock_wall_us());
}

void proxy_conntrack(struct proxy *x, int64_t took_us, int deleted)
{
    proxy_metrics_conntrack(&x->metrics, took_us, deleted);
}

/* Of the slices that changed; in a first pass all did, and none because of what is new. */
static void observe_programming(struct proxy *x, const struct snapshot *snap, int64_t now_wall_us)
{
    for (size_t i = 0; snap->changes_known && i < snap->n_changes; i++) {
        const struct change *c = &snap->changes[i];
        if (c->kind != KIND_ENDPOINTSLICE)
            continue;
        const struct endpoint_slice *s =
            (const struct endpoint_slice *)store_get(x->store, c->kind, c->ns, c->name);
        if (s)
            proxy_metrics_programmed(&x->metrics, s->trigger * 1000000, now_wall_us);
    }
}

void proxy_synced(struct proxy *x, const struct snapshot *snap, bool full, bool acknowledged,
                  int64_t took_us)
{
    if (!acknowledged) {
        x->metrics.sync_failures++;
        return;
    }
    int64_t now = clock_wall_us();
    health_update(&x->health, now / 1000000);
    proxy_metrics_sync(&x->metrics, full, took_us, now);
    observe_programming(x, snap, now);
}

/* ---- health-check node ports ---- */

static int by_ip(const void *a, const void *b)
{
    return ip_cmp(a, b);
}

static bool chosen(const struct plan_options *o, const struct ip *ip)
{
    for (size_t i = 0; i < o->n_nodeport_addresses; i++)
        if (ip_prefix_contains(&o->nodeport_addresses[i], ip))
            return true;
    for (size_t i = 0; i < o->ipvs.n_node_addresses; i++)
        if (ip_equal(&o->ipvs.node_addresses[i], ip))
            return true;
    return false;
}

struct addresses {
    VEC(struct ip) ips;
};

/* The first InternalIP of each family. */
static void put_primary(const struct node *n, struct addresses *ret)
{
    unsigned seen = 0;
    for (uint32_t i = 0; n && i < n->n_internal_ips; i++)
        if (!(seen & 1u << n->internal_ips[i].family)) {
            seen |= 1u << n->internal_ips[i].family;
            vec_push(&ret->ips, n->internal_ips[i]);
        }
}

/* A host knows of no loopback addresses. */
static void put_chosen(const struct plan_options *o, const struct host *h, struct addresses *ret)
{
    for (uint32_t i = 0; i < h->n_ifaces; i++)
        for (uint32_t j = 0; j < h->ifaces[i].n_addresses; j++) {
            const struct ip *ip = &h->ifaces[i].addresses[j].ip;
            if (chosen(o, ip))
                vec_push(&ret->ips, *ip);
        }
}

int proxy_sync_health_checks(struct proxy *x, const struct snapshot *snap, const struct desired *d,
                             struct notes *notes, struct err *err)
{
    const struct plan_options *o = x->options->plan;
    struct addresses a = { 0 };
    if (!x->options->nodeport_addresses_given)
        vec_push(&a.ips, (struct ip){ .family = IP_V6 });
    else if (o->n_nodeport_addresses || o->ipvs.n_node_addresses)
        put_chosen(o, snap->host, &a);
    else
        put_primary(snapshot_node(snap, snap->node), &a);
    if (a.ips.n > 1)
        qsort(a.ips.v, a.ips.n, sizeof(a.ips.v[0]), by_ip);
    size_t n = 0; /* two interfaces may hold the same address */
    for (size_t i = 0; i < a.ips.n; i++)
        if (!n || !ip_equal(&a.ips.v[n - 1], &a.ips.v[i]))
            a.ips.v[n++] = a.ips.v[i];
    int r = health_checks_sync(&x->checks, d->health_checks, d->n_health_checks, a.ips.v, n, notes,
                               err);
    vec_done(&a.ips);
    return r;
}

void proxy_metrics_put(const struct proxy *x, struct buf *out)
{
    proxy_metrics_text(&x->metrics, out);
}
