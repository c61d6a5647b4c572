/* This node's rules and routes of a class, and what of the host stands in their way. */
#include <inttypes.h>

#include "plan/traffic.h"

/* More would make every packet's way slow; the names of a class stand for a few prefixes each. */
#define RULES_MAX 256

static uint8_t family_of(enum family_index f)
{
    return f == F4 ? IP_V4 : IP_V6;
}

static void put_route(struct traffic_pass *t, const struct traffic_class *c, struct desired_route r)
{
    r.owner = traffic_owner(t, c);
    r.table = c->table;
    vec_push(&t->out->routes, r);
}

static void put_all(struct traffic_pass *t, const struct traffic_class *c,
                    const struct string_list *l, enum family_index f, enum route_type type,
                    uint32_t metric)
{
    struct prefix_list prefixes = prefixes_of(&t->sets, l, f);
    for (size_t i = 0; i < prefixes.n; i++)
        put_route(t, c,
                  (struct desired_route){
                      .type = type, .dst = prefixes.v[i], .ifname = "", .metric = metric });
    vec_done(&prefixes);
}

/* ---- the gateway ---- */

static bool on_link(const struct host_iface *iface, const struct ip *ip)
{
    if (ip->family == IP_V6 && ip->bytes[0] == 0xfe && (ip->bytes[1] & 0xc0) == 0x80)
        return true;
    for (uint32_t i = 0; i < iface->n_addresses; i++) {
        struct ip_prefix p = { iface->addresses[i].ip, iface->addresses[i].prefix_len };
        if (p.ip.family == ip->family && ip_prefix_contains(&p, ip))
            return true;
    }
    return false;
}

/* The first or last address of a prefix of the link, which no router has. */
static bool is_edge(const struct host_iface *iface, const struct ip *ip)
{
    for (uint32_t i = 0; ip->family == IP_V4 && i < iface->n_addresses; i++) {
        struct ip_prefix p = { iface->addresses[i].ip, iface->addresses[i].prefix_len };
        struct ip last;
        if (p.ip.family != IP_V4 || p.len > 30 || !ip_prefix_contains(&p, ip))
            continue;
        p = ip_prefix_masked(&p);
        if (ip_equal(&p.ip, ip) ||
            (ip_add(&p.ip, (UINT64_C(1) << (32 - p.len)) - 1, &last) && ip_equal(&last, ip)))
            return true;
    }
    return false;
}

/* What is wrong with the annotation's value; NULL: *ret is good. */
static const char *gateway_trouble(struct traffic_pass *t, const struct traffic_gateway *g,
                                   const char *text, enum family_index f, struct ip *ret,
                                   const char **ret_message)
{
    const struct host_iface *iface = host_iface_find(t->host, g->link);
    struct arena *a = &t->out->mem;
    struct ip ip;
    if (!ip_parse(text, &ip)) {
        *ret_message = "is no IP address; such as 192.0.2.1, or fd00::1 for IPv6, is needed";
        return "GatewayNotAnAddress";
    }
    if (ip.family != family_of(f)) {
        *ret_message =
            arena_printf(a, "is an IPv%u address where IPv%u is needed", ip.family, family_of(f));
        return "GatewayWrongFamily";
    }
    if (host_address_owner(t->host, &ip)) {
        *ret_message = "is an address of this node itself; the router's is needed";
        return "GatewayIsOwnAddress";
    }
    if (!iface) {
        *ret_message = arena_printf(a, "cannot be reached: there is no link %s", g->link);
        return "LinkMissing";
    }
    if (!on_link(iface, &ip)) {
        *ret_message = arena_printf(a,
                                    "is in no network of link %s; an address the link reaches "
                                    "directly is needed",
                                    g->link);
        return "GatewayOffLink";
    }
    if (is_edge(iface, &ip)) {
        *ret_message = "is the first or last address of the link's network, which no router has";
        return "GatewayNotAHost";
    }
    *ret = ip;
    return NULL;
}

/* Beside a default through the gateway the kernel would never come to the throw of the same prefix. */
static bool all_falls_through(struct traffic_pass *t, struct traffic_view *v, enum family_index f)
{
    struct prefix_list l = prefixes_of(&t->sets, &v->obj->routes->fall_through, f);
    bool all = l.n && !l.v[0].len;
    vec_done(&l);
    if (!all)
        return false;
    struct verdict bad = {
        .reason = "GatewayUnused",
        .field = "spec.routes.fallThrough",
        .value = f == F4 ? "0.0.0.0/0" : "::/0",
        .message = "everything falls through, so the gateway has no traffic: leave the prefix out, "
                   "or correct the Node whose podCIDRs have it"
    };
    traffic_problem(t, v->obj, NULL, bad);
    if (!v->gateway.reason)
        v->gateway = bad;
    return true;
}

struct ip traffic_gateway_ip(struct traffic_pass *t, struct traffic_view *v, enum family_index f)
{
    const struct traffic_gateway *g = v->obj->routes->gateway;
    const char *key = f == F4 ? g->annotations.ipv4 : g->annotations.ipv6, *message = NULL;
    struct ip ip = { 0 };
    if (!traffic_has_family(v->obj, f) || !*key || all_falls_through(t, v, f))
        return ip;
    struct verdict bad = { .reason = "GatewayMissing",
                           .field = arena_printf(&t->out->mem, "metadata.annotations[%s]", key),
                           .value = label_value(&t->node->o.meta.annotations, key),
                           .message = "is not there; the gateway's address is needed" };
    if (label_present(&t->node->o.meta.annotations, key)) {
        bad.reason = gateway_trouble(t, g, bad.value, f, &ip, &message);
        v->leads_out[f] = !bad.reason;
        if (!bad.reason)
            return ip;
        bad.message = message;
    }
    traffic_problem(t, v->obj, t->node, bad);
    if (!v->gateway.reason)
        v->gateway =
            (struct verdict){ .reason = bad.reason,
                              .message = arena_printf(&t->out->mem, "annotation %s%s%s%s %s", key,
                                                      *bad.value ? " \"" : "", bad.value,
                                                      *bad.value ? "\"" : "", bad.message) };
    return ip;
}

static bool link_up(const struct host *h, const char *name)
{
    const struct host_iface *i = host_iface_find(h, name);
    return i && i->up;
}

/* While the link is down the kernel would not take the route; when it went down, it took it. */
static void put_default(struct traffic_pass *t, struct traffic_view *v, enum family_index f)
{
    const struct traffic_gateway *g = v->obj->routes->gateway;
    struct ip via = traffic_gateway_ip(t, v, f);
    if (via.family && link_up(t->host, g->link))
        put_route(t, v->obj,
                  (struct desired_route){ .type = ROUTE_UNICAST,
                                          .dst = { { .family = via.family }, 0 },
                                          .via = via,
                                          .ifname = arena_strdup(&t->out->mem, g->link) });
}

void traffic_routes_build(struct traffic_pass *t, struct traffic_view *v)
{
    const struct traffic_class *c = v->obj;
    const struct traffic_routes *r = c->routes;
    for (enum family_index f = F4; r && f < F_COUNT; f++) {
        if (!traffic_has_family(c, f))
            continue;
        put_all(t, c, &r->fall_through, f, ROUTE_THROW, TRAFFIC_THROW_METRIC);
        put_all(t, c, &r->reject, f, ROUTE_UNREACHABLE, TRAFFIC_REJECT_METRIC);
        if (r->gateway && r->gateway->manager == GATEWAY_AGENT)
            put_default(t, v, f);
    }
}

/* ---- rules ---- */

static bool overlaps(const struct prefix_list *l, bool has, const struct ip_prefix *p)
{
    if (!has || !l->n)
        return true;
    for (size_t i = 0; i < l->n; i++)
        if (ip_prefix_overlaps(&l->v[i], p))
            return true;
    return false;
}

/* Somebody else's rule that has our place, or sees our traffic first. */
static void check_conflict(struct traffic_pass *t, struct traffic_view *v,
                           const struct traffic_rule *rule, const struct prefix_list *from,
                           const struct prefix_list *to)
{
    struct arena *a = &t->out->mem;
    for (uint32_t i = 0; i < t->host->n_rules; i++) {
        const struct host_rule *h = &t->host->rules[i];
        bool same = h->family == rule->family && h->priority == rule->priority;
        bool before = h->family == rule->family && h->priority < rule->priority && !h->selective &&
                      overlaps(from, h->has_src, &h->src) && overlaps(to, h->has_dst, &h->dst);
        if (!same && !before)
            continue;
        struct verdict bad = { .reason = same ? "PriorityTaken" : "CaughtBefore",
                               .field = "spec.rules",
                               .value = arena_printf(a, "%" PRIu32, rule->priority) };
        bad.message = arena_printf(a,
                                   same ? "somebody else has a rule of this priority, \"%" PRIu32
                                          ": %s\": take another"
                                        : "somebody else's rule \"%" PRIu32 ": %s\" comes before "
                                          "and takes the class's traffic: take a lower priority",
                                   h->priority, h->text);
        traffic_problem(t, v->obj, NULL, bad);
        if (!v->conflict.reason)
            v->conflict = bad;
    }
}

static void put_rule(struct traffic_pass *t, const struct traffic_class *c,
                     const struct traffic_rule *rule, const struct ip_prefix *from,
                     const struct ip_prefix *to)
{
    struct desired_rule r = { .owner = traffic_owner(t, c),
                              .family = (uint8_t)rule->family,
                              .priority = rule->priority,
                              .table = c->table };
    /* The kernel has no prefix of length 0 in a rule: it is any. */
    if (from && from->len) {
        r.has_src = true;
        r.src = *from;
    }
    if (to && to->len) {
        r.has_dst = true;
        r.dst = *to;
    }
    vec_push(&t->out->rules, r);
}

static void put_product(struct traffic_pass *t, struct traffic_view *v,
                        const struct traffic_rule *rule, const struct prefix_list *from,
                        const struct prefix_list *to)
{
    size_t n = rule->from.n ? from->n : 1, m = rule->to.n ? to->n : 1;
    if (n * m > RULES_MAX) {
        struct verdict bad = { .reason = "TooManyRules",
                               .field = "spec.rules",
                               .value = arena_printf(&t->out->mem, "%" PRIu32, rule->priority) };
        bad.message = arena_printf(&t->out->mem,
                                   "would be %zu rules in the kernel, more than %d: give a prefix "
                                   "that holds all of them",
                                   n * m, RULES_MAX);
        traffic_problem(t, v->obj, NULL, bad);
        if (!v->trouble.reason)
            v->trouble = bad;
        return;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++)
            put_rule(t, v->obj, rule, rule->from.n ? &from->v[i] : NULL,
                     rule->to.n ? &to->v[j] : NULL);
}

void traffic_rules_build(struct traffic_pass *t, struct traffic_view *v)
{
    const struct traffic_class *c = v->obj;
    for (uint32_t i = 0; i < c->n_rules; i++) {
        const struct traffic_rule *rule = &c->rules[i];
        enum family_index f = rule->family == IP_V4 ? F4 : F6;
        if (!traffic_has_family(c, f))
            continue;
        struct prefix_list from = prefixes_of(&t->sets, &rule->from, f),
                           to = prefixes_of(&t->sets, &rule->to, f);
        /* What stands for no prefix at all selects nothing, not everything. */
        if ((!rule->from.n || from.n) && (!rule->to.n || to.n)) {
            check_conflict(t, v, rule, &from, &to);
            put_product(t, v, rule, &from, &to);
        }
        vec_done(&from);
        vec_done(&to);
    }
}

/* ---- links ---- */

static void check_link(struct traffic_pass *t, struct traffic_view *v, const char *field,
                       const char *name)
{
    const struct host_iface *i = host_iface_find(t->host, name);
    struct verdict bad = { .field = field, .value = name };
    if (!i) {
        bad.reason = "LinkMissing";
        bad.message = "this node has no such link";
    } else if (!i->up) {
        bad.reason = "LinkDown";
        bad.message = "the link is down";
    } else if (i->rp_filter == 1 && traffic_has_family(v->obj, F4)) {
        bad.reason = "RpFilterStrict";
        bad.message = "rp_filter is 1: what comes over another link than it would go is dropped, "
                      "which traffic does while BIRD is away; 0 or 2 is needed";
    } else {
        return;
    }
    traffic_problem(t, v->obj, NULL, bad);
    if (!v->trouble.reason)
        v->trouble = (struct verdict){ .reason = bad.reason,
                                       .message = arena_printf(&t->out->mem, "link %s: %s", name,
                                                               bad.message) };
}

void traffic_links_check(struct traffic_pass *t, struct traffic_view *v)
{
    const struct traffic_routes *r = v->obj->routes;
    if (!r)
        return;
    for (uint32_t i = 0; i < r->attached.n; i++)
        check_link(t, v, "spec.routes.attached.links", r->attached.v[i]);
    if (*r->pod_device && !host_iface_find(t->host, r->pod_device))
        check_link(t, v, "spec.routes.localPods.device", r->pod_device);
    if (r->mesh)
        check_link(t, v, "spec.routes.mesh.link", r->mesh->link);
    if (r->gateway)
        check_link(t, v, "spec.routes.gateway.link", r->gateway->link);
}
