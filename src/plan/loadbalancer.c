/* Which node forwards which address, and who says so. Pure functions of what Nodes publish and
 * Services ask for, so that all nodes agree without a word: an address that one node holds is
 * forwarded by it, any other by nobody. */
#include <stdlib.h>

#include "plan/loadbalancer.h"

/* ---- one Service ---- */

static size_t holders_of(const struct lb_facts *f, const struct ip *ip,
                         const struct held_address **ret)
{
    size_t lo = 0, hi = f->n_held, n = 0;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (ip_cmp(&f->held[mid].ip, ip) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    while (lo + n < f->n_held && ip_equal(&f->held[lo + n].ip, ip))
        n++;
    *ret = f->held + lo;
    return n;
}

/* False unless the status shows exactly one IPv4 address. */
static bool shown(const struct service *s, struct ip *ret)
{
    return s->n_ingress == 1 && lb_ip4_parse(s->ingress[0].ip, ret);
}

/* Who clears a status: the single holder of what it shows, else the first node by name. */
static const char *writer_of(const struct lb_facts *f, const struct service *s)
{
    struct ip ip;
    const struct held_address *holders;
    if (shown(s, &ip) && holders_of(f, &ip, &holders) == 1)
        return f->nodes[holders->node].name;
    return f->n_nodes ? f->nodes[0].name : "";
}

struct held_decision lb_decide(const struct lb_facts *f, const struct service *s)
{
    struct held_decision d = { .state = HELD_INVALID };
    if (s->load_balancer_ip && lb_ip4_parse(s->load_balancer_ip, &d.ip)) {
        d.n_holders = holders_of(f, &d.ip, &d.holders);
        d.state = !d.n_holders ? HELD_BY_NONE : d.n_holders == 1 ? HELD_BY_ONE : HELD_BY_SEVERAL;
    }
    d.writer = d.state == HELD_BY_ONE ? f->nodes[d.holders->node].name : writer_of(f, s);
    return d;
}

/* What is published is what the kernel had a moment ago: the node that loses an address stops before
 * it says so, and another begins later. */
static bool has_still(const struct lb_facts *f, const struct ip *ip)
{
    char text[IP_TEXT_MAX];
    size_t n = strlen(ip_format(ip, text));
    for (const char *at = f->addresses; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (!strncmp(at, text, n) && (!at[n] || at[n] == ','))
            return true;
    }
    return false;
}

static bool is_here(const struct lb_facts *f, const struct held_decision *d)
{
    return d->state == HELD_BY_ONE && &f->nodes[d->holders->node] == f->self &&
           has_still(f, &d->ip);
}

/* Of all by which planning of the Service differs. */
static uint64_t decision_hash(const struct lb_facts *f, const struct held_decision *d)
{
    uint64_t h = hash_bytes(d->writer, strlen(d->writer)) * 31 + (uint64_t)d->state;
    h = h * 31 + is_here(f, d);
    for (size_t i = 0; i < d->n_holders; i++) {
        const char *name = f->nodes[d->holders[i].node].name;
        h = h * 31 + hash_bytes(name, strlen(name));
    }
    return h;
}

static size_t place_of(const struct loadbalancer *x, const struct service_memo *m)
{
    return vec_lower_bound(&x->memos, e, strcmp((*e)->owner, m->owner) < 0);
}

void lb_take(struct planner *p, struct service_memo *m, const struct service *s)
{
    struct loadbalancer *x = p->loadbalancer;
    bool held = s && service_is_held(s);
    if (!held && !m->held)
        return;
    size_t at = place_of(x, m);
    if (held && !m->held)
        *vec_insert(&x->memos, at) = m;
    else if (!held)
        vec_remove(&x->memos, at);
    m->held = held;
    m->held_here = false;
    x->changed = true;
    if (!held)
        return;
    struct held_decision d = lb_decide(&x->facts, s);
    m->held_here = is_here(&x->facts, &d);
    m->held_teller = x->facts.self && !strcmp(d.writer, x->facts.self->name);
    m->held_ip = d.ip;
    m->held_hash = decision_hash(&x->facts, &d);
}

bool lb_moved(const struct planner *p, const struct service_memo *m)
{
    const struct lb_facts *f = &p->loadbalancer->facts;
    if (!m->held)
        return false;
    struct held_decision d = lb_decide(f, m->obj);
    return m->held_here || decision_hash(f, &d) != m->held_hash;
}

/* ---- problems of a Service ---- */

static const char *names_of(struct arena *a, const struct lb_facts *f,
                            const struct held_decision *d)
{
    const char *text = f->nodes[d->holders[0].node].name;
    for (size_t i = 1; i < d->n_holders; i++)
        text = arena_printf(a, "%s, %s", text, f->nodes[d->holders[i].node].name);
    return text;
}

void held_check(const struct planner *p, const struct service_memo *m, struct service_problems *ret)
{
    const struct lb_facts *f = &p->loadbalancer->facts;
    struct held_decision d = lb_decide(f, m->obj);
    struct arena *a = &ret->mem;
    const char *value = m->obj->load_balancer_ip ? m->obj->load_balancer_ip : "";
    const char *reason = "", *message = "";
    switch (d.state) {
    case HELD_INVALID:
        reason = "AddressInvalid";
        message = "an IPv4 address that a node holds is needed, such as 203.0.113.9: it is served "
                  "by no node";
        break;
    case HELD_BY_NONE:
        reason = "NoHolder";
        message = "no node has it on an interface: it is served by none";
        break;
    case HELD_BY_SEVERAL:
        reason = "SeveralHolders";
        message = arena_printf(a,
                               "several nodes have it on an interface (%s): it is served by "
                               "none until one has it alone",
                               names_of(a, f, &d));
        break;
    case HELD_BY_ONE:
        return;
    }
    service_problem(ret, &m->obj->o, "spec.loadBalancerIP", value, reason, message);
    ret->v.v[ret->v.n - 1].event = m->held_teller;
}

/* ---- all Services ---- */

/* Marks go up from a number that follows from the name, past those taken by nodes before it. */
static void give_marks(const struct lb_facts *f)
{
    bool taken[HOLDER_MARK_MAX + 1] = { [LINK_MARK_BASE >> 24] = true };
    uint32_t left = HOLDER_MARK_MAX - 1;
    for (uint32_t i = 0; i < f->n_nodes; i++) {
        struct lb_node *n = &f->nodes[i];
        n->mark = 0;
        if (!n->forwards || n == f->self || !n->overlay.family || !left)
            continue;
        uint32_t m = lb_name_hash(n->name) % HOLDER_MARK_MAX + 1;
        while (taken[m])
            m = m % HOLDER_MARK_MAX + 1;
        taken[m] = true;
        n->mark = (uint8_t)m;
        left--;
    }
}

static int by_ip(const void *a, const void *b)
{
    return ip_cmp(a, b);
}

static void find_forwards(struct loadbalancer *x)
{
    struct lb_facts *f = &x->facts;
    x->addresses.n = 0;
    for (uint32_t i = 0; i < f->n_nodes; i++)
        f->nodes[i].forwards = false;
    for (size_t i = 0; i < x->memos.n; i++) {
        struct held_decision d = lb_decide(f, x->memos.v[i]->obj);
        if (d.state == HELD_BY_ONE)
            f->nodes[d.holders->node].forwards = true;
        if (is_here(f, &d))
            vec_push(&x->addresses, d.ip);
    }
    if (x->addresses.n > 1)
        qsort(x->addresses.v, x->addresses.n, sizeof(x->addresses.v[0]), by_ip);
}

void lb_settle(struct planner *p)
{
    struct loadbalancer *x = p->loadbalancer;
    struct buf outcome = { 0 };
    if (!x->changed)
        return;
    x->changed = false;
    find_forwards(x);
    give_marks(&x->facts);
    for (uint32_t i = 0; i < x->facts.n_nodes; i++)
        if (x->facts.nodes[i].forwards)
            buf_put(&outcome, x->facts.nodes[i].name, strlen(x->facts.nodes[i].name) + 1);
    buf_puts(&outcome, "/");
    if (x->addresses.n)
        buf_put(&outcome, x->addresses.v, x->addresses.n * sizeof(x->addresses.v[0]));
    if (outcome.n != x->outcome.n || memcmp(outcome.p, x->outcome.p, outcome.n) != 0)
        p->answers_changed = true;
    buf_done(&x->outcome);
    x->outcome = outcome;
}

bool lb_forwards(const struct planner *p)
{
    return p->loadbalancer && p->loadbalancer->addresses.n;
}

bool lb_others_forward(const struct planner *p)
{
    const struct lb_facts *f = p->loadbalancer ? &p->loadbalancer->facts : NULL;
    for (uint32_t i = 0; f && f->self && i < f->n_nodes; i++)
        if (f->nodes[i].forwards && &f->nodes[i] != f->self)
            return true;
    return false;
}

bool lb_forwards_here(const struct planner *p, const struct ip *ip)
{
    const struct loadbalancer *x = p->loadbalancer;
    if (!x)
        return false;
    size_t at = vec_lower_bound(&x->addresses, e, ip_cmp(e, ip) < 0);
    return at < x->addresses.n && ip_equal(&x->addresses.v[at], ip);
}

bool lb_tunnel_ends_at(const struct planner *p, const struct ip *ip, uint8_t proto, uint16_t port)
{
    const struct lb_facts *f = &p->loadbalancer->facts;
    return (f->overlay.vxlan || p->options->portmap) && proto == L4_UDP && port == OVERLAY_PORT &&
           f->self && ip_equal(ip, &f->self->internal);
}

/* ---- what is owed to the API ---- */

static void write_annotations(struct planner *p)
{
    const struct lb_facts *f = &p->loadbalancer->facts;
    const struct node *node = snapshot_node(p->snap, p->snap->node);
    struct arena *a = &p->status_mem;
    const struct label_list *now = node ? &node->o.meta.annotations : NULL;
    if (!node || (!strcmp(label_value(now, ANNOTATION_ADDRESSES), f->addresses) &&
                  !strcmp(label_value(now, ANNOTATION_OVERLAY), f->overlay.annotation)))
        return;
    vec_push(&p->writes,
             (struct status_write){ .kind = WRITE_NODE_ANNOTATIONS,
                                    .ns = "",
                                    .name = arena_strdup(a, f->self->name),
                                    .resource_version = "",
                                    .addresses = arena_strdup(a, f->addresses),
                                    .overlay = arena_strdup(a, f->overlay.annotation) });
}

/* An address is shown once it is served. */
static void write_ingress(struct planner *p, const struct service_memo *m,
                          const struct applied *applied)
{
    const struct service *s = m->obj;
    struct arena *a = &p->status_mem;
    struct ip now;
    char text[IP_TEXT_MAX] = "";
    if (m->held_here) {
        if (!applied->acknowledged || refusal_of(applied, m->owner) ||
            (shown(s, &now) && ip_equal(&now, &m->held_ip)))
            return;
        ip_format(&m->held_ip, text);
    } else {
        struct held_decision d = lb_decide(&p->loadbalancer->facts, s);
        if (d.state == HELD_BY_ONE || !s->n_ingress || !m->held_teller)
            return;
    }
    vec_push(&p->writes,
             (struct status_write){ .kind = WRITE_SERVICE_STATUS,
                                    .ns = arena_strdup(a, m->ns),
                                    .name = arena_strdup(a, m->name),
                                    .resource_version = arena_strdup(a, s->o.meta.resource_version),
                                    .ingress = arena_strdup(a, text) });
}

static int by_name(const void *x, const void *y)
{
    const struct service_memo *a = *(struct service_memo *const *)x,
                              *b = *(struct service_memo *const *)y;
    int c = strcmp(a->ns, b->ns);
    return c ? c : strcmp(a->name, b->name);
}

void lb_statuses(struct planner *p, const struct applied *applied)
{
    struct service_memo_vec v = { 0 };
    write_annotations(p);
    for (size_t i = 0; i < p->loadbalancer->memos.n; i++)
        vec_push(&v, p->loadbalancer->memos.v[i]);
    if (v.n > 1)
        qsort(v.v, v.n, sizeof(v.v[0]), by_name);
    for (size_t i = 0; i < v.n; i++)
        write_ingress(p, v.v[i], applied);
    vec_done(&v);
}

void lb_unpublish(struct planner *p)
{
    const struct node *node = snapshot_node(p->snap, p->snap->node);
    const struct label_list *now = node ? &node->o.meta.annotations : NULL;
    if (!node || p->unpublished)
        return;
    if (!*label_value(now, ANNOTATION_ADDRESSES) && !*label_value(now, ANNOTATION_OVERLAY)) {
        p->unpublished = true;
        return;
    }
    vec_push(&p->writes,
             (struct status_write){ .kind = WRITE_NODE_ANNOTATIONS,
                                    .ns = "",
                                    .name = arena_strdup(&p->status_mem, node->o.meta.name),
                                    .resource_version = "",
                                    .addresses = "",
                                    .overlay = "",
                                    .optional = true });
}

/* ---- life ---- */

static bool concerns_nodes(const struct snapshot *s)
{
    if (!s->changes_known || s->host_changed)
        return true;
    for (size_t i = 0; i < s->n_changes; i++)
        if (s->changes[i].kind == KIND_NODE)
            return true;
    return false;
}

bool lb_read(struct planner *p)
{
    struct loadbalancer *x = p->loadbalancer;
    if (p->n_passes && !concerns_nodes(p->snap))
        return false;
    struct lb_facts fresh;
    lb_facts_read(p, &fresh);
    bool same = p->n_passes && fresh.bytes.n == x->facts.bytes.n &&
                !memcmp(fresh.bytes.p, x->facts.bytes.p, fresh.bytes.n);
    lb_facts_done(&x->facts);
    x->facts = fresh;
    x->changed = p->answers_changed = true;
    return !same;
}

struct loadbalancer *loadbalancer_new(void)
{
    return xcalloc(1, sizeof(struct loadbalancer));
}

void loadbalancer_free(struct loadbalancer *x)
{
    if (!x)
        return;
    lb_facts_done(&x->facts);
    vec_done(&x->memos);
    vec_done(&x->addresses);
    buf_done(&x->outcome);
    free(x);
}
