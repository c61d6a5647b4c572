/* Return links: which pairs of nodes need one, and whether it can be used.
 *
 * A pair's slot is a claim recorded in the class status, and everything about the link
 * follows from it: the /31 and the /127, VNI, routing table, mark. No part of it exists
 * before the claim is recorded. Claims are proposed in class_status.c. */
#include <stdio.h>

#include "plan/internal.h"

/* ---- counting ---- */

static int pair_cmp(const struct pair *pair, const char *class_name, const char *key)
{
    int c = strcmp(pair->class_name, class_name);
    return c ? c : strcmp(pair->key, key);
}

static size_t lower_bound(const struct planner *p, const char *class_name, const char *key)
{
    return vec_lower_bound(&p->pairs, e, pair_cmp(*e, class_name, key) < 0);
}

struct pair *links_find(const struct planner *p, const char *class_name, const char *key)
{
    size_t i = lower_bound(p, class_name, key);
    return i < p->pairs.n && !pair_cmp(p->pairs.v[i], class_name, key) ? p->pairs.v[i] : NULL;
}

static char *join(const char *a, const char *b)
{
    size_t n = strlen(a) + strlen(b) + 2;
    char *s = xmalloc(n);
    snprintf(s, n, "%s/%s", a, b);
    return s;
}

static struct pair *pair_get(struct planner *p, const struct class_view *cls, const char *a,
                             const char *b)
{
    if (strcmp(a, b) > 0) {
        const char *t = a;
        a = b;
        b = t;
    }
    const char *class_name = cls->obj->o.meta.name;
    char *key = join(a, b);
    size_t i = lower_bound(p, class_name, key);
    if (i < p->pairs.n && !pair_cmp(p->pairs.v[i], class_name, key)) {
        free(key);
        return p->pairs.v[i];
    }
    struct pair *fresh = xcalloc(1, sizeof(*fresh));
    *fresh = (struct pair){ .class_name = xstrdup(class_name),
                            .key = key,
                            .peer = { xstrdup(a), xstrdup(b) },
                            .cls = cls };
    *vec_insert(&p->pairs, i) = fresh;
    return fresh;
}

static void pair_free(struct pair *pair)
{
    free(pair->class_name);
    free(pair->key);
    free(pair->peer[0]);
    free(pair->peer[1]);
    free(pair);
}

static void count(struct planner *p, const struct pair_use *use, bool add)
{
    uint32_t *n = &use->pair->uses[use->pod_side], *n6 = &use->pair->uses6[use->pod_side];
    uint32_t step = add ? 1 : -1u;
    *n += step;
    p->pairs_changed |= *n == (add ? 1 : 0);
    if (use->v6) {
        *n6 += step;
        p->pairs_changed |= *n6 == (add ? 1 : 0);
    }
}

void links_uncount(struct planner *p, struct memo *m)
{
    for (size_t i = 0; i < m->pairs.n; i++)
        count(p, &m->pairs.v[i], false);
    m->pairs.n = 0;
}

void links_count(struct planner *p, struct memo *m)
{
    struct pair_use *old = m->pairs.v;
    size_t n_old = m->pairs.n;
    memset(&m->pairs, 0, sizeof(m->pairs));
    const struct class_view *cls = m->cls;
    bool remote = memo_accepted(m) && cls->obj->return_mode == RETURN_VXLAN && m->choice.node;
    for (size_t i = 0; remote && i < cls->n_accepting; i++) {
        if (portmap_is_local(m, i) || !portmap_programs(m, i))
            continue;
        struct pair_use use = { .pair = pair_get(p, cls, cls->accepting[i].name, m->choice.node),
                                .v6 = m->choice.t[F6].found };
        use.pod_side = (uint8_t)pair_side(use.pair, m->choice.node);
        vec_push(&m->pairs, use);
        count(p, &use, true);
    }
    /* After the new: a use that stays must not look as if it had ended. */
    for (size_t i = 0; i < n_old; i++)
        count(p, &old[i], false);
    free(old);
}

int pair_side(const struct pair *pair, const char *node)
{
    return !strcmp(pair->peer[0], node) ? 0 : !strcmp(pair->peer[1], node) ? 1 : -1;
}

bool pair_used(const struct pair *pair)
{
    return pair->uses[0] || pair->uses[1];
}

void links_done(struct planner *p)
{
    for (size_t i = 0; i < p->pairs.n; i++)
        pair_free(p->pairs.v[i]);
    vec_done(&p->pairs);
}

/* ---- numbers of a slot ---- */

const char *link_owner(struct arena *a, const struct pair *pair)
{
    return arena_printf(a, "class/%s link %s", pair->class_name, pair->key);
}

const char *link_device(struct arena *a, const struct class_view *cls, uint32_t slot)
{
    uint32_t vni = cls->obj->vni + slot;
    if (cls->obj->vxlan_port == LINK_DEFAULT_PORT)
        return arena_printf(a, LINK_PREFIX "%u", vni);
    return arena_printf(a, LINK_PREFIX "%up%x", vni, cls->obj->vxlan_port);
}

uint32_t link_table(uint32_t slot)
{
    uint32_t table = LINK_TABLE_BASE + slot;
    /* 253 to 255 are the kernel's default, main and local. */
    return table >= 253 && table <= 255 ? 65536 + table : table;
}

bool link_ends(const struct class_view *cls, enum family_index f, uint32_t slot,
               struct ip ret_end[2])
{
    if (slot >= cls->slots[f])
        return false;
    struct ip low, high;
    if (!ip_add(&cls->subnet[f].ip, (uint64_t)slot * 2, &low) || !ip_add(&low, 1, &high))
        return false;
    ret_end[0] = low;
    ret_end[1] = high;
    return true;
}

const char *link_subnet_text(struct arena *a, const struct class_view *cls, uint32_t slot)
{
    struct ip end[2];
    char text[IP_TEXT_MAX];
    if (!link_ends(cls, F4, slot, end))
        return "";
    return arena_printf(a, "%s/31", ip_format(&end[0], text));
}

/* ---- claims ---- */

static const struct link_claim *find_claim(const struct class_status *s, const char *key)
{
    for (uint32_t i = 0; i < s->n_links; i++)
        if (!strcmp(s->links[i].key, key))
            return &s->links[i];
    return NULL;
}

/* Both nodes exist, and the key is theirs. */
static bool claim_is_real(const struct snapshot *s, const struct link_claim *claim)
{
    size_t n = strlen(claim->peer[0]);
    return !strncmp(claim->key, claim->peer[0], n) && claim->key[n] == '/' &&
           !strcmp(claim->key + n + 1, claim->peer[1]) && snapshot_node(s, claim->peer[0]) &&
           snapshot_node(s, claim->peer[1]);
}

/* The recorded claim of a pair if it makes sense, or NULL. Of two pairs on one slot that has it
 * whose nodes exist, then the first by key. */
static const struct link_claim *claim_landed(const struct snapshot *snap,
                                             const struct class_view *cls, const char *key)
{
    const struct class_status *s = &cls->obj->status;
    const struct link_claim *claim = find_claim(s, key);
    if (!claim || claim->slot >= cls->slots[F4])
        return NULL;
    bool real = claim_is_real(snap, claim);
    for (uint32_t i = 0; i < s->n_links; i++) {
        const struct link_claim *o = &s->links[i];
        if (o->slot != claim->slot || o == claim)
            continue;
        bool other = claim_is_real(snap, o);
        if (other == real ? strcmp(o->key, key) < 0 : other)
            return NULL;
    }
    return claim;
}

/* ---- state ---- */

static void trouble(struct link_state *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void trouble(struct link_state *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->trouble, sizeof(s->trouble), fmt, ap);
    va_end(ap);
}

/* The ends of a slot are an aligned two, so two links share both addresses or none. */
static bool same_addresses(const struct pair *a, const struct pair *b, enum family_index f)
{
    return a->state.end[0][f].family && ip_equal(&a->state.end[0][f], &b->state.end[0][f]);
}

/* What the two links cannot both have on a node they share, or NULL. */
static const char *clash(const struct pair *a, const struct pair *b)
{
    for (int i = 0; i < 2; i++) {
        int j = pair_side(b, a->peer[i]);
        if (j >= 0 && a->uses[i] && b->uses[j] && a->state.slot == b->state.slot)
            return "mark and routing table";
    }
    const struct portmap_class *c = a->cls->obj, *d = b->cls->obj;
    if (c->vxlan_port == d->vxlan_port && c->vni + a->state.slot == d->vni + b->state.slot)
        return "VNI and port";
    return same_addresses(a, b, F4) ? "addresses" : NULL;
}

static bool share_node(const struct pair *a, const struct pair *b)
{
    return pair_side(a, b->peer[0]) >= 0 || pair_side(a, b->peer[1]) >= 0;
}

static void find_clash(const struct planner *p, struct pair *pair, struct link_state *s)
{
    for (size_t i = 0; i < p->pairs.n; i++) {
        const struct pair *o = p->pairs.v[i];
        if (o->cls->rank >= pair->cls->rank || !o->state.landed || *o->state.trouble ||
            !share_node(pair, o))
            continue;
        const char *what = clash(pair, o);
        if (what) {
            trouble(s, "slot %u of link %s has the same %s as slot %u of link %s of class %s",
                    s->slot, pair->key, what, o->state.slot, o->key, o->class_name);
            return;
        }
        if (same_addresses(pair, o, F6)) /* every class has the same default of subnet6 */
            s->end[0][F6] = s->end[1][F6] = (struct ip){ 0 };
    }
}

static void find_nodes(const struct planner *p, const struct pair *pair, struct link_state *s)
{
    for (int i = 0; i < 2; i++) {
        s->node_ip[i] = node_internal_ip(p->snap, pair->peer[i]);
        if (*s->trouble)
            continue;
        char text[IP_TEXT_MAX];
        const char *what = node_ip_trouble(p, &s->node_ip[i]);
        if (s->node_ip[i].family && what)
            trouble(s, "node %s of link %s has no usable IPv4 InternalIP: %s is %s", pair->peer[i],
                    pair->key, ip_format(&s->node_ip[i], text), what);
        else if (!s->node_ip[i].family)
            trouble(s, "node %s of link %s %s", pair->peer[i], pair->key,
                    snapshot_node(p->snap, pair->peer[i]) ? "has no IPv4 InternalIP"
                                                          : "does not exist");
    }
}

static uint32_t reported_mtu(const struct class_view *cls, const char *node)
{
    int i = class_accepting(cls, node);
    const struct node_row *row = i >= 0 ? cls->accepting[i].row : NULL;
    if (!row)
        return 0;
    if (row->link_mtu)
        return row->link_mtu;
    return row->underlay_mtu > VXLAN_OVERHEAD ? row->underlay_mtu - VXLAN_OVERHEAD : 0;
}

#define MTU_MIN  68   /* RFC 791 */
#define MTU6_MIN 1280 /* RFC 8200: below it the kernel takes IPv6 off a device */

/* The kernel would take the end for another node's, or another's address for the end. */
static void find_overlap(const struct planner *p, const struct pair *pair, struct link_state *s)
{
    const struct host *h = p->snap->host;
    char text[IP_TEXT_MAX], net[IP_PREFIX_TEXT_MAX];
    for (uint32_t i = 0; i < h->n_ifaces; i++) {
        for (uint32_t j = 0; j < h->ifaces[i].n_addresses; j++) {
            const struct host_address *addr = &h->ifaces[i].addresses[j];
            struct ip_prefix prefix = { addr->ip, addr->prefix_len };
            enum family_index f = addr->ip.family == IP_V4 ? F4 : F6;
            for (int side = 0; side < 2 && (f == F4 || s->v6); side++) {
                if (!ip_prefix_contains(&prefix, &s->end[side][f]))
                    continue;
                prefix = ip_prefix_masked(&prefix);
                trouble(s, "address %s of link %s lies in %s of interface %s of node %s",
                        ip_format(&s->end[side][f], text), pair->key,
                        ip_prefix_format(&prefix, net), h->ifaces[i].name, p->snap->node);
                return;
            }
        }
    }
}

/* What only this node knows, being one of the two. */
static void find_local(const struct planner *p, const struct pair *pair, struct link_state *s)
{
    int side = pair_side(pair, p->snap->node);
    s->local = side >= 0;
    if (!s->local)
        return;
    char text[IP_TEXT_MAX];
    uint32_t peer = reported_mtu(pair->cls, pair->peer[!side]);
    s->mtu = p->underlay_mtu > VXLAN_OVERHEAD ? p->underlay_mtu - VXLAN_OVERHEAD : 0;
    if (peer && peer < s->mtu)
        s->mtu = peer;
    s->v6 = (pair->uses6[0] || pair->uses6[1]) && s->end[0][F6].family && s->mtu >= MTU6_MIN &&
            !host_v6_trouble(p->snap->host);
    if (*s->trouble)
        return;
    if (!p->underlay_mtu)
        trouble(s, "no interface of node %s holds its InternalIP %s", p->snap->node,
                ip_format(&s->node_ip[side], text));
    else if (s->mtu < MTU_MIN)
        trouble(s,
                "the interface that holds InternalIP %s of node %s has room for a link MTU of %u",
                ip_format(&s->node_ip[side], text), p->snap->node, s->mtu);
    else
        find_overlap(p, pair, s);
}

static void find_slot(const struct planner *p, const struct pair *pair, struct link_state *s)
{
    const struct class_view *cls = pair->cls;
    const struct link_claim *claim =
        cls->blocked.reason ? NULL : claim_landed(p->snap, cls, pair->key);
    s->landed = claim != NULL;
    s->slot = claim ? claim->slot : 0;
    for (enum family_index f = F4; claim && f < F_COUNT; f++) {
        struct ip end[2];
        if (!link_ends(cls, f, s->slot, end))
            continue;
        s->end[0][f] = end[0];
        s->end[1][f] = end[1];
    }
}

static void missing_slot(const struct pair *pair, struct link_state *s)
{
    const struct condition *c = condition_find(&pair->cls->obj->status.conditions, "Ready");
    s->pending = !c || strcmp(c->reason, "SubnetExhausted");
    if (!s->pending)
        trouble(s, "no slot is recorded in class %s for link %s, and subnet %s has none left",
                pair->class_name, pair->key, pair->cls->obj->subnet);
    else
        trouble(s,
                "no slot is recorded yet in class %s for link %s: the agent on node %s records it, "
                "is it running?",
                pair->class_name, pair->key, pair->peer[!pair->uses[0]]);
}

static void find_state(const struct planner *p, struct pair *pair)
{
    struct link_state s, old = pair->state;
    memset(&s, 0, sizeof(s));
    find_slot(p, pair, &s);
    if (pair->cls->blocked.reason)
        trouble(&s, "class %s is not ready for links: %s", pair->class_name,
                pair->cls->blocked.message);
    find_nodes(p, pair, &s);
    if (!s.landed && !*s.trouble)
        missing_slot(pair, &s);
    pair->state = s; /* a clash is between two states */
    if (s.landed && !*s.trouble)
        find_clash(p, pair, &s);
    find_local(p, pair, &s);
    pair->changed = memcmp(&old, &s, sizeof(s)) != 0;
    pair->state = s;
}

bool links_resolve(struct planner *p)
{
    if (!p->pairs_changed)
        return false;
    size_t kept = 0;
    for (size_t i = 0; i < p->pairs.n; i++) {
        if (pair_used(p->pairs.v[i]))
            p->pairs.v[kept++] = p->pairs.v[i];
        else
            pair_free(p->pairs.v[i]);
    }
    p->pairs.n = kept;
    bool changed = false;
    for (size_t r = 0; r < p->n_classes; r++) {
        const struct class_view *cls = p->by_rank[r];
        size_t i = lower_bound(p, cls->obj->o.meta.name, "");
        for (; i < p->pairs.n && p->pairs.v[i]->cls == cls; i++) {
            find_state(p, p->pairs.v[i]);
            changed |= p->pairs.v[i]->changed;
        }
    }
    return changed;
}
