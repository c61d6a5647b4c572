#include "agent/health_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "diff/diff.h"

/* kube-proxy's, since 1.33: what a load balancer may weigh nodes by. */
#define WEIGHT_HEADER "X-Load-Balancing-Endpoint-Weight"

/* What a listener is for; the key is address and port. */
struct wanted {
    struct http_address address;
    const struct health_check *check;
};

struct health_check_listener {
    struct http_address address;
    struct http *http; /* NULL: it could not be bound */
    const struct health *health;
    char *ns, *name;
    uint32_t local_endpoints;
};

struct sync {
    struct health_checks *checks;
    VEC(struct health_check_listener *) next;
    struct notes *notes;
    struct err *err;
    int result;
};

static int address_cmp(const struct http_address *a, const struct http_address *b)
{
    return a->port != b->port ? (a->port < b->port ? -1 : 1) : ip_cmp(&a->ip, &b->ip);
}

static int by_address(const void *have, const void *want)
{
    return address_cmp(&(*(struct health_check_listener *const *)have)->address,
                       &((const struct wanted *)want)->address);
}

static void answer(void *user, const char *path, struct http_answer *ret)
{
    (void)path;
    const struct health_check_listener *l = user;
    bool ok = health_ok(l->health, clock_mono_us());
    ret->status = l->local_endpoints && ok ? 200 : 503;
    ret->type = HTTP_JSON;
    ret->header = WEIGHT_HEADER;
    snprintf(ret->header_value, sizeof(ret->header_value), "%u", l->local_endpoints);
    /* Names of Kubernetes need no escapes. */
    buf_printf(&ret->body,
               "{\"service\":{\"namespace\":\"%s\",\"name\":\"%s\"},\"localEndpoints\":%u,"
               "\"serviceProxyHealthy\":%s}\n",
               l->ns, l->name, l->local_endpoints, ok ? "true" : "false");
}

static void free_listener(struct health_check_listener *l)
{
    http_close(l->http);
    free(l->ns);
    free(l->name);
    free(l);
}

static void keep(struct sync *s, struct health_check_listener *l, const struct health_check *check)
{
    if (!l->ns || strcmp(l->ns, check->ns) || strcmp(l->name, check->name)) {
        free(l->ns);
        free(l->name);
        l->ns = xstrdup(check->ns);
        l->name = xstrdup(check->name);
    }
    l->local_endpoints = check->local_endpoints;
    struct err err = { 0 };
    const struct http_handler handler = { l, answer };
    int r = l->http ? 0 : http_open(&l->address, s->checks->loop, &handler, &l->http, &err);
    if (r) {
        char text[1200];
        err_prefix(&err, "health check of service %s/%s", l->ns, l->name);
        snprintf(text, sizeof(text), "text=%s", log_quote(err.text));
        notes_say(s->notes, LOG_ERROR, "health_check", text);
        if (s->err)
            *s->err = err;
        s->result = r;
    }
    vec_push(&s->next, l);
}

static void on_add(const void *want, void *user)
{
    const struct wanted *w = want;
    struct sync *s = user;
    struct health_check_listener *l = xcalloc(1, sizeof(*l));
    l->address = w->address;
    l->health = s->checks->health;
    keep(s, l, w->check);
}

static void on_keep(const void *have, const void *want, void *user)
{
    keep(user, *(struct health_check_listener *const *)have, ((const struct wanted *)want)->check);
}

static void on_del(const void *have, void *user)
{
    (void)user;
    free_listener(*(struct health_check_listener *const *)have);
}

static bool always(const void *have, const void *want)
{
    (void)have;
    (void)want;
    return true;
}

int health_checks_sync(struct health_checks *c, const struct health_check *checks, size_t n_checks,
                       const struct ip *addresses, size_t n_addresses, struct notes *notes,
                       struct err *err)
{
    static const struct diff_ops ops = {
        .cmp = by_address,
        .equal = always,
        .add = on_add,
        .keep = on_keep,
        .del = on_del,
    };
    struct sync s = { .checks = c, .notes = notes, .err = err };
    VEC(struct wanted) want = { 0 };
    for (size_t i = 0; i < n_checks; i++)
        for (size_t j = 0; j < n_addresses; j++)
            vec_push(&want, (struct wanted){ { addresses[j], checks[i].port }, &checks[i] });
    diff_run((struct diff_array){ c->listeners.v, c->listeners.n, sizeof(c->listeners.v[0]) },
             (struct diff_array){ want.v, want.n, sizeof(want.v[0]) }, &ops, &s);
    vec_done(&want);
    free(c->listeners.v);
    c->listeners.v = s.next.v;
    c->listeners.n = s.next.n;
    c->listeners.cap = s.next.cap;
    return s.result;
}

void health_checks_close(struct health_checks *c)
{
    for (size_t i = 0; i < c->listeners.n; i++)
        free_listener(c->listeners.v[i]);
    vec_done(&c->listeners);
}
