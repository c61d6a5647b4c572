/* Which pod a mapping leads to, or why to none, and which labels a selector selects. */
#include "plan/internal.h"

static bool in_list(const struct string_list *l, const char *value)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (!strcmp(l->v[i], value))
            return true;
    return false;
}

static bool requirement_valid(const struct selector_requirement *r)
{
    if (!*r->key)
        return false;
    if (!strcmp(r->op, "In") || !strcmp(r->op, "NotIn"))
        return r->values.n > 0;
    return (!strcmp(r->op, "Exists") || !strcmp(r->op, "DoesNotExist")) && !r->values.n;
}

bool selector_valid(const struct label_selector *s)
{
    for (uint32_t i = 0; i < s->n_expressions; i++)
        if (!requirement_valid(&s->expressions[i]))
            return false;
    return true;
}

static bool requirement_matches(const struct selector_requirement *r,
                                const struct label_list *labels)
{
    bool present = label_present(labels, r->key);
    if (!strcmp(r->op, "Exists"))
        return present;
    if (!strcmp(r->op, "DoesNotExist"))
        return !present;
    bool in = present && in_list(&r->values, label_value(labels, r->key));
    return !strcmp(r->op, "In") ? in : !in;
}

bool selector_matches(const struct label_selector *s, const struct label_list *labels)
{
    if (!selector_valid(s))
        return false;
    for (uint32_t i = 0; i < s->match_labels.n; i++) {
        const struct label *want = &s->match_labels.v[i];
        if (!label_present(labels, want->key) ||
            strcmp(label_value(labels, want->key), want->value))
            return false;
    }
    for (uint32_t i = 0; i < s->n_expressions; i++)
        if (!requirement_matches(&s->expressions[i], labels))
            return false;
    return true;
}

/* ---- candidates ---- */

struct candidate {
    const struct endpoint *ep;
    bool accepts;
    struct ip ip;
    uint16_t port;
};

/* A port without a number leads nowhere in particular: no candidate. */
static uint16_t slice_port(const struct endpoint_slice *slice, const struct portmap *pm)
{
    for (uint32_t i = 0; i < slice->n_ports; i++) {
        const struct endpoint_port *port = &slice->ports[i];
        if (port->port && port->protocol == pm->protocol && !strcmp(port->name, pm->service_port))
            return port->port;
    }
    return 0;
}

enum flaw { FLAW_NOT_READY, FLAW_NO_NODE, FLAW_ADDRESS, FLAWLESS }; /* least usable first */

static enum flaw endpoint_flaw(const struct endpoint *ep, enum ip_family family, struct ip *ret)
{
    if (!ep->ready)
        return FLAW_NOT_READY;
    if (!*ep->node_name)
        return FLAW_NO_NODE;
    if (!ep->addresses.n || !ip_parse(ep->addresses.v[0], ret) || ret->family != family ||
        ip_special(ret))
        return FLAW_ADDRESS;
    return FLAWLESS;
}

static bool better(const struct candidate *a, const struct candidate *b)
{
    if (a->accepts != b->accepts)
        return a->accepts;
    int node = strcmp(a->ep->node_name, b->ep->node_name);
    if (a->accepts && node)
        return node < 0;
    int c = strcmp(a->ep->target_name, b->ep->target_name);
    if (!c)
        c = node;
    if (!c)
        c = strcmp(a->ep->addresses.v[0], b->ep->addresses.v[0]);
    return c ? c < 0 : a->port < b->port;
}

static bool same_pod(const struct endpoint *a, const struct endpoint *b)
{
    return *a->target_name && !strcmp(a->target_name, b->target_name) &&
           !strcmp(a->target_kind, b->target_kind) && !strcmp(a->target_ns, b->target_ns) &&
           !strcmp(a->node_name, b->node_name);
}

/* The best endpoint of one family; with `twin`, of those that are the same pod. */
static struct candidate best_of(const struct endpoint_slice *const *slices, size_t n,
                                enum ip_family family, const struct portmap *pm,
                                const struct class_view *cls, const struct endpoint *twin)
{
    struct candidate best = { 0 };
    for (size_t i = 0; i < n; i++) {
        uint16_t port = slices[i]->family == family ? slice_port(slices[i], pm) : 0;
        for (uint32_t j = 0; port && j < slices[i]->n_endpoints; j++) {
            struct candidate c = { .ep = &slices[i]->endpoints[j], .port = port };
            if (endpoint_flaw(c.ep, family, &c.ip) != FLAWLESS || (twin && !same_pod(twin, c.ep)))
                continue;
            c.accepts = cls && class_accepting(cls, c.ep->node_name) >= 0;
            if (!best.ep || better(&c, &best))
                best = c;
        }
    }
    return best;
}

static void set_target(struct target *t, const struct candidate *c)
{
    if (c->ep)
        *t = (struct target){ .wanted = true, .found = true, .ip = c->ip, .port = c->port };
}

struct choice selection_choose(const struct snapshot *s, const struct portmap *pm,
                               const struct class_view *cls)
{
    struct choice r = { 0 };
    size_t n;
    const struct endpoint_slice *const *slices =
        snapshot_slices(s, pm->o.meta.ns, pm->service_name, &n);
    for (size_t i = 0; i < n; i++) {
        r.t[F4].wanted |= slices[i]->family == IP_V4;
        r.t[F6].wanted |= slices[i]->family == IP_V6;
    }
    if (!r.t[F4].wanted && !r.t[F6].wanted)
        r.t[F4].wanted = true; /* a Service nobody has made yet: refuse, as IPv4 always did */
    struct candidate chosen = best_of(slices, n, r.t[F4].wanted ? IP_V4 : IP_V6, pm, cls, NULL);
    if (!chosen.ep)
        return r;
    r.node = chosen.ep->node_name;
    r.pod = chosen.ep->target_name;
    r.address = chosen.ep->addresses.v[0];
    set_target(&r.t[r.t[F4].wanted ? F4 : F6], &chosen);
    if (r.t[F4].wanted && r.t[F6].wanted) {
        struct candidate twin = best_of(slices, n, IP_V6, pm, cls, chosen.ep);
        set_target(&r.t[F6], &twin);
    }
    return r;
}

/* ---- why there is none ---- */

struct search { /* what there was to choose from */
    const struct portmap *pm;
    const char *service;                        /* "NS/NAME" */
    const struct endpoint_slice *const *slices; /* of the Service, any family */
    size_t n;
    enum ip_family family; /* the one that chooses; IP_NONE: no slice has one */
};

static enum ip_family choosing_family(const struct search *q)
{
    enum ip_family family = IP_NONE;
    for (size_t i = 0; i < q->n && family != IP_V4; i++)
        if (q->slices[i]->family != IP_NONE)
            family = q->slices[i]->family;
    return family;
}

static const char *no_slice(const struct search *q, const struct snapshot *s, struct arena *a)
{
    const char *ns = q->pm->o.meta.ns;
    if (q->n)
        return arena_printf(a, "Service %s has FQDN EndpointSlices only, and none with addresses",
                            q->service);
    if (snapshot_service(s, ns, q->pm->service_name))
        return arena_printf(a, "Service %s has no EndpointSlice: does it have a selector?",
                            q->service);
    if (!snapshot_namespace(s, ns))
        return arena_printf(a, "there is no Service %s, nor a namespace %s", q->service, ns);
    /* Not every source is asked for Services. */
    return arena_printf(a,
                        "there is no EndpointSlice of Service %s: does the Service exist, and does "
                        "it have a selector?",
                        q->service);
}

static const char *or_unnamed(const char *name)
{
    return *name ? name : "(unnamed)";
}

/* The port that fits best: the name, then the protocol, then a number. */
static const struct endpoint_port *nearest_port(const struct search *q)
{
    const struct endpoint_port *best = NULL;
    int best_rank = 0;
    for (size_t i = 0; i < q->n; i++) {
        for (uint32_t j = 0; q->slices[i]->family == q->family && j < q->slices[i]->n_ports; j++) {
            const struct endpoint_port *port = &q->slices[i]->ports[j];
            bool fits = port->protocol == q->pm->protocol;
            int rank = strcmp(port->name, q->pm->service_port) ? 0 : !fits ? 1 : port->port ? 3 : 2;
            if (rank > best_rank) {
                best = port;
                best_rank = rank;
            }
        }
    }
    return best;
}

/* The next name in order after `name` (NULL: the first), or NULL. */
static const char *next_port_name(const struct search *q, const char *name)
{
    const char *next = NULL;
    for (size_t i = 0; i < q->n; i++) {
        for (uint32_t j = 0; q->slices[i]->family == q->family && j < q->slices[i]->n_ports; j++) {
            const char *c = q->slices[i]->ports[j].name;
            if ((!name || strcmp(c, name) > 0) && (!next || strcmp(c, next) < 0))
                next = c;
        }
    }
    return next;
}

#define NAMES_SHOWN 10

/* For people. */
static const char *port_names(const struct search *q, struct arena *a)
{
    const char *name = next_port_name(q, NULL), *text = name ? or_unnamed(name) : "none";
    for (int n = 1; name && (name = next_port_name(q, name)); n++) {
        if (n == NAMES_SHOWN)
            return arena_printf(a, "%s, ...", text);
        text = arena_printf(a, "%s, %s", text, or_unnamed(name));
    }
    return text;
}

static const char *endpoint_name(const struct endpoint *ep)
{
    if (*ep->target_name)
        return ep->target_name;
    return or_unnamed(ep->addresses.n ? ep->addresses.v[0] : "");
}

/* A Service that selects no pod has a slice with neither endpoints nor ports. */
static bool is_empty(const struct search *q)
{
    for (size_t i = 0; i < q->n; i++)
        if (q->slices[i]->family == q->family &&
            (q->slices[i]->n_endpoints || q->slices[i]->n_ports))
            return false;
    return true;
}

/* Of the endpoints with the port the one that lacks least, then the first by name; or NULL. */
static const struct endpoint *nearest_endpoint(const struct search *q, enum flaw *ret)
{
    const struct endpoint *best = NULL;
    enum flaw least = FLAW_NOT_READY;
    struct ip ip;
    for (size_t i = 0; i < q->n; i++) {
        if (q->slices[i]->family != q->family || !slice_port(q->slices[i], q->pm))
            continue;
        for (uint32_t j = 0; j < q->slices[i]->n_endpoints; j++) {
            const struct endpoint *ep = &q->slices[i]->endpoints[j];
            enum flaw flaw = endpoint_flaw(ep, q->family, &ip);
            if (best && (flaw < least ||
                         (flaw == least && strcmp(endpoint_name(ep), endpoint_name(best)) >= 0)))
                continue;
            best = ep;
            least = flaw;
        }
    }
    *ret = least;
    return best;
}

static const char *no_endpoint(const struct search *q, struct arena *a)
{
    enum flaw flaw;
    const struct endpoint *ep = nearest_endpoint(q, &flaw);
    if (!ep)
        return arena_printf(a, "Service %s has no endpoints: does its selector match a pod?",
                            q->service);
    switch (flaw) {
    case FLAW_NOT_READY:
        return arena_printf(a, "Service %s has endpoints, but none is ready: look at %s",
                            q->service, endpoint_name(ep));
    case FLAW_NO_NODE:
        return arena_printf(a, "endpoint %s of Service %s has no nodeName", endpoint_name(ep),
                            q->service);
    case FLAW_ADDRESS:
    case FLAWLESS:
        break;
    }
    if (!ep->addresses.n)
        return arena_printf(a, "endpoint %s of Service %s has no address", endpoint_name(ep),
                            q->service);
    struct ip ip;
    if (ip_parse(ep->addresses.v[0], &ip) && ip.family == q->family && ip_special(&ip))
        return arena_printf(a, "endpoint address %s of Service %s is %s, which leads to no pod",
                            ep->addresses.v[0], q->service, ip_special(&ip));
    return arena_printf(a, "endpoint address \"%.60s\" of Service %s is no %s address",
                        ep->addresses.v[0], q->service, q->family == IP_V4 ? "IPv4" : "IPv6");
}

struct verdict selection_trouble(const struct snapshot *s, const struct memo *m, struct arena *a)
{
    const struct portmap *pm = m->pm;
    struct search q = { .pm = pm };
    q.service = arena_printf(a, "%s/%s", pm->o.meta.ns, pm->service_name);
    q.slices = snapshot_slices(s, pm->o.meta.ns, pm->service_name, &q.n);
    q.family = choosing_family(&q);
    struct verdict v = { .reason = "NoReadyEndpoint",
                         .field = "spec.serviceRef.name",
                         .value = pm->service_name };
    const struct endpoint_port *port = nearest_port(&q);
    if (q.family == IP_NONE) {
        v.message = no_slice(&q, s, a);
    } else if (port && port->protocol != pm->protocol) {
        v.field = "spec.protocol";
        v.value = l4proto_name(pm->protocol);
        v.message =
            arena_printf(a, "port \"%s\" of Service %s is %s, the mapping asks for %s",
                         pm->service_port, q.service, l4proto_name(port->protocol), v.value);
    } else if (is_empty(&q) || (port && port->port)) {
        v.message = no_endpoint(&q, a);
    } else {
        v.field = "spec.serviceRef.port";
        v.value = pm->service_port;
        v.message =
            port ? arena_printf(a, "port \"%s\" of Service %s has no number", v.value, q.service)
                 : arena_printf(a, "Service %s has no port named \"%s\", it has: %s", q.service,
                                v.value, port_names(&q, a));
    }
    return v;
}
