/* The status of each mapping, by the one node that writes it.
 *
 * A mapping is looked at again when a pass redid it, and until the snapshot shows what it
 * should say. A list of refusals that differs from the last one has all looked at. */
#include <stdio.h>

#include "base/map.h"
#include "plan/loadbalancer.h"

const char *status_writer(const struct planner *p, const struct memo *m)
{
    if (m->cls && m->choice.node && class_accepting(m->cls, m->choice.node) >= 0)
        return m->choice.node;
    if (m->serving >= 0)
        return m->cls->accepting[m->serving].name;
    if (m->choice.node && snapshot_node(p->snap, m->choice.node))
        return m->choice.node;
    return p->snap->n_nodes ? p->snap->nodes[0]->o.meta.name : NULL;
}

void status_enqueue(struct planner *p, struct memo *m)
{
    if (m->queued)
        return;
    m->queued = true;
    vec_push(&p->status_queue, m);
}

void status_forget(struct planner *p, struct memo *m)
{
    for (size_t i = 0; m->queued && i < p->status_queue.n; i++) {
        if (p->status_queue.v[i] == m) {
            p->status_queue.v[i] = p->status_queue.v[--p->status_queue.n];
            m->queued = false;
        }
    }
}

struct status_write *status_add(struct planner *p, enum status_write_kind kind,
                                const struct meta *meta)
{
    struct arena *a = &p->status_mem;
    vec_push(&p->writes,
             (struct status_write){ .kind = kind,
                                    .ns = arena_strdup(a, meta->ns),
                                    .name = arena_strdup(a, meta->name),
                                    .resource_version = arena_strdup(a, meta->resource_version) });
    return &p->writes.v[p->writes.n - 1];
}

/* ---- Programmed ---- */

static const char *no_accepting_node(const struct memo *m, struct arena *a)
{
    const struct portmap_class *c = m->cls->obj;
    if (!c->n_nodes)
        return arena_printf(a, "class %s lists no node", m->pm->class_name);
    struct string_list names = { arena_new_array(a, c->n_nodes, const char *), 0 };
    while (names.n < c->n_nodes) {
        names.v[names.n] = c->nodes[names.n].name;
        names.n++;
    }
    return arena_printf(a, "no node of class %s exists, it lists: %s", m->pm->class_name,
                        names_text(a, &names));
}

static struct verdict node_trouble(const struct memo *m, struct arena *a)
{
    const char *class_name = m->pm->class_name;
    struct verdict v = { .reason = "NodeNotReady" };
    if (m->serving < 0) {
        v.field = "spec.className";
        v.value = class_name;
        v.message = no_accepting_node(m, a);
        return v;
    }
    const struct accepting *n = &m->cls->accepting[m->serving];
    if (!n->row) {
        v.message =
            arena_printf(a, "node %s has not reported to class %s yet", n->name, class_name);
    } else if (!n->row->ready) {
        v.message = arena_printf(a, "node %s: %s", n->name,
                                 *n->row->message ? n->row->message : "not ready");
    } else if (!portmap_has_interface(m, (size_t)m->serving)) {
        v.reason = "NoInterfaceOnNode";
        v.field = "spec.interfaces";
        v.value = names_text(a, &m->pm->interfaces);
        v.message = arena_printf(a, "class %s gives node %s none of the interfaces asked for",
                                 class_name, n->name);
    }
    return v.message ? v : (struct verdict){ 0 };
}

static const char *pair_trouble(const struct memo *m, const struct pair *pair, struct arena *a)
{
    if (*pair->state.trouble)
        return arena_strdup(a, pair->state.trouble);
    if (!m->choice.t[F4].found && pair->state.local && !pair->state.v6)
        return arena_printf(a, "link %s carries IPv4 only, and the Service is IPv6 only",
                            pair->key);
    return NULL;
}

static struct verdict path_trouble(const struct memo *m, struct arena *a)
{
    const char *node, *why = NULL;
    bool pending = false;
    if (portmap_is_refused_by_none(m, &node))
        why =
            arena_printf(a,
                         "node %s would need a return link to the pod's node %s, and class %s has "
                         "returnPath.mode None",
                         node, m->choice.node, m->pm->class_name);
    for (size_t i = 0; i < m->pairs.n && !why; i++) {
        why = pair_trouble(m, m->pairs.v[i].pair, a);
        pending = m->pairs.v[i].pair->state.pending;
    }
    if (!why && m->lane)
        why = arena_printf(a,
                           "%s already uses %s port %u on the link to node %s; another class, or "
                           "another port, is needed",
                           memo_key(m->lane), l4proto_name(m->pm->protocol),
                           m->port > m->lane->port ? m->port : m->lane->port, m->choice.node);
    if (!why)
        return (struct verdict){ 0 };
    return (struct verdict){ "ReturnPathUnavailable", why, pending ? NULL : "spec.className",
                             m->pm->class_name };
}

/* What only the serving node can know of itself. */
static struct verdict own_trouble(const struct planner *p, const struct memo *m, struct arena *a)
{
    const char *v4 = host_v4_trouble(p->snap->host), *v6 = host_v6_trouble(p->snap->host);
    const char *node = p->snap->node;
    struct verdict v = { .reason = "NodeNotReady" };
    if (!m->choice.t[F4].found && v6) {
        v.message = arena_printf(a, "node %s: IPv6 is not delivered: %s", node, v6);
    } else if (m->cls->self == m->serving && m->choice.t[F4].found && v4 &&
               !portmap_delivers(p, m, F4)) {
        v.message = arena_printf(a, "node %s: IPv4 forwarding is off and cannot be switched on: %s",
                                 node, v4);
    } else if (m->cls->self == m->serving && !m->answers.ifaces[F4].n && !m->answers.ifaces[F6].n) {
        v.field = "spec.interfaces";
        v.value = names_text(a, &m->pm->interfaces);
        v.message = arena_printf(a,
                                 "node %s: no interface asked for has an address of the Service's "
                                 "family for itself",
                                 node);
    }
    return v.message ? v : (struct verdict){ 0 };
}

struct verdict programmed_verdict(const struct planner *p, const struct memo *m, struct arena *a)
{
    if (!m->choice.node)
        return selection_trouble(p->snap, m, a);
    struct verdict v = node_trouble(m, a);
    if (!v.reason)
        v = path_trouble(m, a);
    return v.reason ? v : own_trouble(p, m, a);
}

const struct refusal *refusal_of(const struct applied *applied, const char *owner)
{
    for (size_t lo = 0, hi = applied->n_refusals; lo < hi;) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(applied->refusals[mid].owner, owner);
        if (!c)
            return &applied->refusals[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static struct verdict refused(const struct planner *p, const struct memo *m,
                              const struct applied *applied, struct arena *a)
{
    if (!applied->n_refusals)
        return (struct verdict){ 0 };
    const struct refusal *r = refusal_of(applied, m->owner);
    if (!r && m->group)
        r = refusal_of(applied, "node");
    for (size_t i = 0; i < m->pairs.n && !r; i++)
        if (m->pairs.v[i].pair->state.local)
            r = refusal_of(applied, link_owner(a, m->pairs.v[i].pair));
    if (!r)
        return (struct verdict){ 0 };
    return (struct verdict){ .reason = "NodeNotReady",
                             .message = arena_printf(a, "node %s: %s: %s", p->snap->node, r->object,
                                                     r->text) };
}

/* ---- conditions ---- */

struct condition condition_make(struct arena *a, const struct condition_list *old, const char *type,
                                bool status, const char *reason, const char *message,
                                int64_t generation, int64_t now)
{
    struct condition c = { .type = type,
                           .status = status ? TRI_TRUE : TRI_FALSE,
                           .reason = arena_strdup(a, reason),
                           .message = arena_strdup(a, message),
                           .observed_generation = generation,
                           .last_transition = now };
    const struct condition *was = condition_find(old, type);
    if (was && was->status == c.status)
        c.last_transition = was->last_transition;
    return c;
}

static void put_conditions(const struct planner *p, const struct memo *m,
                           const struct applied *applied, struct portmap_status *st,
                           struct arena *a)
{
    const struct condition_list *old = &m->pm->status.conditions;
    int64_t generation = m->pm->o.meta.generation, now = p->snap->now;
    st->conditions.v = arena_new_array(a, 2, struct condition);
    struct verdict v = admission_verdict(m, a);
    st->conditions.v[st->conditions.n++] =
        condition_make(a, old, "Accepted", memo_accepted(m), v.reason, v.message, generation, now);
    if (!memo_accepted(m))
        return;
    v = programmed_verdict(p, m, a);
    if (!v.reason)
        v = refused(p, m, applied, a);
    if (v.reason) {
        st->conditions.v[st->conditions.n++] =
            condition_make(a, old, "Programmed", false, v.reason, v.message, generation, now);
    } else if (applied->acknowledged) {
        st->conditions.v[st->conditions.n++] =
            condition_make(a, old, "Programmed", true, "AllNodesReady", "", generation, now);
    } else {
        const struct condition *was = condition_find(old, "Programmed");
        if (was)
            st->conditions.v[st->conditions.n++] = *was;
    }
}

/* ---- published ---- */

static const struct ip *published_address(const struct planner *p, size_t iface,
                                          enum family_index f)
{
    const struct host_iface *h = &p->snap->host->ifaces[iface];
    uint8_t family = f == F4 ? IP_V4 : IP_V6;
    const struct ip *second = NULL;
    for (uint32_t i = 0; i < h->n_addresses; i++) {
        const struct host_address *addr = &h->addresses[i];
        if (addr->ip.family != family || !host_owns(p, iface, i))
            continue;
        if (!addr->temporary && !addr->deprecated)
            return &addr->ip;
        if (!second)
            second = &addr->ip;
    }
    return second;
}

static void put_published(const struct planner *p, const struct memo *m, struct portmap_status *st,
                          struct arena *a)
{
    const struct class_view *cls = m->cls;
    if (!memo_accepted(m) || cls->self < 0 || cls->self != m->serving)
        return;
    const struct string_list *l = &cls->accepting[cls->self].spec->interfaces;
    bool v6 = portmap_delivers(p, m, F6);
    bool v4 = m->choice.t[F4].wanted;
    st->published = arena_new_array(a, l->n * 2ul, struct published);
    for (uint32_t i = 0; i < l->n; i++) {
        if (!portmap_asks_for(m->pm, l->v[i]))
            continue;
        struct published row = { p->snap->node, arena_strdup(a, l->v[i]), "" };
        uint32_t before = st->n_published;
        for (enum family_index f = F4; f < F_COUNT; f++) {
            bool wanted = f == F4 ? v4 : v6;
            const struct ip *ip = wanted && cls->self_ifaces[i] >= 0
                                      ? published_address(p, (size_t)cls->self_ifaces[i], f)
                                      : NULL;
            if (!ip)
                continue;
            row.address = ip_format(ip, arena_alloc(a, IP_TEXT_MAX));
            st->published[st->n_published++] = row;
        }
        if (st->n_published == before)
            st->published[st->n_published++] = row;
    }
}

/* ---- all of them ---- */

static struct portmap_status make_status(const struct planner *p, const struct memo *m,
                                         const struct applied *applied, struct arena *a)
{
    struct portmap_status st = { .observed_generation = m->pm->o.meta.generation };
    if (memo_accepted(m) && m->choice.node) {
        st.has_endpoint = true;
        st.endpoint_node = arena_strdup(a, m->choice.node);
        st.endpoint_address = arena_strdup(a, m->choice.address);
    }
    put_published(p, m, &st, a);
    put_conditions(p, m, applied, &st, a);
    return st;
}

/* Appends the write if one is due; false when the mapping needs no further look. */
static bool write_one(struct planner *p, struct memo *m, const struct applied *applied)
{
    const char *writer = status_writer(p, m);
    if (!writer || strcmp(writer, p->snap->node))
        return false;
    struct arena *a = &p->status_mem;
    struct portmap_status st = make_status(p, m, applied, a);
    if (portmap_status_equal(&st, &m->pm->status))
        return !applied->acknowledged; /* Programmed=True may be due then */
    status_add(p, WRITE_PORTMAP_STATUS, &m->pm->o.meta)->portmap = st;
    return true;
}

static uint64_t refusals_hash(const struct applied *applied)
{
    uint64_t h = applied->n_refusals;
    for (size_t i = 0; i < applied->n_refusals; i++) {
        const struct refusal *r = &applied->refusals[i];
        const char *const part[] = { r->owner, r->object, r->text };
        for (int j = 0; j < 3; j++)
            h = h * 31 + hash_bytes(part[j], strlen(part[j]));
    }
    return h;
}

static int by_namespace(const void *x, const void *y)
{
    const struct meta *a = &(*(struct memo *const *)x)->pm->o.meta;
    const struct meta *b = &(*(struct memo *const *)y)->pm->o.meta;
    int c = strcmp(a->ns, b->ns);
    return c ? c : strcmp(a->name, b->name);
}

struct status_writes plan_statuses(struct planner *p, const struct snapshot *snap,
                                   const struct applied *applied)
{
    arena_reset(&p->status_mem);
    vec_done(&p->writes); /* a full pass's are many and large, the next ones' few */
    p->snap = planner_view(p, snap);
    uint64_t hash = refusals_hash(applied);
    for (size_t i = 0; hash != p->refusals_seen && i < p->memos.n; i++)
        status_enqueue(p, p->memos.v[i]);
    p->refusals_seen = hash;
    if (p->status_queue.n > 1)
        qsort(p->status_queue.v, p->status_queue.n, sizeof(p->status_queue.v[0]), by_namespace);
    size_t kept = 0;
    for (size_t i = 0; i < p->status_queue.n; i++) {
        struct memo *m = p->status_queue.v[i];
        m->queued = write_one(p, m, applied);
        if (m->queued)
            p->status_queue.v[kept++] = m;
    }
    p->status_queue.n = kept;
    class_statuses(p);
    if (p->traffic)
        traffic_statuses(p, applied);
    if (p->loadbalancer)
        lb_statuses(p, applied);
    else
        lb_unpublish(p);
    return (struct status_writes){ p->writes.v, p->writes.n };
}
