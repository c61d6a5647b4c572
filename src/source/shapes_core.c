/* The tables of Kubernetes' own kinds: what of them is read. Facts: the Kubernetes API reference. */
#include "base/timestamp.h"
#include "source/tokens.h"

#include "source/shape_words.h"

/* ---- metadata ---- */

#define META_NAME                                                                                \
    {                                                                                            \
        "name", FIELD_STRING, AT(struct meta, name), .flags = REQUIRED, .check = check_subdomain \
    }
#define META_NAMESPACE                                                       \
    {                                                                        \
        "namespace", FIELD_STRING, AT(struct meta, ns), .check = check_label \
    }
#define META_CREATION                                              \
    {                                                              \
        "creationTimestamp", FIELD_TIME, AT(struct meta, creation) \
    }
#define META_VERSION                                                       \
    {                                                                      \
        "resourceVersion", FIELD_STRING, AT(struct meta, resource_version) \
    }
/* clang-format off */
#define META_ALL \
    { "annotations", FIELD_PAIRS, AT(struct meta, annotations.v), \
      N(struct meta, annotations.n), .flags = ANYTEXT }, \
    META_CREATION, \
    { "generation", FIELD_INT, AT(struct meta, generation), .max = INT64_MAX }, \
    { "labels", FIELD_PAIRS, AT(struct meta, labels.v), N(struct meta, labels.n) }, \
    META_NAME, \
    META_NAMESPACE, \
    META_VERSION, \
    { "uid", FIELD_STRING, AT(struct meta, uid) }
/* clang-format on */
/* In these tables of metadata, what a kind keeps in its own struct has that as its base too. */
_Static_assert(offsetof(struct object, meta) == 0, "metadata is where the object begins");

static const struct field meta_fields[] = { META_ALL, END };
const struct shape meta_shape = { .fields = meta_fields, .open = true };

/* Of the kinds there are most of, only what is read is kept: their labels and annotations can
 * be larger than all the rest. */
static const struct field name_fields[] = { META_NAME, META_NAMESPACE, END };
static const struct shape name_shape = { .fields = name_fields };

/* ---- Node ---- */

#define TAINT_DELETED "ToBeDeletedByClusterAutoscaler"

static int get_addresses(struct decoder *d, uint32_t at, void *base)
{
    struct node *node = base;
    const struct tokens *t = d->tokens;
    if (t->v.v[at].type != TOKEN_LIST)
        return decoder_refuse(d, at, "a list");
    uint32_t n = 0, e, i = at + 1;
    while ((e = token_next(t, &i)))
        n++;
    node->internal_ips = arena_new_array(d->mem, n, struct ip);
    node->no_ips.v = arena_new_array(d->mem, n, const char *);
    uint32_t index = 0;
    for (i = at + 1; (e = token_next(t, &i)); index++) {
        size_t path = decoder_push_index(d, index);
        if (t->v.v[e].type != TOKEN_MAP)
            return decoder_refuse(d, e, "a map of type and address");
        uint32_t type = token_find(t, e, "type"), address = token_find(t, e, "address");
        if (type && address && token_is(t, type, "InternalIP")) {
            decoder_push_key(d, "address");
            const char *s;
            int r = decode_string(d, address, "an IP address", &s);
            if (r)
                return r;
            if (ip_parse(s, &node->internal_ips[node->n_internal_ips]))
                node->n_internal_ips++;
            else /* API servers take any string */
                node->no_ips.v[node->no_ips.n++] = s;
        }
        decoder_pop(d, path);
    }
    return 0;
}

static void put_address(struct writer *w, const char *address)
{
    writer_map(w);
    writer_key(w, "address");
    writer_string(w, address);
    writer_key(w, "type");
    writer_string(w, "InternalIP");
    writer_map_end(w);
}

static void put_addresses(struct writer *w, const void *base)
{
    const struct node *node = base;
    char text[IP_TEXT_MAX];
    writer_list(w);
    for (uint32_t i = 0; i < node->n_internal_ips; i++)
        put_address(w, ip_format(&node->internal_ips[i], text));
    for (uint32_t i = 0; i < node->no_ips.n; i++)
        put_address(w, node->no_ips.v[i]);
    writer_list_end(w);
}

static bool no_addresses(const void *base)
{
    const struct node *node = base;
    return !node->n_internal_ips && !node->no_ips.n;
}

static bool is_deletion_taint(const struct tokens *t, uint32_t taint)
{
    uint32_t key = t->v.v[taint].type == TOKEN_MAP ? token_find(t, taint, "key") : 0;
    return key && token_is(t, key, TAINT_DELETED);
}

static int get_taints(struct decoder *d, uint32_t at, void *base)
{
    const struct tokens *t = d->tokens;
    uint32_t e, i = at + 1;
    if (t->v.v[at].type != TOKEN_LIST)
        return decoder_refuse(d, at, "a list");
    while ((e = token_next(t, &i)))
        ((struct node *)base)->to_be_deleted |= is_deletion_taint(t, e);
    return 0;
}

static void put_taints(struct writer *w, const void *base)
{
    (void)base;
    writer_list(w);
    writer_map(w);
    writer_key(w, "key");
    writer_string(w, TAINT_DELETED);
    writer_map_end(w);
    writer_list_end(w);
}

static bool no_taints(const void *base)
{
    return !((const struct node *)base)->to_be_deleted;
}

static const struct custom taints = { "a list", get_taints, put_taints, no_taints };
static const struct custom addresses = { "a list", get_addresses, put_addresses, no_addresses };
static const struct field node_status_fields[] = {
    { "addresses", FIELD_CUSTOM, .custom = &addresses },
    END,
};
static const struct shape node_status_shape = { .fields = node_status_fields };
static const struct field node_meta_fields[] = {
    META_ALL,
    { "deletionTimestamp", FIELD_TIME, AT(struct node, deletion) },
    END,
};
static const struct shape node_meta_shape = { .fields = node_meta_fields, .open = true };

static const struct field node_spec_fields[] = {
    { "podCIDR", FIELD_STRING, AT(struct node, pod_cidr) },
    { "podCIDRs", FIELD_STRINGS, AT(struct node, pod_cidrs) },
    { "taints", FIELD_CUSTOM, .custom = &taints },
    END,
};

/* Of two fields, one value and several, a server fills both, a person one. */
static void take_one(struct string_list *several, const char **one)
{
    if (!several->n && **one)
        *several = (struct string_list){ one, 1 };
}

static void finish_node_spec(void *base, uint32_t seen)
{
    (void)seen;
    struct node *n = base;
    take_one(&n->pod_cidrs, &n->pod_cidr);
}

static const struct shape node_spec_shape = { .fields = node_spec_fields,
                                              .finish = finish_node_spec };
static const struct field node_fields[] = {
    METADATA_OF(node_meta_shape),
    { "spec", FIELD_OBJECT, .shape = &node_spec_shape },
    { "status", FIELD_OBJECT, .shape = &node_status_shape },
    END,
};
const struct shape node_shape = { .fields = node_fields, .size = sizeof(struct node) };

/* ---- Namespace ---- */

static const struct field namespace_fields[] = { METADATA, END };
const struct shape namespace_shape = { .fields = namespace_fields,
                                       .size = sizeof(struct namespace) };

/* ---- Service ---- */

static const struct name_value protocols[] = {
    { "TCP", L4_TCP }, { "UDP", L4_UDP }, { "SCTP", L4_SCTP }, { NULL, 0 }
};

static const struct name_value service_types[] = { { "ClusterIP", SERVICE_CLUSTERIP },
                                                   { "NodePort", SERVICE_NODEPORT },
                                                   { "LoadBalancer", SERVICE_LOADBALANCER },
                                                   { "ExternalName", SERVICE_EXTERNALNAME },
                                                   { NULL, 0 } };
static const struct name_value policies[] = { { "Cluster", POLICY_CLUSTER },
                                              { "Local", POLICY_LOCAL },
                                              { NULL, 0 } };
static const struct name_value affinities[] = { { "None", AFFINITY_NONE },
                                                { "ClientIP", AFFINITY_CLIENTIP },
                                                { NULL, 0 } };
static const struct name_value ip_modes[] = { { "VIP", IP_MODE_VIP },
                                              { "Proxy", IP_MODE_PROXY },
                                              { NULL, 0 } };

static const struct field service_labels_fields[] = {
    { "service.kubernetes.io/headless", FIELD_PRESENT, AT(struct service, headless) },
    { "service.kubernetes.io/service-proxy-name", FIELD_PRESENT, AT(struct service, other_proxy) },
    END,
};
static const struct shape service_labels_shape = { .fields = service_labels_fields };
static const struct field service_meta_fields[] = {
    META_CREATION, { "labels", FIELD_OBJECT, .shape = &service_labels_shape },
    META_NAME,     META_NAMESPACE,
    META_VERSION,  END,
};
static const struct shape service_meta_shape = { .fields = service_meta_fields };

static const struct field service_port_fields[] = {
    { "name", FIELD_STRING, AT(struct service_port, name) },
    { "nodePort", FIELD_INT, AT(struct service_port, node_port), .max = 65535 },
    { "port", PORT, AT(struct service_port, port), .flags = REQUIRED },
    { "protocol", FIELD_ENUM, AT(struct service_port, protocol), .initial = L4_TCP,
      .names = protocols },
    END,
};
static const struct shape service_port_shape = { .fields = service_port_fields,
                                                 .size = sizeof(struct service_port) };

static const struct field client_ip_fields[] = {
    { "timeoutSeconds", FIELD_INT, AT(struct service, affinity_timeout), .min = 1, .max = 86400,
      .initial = AFFINITY_TIMEOUT },
    END,
};
static const struct shape client_ip_shape = { .fields = client_ip_fields };
static const struct field affinity_config_fields[] = {
    { "clientIP", FIELD_OBJECT, .shape = &client_ip_shape },
    END,
};
static const struct shape affinity_config_shape = { .fields = affinity_config_fields };

static const struct field service_spec_fields[] = {
    { "clusterIP", FIELD_STRING, AT(struct service, cluster_ip) },
    { "clusterIPs", FIELD_STRINGS, AT(struct service, cluster_ips) },
    { "externalIPs", FIELD_STRINGS, AT(struct service, external_ips) },
    { "externalTrafficPolicy", FIELD_ENUM, AT(struct service, external_policy), .names = policies },
    { "healthCheckNodePort", FIELD_INT, AT(struct service, health_check_port), .max = 65535 },
    { "internalTrafficPolicy", FIELD_ENUM, AT(struct service, internal_policy), .names = policies },
    { "loadBalancerClass", FIELD_STRING, AT(struct service, load_balancer_class) },
    { "loadBalancerIP", FIELD_STRING, AT(struct service, load_balancer_ip) },
    { "loadBalancerSourceRanges", FIELD_STRINGS, AT(struct service, source_ranges) },
    { "ports", FIELD_LIST, AT(struct service, ports), N(struct service, n_ports),
      .shape = &service_port_shape },
    { "sessionAffinity", FIELD_ENUM, AT(struct service, affinity), .names = affinities },
    { "sessionAffinityConfig", FIELD_OBJECT, .shape = &affinity_config_shape },
    { "type", FIELD_ENUM, AT(struct service, type), .names = service_types },
    END,
};

static void finish_service_spec(void *base, uint32_t seen)
{
    (void)seen;
    struct service *s = base;
    take_one(&s->cluster_ips, &s->cluster_ip);
    if (s->affinity == AFFINITY_NONE)
        s->affinity_timeout = 0;
}

static const struct shape service_spec_shape = { .fields = service_spec_fields,
                                                 .finish = finish_service_spec };

static const struct field ingress_fields[] = {
    { "ip", FIELD_STRING, AT(struct service_ingress, ip) },
    { "ipMode", FIELD_ENUM, AT(struct service_ingress, mode), .names = ip_modes },
    END,
};
static const struct shape ingress_shape = { .fields = ingress_fields,
                                            .size = sizeof(struct service_ingress) };
static const struct field load_balancer_fields[] = {
    { "ingress", FIELD_LIST, AT(struct service, ingress), N(struct service, n_ingress),
      .shape = &ingress_shape },
    END,
};
static const struct shape load_balancer_shape = { .fields = load_balancer_fields };
static const struct field service_status_fields[] = {
    { "loadBalancer", FIELD_OBJECT, .shape = &load_balancer_shape },
    END,
};
static const struct shape service_status_shape = { .fields = service_status_fields };
static const struct field service_fields[] = {
    METADATA_OF(service_meta_shape),
    { "spec", FIELD_OBJECT, .shape = &service_spec_shape },
    { "status", FIELD_OBJECT, .shape = &service_status_shape },
    END,
};

/* Versions matter where a status is ours to write; others change with every controller's touch. */
static void finish_service(void *base, uint32_t seen)
{
    (void)seen;
    struct service *s = base;
    if (!service_is_held(s))
        s->o.meta.resource_version = "";
}

const struct shape service_shape = { .fields = service_fields,
                                     .size = sizeof(struct service),
                                     .finish = finish_service };

/* ---- EndpointSlice ---- */

static const struct name_value families[] = {
    { "IPv4", IP_V4 }, { "IPv6", IP_V6 }, { "FQDN", IP_NONE }, { NULL, 0 }
};

static const struct field conditions_fields[] = {
    { "ready", FIELD_BOOL, AT(struct endpoint, ready), .flags = ALWAYS, .initial = true },
    { "serving", FIELD_BOOL, AT(struct endpoint, serving), .flags = ALWAYS, .initial = true },
    { "terminating", FIELD_BOOL, AT(struct endpoint, terminating), .flags = ALWAYS },
    END,
};
static const struct shape conditions_shape = { .fields = conditions_fields };

static const struct field target_fields[] = {
    { "kind", FIELD_STRING, AT(struct endpoint, target_kind) },
    { "name", FIELD_STRING, AT(struct endpoint, target_name) },
    { "namespace", FIELD_STRING, AT(struct endpoint, target_ns) },
    END,
};
static const struct shape target_shape = { .fields = target_fields };

/* {name: x} in a list: an array of strings, as struct string_list is. */
static const struct field hint_fields[] = {
    { "name", FIELD_STRING, .offset = 0, .size = sizeof(const char *), .flags = ALWAYS },
    END,
};
static const struct shape hint_shape = { .fields = hint_fields, .size = sizeof(const char *) };
static const struct field hints_fields[] = {
    { "forNodes", FIELD_LIST, AT(struct endpoint_hints, nodes.v), N(struct endpoint_hints, nodes.n),
      .shape = &hint_shape },
    { "forZones", FIELD_LIST, AT(struct endpoint_hints, zones.v), N(struct endpoint_hints, zones.n),
      .shape = &hint_shape },
    END,
};
static const struct shape hints_shape = { .fields = hints_fields,
                                          .size = sizeof(struct endpoint_hints) };

static const struct field endpoint_fields[] = {
    { "addresses", FIELD_STRINGS, AT(struct endpoint, addresses), .flags = REQUIRED | ALWAYS },
    { "conditions", FIELD_OBJECT, .shape = &conditions_shape },
    { "hints", FIELD_POINTER, AT(struct endpoint, hints), .shape = &hints_shape },
    { "nodeName", FIELD_STRING, AT(struct endpoint, node_name) },
    { "targetRef", FIELD_OBJECT, .shape = &target_shape },
    END,
};
static const struct shape endpoint_shape = { .fields = endpoint_fields,
                                             .size = sizeof(struct endpoint) };

static const struct field endpoint_port_fields[] = {
    { "name", FIELD_STRING, AT(struct endpoint_port, name) },
    { "port", PORT, AT(struct endpoint_port, port) },
    { "protocol", FIELD_ENUM, AT(struct endpoint_port, protocol), .initial = L4_TCP,
      .names = protocols },
    END,
};
static const struct shape endpoint_port_shape = { .fields = endpoint_port_fields,
                                                  .size = sizeof(struct endpoint_port) };

static const struct field slice_labels_fields[] = {
    { "kubernetes.io/service-name", FIELD_STRING, AT(struct endpoint_slice, service) },
    END,
};
static const struct shape slice_labels_shape = { .fields = slice_labels_fields };

/* An annotation is anybody's to write. */
static int get_trigger(struct decoder *d, uint32_t at, void *base)
{
    const struct tokens *t = d->tokens;
    int64_t *ret = &((struct endpoint_slice *)base)->trigger;
    if (t->v.v[at].type != TOKEN_SCALAR || !time_parse(token_text(t, at), ret))
        *ret = 0;
    return 0;
}

static void put_trigger(struct writer *w, const void *base)
{
    char text[TIME_TEXT_MAX];
    writer_string(w, time_format(((const struct endpoint_slice *)base)->trigger, text));
}

static bool no_trigger(const void *base)
{
    return !((const struct endpoint_slice *)base)->trigger;
}

static const struct custom trigger = { "a time", get_trigger, put_trigger, no_trigger };
static const struct field slice_annotations_fields[] = {
    { "endpoints.kubernetes.io/last-change-trigger-time", FIELD_CUSTOM, .custom = &trigger },
    END,
};
static const struct shape slice_annotations_shape = { .fields = slice_annotations_fields };
static const struct field slice_meta_fields[] = {
    { "annotations", FIELD_OBJECT, .shape = &slice_annotations_shape },
    { "labels", FIELD_OBJECT, .shape = &slice_labels_shape },
    META_NAME,
    META_NAMESPACE,
    END,
};
static const struct shape slice_meta_shape = { .fields = slice_meta_fields };

static const struct field slice_fields[] = {
    { "addressType", FIELD_ENUM, AT(struct endpoint_slice, family), .flags = REQUIRED,
      .names = families },
    METADATA_OF(slice_meta_shape),
    { "endpoints", FIELD_LIST, AT(struct endpoint_slice, endpoints),
      N(struct endpoint_slice, n_endpoints), .shape = &endpoint_shape },
    { "ports", FIELD_LIST, AT(struct endpoint_slice, ports), N(struct endpoint_slice, n_ports),
      .shape = &endpoint_port_shape },
    END,
};

const struct shape slice_shape = { .fields = slice_fields, .size = sizeof(struct endpoint_slice) };

/* ---- ServiceCIDR ---- */

static const struct field service_cidr_spec_fields[] = {
    { "cidrs", FIELD_STRINGS, AT(struct service_cidr, cidrs) },
    END,
};
static const struct shape service_cidr_spec_shape = { .fields = service_cidr_spec_fields };
static const struct field service_cidr_fields[] = {
    METADATA_OF(name_shape),
    { "spec", FIELD_OBJECT, .shape = &service_cidr_spec_shape },
    END,
};
const struct shape service_cidr_shape = { .fields = service_cidr_fields,
                                          .size = sizeof(struct service_cidr) };
