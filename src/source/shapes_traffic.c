/* The tables of TrafficClass, and what its CRD checks by CEL. Facts:
 * deploy/crds/trafficclasses.yaml. */
#include <stdio.h>

#include "model/names.h"
#include "model/trafficclass.h"
#include "source/shape_words.h"
#include "source/tokens.h"

static const struct name_value families[] = { { "IPv4", IP_V4 }, { "IPv6", IP_V6 }, { NULL, 0 } };
static const struct name_value managers[] = { { "Agent", GATEWAY_AGENT },
                                              { "BIRD", GATEWAY_BIRD },
                                              { NULL, 0 } };
static const struct name_value policies[] = { { "Delete", CLEANUP_DELETE },
                                              { "Keep", CLEANUP_KEEP },
                                              { NULL, 0 } };

/* ---- strings ---- */

/* What BIRD leaves of the kernel's names: no quotation marks; `*`, `?`, `\` and a `-` at the beginning
 * would make a pattern of it, `%` a zone. */
static const char *check_link(const char *s)
{
    return !check_interface(s) && !strpbrk(s, "\"%*?\\") && s[strspn(s, ".")] != '-'
               ? NULL
               : "an interface name: 1 to 15 bytes without '/', ':', '\"', '%', '*', '?', '\\' and white "
                 "space, and no '-' at its beginning";
}

static bool is_annotation_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool alnum = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
                     (s[i] >= '0' && s[i] <= '9');
        bool inner = i && i + 1 < n && strchr("-_.", s[i]);
        if (!alnum && !inner)
            return false;
    }
    return n > 0;
}

static const char *check_annotation(const char *s)
{
    const char *slash = strchr(s, '/'), *name = slash ? slash + 1 : s;
    char prefix[254] = "x";
    if (slash)
        snprintf(prefix, sizeof(prefix), "%.*s", (int)(slash - s), s);
    return is_annotation_name(name, strlen(name)) && !check_subdomain(prefix) &&
                   (!slash || slash - s < (int)sizeof(prefix))
               ? NULL
               : "the key of an annotation, such as net.renner.uno/pod0-v4";
}

static bool is_name_of_several(const char *s)
{
    return !strcmp(s, PREFIXES_PODS) || !strcmp(s, PREFIXES_OWN_PODS) ||
           !strcmp(s, PREFIXES_SERVICES) || !strcmp(s, PREFIXES_ATTACHED);
}

/* Of a list in a manifest: what its elements are, none twice, not too many; family IP_NONE: of
 * either. `at` is the map that has the list. */
static int check_prefixes(struct decoder *d, uint32_t at, const char *key,
                          const struct string_list *l, enum ip_family family, uint32_t max)
{
    const struct tokens *t = d->tokens;
    uint32_t list = token_find(t, at, key), i = list + 1;
    size_t path = decoder_push_key(d, key);
    char many[64];
    snprintf(many, sizeof(many), "has %u entries: leave some out, %u are the most", l->n, max);
    if (l->n > max)
        return decoder_refuse_key(d, list, many);
    for (uint32_t k = 0; k < l->n; k++) {
        uint32_t e = token_next(t, &i);
        struct ip_prefix p;
        size_t list_path = decoder_push_index(d, k);
        bool several = is_name_of_several(l->v[k]);
        if (!several && !ip_prefix_parse(l->v[k], &p))
            return decoder_refuse(d, e,
                                  PREFIXES_PODS ", " PREFIXES_OWN_PODS ", " PREFIXES_SERVICES
                                                ", " PREFIXES_ATTACHED
                                                " or a prefix such as 10.0.0.0/8");
        if (!several && family && p.ip.family != family)
            return decoder_refuse(d, e, family == IP_V4 ? "an IPv4 prefix" : "an IPv6 prefix");
        for (uint32_t before = 0; before < k; before++)
            if (!strcmp(l->v[before], l->v[k]))
                return decoder_refuse_key(d, e, "is there twice: keep one");
        decoder_pop(d, list_path);
    }
    decoder_pop(d, path);
    return 0;
}

/* ---- families ---- */

static int get_families(struct decoder *d, uint32_t at, void *base)
{
    struct traffic_class *c = base;
    const struct tokens *t = d->tokens;
    uint32_t i = at + 1, e;
    c->families = 0;
    if (t->v.v[at].type != TOKEN_LIST)
        return decoder_refuse(d, at, "a list of IPv4 and IPv6");
    for (uint32_t k = 0; (e = token_next(t, &i)); k++) {
        size_t path = decoder_push_index(d, k);
        bool v4 = token_is(t, e, "IPv4");
        uint8_t one = v4 ? FAMILIES_V4 : FAMILIES_V6;
        if (!v4 && !token_is(t, e, "IPv6"))
            return decoder_refuse(d, e, "IPv4 or IPv6");
        if (c->families & one)
            return decoder_refuse_key(d, e, "is there twice: keep one");
        c->families |= one;
        decoder_pop(d, path);
    }
    return c->families ? 0 : decoder_refuse(d, at, "a list of IPv4 and IPv6");
}

static void put_families(struct writer *w, const void *base)
{
    const struct traffic_class *c = base;
    writer_list(w);
    if (c->families & FAMILIES_V4)
        writer_string(w, "IPv4");
    if (c->families & FAMILIES_V6)
        writer_string(w, "IPv6");
    writer_list_end(w);
}

static const struct custom families_custom = { "a list of IPv4 and IPv6", get_families,
                                               put_families, NULL };

/* ---- rules ---- */

static int check_rule(struct decoder *d, uint32_t at, const void *base)
{
    const struct traffic_rule *r = base;
    if (!r->from.n && !r->to.n)
        return decoder_refuse_key(d, at,
                                  "has neither from nor to and would catch everything: "
                                  "give one");
    int e = check_prefixes(d, at, "from", &r->from, r->family, 8);
    return e ? e : check_prefixes(d, at, "to", &r->to, r->family, 8);
}

static const struct field rule_fields[] = {
    { "family", FIELD_ENUM, AT(struct traffic_rule, family), .flags = REQUIRED, .names = families },
    { "priority", FIELD_INT, AT(struct traffic_rule, priority), .flags = REQUIRED, .min = 107,
      .max = 32765 },
    { "from", FIELD_STRINGS, AT(struct traffic_rule, from), .flags = NONEMPTY },
    { "to", FIELD_STRINGS, AT(struct traffic_rule, to), .flags = NONEMPTY },
    END,
};
static const struct shape rule_shape = { .fields = rule_fields,
                                         .size = sizeof(struct traffic_rule),
                                         .check = check_rule };

/* ---- routes ---- */

static const struct field annotation_fields[] = {
    { "ipv4", FIELD_STRING, AT(struct address_annotations, ipv4), .check = check_annotation },
    { "ipv6", FIELD_STRING, AT(struct address_annotations, ipv6), .check = check_annotation },
    END,
};

static int check_annotations(struct decoder *d, uint32_t at, const void *base)
{
    const struct address_annotations *a = base;
    return *a->ipv4 || *a->ipv6 ? 0 : decoder_refuse(d, at, "ipv4, ipv6 or both");
}

static const struct shape annotations_shape = { .fields = annotation_fields,
                                                .check = check_annotations };

static const struct field mesh_fields[] = {
    { "link", FIELD_STRING, AT(struct traffic_mesh, link), .flags = REQUIRED | ALWAYS,
      .check = check_link },
    { "addressAnnotations", FIELD_OBJECT, AT(struct traffic_mesh, annotations),
      .flags = REQUIRED | ALWAYS, .shape = &annotations_shape },
    { "asn", FIELD_INT, AT(struct traffic_mesh, asn), .min = 1, .max = UINT32_MAX - 1,
      .initial = 64512 },
    { "holdTimeSeconds", FIELD_INT, AT(struct traffic_mesh, hold_time), .min = 3, .max = 240,
      .initial = 9 },
    { "bfd", FIELD_BOOL, AT(struct traffic_mesh, bfd), .flags = ALWAYS },
    { "gracefulRestart", FIELD_BOOL, AT(struct traffic_mesh, graceful_restart), .flags = ALWAYS,
      .initial = true },
    END,
};
static const struct shape mesh_shape = { .fields = mesh_fields,
                                         .size = sizeof(struct traffic_mesh) };

static const struct field gateway_fields[] = {
    { "link", FIELD_STRING, AT(struct traffic_gateway, link), .flags = REQUIRED | ALWAYS,
      .check = check_link },
    { "addressAnnotations", FIELD_OBJECT, AT(struct traffic_gateway, annotations),
      .flags = REQUIRED | ALWAYS, .shape = &annotations_shape },
    { "manager", FIELD_ENUM, AT(struct traffic_gateway, manager), .initial = GATEWAY_AGENT,
      .names = managers },
    END,
};
static const struct shape gateway_shape = { .fields = gateway_fields,
                                            .size = sizeof(struct traffic_gateway) };

static const struct field attached_fields[] = {
    { "links", FIELD_STRINGS, AT(struct traffic_routes, attached), .flags = REQUIRED | NONEMPTY,
      .check = check_link },
    END,
};
static const struct shape attached_shape = { .fields = attached_fields };

static const struct field local_pods_fields[] = {
    { "device", FIELD_STRING, AT(struct traffic_routes, pod_device), .flags = REQUIRED,
      .check = check_link },
    END,
};
static const struct shape local_pods_shape = { .fields = local_pods_fields };

#define FALL_THROUGH_AT 4 /* in the table below */
static const struct field routes_fields[] = {
    { "attached", FIELD_OBJECT, .shape = &attached_shape },
    { "localPods", FIELD_OBJECT, .shape = &local_pods_shape },
    { "mesh", FIELD_POINTER, AT(struct traffic_routes, mesh), .shape = &mesh_shape },
    { "gateway", FIELD_POINTER, AT(struct traffic_routes, gateway), .shape = &gateway_shape },
    [FALL_THROUGH_AT] = { "fallThrough", FIELD_STRINGS, AT(struct traffic_routes, fall_through),
                          .flags = ALWAYS },
    { "reject", FIELD_STRINGS, AT(struct traffic_routes, reject) },
    END,
};

static void finish_routes(void *base, uint32_t seen)
{
    static const char *initial[] = { PREFIXES_PODS, PREFIXES_ATTACHED };
    struct traffic_routes *r = base;
    if (!(seen & 1u << FALL_THROUGH_AT))
        r->fall_through = (struct string_list){ initial, 2 };
}

static int check_routes(struct decoder *d, uint32_t at, const void *base)
{
    const struct traffic_routes *r = base;
    int e = 0;
    if (token_find(d->tokens, at, "fallThrough"))
        e = check_prefixes(d, at, "fallThrough", &r->fall_through, IP_NONE, 16);
    return e ? e : check_prefixes(d, at, "reject", &r->reject, IP_NONE, 16);
}

static const struct shape routes_shape = { .fields = routes_fields,
                                           .size = sizeof(struct traffic_routes),
                                           .finish = finish_routes,
                                           .check = check_routes };

/* ---- the spec ---- */

static int check_rules(struct decoder *d, uint32_t at, const struct traffic_class *c)
{
    const struct tokens *t = d->tokens;
    uint32_t list = token_find(t, at, "rules"), i = list + 1;
    size_t path = decoder_push_key(d, "rules");
    if (c->n_rules > 16)
        return decoder_refuse_key(d, list, "has more than 16: leave some out, or make two classes");
    for (uint32_t k = 0; k < c->n_rules; k++) {
        const struct traffic_rule *r = &c->rules[k];
        uint32_t e = token_next(t, &i);
        size_t list_path = decoder_push_index(d, k);
        if (!(c->families & (r->family == IP_V4 ? FAMILIES_V4 : FAMILIES_V6)))
            return decoder_refuse_key(d, e,
                                      "is of a family that is not in spec.families: add it "
                                      "there");
        for (uint32_t before = 0; before < k; before++)
            if (c->rules[before].family == r->family && c->rules[before].priority == r->priority)
                return decoder_refuse_key(d, e,
                                          "has the family and priority of one before it: "
                                          "take another priority");
        decoder_pop(d, list_path);
    }
    decoder_pop(d, path);
    return 0;
}

static int check_spec(struct decoder *d, uint32_t at, const void *base)
{
    const struct traffic_class *c = base;
    const char *field = NULL, *problem = NULL;
    if (c->table == TABLE_DEFAULT || c->table == TABLE_LOCAL) {
        field = "table";
        problem = "is one of 253 and 255, which belong to the kernel: take another";
    } else if (c->table >= HELD_TABLE && c->table <= HOLDER_TABLE(HOLDER_MARK_MAX)) {
        field = "table";
        problem = "is one of 131072 to 131322, which are those of held addresses: take another";
    } else if (c->table == TABLE_MAIN && c->routes) {
        field = "routes";
        problem = "are given, but a class that looks up main (254) may not write routes: leave "
                  "them out or take another table";
    }
    if (!field)
        return check_rules(d, at, c);
    decoder_push_key(d, field);
    return decoder_refuse_key(d, token_find(d->tokens, at, field), problem);
}

static const struct field selector_fields[] = { SELECTOR(struct traffic_class, selector), END };
static const struct shape selector_shape = { .fields = selector_fields };

static const struct field spec_fields[] = {
    { "nodeSelector", FIELD_OBJECT, HAS(struct traffic_class, has_selector),
      .shape = &selector_shape },
    { "families", FIELD_CUSTOM, .custom = &families_custom },
    { "table", FIELD_INT, AT(struct traffic_class, table), .flags = REQUIRED, .min = 1,
      .max = UINT32_MAX },
    { "rules", FIELD_LIST, AT(struct traffic_class, rules), N(struct traffic_class, n_rules),
      .flags = REQUIRED | NONEMPTY, .shape = &rule_shape },
    { "routes", FIELD_POINTER, AT(struct traffic_class, routes), .shape = &routes_shape },
    { "cleanupPolicy", FIELD_ENUM, AT(struct traffic_class, cleanup), .initial = CLEANUP_DELETE,
      .names = policies },
    END,
};

static void finish_spec(void *base, uint32_t seen)
{
    (void)seen;
    struct traffic_class *c = base;
    if (!c->families)
        c->families = FAMILIES_V4 | FAMILIES_V6;
}

static const struct shape spec_shape = { .fields = spec_fields,
                                         .finish = finish_spec,
                                         .check = check_spec };

/* ---- status ---- */

static const struct field row_fields[] = {
    { "name", FIELD_STRING, AT(struct traffic_row, name), .flags = REQUIRED | ALWAYS },
    { "ready", FIELD_BOOL, AT(struct traffic_row, ready), .flags = ALWAYS },
    { "reason", FIELD_STRING, AT(struct traffic_row, reason) },
    { "message", FIELD_STRING, AT(struct traffic_row, message) },
    { "sessions", FIELD_INT, AT(struct traffic_row, sessions), .max = INT32_MAX },
    { "sessionsExpected", FIELD_INT, AT(struct traffic_row, sessions_expected), .max = INT32_MAX },
    END,
};
const struct shape traffic_row_shape = { .fields = row_fields, .size = sizeof(struct traffic_row) };

static const struct field status_fields[] = {
    { "nodes", FIELD_LIST, AT(struct traffic_class, status.nodes),
      N(struct traffic_class, status.n_nodes), .flags = SORTED, .shape = &traffic_row_shape },
    { "nodesDesired", FIELD_INT, AT(struct traffic_class, status.nodes_desired), .flags = ALWAYS,
      .max = INT32_MAX },
    { "nodesReady", FIELD_INT, AT(struct traffic_class, status.nodes_ready), .flags = ALWAYS,
      .max = INT32_MAX },
    { "ready", FIELD_STRING, AT(struct traffic_class, status.ready) },
    { "observedGeneration", FIELD_INT, AT(struct traffic_class, status.observed_generation),
      .max = INT64_MAX },
    { "conditions", FIELD_LIST, AT(struct traffic_class, status.conditions.v),
      N(struct traffic_class, status.conditions.n), .flags = SORTED, .shape = &condition_shape },
    END,
};
static const struct shape status_shape = { .fields = status_fields };

static const struct field class_fields[] = {
    METADATA,
    { "spec", FIELD_OBJECT, .flags = REQUIRED | ALWAYS, .shape = &spec_shape },
    { "status", FIELD_OBJECT, .flags = STATUS, .shape = &status_shape },
    END,
};
const struct shape traffic_class_shape = { .fields = class_fields,
                                           .size = sizeof(struct traffic_class) };
