/* One mapping: who programs it, and what this node programs for it.
 *
 * Where a port is ours but leads nowhere it refuses: no ready endpoint; an endpoint of the
 * other family only; a link whose slot is not recorded yet or that cannot be used. The
 * exception is returnPath.mode None with a pod elsewhere, where nothing is programmed anywhere. */
#include "plan/internal.h"

bool portmap_asks_for(const struct portmap *pm, const char *interface)
{
    for (uint32_t i = 0; i < pm->interfaces.n; i++)
        if (!strcmp(pm->interfaces.v[i], interface))
            return true;
    return !pm->interfaces.n;
}

bool portmap_has_interface(const struct memo *m, size_t i)
{
    const struct string_list *l = &m->cls->accepting[i].spec->interfaces;
    for (uint32_t j = 0; j < l->n; j++)
        if (portmap_asks_for(m->pm, l->v[j]))
            return true;
    return false;
}

bool portmap_programs(const struct memo *m, size_t i)
{
    if (m->cls->obj->serving_mode == SERVING_SINGLE && (int)i != m->serving)
        return false;
    return portmap_has_interface(m, i);
}

bool portmap_is_local(const struct memo *m, size_t i)
{
    return m->choice.node && !strcmp(m->cls->accepting[i].name, m->choice.node);
}

bool portmap_is_refused_by_none(const struct memo *m, const char **ret_node)
{
    if (m->cls->obj->return_mode != RETURN_NONE || !m->choice.node)
        return false;
    for (size_t i = 0; i < m->cls->n_accepting; i++) {
        if (portmap_programs(m, i) && !portmap_is_local(m, i)) {
            *ret_node = m->cls->accepting[i].name;
            return true;
        }
    }
    return false;
}

void portmap_resolve(struct planner *p, struct memo *m)
{
    m->cls = class_find(p, m->pm->class_name);
    m->choice = selection_choose(p->snap, m->pm, m->cls);
    m->serving = m->cls && m->choice.node ? class_accepting(m->cls, m->choice.node) : -1;
    if (m->serving < 0 && m->cls && m->cls->n_accepting)
        m->serving = 0;
    m->merits = admission_merits(p->snap, m);
}

/* ---- elements ---- */

static void put_refuse(struct nft_group_builder *b, const struct memo *m, const struct ip *dialled)
{
    enum l4proto proto = m->pm->protocol;
    if (m->end - m->port >= EXPANDED_PORTS) {
        nft_put_flow(b, NFT_REFUSERANGE4, dialled, proto, m->port, m->end);
        return;
    }
    for (uint32_t port = m->port; port <= m->end; port++)
        nft_put_flow(b, NFT_REFUSE4, dialled, proto, (uint16_t)port, (uint16_t)port);
}

static void put_open(struct nft_group_builder *b, const struct memo *m, const struct ip *dialled,
                     const struct ip *target, uint16_t target_port)
{
    enum l4proto proto = m->pm->protocol;
    /* The host's own socket, which is reached without us: see NFT_OPEN4. */
    if (ip_equal(dialled, target) && target_port == m->port)
        return;
    if (m->end - m->port >= EXPANDED_PORTS) {
        nft_put_flow(b, NFT_OPENRANGE4, dialled, proto, m->port, m->end);
        nft_put_target(b, NFT_TARGETRANGE4, dialled, proto, m->port, m->end, target, 0);
        return;
    }
    for (uint32_t port = m->port; port <= m->end; port++) {
        uint16_t to = (uint16_t)(target_port + (port - m->port));
        nft_put_flow(b, NFT_OPEN4, dialled, proto, (uint16_t)port, (uint16_t)port);
        nft_put_target(b, NFT_TARGET4, dialled, proto, (uint16_t)port, (uint16_t)port, target, to);
    }
}

/* The use of the link between this node and the one that programs (or holds the pod). */
static const struct pair_use *find_use(const struct memo *m, const char *peer, const char *self)
{
    for (size_t i = 0; i < m->pairs.n; i++)
        if (pair_side(m->pairs.v[i].pair, peer) >= 0 && pair_side(m->pairs.v[i].pair, self) >= 0)
            return &m->pairs.v[i];
    return NULL;
}

static bool link_carries(const struct memo *m, const struct pair_use *use, enum family_index f)
{
    const struct link_state *s = use ? &use->pair->state : NULL;
    return s && !m->lane && !*s->trouble && (f == F4 || s->v6);
}

struct way { /* where this node sends one family of a mapping */
    bool open;
    struct ip to;
    uint16_t port;
};

/* Without forwarding the host reaches nothing but itself. */
static bool reaches(const struct planner *p, const struct ip *ip)
{
    const struct host *h = p->snap->host;
    return ip->family != IP_V4 || !host_v4_trouble(h) || host_address_owner(h, ip);
}

static struct way way_out(const struct planner *p, const struct memo *m, enum family_index f)
{
    const struct target *t = &m->choice.t[f];
    if (!t->found || (f == F6 && host_v6_trouble(p->snap->host)))
        return (struct way){ 0 };
    if (portmap_is_local(m, (size_t)m->cls->self))
        return (struct way){ reaches(p, &t->ip), t->ip, t->port };
    const struct pair_use *use = find_use(m, m->choice.node, p->snap->node);
    if (!link_carries(m, use, f))
        return (struct way){ 0 };
    const struct ip *end = &use->pair->state.end[use->pod_side][f];
    return (struct way){ reaches(p, end), *end, m->port };
}

bool portmap_delivers(const struct planner *p, const struct memo *m, enum family_index f)
{
    return way_out(p, m, f).open;
}

static void answer_on(struct planner *p, struct memo *m, struct nft_group_builder *b,
                      enum family_index f, size_t iface, struct way way)
{
    const struct host_iface *h = &p->snap->host->ifaces[iface];
    uint8_t family = f == F4 ? IP_V4 : IP_V6;
    bool any = false;
    for (uint32_t i = 0; i < h->n_addresses; i++) {
        const struct ip *ip = &h->addresses[i].ip;
        if (ip->family != family || !host_owns(p, iface, i))
            continue;
        if (way.open)
            put_open(b, m, ip, &way.to, way.port);
        else
            put_refuse(b, m, ip);
        any = true;
    }
    if (any)
        vec_push(&m->answers.ifaces[f], (uint16_t)iface);
}

static void answer(struct planner *p, struct memo *m, struct nft_group_builder *b)
{
    const struct class_view *cls = m->cls;
    const char *refused;
    if (cls->self < 0 || !portmap_programs(m, (size_t)cls->self) ||
        portmap_is_refused_by_none(m, &refused))
        return;
    const struct string_list *l = &cls->accepting[cls->self].spec->interfaces;
    for (enum family_index f = F4; f < F_COUNT; f++) {
        if (!m->choice.t[f].wanted)
            continue;
        struct way way = way_out(p, m, f);
        for (uint32_t i = 0; i < l->n; i++)
            if (cls->self_ifaces[i] >= 0 && portmap_asks_for(m->pm, l->v[i]))
                answer_on(p, m, b, f, (size_t)cls->self_ifaces[i], way);
    }
}

/* The pod is here and others program: what arrives on our end of each link. */
static void receive(const struct planner *p, struct memo *m, struct nft_group_builder *b)
{
    if (!m->choice.node || strcmp(m->choice.node, p->snap->node))
        return;
    for (size_t i = 0; i < m->pairs.n; i++) {
        const struct pair_use *use = &m->pairs.v[i];
        for (enum family_index f = F4; f < F_COUNT; f++) {
            const struct target *t = &m->choice.t[f];
            const struct ip *end = &use->pair->state.end[use->pod_side][f];
            if (!t->found || !link_carries(m, use, f))
                continue;
            if (reaches(p, &t->ip))
                put_open(b, m, end, &t->ip, t->port);
            else
                put_refuse(b, m, end);
        }
    }
}

static bool group_has_family(const struct nft_group *g, enum family_index f)
{
    enum nft_field address = f == F4 ? NFT_FIELD_IP4 : NFT_FIELD_IP6;
    for (const struct nft_elem *e = NULL; g && (e = nft_group_next(g, e));)
        if (nft_set_defs[e->set].key[0] == address)
            return true;
    return false;
}

/* One more or one less; true when the first came or the last went. */
static bool count(uint32_t *n, bool add)
{
    return add ? !(*n)++ : !--(*n);
}

static void count_answers(struct planner *p, const struct answers *a, bool add)
{
    for (enum family_index f = F4; f < F_COUNT; f++) {
        if (a->any[f])
            p->answers_changed |= count(&p->programs[f], add);
        for (size_t i = 0; i < a->ifaces[f].n; i++)
            p->answers_changed |= count(&p->answers[f].v[a->ifaces[f].v[i]], add);
    }
}

void answers_done(struct answers *a)
{
    vec_done(&a->ifaces[F4]);
    vec_done(&a->ifaces[F6]);
    *a = (struct answers){ 0 };
}

void portmap_withdraw(struct planner *p, struct memo *m)
{
    count_answers(p, &m->answers, false);
    answers_done(&m->answers);
}

void portmap_program(struct planner *p, struct memo *m)
{
    struct answers old = m->answers;
    m->answers = (struct answers){ 0 };
    struct nft_group *fresh = NULL;
    if (memo_accepted(m)) {
        struct nft_group_builder *b = nft_group_begin(m->owner);
        answer(p, m, b);
        receive(p, m, b);
        fresh = nft_group_end(b);
    }
    for (enum family_index f = F4; f < F_COUNT; f++)
        m->answers.any[f] = group_has_family(fresh, f);
    memo_set_group(p, m, fresh);
    /* The old after the new: what stays must not look as if it had gone. */
    count_answers(p, &m->answers, true);
    count_answers(p, &old, false);
    answers_done(&old);
}
