/* Who holds a port. Mappings are settled oldest first; a change makes those wait that it can
 * concern, and each that changes its standing makes the younger ones on its ports wait in turn.
 *
 * The same walk settles lanes: over one link the pod's node tells mappings apart by protocol
 * and port only, so two mappings of a class that answer on different interfaces of one
 * node cannot both reach pods on the same other node by the same port. The older one does. */
#include "plan/internal.h"

bool memo_before(const struct memo *a, const struct memo *b)
{
    if (a->creation != b->creation)
        return a->creation < b->creation;
    return strcmp(a->owner, b->owner) < 0;
}

/* ---- the index ---- */

static void index_add(struct port_index *x, struct memo *m)
{
    for (unsigned b = m->port / BUCKET_PORTS; b <= m->end / BUCKET_PORTS; b++)
        vec_push(&x->bucket[m->proto_index][b], m);
}

static void index_del(struct port_index *x, const struct memo *m)
{
    for (unsigned b = m->port / BUCKET_PORTS; b <= m->end / BUCKET_PORTS; b++) {
        struct memo_vec *v = &x->bucket[m->proto_index][b];
        for (size_t i = 0; i < v->n; i++) {
            if (v->v[i] == m) {
                v->v[i] = v->v[--v->n];
                break;
            }
        }
    }
}

void conflict_reset(struct planner *p)
{
    for (int i = 0; i < PROTO_COUNT; i++)
        for (size_t b = 0; b < 65536 / BUCKET_PORTS; b++)
            p->contenders.bucket[i][b].n = p->accepted.bucket[i][b].n = 0;
    for (size_t i = 0; i < p->memos.n; i++) {
        struct memo *m = p->memos.v[i];
        m->in_contenders = m->in_accepted = false;
        m->holder = m->lane = NULL;
    }
}

void conflict_done(struct planner *p)
{
    for (int i = 0; i < PROTO_COUNT; i++) {
        for (size_t b = 0; b < 65536 / BUCKET_PORTS; b++) {
            vec_done(&p->contenders.bucket[i][b]);
            vec_done(&p->accepted.bucket[i][b]);
        }
    }
    vec_done(&p->waiting);
}

static bool overlap(const struct memo *a, const struct memo *b)
{
    return a->port <= b->end && b->port <= a->end;
}

/* ---- questions about two mappings ---- */

static bool share_interface(const struct memo *a, const struct memo *b)
{
    const struct portmap_class *c = a->cls->obj, *d = b->cls->obj;
    for (uint32_t i = 0, j = 0; i < c->n_nodes && j < d->n_nodes;) {
        int cmp = strcmp(c->nodes[i].name, d->nodes[j].name);
        if (cmp) {
            cmp < 0 ? i++ : j++;
            continue;
        }
        const struct string_list *x = &c->nodes[i++].interfaces, *y = &d->nodes[j++].interfaces;
        for (uint32_t k = 0; k < x->n; k++)
            for (uint32_t l = 0; l < y->n; l++)
                if (!strcmp(x->v[k], y->v[l]) && portmap_asks_for(a->pm, x->v[k]) &&
                    portmap_asks_for(b->pm, x->v[k]))
                    return true;
    }
    return false;
}

static bool share_lane(const struct memo *a, const struct memo *b)
{
    if (a->cls != b->cls || !a->choice.node || !b->choice.node || b->lane ||
        a->cls->obj->return_mode != RETURN_VXLAN || strcmp(a->choice.node, b->choice.node))
        return false;
    for (size_t i = 0; i < a->cls->n_accepting; i++)
        if (!portmap_is_local(a, i) && portmap_programs(a, i) && portmap_programs(b, i))
            return true;
    return false;
}

/* The oldest accepted mapping before `m` on its ports for which `share` holds. */
static struct memo *oldest(const struct planner *p, const struct memo *m,
                           bool (*share)(const struct memo *, const struct memo *))
{
    struct memo *found = NULL;
    for (unsigned b = m->port / BUCKET_PORTS; b <= m->end / BUCKET_PORTS; b++) {
        const struct memo_vec *v = &p->accepted.bucket[m->proto_index][b];
        for (size_t i = 0; i < v->n; i++) {
            struct memo *o = v->v[i];
            if (o != m && overlap(o, m) && memo_before(o, m) && (!found || memo_before(o, found)) &&
                share(m, o))
                found = o;
        }
    }
    return found;
}

/* ---- settling ---- */

void conflict_enqueue(struct planner *p, struct memo *m)
{
    if (m->waiting)
        return;
    m->waiting = true;
    if (!p->settling) { /* sorted once, when all are there */
        vec_push(&p->waiting, m);
        return;
    }
    size_t at = vec_lower_bound(&p->waiting, e, memo_before(*e, m));
    *vec_insert(&p->waiting, at) = m;
}

static void wake_younger(struct planner *p, const struct memo *m)
{
    for (unsigned b = m->port / BUCKET_PORTS; b <= m->end / BUCKET_PORTS; b++) {
        const struct memo_vec *v = &p->contenders.bucket[m->proto_index][b];
        for (size_t i = 0; i < v->n; i++)
            if (v->v[i] != m && overlap(v->v[i], m) && !memo_before(v->v[i], m))
                conflict_enqueue(p, v->v[i]);
    }
}

void conflict_forget(struct planner *p, struct memo *m)
{
    if (m->in_contenders) {
        wake_younger(p, m);
        index_del(&p->contenders, m);
    }
    if (m->in_accepted)
        index_del(&p->accepted, m);
    m->in_contenders = m->in_accepted = false;
    m->holder = m->lane = NULL;
}

static void settle_one(struct planner *p, struct memo *m)
{
    bool was_in = m->in_accepted;
    struct memo *was_holder = m->holder, *was_lane = m->lane;
    if (m->in_accepted)
        index_del(&p->accepted, m);
    bool contends = m->merits == ADMIT_VALID;
    if (contends && !m->in_contenders) {
        index_add(&p->contenders, m);
        m->in_contenders = true;
    }
    m->holder = contends ? oldest(p, m, share_interface) : NULL;
    m->in_accepted = contends && !m->holder;
    m->lane = m->in_accepted ? oldest(p, m, share_lane) : NULL;
    if (m->in_accepted)
        index_add(&p->accepted, m);
    bool changed = was_in != m->in_accepted || was_holder != m->holder || was_lane != m->lane;
    if (changed)
        memo_due(p, m);
    if (!p->full && m->in_contenders && (changed || m->resolve))
        wake_younger(p, m);
}

static int by_age(const void *x, const void *y)
{
    const struct memo *a = *(struct memo *const *)x, *b = *(struct memo *const *)y;
    return memo_before(a, b) ? -1 : memo_before(b, a);
}

void conflict_settle(struct planner *p)
{
    if (p->waiting.n > 1)
        qsort(p->waiting.v, p->waiting.n, sizeof(p->waiting.v[0]), by_age);
    p->settling = true; /* the queue grows, but only behind the one being settled */
    for (size_t i = 0; i < p->waiting.n; i++) {
        struct memo *m = p->waiting.v[i];
        m->waiting = false;
        if (!m->gone)
            settle_one(p, m);
    }
    p->waiting.n = 0;
    p->settling = false;
}
