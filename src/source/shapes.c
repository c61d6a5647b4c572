/* The tables of the kuport kinds (facts: docs/api.md), and those of all kinds. */
#include "source/shape_words.h"
#include "source/tokens.h"

/* ---- metav1.Condition ---- */

static const struct name_value tristates[] = {
    { "True", TRI_TRUE }, { "False", TRI_FALSE }, { "Unknown", TRI_UNKNOWN }, { NULL, 0 }
};

static const struct field condition_fields[] = {
    { "type", FIELD_STRING, AT(struct condition, type), .flags = REQUIRED | ALWAYS },
    { "status", FIELD_ENUM, AT(struct condition, status), .flags = REQUIRED, .names = tristates },
    { "reason", FIELD_STRING, AT(struct condition, reason), .flags = ALWAYS },
    { "message", FIELD_STRING, AT(struct condition, message), .flags = ALWAYS },
    { "observedGeneration", FIELD_INT, AT(struct condition, observed_generation),
      .max = INT64_MAX },
    { "lastTransitionTime", FIELD_TIME, AT(struct condition, last_transition) },
    END,
};
const struct shape condition_shape = { .fields = condition_fields,
                                       .size = sizeof(struct condition) };

/* ---- PortMap ---- */

static const struct name_value mapping_protocols[] = { { "TCP", L4_TCP },
                                                       { "UDP", L4_UDP },
                                                       { NULL, 0 } };

static const struct field service_ref_fields[] = {
    { "name", FIELD_STRING, AT(struct portmap, service_name), .flags = REQUIRED | ALWAYS },
    { "port", FIELD_STRING, AT(struct portmap, service_port), .flags = REQUIRED | ALWAYS },
    END,
};
static const struct shape service_ref_shape = { .fields = service_ref_fields };

static const struct field portmap_spec_fields[] = {
    { "className", FIELD_STRING, AT(struct portmap, class_name), .flags = REQUIRED | ALWAYS },
    { "protocol", FIELD_ENUM, AT(struct portmap, protocol), .flags = REQUIRED,
      .names = mapping_protocols },
    { "port", PORT, AT(struct portmap, port), .flags = REQUIRED },
    { "endPort", PORT, AT(struct portmap, end_port), HAS(struct portmap, has_end_port) },
    { "interfaces", FIELD_STRINGS, AT(struct portmap, interfaces), .check = check_interface },
    { "serviceRef", FIELD_OBJECT, .flags = REQUIRED | ALWAYS, .shape = &service_ref_shape },
    END,
};

static void finish_portmap_spec(void *base, uint32_t seen)
{
    (void)seen;
    struct portmap *m = base;
    if (!m->has_end_port)
        m->end_port = m->port;
}

static const struct shape portmap_spec_shape = { .fields = portmap_spec_fields,
                                                 .finish = finish_portmap_spec };

static const struct field portmap_endpoint_fields[] = {
    { "node", FIELD_STRING, AT(struct portmap, status.endpoint_node), .flags = ALWAYS },
    { "address", FIELD_STRING, AT(struct portmap, status.endpoint_address), .flags = ALWAYS },
    END,
};
static const struct shape portmap_endpoint_shape = { .fields = portmap_endpoint_fields };

static const struct field published_fields[] = {
    { "node", FIELD_STRING, AT(struct published, node), .flags = ALWAYS },
    { "interface", FIELD_STRING, AT(struct published, interface), .flags = ALWAYS },
    { "address", FIELD_STRING, AT(struct published, address), .flags = ALWAYS },
    END,
};
static const struct shape published_shape = { .fields = published_fields,
                                              .size = sizeof(struct published) };

static const struct field portmap_status_fields[] = {
    { "endpoint", FIELD_OBJECT, HAS(struct portmap, status.has_endpoint),
      .shape = &portmap_endpoint_shape },
    { "published", FIELD_LIST, AT(struct portmap, status.published),
      N(struct portmap, status.n_published), .shape = &published_shape },
    { "observedGeneration", FIELD_INT, AT(struct portmap, status.observed_generation),
      .max = INT64_MAX },
    { "conditions", FIELD_LIST, AT(struct portmap, status.conditions.v),
      N(struct portmap, status.conditions.n), .flags = SORTED, .shape = &condition_shape },
    END,
};
static const struct shape portmap_status_shape = { .fields = portmap_status_fields };

static const struct field portmap_fields[] = {
    METADATA,
    { "spec", FIELD_OBJECT, .flags = REQUIRED | ALWAYS, .shape = &portmap_spec_shape },
    { "status", FIELD_OBJECT, .flags = STATUS, .shape = &portmap_status_shape },
    END,
};
static const struct shape portmap_shape = { .fields = portmap_fields,
                                            .size = sizeof(struct portmap) };

/* ---- PortMapClass ---- */

static const struct name_value serving_modes[] = { { "Single", SERVING_SINGLE },
                                                   { "Multi", SERVING_MULTI },
                                                   { NULL, 0 } };
static const struct name_value return_modes[] = { { "Vxlan", RETURN_VXLAN },
                                                  { "None", RETURN_NONE },
                                                  { NULL, 0 } };

static const struct field class_node_fields[] = {
    { "interfaces", FIELD_STRINGS, AT(struct class_node, interfaces),
      .flags = REQUIRED | NONEMPTY | ALWAYS, .check = check_interface },
    END,
};

static void finish_class_node(void *base, uint32_t seen)
{
    (void)seen;
    struct string_list *l = &((struct class_node *)base)->interfaces;
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        uint32_t j = 0;
        while (j < n && strcmp(l->v[j], l->v[i]))
            j++;
        if (j == n)
            l->v[n++] = l->v[i];
    }
    l->n = n;
}

static const struct shape class_node_shape = { .fields = class_node_fields,
                                               .size = sizeof(struct class_node),
                                               .finish = finish_class_node };

static const struct field ports_fields[] = {
    { "min", PORT, AT(struct portmap_class, port_min), .initial = 1 },
    { "max", PORT, AT(struct portmap_class, port_max), .initial = 65535 },
    { "reserved", FIELD_INTS, AT(struct portmap_class, reserved),
      N(struct portmap_class, n_reserved), .min = 1, .max = 65535 },
    END,
};
static const struct shape ports_shape = { .fields = ports_fields, .check = check_ports };

static const struct field requirement_fields[] = {
    { "key", FIELD_STRING, AT(struct selector_requirement, key), .flags = REQUIRED | ALWAYS },
    { "operator", FIELD_STRING, AT(struct selector_requirement, op), .flags = REQUIRED | ALWAYS },
    { "values", FIELD_STRINGS, AT(struct selector_requirement, values) },
    END,
};
const struct shape requirement_shape = { .fields = requirement_fields,
                                         .size = sizeof(struct selector_requirement) };

static const struct field selector_fields[] = { SELECTOR(struct portmap_class, selector), END };
static const struct shape selector_shape = { .fields = selector_fields };

static const struct field vxlan_fields[] = {
    { "vni", FIELD_INT, AT(struct portmap_class, vni), .min = 1, .max = 0xffffff, .initial = 4242 },
    { "port", PORT, AT(struct portmap_class, vxlan_port), .initial = 4790 },
    { "subnet", FIELD_STRING, AT(struct portmap_class, subnet), .flags = ALWAYS,
      .text = "169.254.77.0/24" },
    { "subnet6", FIELD_STRING, AT(struct portmap_class, subnet6), .flags = ALWAYS,
      .text = "fd64:f5ac:e961::/112" },
    END,
};
static const struct shape vxlan_shape = { .fields = vxlan_fields };

static const struct field return_path_fields[] = {
    { "mode", FIELD_ENUM, AT(struct portmap_class, return_mode), .flags = REQUIRED,
      .names = return_modes },
    { "vxlan", FIELD_OBJECT, .shape = &vxlan_shape },
    END,
};
static const struct shape return_path_shape = { .fields = return_path_fields };

static const struct field class_spec_fields[] = {
    { "nodes", FIELD_MAP, AT(struct portmap_class, nodes), N(struct portmap_class, n_nodes),
      .flags = REQUIRED | NONEMPTY | ALWAYS, .shape = &class_node_shape },
    { "servingMode", FIELD_ENUM, AT(struct portmap_class, serving_mode), .initial = SERVING_SINGLE,
      .names = serving_modes },
    { "ports", FIELD_OBJECT, .shape = &ports_shape },
    { "namespaceSelector", FIELD_OBJECT, HAS(struct portmap_class, has_selector),
      .shape = &selector_shape },
    { "returnPath", FIELD_OBJECT, .flags = REQUIRED | ALWAYS, .shape = &return_path_shape },
    END,
};
static const struct shape class_spec_shape = { .fields = class_spec_fields };

static int get_peers(struct decoder *d, uint32_t at, void *base)
{
    struct link_claim *c = base;
    const struct tokens *t = d->tokens;
    uint32_t i = at + 1, n = 0, e;
    if (t->v.v[at].type != TOKEN_LIST)
        return decoder_refuse(d, at, "a list of two node names");
    while ((e = token_next(t, &i))) {
        if (n == 2)
            return decoder_refuse_key(d, e, "has a third: a link has two ends");
        int r = decode_string(d, e, "a node name", &c->peer[n++]);
        if (r)
            return r;
    }
    return n == 2 ? 0 : decoder_refuse(d, at, "a list of two node names");
}

static void put_peers(struct writer *w, const void *base)
{
    const struct link_claim *c = base;
    writer_list(w);
    writer_string(w, c->peer[0]);
    writer_string(w, c->peer[1]);
    writer_list_end(w);
}

static const struct custom peers = { "a list of two node names", get_peers, put_peers, NULL };
static const struct field link_fields[] = {
    { "key", FIELD_STRING, AT(struct link_claim, key), .flags = REQUIRED | ALWAYS },
    { "peers", FIELD_CUSTOM, .flags = REQUIRED, .custom = &peers },
    { "subnet", FIELD_STRING, AT(struct link_claim, subnet), .flags = ALWAYS },
    { "slot", FIELD_INT, AT(struct link_claim, slot), .flags = REQUIRED | ALWAYS,
      .max = UINT32_MAX },
    { "unusedSince", FIELD_TIME, AT(struct link_claim, unused_since) },
    END,
};
static const struct shape link_shape = { .fields = link_fields, .size = sizeof(struct link_claim) };

static const struct field row_fields[] = {
    { "name", FIELD_STRING, AT(struct node_row, name), .flags = REQUIRED | ALWAYS },
    { "ready", FIELD_BOOL, AT(struct node_row, ready), .flags = ALWAYS },
    { "message", FIELD_STRING, AT(struct node_row, message) },
    { "underlayMTU", FIELD_INT, AT(struct node_row, underlay_mtu), .max = UINT32_MAX },
    { "linkMTU", FIELD_INT, AT(struct node_row, link_mtu), .max = UINT32_MAX },
    { "addresses", FIELD_PAIRS, AT(struct node_row, addresses), N(struct node_row, n_addresses) },
    END,
};
const struct shape node_row_shape = { .fields = row_fields, .size = sizeof(struct node_row) };

static const struct field class_status_fields[] = {
    { "links", FIELD_LIST, AT(struct portmap_class, status.links),
      N(struct portmap_class, status.n_links), .flags = SORTED, .shape = &link_shape },
    { "nodes", FIELD_LIST, AT(struct portmap_class, status.nodes),
      N(struct portmap_class, status.n_nodes), .flags = SORTED, .shape = &node_row_shape },
    { "observedGeneration", FIELD_INT, AT(struct portmap_class, status.observed_generation),
      .max = INT64_MAX },
    { "conditions", FIELD_LIST, AT(struct portmap_class, status.conditions.v),
      N(struct portmap_class, status.conditions.n), .flags = SORTED, .shape = &condition_shape },
    END,
};
static const struct shape class_status_shape = { .fields = class_status_fields };

static const struct field class_fields[] = {
    METADATA,
    { "spec", FIELD_OBJECT, .flags = REQUIRED | ALWAYS, .shape = &class_spec_shape },
    { "status", FIELD_OBJECT, .flags = STATUS, .shape = &class_status_shape },
    END,
};
static const struct shape class_shape = { .fields = class_fields,
                                          .size = sizeof(struct portmap_class) };

const struct shape *const shape_of_kind[KIND_COUNT] = {
    [KIND_NODE] = &node_shape,
    [KIND_NAMESPACE] = &namespace_shape,
    [KIND_SERVICE] = &service_shape,
    [KIND_ENDPOINTSLICE] = &slice_shape,
    [KIND_PORTMAP] = &portmap_shape,
    [KIND_PORTMAPCLASS] = &class_shape,
    [KIND_SERVICECIDR] = &service_cidr_shape,
    [KIND_TRAFFICCLASS] = &traffic_class_shape,
};
