#include "model/trafficclass.h"

#include <string.h>

const struct kind_info kind_info[KIND_COUNT] = {
    [KIND_NODE] = { "Node", "nodes", "v1", false },
    [KIND_NAMESPACE] = { "Namespace", "namespaces", "v1", false },
    [KIND_SERVICE] = { "Service", "services", "v1", true },
    [KIND_ENDPOINTSLICE] = { "EndpointSlice", "endpointslices", "discovery.k8s.io/v1", true },
    [KIND_PORTMAP] = { "PortMap", "portmaps", "kuport.wlz.li/v1alpha1", true },
    [KIND_PORTMAPCLASS] = { "PortMapClass", "portmapclasses", "kuport.wlz.li/v1alpha1", false },
    [KIND_SERVICECIDR] = { "ServiceCIDR", "servicecidrs", "networking.k8s.io/v1", false },
    [KIND_TRAFFICCLASS] = { "TrafficClass", "trafficclasses", "net.renner.uno/v1alpha1", false },
};

static size_t object_size(enum object_kind kind)
{
    switch (kind) {
    case KIND_NODE:
        return sizeof(struct node);
    case KIND_NAMESPACE:
        return sizeof(struct namespace);
    case KIND_SERVICE:
        return sizeof(struct service);
    case KIND_ENDPOINTSLICE:
        return sizeof(struct endpoint_slice);
    case KIND_PORTMAP:
        return sizeof(struct portmap);
    case KIND_PORTMAPCLASS:
        return sizeof(struct portmap_class);
    case KIND_SERVICECIDR:
        return sizeof(struct service_cidr);
    case KIND_TRAFFICCLASS:
        return sizeof(struct traffic_class);
    case KIND_COUNT:
        break;
    }
    return sizeof(struct object);
}

void *object_new_sized(enum object_kind kind, size_t bytes)
{
    struct arena mem = { .chunk_size = bytes };
    struct object *o = arena_alloc(&mem, object_size(kind));
    o->mem = mem;
    o->mem.chunk_size = 128;
    o->meta =
        (struct meta){ .kind = kind, .ns = "", .name = "", .uid = "", .resource_version = "" };
    return o;
}

void *object_new(enum object_kind kind)
{
    return object_new_sized(kind, object_size(kind) + 192);
}

void object_free(struct object *o)
{
    if (!o)
        return;
    struct arena mem = o->mem; /* the object lives inside its own arena */
    arena_done(&mem);
}

static bool str_eq(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

/* Arrays of equal length whose elements are all equal. */
#define ARRAY_EQ(a, b, v, n, eq) ((a)->n == (b)->n && array_eq_##eq((a)->v, (b)->v, (a)->n))
#define DEFINE_ARRAY_EQ(eq, type)                                       \
    static bool array_eq_##eq(const type *a, const type *b, uint32_t n) \
    {                                                                   \
        for (uint32_t i = 0; i < n; i++)                                \
            if (!eq(&a[i], &b[i]))                                      \
                return false;                                           \
        return true;                                                    \
    }

bool strings_equal(const struct string_list *a, const struct string_list *b)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (!str_eq(a->v[i], b->v[i]))
            return false;
    return true;
}

static bool label_eq(const struct label *a, const struct label *b)
{
    return str_eq(a->key, b->key) && str_eq(a->value, b->value);
}
DEFINE_ARRAY_EQ(label_eq, struct label)

/* Those whose status a node writes; of the others a new resourceVersion alone (a kubelet's
 * heartbeat, say) is no change. */
static bool is_written(const struct meta *m)
{
    return m->kind == KIND_PORTMAP || m->kind == KIND_PORTMAPCLASS || m->kind == KIND_TRAFFICCLASS;
}

static bool meta_eq(const struct meta *a, const struct meta *b)
{
    if (is_written(a) && !str_eq(a->resource_version, b->resource_version))
        return false;
    return a->kind == b->kind && str_eq(a->ns, b->ns) && str_eq(a->name, b->name) &&
           str_eq(a->uid, b->uid) && a->generation == b->generation && a->creation == b->creation &&
           ARRAY_EQ(&a->labels, &b->labels, v, n, label_eq) &&
           ARRAY_EQ(&a->annotations, &b->annotations, v, n, label_eq);
}

DEFINE_ARRAY_EQ(ip_equal, struct ip)

static bool node_eq(const struct node *a, const struct node *b)
{
    return ARRAY_EQ(a, b, internal_ips, n_internal_ips, ip_equal) &&
           strings_equal(&a->no_ips, &b->no_ips) && strings_equal(&a->pod_cidrs, &b->pod_cidrs) &&
           a->deletion == b->deletion && a->to_be_deleted == b->to_be_deleted;
}

static bool service_port_eq(const struct service_port *a, const struct service_port *b)
{
    return str_eq(a->name, b->name) && a->protocol == b->protocol && a->port == b->port &&
           a->node_port == b->node_port;
}
DEFINE_ARRAY_EQ(service_port_eq, struct service_port)

static bool ingress_eq(const struct service_ingress *a, const struct service_ingress *b)
{
    return str_eq(a->ip, b->ip) && a->mode == b->mode;
}
DEFINE_ARRAY_EQ(ingress_eq, struct service_ingress)

static bool service_eq(const struct service *a, const struct service *b)
{
    return ARRAY_EQ(a, b, ports, n_ports, service_port_eq) &&
           a->affinity_timeout == b->affinity_timeout &&
           strings_equal(&a->cluster_ips, &b->cluster_ips) &&
           strings_equal(&a->external_ips, &b->external_ips) &&
           strings_equal(&a->source_ranges, &b->source_ranges) &&
           ARRAY_EQ(a, b, ingress, n_ingress, ingress_eq) && a->type == b->type &&
           a->internal_policy == b->internal_policy && a->external_policy == b->external_policy &&
           a->affinity == b->affinity && a->health_check_port == b->health_check_port &&
           str_eq(a->load_balancer_class, b->load_balancer_class) &&
           str_eq(a->load_balancer_ip, b->load_balancer_ip) &&
           (!service_is_held(a) ||
            str_eq(a->o.meta.resource_version, b->o.meta.resource_version)) &&
           a->other_proxy == b->other_proxy && a->headless == b->headless;
}

static bool endpoint_port_eq(const struct endpoint_port *a, const struct endpoint_port *b)
{
    return str_eq(a->name, b->name) && a->protocol == b->protocol && a->port == b->port;
}
DEFINE_ARRAY_EQ(endpoint_port_eq, struct endpoint_port)

static bool hints_eq(const struct endpoint_hints *a, const struct endpoint_hints *b)
{
    return a == b ||
           (a && b && strings_equal(&a->zones, &b->zones) && strings_equal(&a->nodes, &b->nodes));
}

static bool endpoint_eq(const struct endpoint *a, const struct endpoint *b)
{
    return strings_equal(&a->addresses, &b->addresses) && a->ready == b->ready &&
           a->serving == b->serving && a->terminating == b->terminating &&
           str_eq(a->node_name, b->node_name) && str_eq(a->target_kind, b->target_kind) &&
           str_eq(a->target_ns, b->target_ns) && str_eq(a->target_name, b->target_name) &&
           hints_eq(a->hints, b->hints);
}
DEFINE_ARRAY_EQ(endpoint_eq, struct endpoint)

static bool slice_eq(const struct endpoint_slice *a, const struct endpoint_slice *b)
{
    return str_eq(a->service, b->service) && a->family == b->family &&
           ARRAY_EQ(a, b, ports, n_ports, endpoint_port_eq) &&
           ARRAY_EQ(a, b, endpoints, n_endpoints, endpoint_eq);
}

static bool condition_eq(const struct condition *a, const struct condition *b)
{
    return str_eq(a->type, b->type) && a->status == b->status && str_eq(a->reason, b->reason) &&
           str_eq(a->message, b->message) && a->observed_generation == b->observed_generation &&
           a->last_transition == b->last_transition;
}
DEFINE_ARRAY_EQ(condition_eq, struct condition)

bool conditions_equal(const struct condition_list *a, const struct condition_list *b)
{
    return ARRAY_EQ(a, b, v, n, condition_eq);
}

static bool published_eq(const struct published *a, const struct published *b)
{
    return str_eq(a->node, b->node) && str_eq(a->interface, b->interface) &&
           str_eq(a->address, b->address);
}
DEFINE_ARRAY_EQ(published_eq, struct published)

bool portmap_status_equal(const struct portmap_status *a, const struct portmap_status *b)
{
    return a->has_endpoint == b->has_endpoint &&
           (!a->has_endpoint || (str_eq(a->endpoint_node, b->endpoint_node) &&
                                 str_eq(a->endpoint_address, b->endpoint_address))) &&
           ARRAY_EQ(a, b, published, n_published, published_eq) &&
           a->observed_generation == b->observed_generation &&
           conditions_equal(&a->conditions, &b->conditions);
}

static bool portmap_eq(const struct portmap *a, const struct portmap *b)
{
    return str_eq(a->class_name, b->class_name) && a->protocol == b->protocol &&
           a->port == b->port && a->end_port == b->end_port && a->has_end_port == b->has_end_port &&
           strings_equal(&a->interfaces, &b->interfaces) &&
           str_eq(a->service_name, b->service_name) && str_eq(a->service_port, b->service_port) &&
           portmap_status_equal(&a->status, &b->status);
}

static bool class_node_eq(const struct class_node *a, const struct class_node *b)
{
    return str_eq(a->name, b->name) && strings_equal(&a->interfaces, &b->interfaces);
}
DEFINE_ARRAY_EQ(class_node_eq, struct class_node)

static bool requirement_eq(const struct selector_requirement *a,
                           const struct selector_requirement *b)
{
    return str_eq(a->key, b->key) && str_eq(a->op, b->op) && strings_equal(&a->values, &b->values);
}
DEFINE_ARRAY_EQ(requirement_eq, struct selector_requirement)

bool selector_equal(const struct label_selector *a, const struct label_selector *b)
{
    return ARRAY_EQ(&a->match_labels, &b->match_labels, v, n, label_eq) &&
           ARRAY_EQ(a, b, expressions, n_expressions, requirement_eq);
}

bool link_claim_equal(const struct link_claim *a, const struct link_claim *b)
{
    return str_eq(a->key, b->key) && str_eq(a->peer[0], b->peer[0]) &&
           str_eq(a->peer[1], b->peer[1]) && str_eq(a->subnet, b->subnet) && a->slot == b->slot &&
           a->unused_since == b->unused_since;
}
DEFINE_ARRAY_EQ(link_claim_equal, struct link_claim)

static bool row_address_eq(const struct node_row_address *a, const struct node_row_address *b)
{
    return str_eq(a->interface, b->interface) && str_eq(a->address, b->address);
}
DEFINE_ARRAY_EQ(row_address_eq, struct node_row_address)

bool node_row_equal(const struct node_row *a, const struct node_row *b)
{
    return str_eq(a->name, b->name) && a->ready == b->ready && str_eq(a->message, b->message) &&
           a->underlay_mtu == b->underlay_mtu && a->link_mtu == b->link_mtu &&
           ARRAY_EQ(a, b, addresses, n_addresses, row_address_eq);
}
DEFINE_ARRAY_EQ(node_row_equal, struct node_row)

static bool class_status_eq(const struct class_status *a, const struct class_status *b)
{
    return ARRAY_EQ(a, b, links, n_links, link_claim_equal) &&
           ARRAY_EQ(a, b, nodes, n_nodes, node_row_equal) &&
           a->observed_generation == b->observed_generation &&
           conditions_equal(&a->conditions, &b->conditions);
}

static bool class_eq(const struct portmap_class *a, const struct portmap_class *b)
{
    return ARRAY_EQ(a, b, nodes, n_nodes, class_node_eq) && a->serving_mode == b->serving_mode &&
           a->port_min == b->port_min && a->port_max == b->port_max &&
           a->n_reserved == b->n_reserved &&
           (!a->n_reserved ||
            !memcmp(a->reserved, b->reserved, a->n_reserved * sizeof(a->reserved[0]))) &&
           a->has_selector == b->has_selector && selector_equal(&a->selector, &b->selector) &&
           a->return_mode == b->return_mode && a->vni == b->vni && a->vxlan_port == b->vxlan_port &&
           str_eq(a->subnet, b->subnet) && str_eq(a->subnet6, b->subnet6) &&
           class_status_eq(&a->status, &b->status);
}

bool object_equal(const struct object *a, const struct object *b)
{
    if (!meta_eq(&a->meta, &b->meta))
        return false;
    switch (a->meta.kind) {
    case KIND_NODE:
        return node_eq((const struct node *)a, (const struct node *)b);
    case KIND_NAMESPACE:
    case KIND_COUNT:
        return true;
    case KIND_SERVICE:
        return service_eq((const struct service *)a, (const struct service *)b);
    case KIND_ENDPOINTSLICE:
        return slice_eq((const struct endpoint_slice *)a, (const struct endpoint_slice *)b);
    case KIND_PORTMAP:
        return portmap_eq((const struct portmap *)a, (const struct portmap *)b);
    case KIND_PORTMAPCLASS:
        return class_eq((const struct portmap_class *)a, (const struct portmap_class *)b);
    case KIND_SERVICECIDR:
        return strings_equal(&((const struct service_cidr *)a)->cidrs,
                             &((const struct service_cidr *)b)->cidrs);
    case KIND_TRAFFICCLASS:
        return traffic_class_equal((const struct traffic_class *)a,
                                   (const struct traffic_class *)b);
    }
    return true;
}

const char *l4proto_name(enum l4proto p)
{
    switch (p) {
    case L4_TCP:
        return "TCP";
    case L4_UDP:
        return "UDP";
    case L4_SCTP:
        return "SCTP";
    }
    return "unknown";
}

bool service_is_held(const struct service *s)
{
    return s->type == SERVICE_LOADBALANCER && str_eq(s->load_balancer_class, NODE_ADDRESS_CLASS);
}

const struct condition *condition_find(const struct condition_list *l, const char *type)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (!strcmp(l->v[i].type, type))
            return &l->v[i];
    return NULL;
}

static const struct label *label_find(const struct label_list *l, const char *key)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (!strcmp(l->v[i].key, key))
            return &l->v[i];
    return NULL;
}

const char *label_value(const struct label_list *l, const char *key)
{
    const struct label *found = label_find(l, key);
    return found ? found->value : "";
}

bool label_present(const struct label_list *l, const char *key)
{
    return label_find(l, key) != NULL;
}
