/* The merits of a mapping: what decides about it without looking at any other mapping. */
#include <stdio.h>

#include "plan/internal.h"

static bool leaves_ports(uint16_t port, uint16_t end, uint16_t target)
{
    return target + (end - port) > 65535;
}

static bool shifts_interval(uint16_t port, uint16_t end, uint16_t target)
{
    return end - port >= EXPANDED_PORTS && target != port;
}

/* The target port for which `bad` holds, or 0. */
static uint16_t bad_target(const struct memo *m,
                           bool (*bad)(uint16_t port, uint16_t end, uint16_t target))
{
    for (enum family_index f = F4; f < F_COUNT; f++)
        if (m->choice.t[f].found && bad(m->port, m->end, m->choice.t[f].port))
            return m->choice.t[f].port;
    return 0;
}

static bool namespace_selected(const struct snapshot *s, const struct memo *m)
{
    static const struct label_list none;
    const struct portmap_class *c = m->cls->obj;
    if (!c->has_selector)
        return true;
    const struct namespace *ns = snapshot_namespace(s, m->pm->o.meta.ns);
    return selector_matches(&c->selector, ns ? &ns->o.meta.labels : &none);
}

static uint16_t lowest_reserved(const struct memo *m)
{
    const struct portmap_class *c = m->cls->obj;
    uint16_t lowest = 0;
    for (uint32_t i = 0; i < c->n_reserved; i++)
        if (c->reserved[i] >= m->port && c->reserved[i] <= m->end &&
            (!lowest || c->reserved[i] < lowest))
            lowest = c->reserved[i];
    return lowest;
}

static bool some_node_has_interface(const struct memo *m)
{
    const struct portmap_class *c = m->cls->obj;
    if (!m->pm->interfaces.n)
        return true;
    for (uint32_t i = 0; i < c->n_nodes; i++)
        for (uint32_t j = 0; j < c->nodes[i].interfaces.n; j++)
            if (portmap_asks_for(m->pm, c->nodes[i].interfaces.v[j]))
                return true;
    return false;
}

enum admission admission_merits(const struct snapshot *s, struct memo *m)
{
    if (!m->cls)
        return ADMIT_NO_CLASS;
    if (m->end < m->port)
        return ADMIT_END_BELOW_PORT;
    if (bad_target(m, leaves_ports))
        return ADMIT_TARGET_BEYOND;
    if (bad_target(m, shifts_interval))
        return ADMIT_LARGE_SHIFT;
    if (!namespace_selected(s, m))
        return ADMIT_NAMESPACE;
    if (m->port < m->cls->obj->port_min || m->end > m->cls->obj->port_max)
        return ADMIT_OUT_OF_RANGE;
    m->reserved_port = lowest_reserved(m);
    if (m->reserved_port)
        return ADMIT_RESERVED;
    if (!some_node_has_interface(m))
        return ADMIT_INTERFACE;
    return ADMIT_VALID;
}

/* ---- for people ---- */

const char *names_text(struct arena *a, const struct string_list *l)
{
    const char *text = l->n ? l->v[0] : "";
    for (uint32_t i = 1; i < l->n; i++)
        text = arena_printf(a, "%s, %s", text, l->v[i]);
    return text;
}

static const char *range_text(struct arena *a, uint32_t port, uint32_t end)
{
    return port == end ? arena_printf(a, "%u", port) : arena_printf(a, "%u-%u", port, end);
}

static const char *target_text(struct arena *a, const struct memo *m, uint32_t target)
{
    return range_text(a, target, target + (uint32_t)(m->end - m->port));
}

static const char *message(const struct memo *m, struct arena *a)
{
    const struct portmap *pm = m->pm;
    const char *range = range_text(a, m->port, m->end);
    switch (m->merits) {
    case ADMIT_NO_CLASS:
        return arena_printf(a, "there is no PortMapClass %s", pm->class_name);
    case ADMIT_END_BELOW_PORT:
        return arena_printf(a, "endPort %u is below port %u", m->end, m->port);
    case ADMIT_TARGET_BEYOND:
        return arena_printf(a, "ports %s lead to %s, beyond 65535", range,
                            target_text(a, m, bad_target(m, leaves_ports)));
    case ADMIT_LARGE_SHIFT:
        return arena_printf(a,
                            "ports %s lead to %s: a range of more than %d ports cannot be shifted; "
                            "let the Service's port start at %u, or map at most %d ports",
                            range, target_text(a, m, bad_target(m, shifts_interval)),
                            EXPANDED_PORTS, m->port, EXPANDED_PORTS);
    case ADMIT_NAMESPACE:
        return arena_printf(a, "class %s does not select namespace %s", pm->class_name,
                            pm->o.meta.ns);
    case ADMIT_OUT_OF_RANGE:
        return arena_printf(a, "%s is not within %u-%u, the ports of class %s", range,
                            m->cls->obj->port_min, m->cls->obj->port_max, pm->class_name);
    case ADMIT_RESERVED:
        return arena_printf(a, "port %u is reserved by class %s", m->reserved_port, pm->class_name);
    case ADMIT_INTERFACE:
        return arena_printf(a, "no node of class %s has interface %s", pm->class_name,
                            names_text(a, &pm->interfaces));
    case ADMIT_CONFLICT:
    case ADMIT_VALID:
        break;
    }
    return m->holder ? arena_printf(a, "%s %s is held by %s", l4proto_name(pm->protocol), range,
                                    memo_key(m->holder))
                     : "";
}

struct verdict admission_verdict(const struct memo *m, struct arena *a)
{
    static const struct {
        const char *reason, *field;
    } table[] = {
        [ADMIT_VALID] = { "Valid", "" },
        [ADMIT_NO_CLASS] = { "ClassNotFound", "spec.className" },
        [ADMIT_END_BELOW_PORT] = { "InvalidPortRange", "spec.endPort" },
        [ADMIT_TARGET_BEYOND] = { "InvalidPortRange", "spec.port" },
        [ADMIT_LARGE_SHIFT] = { "InvalidPortRange", "spec.port" },
        [ADMIT_NAMESPACE] = { "NamespaceNotSelected", "spec.className" },
        [ADMIT_OUT_OF_RANGE] = { "PortOutOfRange", "spec.port" },
        [ADMIT_RESERVED] = { "PortReserved", "spec.port" },
        [ADMIT_INTERFACE] = { "InterfaceNotInClass", "spec.interfaces" },
        [ADMIT_CONFLICT] = { "PortConflict", "spec.port" },
    };
    enum admission which = m->holder ? ADMIT_CONFLICT : m->merits;
    const char *value = range_text(a, m->port, m->end);
    if (which == ADMIT_NO_CLASS || which == ADMIT_NAMESPACE)
        value = m->pm->class_name;
    else if (which == ADMIT_END_BELOW_PORT)
        value = arena_printf(a, "%u", m->end);
    else if (which == ADMIT_INTERFACE)
        value = names_text(a, &m->pm->interfaces);
    return (struct verdict){ table[which].reason, message(m, a), table[which].field, value };
}
