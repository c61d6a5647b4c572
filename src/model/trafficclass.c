#include "model/trafficclass.h"

#include <string.h>

static bool rules_equal(const struct traffic_class *a, const struct traffic_class *b)
{
    if (a->n_rules != b->n_rules)
        return false;
    for (uint32_t i = 0; i < a->n_rules; i++) {
        const struct traffic_rule *x = &a->rules[i], *y = &b->rules[i];
        if (x->family != y->family || x->priority != y->priority ||
            !strings_equal(&x->from, &y->from) || !strings_equal(&x->to, &y->to))
            return false;
    }
    return true;
}

static bool annotations_equal(const struct address_annotations *a,
                              const struct address_annotations *b)
{
    return !strcmp(a->ipv4, b->ipv4) && !strcmp(a->ipv6, b->ipv6);
}

static bool mesh_equal(const struct traffic_mesh *a, const struct traffic_mesh *b)
{
    return a == b || (a && b && !strcmp(a->link, b->link) &&
                      annotations_equal(&a->annotations, &b->annotations) && a->asn == b->asn &&
                      a->hold_time == b->hold_time && a->bfd == b->bfd &&
                      a->graceful_restart == b->graceful_restart);
}

static bool gateway_equal(const struct traffic_gateway *a, const struct traffic_gateway *b)
{
    return a == b ||
           (a && b && !strcmp(a->link, b->link) &&
            annotations_equal(&a->annotations, &b->annotations) && a->manager == b->manager);
}

static bool routes_equal(const struct traffic_routes *a, const struct traffic_routes *b)
{
    return a == b || (a && b && strings_equal(&a->attached, &b->attached) &&
                      !strcmp(a->pod_device, b->pod_device) && mesh_equal(a->mesh, b->mesh) &&
                      gateway_equal(a->gateway, b->gateway) &&
                      strings_equal(&a->fall_through, &b->fall_through) &&
                      strings_equal(&a->reject, &b->reject));
}

bool traffic_row_equal(const struct traffic_row *a, const struct traffic_row *b)
{
    return !strcmp(a->name, b->name) && a->ready == b->ready && !strcmp(a->reason, b->reason) &&
           !strcmp(a->message, b->message) && a->sessions == b->sessions &&
           a->sessions_expected == b->sessions_expected;
}

static bool status_equal(const struct traffic_status *a, const struct traffic_status *b)
{
    if (a->n_nodes != b->n_nodes)
        return false;
    for (uint32_t i = 0; i < a->n_nodes; i++)
        if (!traffic_row_equal(&a->nodes[i], &b->nodes[i]))
            return false;
    return a->nodes_desired == b->nodes_desired && a->nodes_ready == b->nodes_ready &&
           !strcmp(a->ready, b->ready) && a->observed_generation == b->observed_generation &&
           conditions_equal(&a->conditions, &b->conditions);
}

bool traffic_class_equal(const struct traffic_class *a, const struct traffic_class *b)
{
    return a->has_selector == b->has_selector && selector_equal(&a->selector, &b->selector) &&
           a->families == b->families && a->table == b->table && rules_equal(a, b) &&
           routes_equal(a->routes, b->routes) && a->cleanup == b->cleanup &&
           status_equal(&a->status, &b->status);
}
