/* A pass: what the changes can touch is done anew, everything else is remembered. */
#include <stdio.h>

#include "plan/loadbalancer.h"

/* ---- the vectors of memos ---- */

size_t memo_lower_bound(const struct memo_vec *v, const char *owner)
{
    return vec_lower_bound(v, e, strcmp((*e)->owner, owner) < 0);
}

static int service_cmp(const struct memo *m, const char *ns, const char *service, const char *owner)
{
    int c = strcmp(m->pm->o.meta.ns, ns);
    if (!c)
        c = strcmp(m->pm->service_name, service);
    return c ? c : strcmp(m->owner, owner);
}

static size_t service_lower_bound(const struct memo_vec *v, const char *ns, const char *service,
                                  const char *owner)
{
    return vec_lower_bound(v, e, service_cmp(*e, ns, service, owner) < 0);
}

static size_t service_place(const struct planner *p, const struct memo *m)
{
    return service_lower_bound(&p->by_service, m->pm->o.meta.ns, m->pm->service_name, m->owner);
}

static char *join(const char *prefix, const char *a, const char *b)
{
    size_t n = strlen(prefix) + strlen(a) + strlen(b) + 2;
    char *s = xmalloc(n);
    snprintf(s, n, "%s%s/%s", prefix, a, b);
    return s;
}

/* ---- one memo ---- */

void memo_due(struct planner *p, struct memo *m)
{
    if (m->due)
        return;
    m->due = true;
    vec_push(&p->due, m);
}

static void resolve_due(struct planner *p, struct memo *m)
{
    memo_due(p, m);
    m->resolve = true;
}

void memo_set_group(struct planner *p, struct memo *m, struct nft_group *g)
{
    bool changed = groups_set(p, &p->groups, m->owner, &m->group, g);
    if (changed && p->services && !p->full)
        services_mapping_changed(p, m);
}

static void set_problem(struct planner *p, struct memo *m, struct problem_box *box)
{
    if (!m->problem && !box)
        return;
    size_t i = memo_lower_bound(&p->troubled, m->owner);
    if (m->problem && !box)
        vec_remove(&p->troubled, i);
    else if (!m->problem)
        *vec_insert(&p->troubled, i) = m;
    if (m->problem)
        vec_push(&p->old_problems, m->problem);
    m->problem = box;
}

/* What is wrong with a mapping is one node's problem to report: its status writer's. */
static void find_problem(struct planner *p, struct memo *m)
{
    struct problem_box *box = NULL;
    struct arena mem = { .chunk_size = 256 };
    struct verdict v = { 0 };
    const char *writer = status_writer(p, m);
    if (writer && !strcmp(writer, p->snap->node))
        v = memo_accepted(m) ? programmed_verdict(p, m, &mem) : admission_verdict(m, &mem);
    if (!v.field) {
        arena_done(&mem);
    } else {
        box = xcalloc(1, sizeof(*box));
        box->mem = mem;
        box->problem = (struct problem){ .kind = KIND_PORTMAP,
                                         .ns = arena_strdup(&box->mem, m->pm->o.meta.ns),
                                         .name = arena_strdup(&box->mem, m->pm->o.meta.name),
                                         .field = v.field,
                                         .value = arena_strdup(&box->mem, v.value),
                                         .reason = v.reason,
                                         .message = v.message };
    }
    set_problem(p, m, box);
}

static void leave_service(struct planner *p, const struct memo *m)
{
    vec_remove(&p->by_service, service_place(p, m));
}

static void set_portmap(struct planner *p, struct memo *m, const struct portmap *pm)
{
    const struct portmap *old = m->pm;
    bool moves = !p->full && (!old || strcmp(old->service_name, pm->service_name));
    if (moves && old)
        leave_service(p, m);
    m->pm = pm;
    m->creation = pm->o.meta.creation;
    m->proto_index = pm->protocol == L4_TCP ? 0 : pm->protocol == L4_UDP ? 1 : 2;
    m->port = pm->port;
    m->end = pm->has_end_port ? pm->end_port : pm->port;
    if (moves)
        *vec_insert(&p->by_service, service_place(p, m)) = m;
}

static void memo_free(struct memo *m)
{
    if (m->problem) {
        arena_done(&m->problem->mem);
        free(m->problem);
    }
    nft_group_unref(m->group);
    vec_done(&m->pairs);
    answers_done(&m->answers);
    free(m->owner);
    free(m);
}

/* Out of everything that counts or lists it; freed when the pass is over. */
static void memo_retire(struct planner *p, struct memo *m)
{
    links_uncount(p, m);
    portmap_withdraw(p, m);
    memo_set_group(p, m, NULL);
    set_problem(p, m, NULL);
    status_forget(p, m);
    if (!p->full)
        leave_service(p, m);
    m->gone = true;
    vec_push(&p->removed, m);
}

/* ---- which memos ---- */

static int by_owner(const void *x, const void *y)
{
    return strcmp((*(struct memo *const *)x)->owner, (*(struct memo *const *)y)->owner);
}

static int by_service(const void *x, const void *y)
{
    const struct memo *a = *(struct memo *const *)x, *b = *(struct memo *const *)y;
    return service_cmp(a, b->pm->o.meta.ns, b->pm->service_name, b->owner);
}

/* Takes over the snapshot's mappings; keeps the memos of those that were there before. */
static void take_all(struct planner *p)
{
    struct memo_vec old = p->memos;
    memset(&p->memos, 0, sizeof(p->memos));
    for (size_t i = 0; i < old.n; i++)
        old.v[i]->pm = NULL;
    for (size_t i = 0; i < p->snap->n_portmaps; i++) {
        const struct portmap *pm = p->snap->portmaps[i];
        char *owner = join("portmap/", pm->o.meta.ns, pm->o.meta.name);
        size_t at = memo_lower_bound(&old, owner);
        struct memo *m;
        if (at < old.n && !strcmp(old.v[at]->owner, owner)) {
            m = old.v[at];
            free(owner);
        } else {
            m = xcalloc(1, sizeof(*m));
            m->owner = owner;
        }
        set_portmap(p, m, pm);
        vec_push(&p->memos, m);
    }
    for (size_t i = 0; i < old.n; i++)
        if (!old.v[i]->pm)
            memo_retire(p, old.v[i]);
    vec_done(&old);
    if (p->memos.n > 1)
        qsort(p->memos.v, p->memos.n, sizeof(p->memos.v[0]), by_owner);
    p->by_service.n = 0;
    for (size_t i = 0; i < p->memos.n; i++)
        vec_push(&p->by_service, p->memos.v[i]);
    if (p->by_service.n > 1)
        qsort(p->by_service.v, p->by_service.n, sizeof(p->by_service.v[0]), by_service);
}

static void begin_full(struct planner *p)
{
    classes_build(p);
    for (size_t i = 0; i < p->pairs.n; i++)
        p->pairs.v[i]->cls = class_find(p, p->pairs.v[i]->class_name);
    take_all(p);
    p->pairs_changed = p->answers_changed = true;
    for (enum family_index f = F4; f < F_COUNT; f++) {
        p->programs[f] = 0;
        vec_reserve(&p->answers[f], p->snap->host->n_ifaces);
        p->answers[f].n = p->snap->host->n_ifaces;
        if (p->answers[f].n)
            memset(p->answers[f].v, 0, p->answers[f].n * sizeof(p->answers[f].v[0]));
    }
    conflict_reset(p);
    for (size_t i = 0; i < p->memos.n; i++) {
        struct memo *m = p->memos.v[i];
        answers_done(&m->answers); /* of a host that may have changed */
        resolve_due(p, m);
    }
}

static void change_portmap(struct planner *p, const struct change *c)
{
    char *owner = join("portmap/", c->ns, c->name);
    size_t at = memo_lower_bound(&p->memos, owner);
    bool known = at < p->memos.n && !strcmp(p->memos.v[at]->owner, owner);
    const struct portmap *pm = snapshot_portmap(p->snap, c->ns, c->name);
    if (known)
        conflict_forget(p, p->memos.v[at]);
    if (known && p->services)
        services_mapping_changed(p, p->memos.v[at]);
    if (known && !pm) {
        struct memo *m = p->memos.v[at];
        vec_remove(&p->memos, at);
        memo_retire(p, m);
    }
    if (!known && pm) {
        struct memo *m = xcalloc(1, sizeof(*m));
        m->owner = xstrdup(owner);
        *vec_insert(&p->memos, at) = m;
    }
    if (pm) {
        set_portmap(p, p->memos.v[at], pm);
        resolve_due(p, p->memos.v[at]);
    }
    free(owner);
}

/* That a Service is there only shows where it has no endpoint. */
static void change_service(struct planner *p, const char *ns, const char *name)
{
    size_t i = service_lower_bound(&p->by_service, ns, name, "");
    for (; i < p->by_service.n; i++) {
        struct memo *m = p->by_service.v[i];
        if (strcmp(m->pm->o.meta.ns, ns) || strcmp(m->pm->service_name, name))
            return;
        resolve_due(p, m);
    }
}

static bool touches_everything(const struct snapshot *s)
{
    if (!s->changes_known || s->host_changed || s->n_changes > 64 + s->n_portmaps / 8)
        return true;
    for (size_t i = 0; i < s->n_changes; i++) {
        switch (s->changes[i].kind) {
        case KIND_NODE:
        case KIND_NAMESPACE:
        case KIND_PORTMAPCLASS:
            return true;
        case KIND_SERVICE:
        case KIND_ENDPOINTSLICE:
        case KIND_PORTMAP:
        case KIND_SERVICECIDR:
        case KIND_TRAFFICCLASS:
        case KIND_COUNT:
            break;
        }
    }
    return false;
}

static void begin_some(struct planner *p)
{
    for (size_t i = 0; i < p->snap->n_changes; i++) {
        const struct change *c = &p->snap->changes[i];
        if (c->kind == KIND_PORTMAP)
            change_portmap(p, c);
        else if (c->kind == KIND_ENDPOINTSLICE)
            change_service(p, c->ns, c->service);
        else if (c->kind == KIND_SERVICE)
            change_service(p, c->ns, c->name);
    }
}

/* ---- the stages ---- */

static void resolve_all(struct planner *p)
{
    for (size_t i = 0; i < p->due.n; i++) {
        struct memo *m = p->due.v[i];
        if (m->gone)
            continue;
        portmap_resolve(p, m);
        conflict_enqueue(p, m);
    }
    conflict_settle(p);
    for (size_t i = 0; i < p->due.n; i++)
        if (!p->due.v[i]->gone)
            links_count(p, p->due.v[i]);
    if (!links_resolve(p) || p->full)
        return;
    for (size_t i = 0; i < p->memos.n; i++)
        for (size_t j = 0; j < p->memos.v[i]->pairs.n; j++)
            if (p->memos.v[i]->pairs.v[j].pair->changed)
                memo_due(p, p->memos.v[i]);
}

static void program_all(struct planner *p)
{
    for (size_t i = 0; i < p->due.n; i++) {
        struct memo *m = p->due.v[i];
        m->due = m->resolve = false;
        if (m->gone)
            continue;
        portmap_program(p, m);
        find_problem(p, m);
        status_enqueue(p, m);
    }
    p->due.n = 0;
}

static void free_old(struct planner *p)
{
    if (p->services)
        services_free_old(p->services);
    for (size_t i = 0; i < p->old_groups.n; i++)
        nft_group_unref(p->old_groups.v[i]);
    for (size_t i = 0; i < p->old_problems.n; i++) {
        arena_done(&p->old_problems.v[i]->mem);
        free(p->old_problems.v[i]);
    }
    p->old_groups.n = p->old_problems.n = 0;
}

static void free_removed(struct planner *p)
{
    for (size_t i = 0; i < p->removed.n; i++)
        memo_free(p->removed.v[i]);
    p->removed.n = 0;
}

/* ---- the result ---- */

static void list_problems(const struct planner *p, struct pass *pass)
{
    pass->problems.n = 0;
    const struct fabric *f = p->fabric;
    size_t i = 0;
    for (; i < f->problems.n && f->problems.v[i].kind < KIND_PORTMAP; i++)
        vec_push(&pass->problems, f->problems.v[i]);
    for (size_t j = 0; j < p->troubled.n; j++)
        vec_push(&pass->problems, p->troubled.v[j]->problem->problem);
    for (; i < f->problems.n; i++)
        vec_push(&pass->problems, f->problems.v[i]);
}

static const struct plan *publish(struct planner *p, struct pass *pass)
{
    struct fabric *f = p->fabric;
    fabric_unref(pass->fabric);
    pass->fabric = f;
    f->refs++;
    pass->groups.n = 0;
    vec_reserve(&pass->groups, p->groups.n + 2);
    if (f->loadbalancer)
        vec_push(&pass->groups, f->loadbalancer);
    if (f->node)
        vec_push(&pass->groups, f->node);
    if (p->groups.n)
        memcpy(pass->groups.v + pass->groups.n, p->groups.v, p->groups.n * sizeof(p->groups.v[0]));
    pass->groups.n += p->groups.n;
    list_problems(p, pass);
    if (p->services)
        services_publish(p->services, pass);
    pass->plan = (struct plan){
        .desired = { .groups = pass->groups.v,
                     .n_groups = pass->groups.n,
                     .links = f->links.v,
                     .n_links = f->links.n,
                     .addrs = f->addrs.v,
                     .n_addrs = f->addrs.n,
                     .neighs = f->neighs.v,
                     .n_neighs = f->neighs.n,
                     .routes = f->routes.v,
                     .n_routes = f->routes.n,
                     .rules = f->rules.v,
                     .n_rules = f->rules.n,
                     .sysctls = f->sysctls.v,
                     .n_sysctls = f->sysctls.n,
                     .health_checks = pass->health_checks.v,
                     .n_health_checks = pass->health_checks.n },
        .problems = { pass->problems.v, pass->problems.n },
    };
    if (p->services)
        service_ipvs_publish(p, pass);
    if (p->traffic)
        traffic_publish(p, pass);
    return &pass->plan;
}

const struct snapshot *planner_view(struct planner *p, const struct snapshot *snap)
{
    if (p->options->portmap)
        return snap;
    p->masked = *snap;
    p->masked.n_portmaps = p->masked.n_classes = 0;
    return &p->masked;
}

const struct plan *plan_build(struct planner *p, const struct snapshot *snap)
{
    free_old(p);
    snap = p->snap = planner_view(p, snap);
    p->full = !p->n_passes || touches_everything(snap);
    p->full ? begin_full(p) : begin_some(p);
    resolve_all(p);
    program_all(p);
    free_removed(p);
    if (p->services)
        services_build(p);
    if (p->traffic)
        traffic_build(p);
    if (p->pairs_changed || p->answers_changed) {
        struct fabric *f = fabric_build(p);
        fabric_unref(p->fabric);
        p->fabric = f;
        p->pairs_changed = p->answers_changed = false;
        p->classes_due = true;
    }
    return publish(p, &p->pass[p->n_passes++ % 2]);
}

/* ---- life ---- */

const struct plan_options plan_options_default = { .portmap = true,
                                                   .masquerade_bit = MASQUERADE_BIT };

struct planner *planner_new(const struct plan_options *options)
{
    struct planner *p = xcalloc(1, sizeof(*p));
    p->options = options;
    p->services = options->serviceproxy || options->loadbalancer ? services_new() : NULL;
    p->loadbalancer = options->loadbalancer ? loadbalancer_new() : NULL;
    p->traffic = options->trafficclass ? traffic_new() : NULL;
    return p;
}

void planner_free(struct planner *p)
{
    if (!p)
        return;
    free_old(p);
    for (int i = 0; i < 2; i++) {
        fabric_unref(p->pass[i].fabric);
        vec_done(&p->pass[i].groups);
        vec_done(&p->pass[i].problems);
        vec_done(&p->pass[i].health_checks);
        vec_done(&p->pass[i].ipvs);
        vec_done(&p->pass[i].sysctls);
        traffic_pass_done(&p->pass[i]);
    }
    services_free(p->services);
    loadbalancer_free(p->loadbalancer);
    traffic_free(p->traffic);
    fabric_unref(p->fabric);
    links_done(p);
    conflict_done(p);
    for (size_t i = 0; i < p->memos.n; i++)
        memo_free(p->memos.v[i]);
    vec_done(&p->memos);
    vec_done(&p->by_service);
    vec_done(&p->due);
    vec_done(&p->removed);
    vec_done(&p->answers[F4]);
    vec_done(&p->answers[F6]);
    vec_done(&p->groups);
    vec_done(&p->troubled);
    vec_done(&p->old_groups);
    vec_done(&p->old_problems);
    vec_done(&p->status_queue);
    vec_done(&p->writes);
    arena_done(&p->status_mem);
    arena_done(&p->class_mem);
    free(p);
}
