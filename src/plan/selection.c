/* Which pod a mapping leads to, and which labels a selector selects. */
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

static bool usable(const struct endpoint *ep, enum ip_family family, struct ip *ret)
{
    return ep->ready && *ep->node_name && ep->addresses.n && ip_parse(ep->addresses.v[0], ret) &&
           ret->family == family;
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
            if (!usable(c.ep, family, &c.ip) || (twin && !same_pod(twin, c.ep)))
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
    size_t first;
    size_t n = snapshot_slices(s, pm->o.meta.ns, pm->service_name, &first);
    const struct endpoint_slice *const *slices = s->slices + first;
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
