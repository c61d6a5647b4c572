/* What this node owes the class statuses: its row, claims of slots, and, if it is the one to
 * say it, the condition.
 *
 * Claims are proposed by the agent on the pod's node. That a pair is no longer needed is
 * recorded, and its claim dropped a day later, by the agent of the first of its two nodes
 * that exists; when neither does, by the writer of the condition. */
#include <stdio.h>

#include "plan/internal.h"

#define UNUSED_KEPT (24 * 3600)

struct work { /* one class's claims as this node would have them */
    VEC(struct link_claim) links;
    bool changed;
    const struct pair *without; /* needs a slot and finds none */
};

const char *class_writer(const struct planner *p, const struct class_view *cls)
{
    for (size_t i = 0; i < cls->n_accepting; i++)
        if (cls->accepting[i].row)
            return cls->accepting[i].name;
    if (cls->n_accepting || !p->snap->n_nodes)
        return NULL;
    return p->snap->nodes[0]->o.meta.name; /* nobody accepts: so that old rows go */
}

static bool is_self(const struct planner *p, const char *node)
{
    return node && !strcmp(node, p->snap->node);
}

/* ---- row ---- */

static const char *row_trouble(struct planner *p, const struct class_view *v, bool *ret_ready)
{
    struct arena *a = &p->status_mem;
    const struct host *h = p->snap->host;
    const struct string_list *l = &v->accepting[v->self].spec->interfaces;
    *ret_ready = false;
    for (uint32_t i = 0; i < l->n; i++) {
        const char *what = class_iface_trouble(h, v, i);
        if (what)
            return arena_printf(a, "interface %s %s", l->v[i], what);
    }
    if (*h->forwarding4_error)
        return arena_printf(a, "IPv4 forwarding is off and cannot be switched on: %s",
                            h->forwarding4_error);
    *ret_ready = true;
    if (p->programs[F6] && host_v6_trouble(h))
        return arena_printf(a, "IPv6 is not delivered: %s", host_v6_trouble(h));
    return "";
}

static int by_interface(const void *x, const void *y)
{
    return strcmp(((const struct node_row_address *)x)->interface,
                  ((const struct node_row_address *)y)->interface);
}

static struct node_row make_row(struct planner *p, const struct class_view *v)
{
    struct arena *a = &p->status_mem;
    const struct host *h = p->snap->host;
    const struct string_list *l = &v->accepting[v->self].spec->interfaces;
    struct node_row row = { .name = p->snap->node, .underlay_mtu = p->underlay_mtu };
    row.message = row_trouble(p, v, &row.ready);
    row.link_mtu = row.underlay_mtu > VXLAN_OVERHEAD ? row.underlay_mtu - VXLAN_OVERHEAD : 0;
    row.addresses = arena_new_array(a, l->n, struct node_row_address);
    for (uint32_t i = 0; i < l->n; i++) {
        const struct host_iface *iface =
            v->self_ifaces[i] < 0 ? NULL : &h->ifaces[v->self_ifaces[i]];
        if (!iface || !iface->n_addresses)
            continue;
        row.addresses[row.n_addresses++] =
            (struct node_row_address){ arena_strdup(a, l->v[i]),
                                       ip_format(&iface->addresses[0].ip,
                                                 arena_alloc(a, IP_TEXT_MAX)) };
    }
    if (row.n_addresses > 1)
        qsort(row.addresses, row.n_addresses, sizeof(row.addresses[0]), by_interface);
    return row;
}

static void write_row(struct planner *p, const struct class_view *v)
{
    if (v->self < 0)
        return;
    struct node_row row = make_row(p, v);
    const struct node_row *old = v->accepting[v->self].row;
    if (!old || !node_row_equal(old, &row))
        status_add(p, WRITE_CLASS_ROW, &v->obj->o.meta)->row = row;
}

/* ---- slots ---- */

static void take(uint8_t *taken, const struct class_view *cls, uint64_t slot)
{
    if (slot < cls->slots[F4])
        taken[slot / 8] |= (uint8_t)(1u << slot % 8);
}

static uint64_t ip4_number(const struct ip *ip)
{
    return (uint64_t)ip->bytes[0] << 24 | (uint64_t)ip->bytes[1] << 16 |
           (uint64_t)ip->bytes[2] << 8 | ip->bytes[3];
}

/* A claim of another class takes, on a node of this pair: the slot of its own number (mark and
 * routing table), that of its VNI, and that of its addresses. */
static void take_foreign(uint8_t *taken, const struct class_view *cls, const struct class_view *o,
                         const struct link_claim *claim)
{
    struct ip end[2];
    take(taken, cls, claim->slot);
    if (o->obj->vxlan_port == cls->obj->vxlan_port)
        take(taken, cls, (uint64_t)o->obj->vni + claim->slot - cls->obj->vni);
    if (link_ends(o, F4, claim->slot, end) && ip_prefix_contains(&cls->subnet[F4], &end[0]))
        take(taken, cls, (ip4_number(&end[0]) - ip4_number(&cls->subnet[F4].ip)) / 2);
}

/* The lowest slot nobody has, or -1. `works` holds the claims by class, as in planner.classes. */
static int64_t free_slot(struct planner *p, const struct work *works, const struct pair *pair)
{
    const struct class_view *cls = pair->cls;
    uint8_t *taken = arena_alloc(&p->status_mem, cls->slots[F4] / 8 + 1);
    for (size_t c = 0; c < p->n_classes; c++) {
        const struct class_view *o = &p->classes[c];
        for (size_t i = 0; i < works[c].links.n; i++) {
            const struct link_claim *claim = &works[c].links.v[i];
            if (o == cls && strcmp(claim->key, pair->key))
                take(taken, cls, claim->slot);
            else if (o != cls &&
                     (pair_side(pair, claim->peer[0]) >= 0 || pair_side(pair, claim->peer[1]) >= 0))
                take_foreign(taken, cls, o, claim);
        }
    }
    for (uint32_t s = 0; s < cls->slots[F4]; s++)
        if (!(taken[s / 8] & 1u << s % 8))
            return s;
    return -1;
}

/* ---- claims ---- */

static bool needs_claim(const struct pair *pair)
{
    return pair_used(pair) && !pair->cls->blocked.reason && !pair->state.landed;
}

static size_t claim_lower_bound(const struct work *w, const char *key)
{
    size_t i = 0;
    while (i < w->links.n && strcmp(w->links.v[i].key, key) < 0)
        i++;
    return i;
}

static void propose(struct planner *p, struct work *works, const struct pair *pair)
{
    struct work *w = &works[pair->cls - p->classes];
    struct arena *a = &p->status_mem;
    int64_t slot = free_slot(p, works, pair);
    if (slot < 0)
        return;
    size_t at = claim_lower_bound(w, pair->key);
    if (at == w->links.n || strcmp(w->links.v[at].key, pair->key))
        (void)vec_insert(&w->links, at);
    w->links.v[at] = (struct link_claim){ .key = arena_strdup(a, pair->key),
                                          .peer = { arena_strdup(a, pair->peer[0]),
                                                    arena_strdup(a, pair->peer[1]) },
                                          .subnet = link_subnet_text(a, pair->cls, (uint32_t)slot),
                                          .slot = (uint32_t)slot };
    w->changed = true;
}

static const char *claim_keeper(const struct planner *p, const struct class_view *v,
                                const struct link_claim *claim)
{
    for (int i = 0; i < 2; i++)
        if (snapshot_node(p->snap, claim->peer[i]))
            return claim->peer[i];
    return class_writer(p, v);
}

/* Marks or drops an unused claim; true to keep it. */
static bool keep_claim(struct planner *p, const struct class_view *v, struct work *w,
                       struct link_claim *claim)
{
    if (!is_self(p, claim_keeper(p, v, claim)))
        return true;
    struct link_claim was = *claim;
    const struct pair *pair = links_find(p, v->obj->o.meta.name, claim->key);
    if (pair)
        claim->unused_since = 0;
    else if (!claim->unused_since)
        claim->unused_since = p->snap->now;
    const char *subnet = link_subnet_text(&p->status_mem, v, claim->slot);
    if (*subnet)
        claim->subnet = subnet;
    bool keep = pair || p->snap->now - claim->unused_since < UNUSED_KEPT;
    w->changed |= !keep || !link_claim_equal(&was, claim);
    return keep;
}

static void keep_claims(struct planner *p, const struct class_view *v, struct work *w)
{
    const struct class_status *s = &v->obj->status;
    for (uint32_t i = 0; i < s->n_links; i++) {
        struct link_claim claim = s->links[i];
        if (keep_claim(p, v, w, &claim))
            vec_push(&w->links, claim);
    }
}

static void write_links(struct planner *p, const struct class_view *v, const struct work *w)
{
    if (!w->changed)
        return;
    struct arena *a = &p->status_mem;
    struct status_write *write = status_add(p, WRITE_CLASS_LINKS, &v->obj->o.meta);
    write->links = arena_new_array(a, w->links.n, struct link_claim);
    write->n_links = (uint32_t)w->links.n;
    for (size_t i = 0; i < w->links.n; i++) {
        const struct link_claim *c = &w->links.v[i];
        write->links[i] = (struct link_claim){ .key = arena_strdup(a, c->key),
                                               .peer = { arena_strdup(a, c->peer[0]),
                                                         arena_strdup(a, c->peer[1]) },
                                               .subnet = arena_strdup(a, c->subnet),
                                               .slot = c->slot,
                                               .unused_since = c->unused_since };
    }
}

/* ---- condition ---- */

/* A pair that needs a slot and finds none, or NULL. */
static const struct pair *exhausted(struct planner *p, const struct work *works,
                                    const struct class_view *v)
{
    for (size_t i = 0; i < p->pairs.n; i++)
        if (p->pairs.v[i]->cls == v && needs_claim(p->pairs.v[i]) &&
            free_slot(p, works, p->pairs.v[i]) < 0)
            return p->pairs.v[i];
    return NULL;
}

static struct condition make_condition(struct planner *p, const struct work *w,
                                       const struct class_view *v)
{
    struct arena *a = &p->status_mem;
    const char *reason = v->blocked.reason, *message = v->blocked.message;
    if (w->without) {
        reason = "SubnetExhausted";
        message = arena_printf(a, "link %s needs a slot, and subnet %s has none left of its %u",
                               w->without->key, v->obj->subnet, v->slots[F4]);
    }
    bool ready = !reason;
    if (ready) {
        reason = "Valid";
        message = v->subnet6_trouble
                      ? arena_printf(a, "links carry IPv4 only: %s", v->subnet6_trouble)
                      : "";
    }
    return condition_make(a, &v->obj->status.conditions, "Ready", ready, reason, message,
                          v->obj->o.meta.generation, p->snap->now);
}

static void write_condition(struct planner *p, const struct class_view *v, const struct work *w)
{
    if (!is_self(p, class_writer(p, v)))
        return;
    struct arena *a = &p->status_mem;
    const struct class_status *s = &v->obj->status;
    struct condition_list list = { arena_new(a, struct condition), 1 };
    list.v[0] = make_condition(p, w, v);
    struct string_list drop = { arena_new_array(a, s->n_nodes, const char *), 0 };
    for (uint32_t i = 0; i < s->n_nodes; i++)
        if (class_accepting(v, s->nodes[i].name) < 0)
            drop.v[drop.n++] = arena_strdup(a, s->nodes[i].name);
    if (!drop.n && s->observed_generation == v->obj->o.meta.generation &&
        conditions_equal(&s->conditions, &list))
        return;
    struct status_write *write = status_add(p, WRITE_CLASS_CONDITION, &v->obj->o.meta);
    write->conditions = list;
    write->observed_generation = v->obj->o.meta.generation;
    write->drop_rows = drop;
}

/* ---- all classes ---- */

static void propose_all(struct planner *p, struct work *works)
{
    for (size_t r = 0; r < p->n_classes; r++) {
        for (size_t i = 0; i < p->pairs.n; i++) {
            const struct pair *pair = p->pairs.v[i];
            int side = pair_side(pair, p->snap->node);
            if (pair->cls == p->by_rank[r] && side >= 0 && pair->uses[side] && needs_claim(pair))
                propose(p, works, pair);
        }
    }
}

void class_statuses(struct planner *p)
{
    if (!p->classes_due)
        return;
    size_t before = p->writes.n;
    bool aging = false;
    struct work *works = arena_new_array(&p->status_mem, p->n_classes, struct work);
    for (size_t i = 0; i < p->n_classes; i++)
        keep_claims(p, &p->classes[i], &works[i]);
    for (size_t i = 0; i < p->n_classes; i++) /* before our own proposals: as recorded */
        works[i].without = exhausted(p, works, &p->classes[i]);
    propose_all(p, works);
    for (size_t i = 0; i < p->n_classes; i++)
        write_row(p, &p->classes[i]);
    for (size_t i = 0; i < p->n_classes; i++)
        write_links(p, &p->classes[i], &works[i]);
    for (size_t i = 0; i < p->n_classes; i++)
        write_condition(p, &p->classes[i], &works[i]);
    for (size_t i = 0; i < p->n_classes; i++) {
        for (size_t j = 0; j < works[i].links.n; j++)
            aging |= works[i].links.v[j].unused_since != 0;
        vec_done(&works[i].links);
    }
    p->classes_due = aging || p->writes.n > before;
}
