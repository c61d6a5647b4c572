/* The pass over Services: which of them are done anew, and what all of them share. */
#include <stdio.h>

#include "plan/loadbalancer.h"

/* ---- vectors by owner ---- */

static size_t lower_bound(const struct service_memo_vec *v, const char *owner)
{
    return vec_lower_bound(v, e, strcmp((*e)->owner, owner) < 0);
}

static struct service_memo *find(const struct service_memo_vec *v, const char *owner,
                                 size_t *ret_at)
{
    size_t at = lower_bound(v, owner);
    *ret_at = at;
    return at < v->n && !strcmp(v->v[at]->owner, owner) ? v->v[at] : NULL;
}

static int by_owner(const void *x, const void *y)
{
    return strcmp((*(struct service_memo *const *)x)->owner,
                  (*(struct service_memo *const *)y)->owner);
}

static size_t owner_size(const char *ns, const char *name)
{
    return sizeof("service//") + strlen(ns) + strlen(name);
}

static void put_owner(char *s, size_t n, const char *ns, const char *name)
{
    snprintf(s, n, "service/%s/%s", ns, name);
}

static char *owner_of(const char *ns, const char *name)
{
    size_t n = owner_size(ns, name);
    char *s = xmalloc(n);
    put_owner(s, n, ns, name);
    return s;
}

/* ---- what programming a Service gives ---- */

void service_due(struct planner *p, struct service_memo *m)
{
    if (m->due)
        return;
    m->due = true;
    vec_push(&p->services->due, m);
}

void service_set_group(struct planner *p, struct service_memo *m, struct nft_group *g)
{
    groups_set(p, &p->services->groups, m->owner, &m->group, g);
}

static int by_route(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct held_route));
}

void service_set_routes(struct planner *p, struct service_memo *m, struct held_route *v, size_t n)
{
    size_t unique = 0;
    if (n > 1)
        qsort(v, n, sizeof(v[0]), by_route);
    for (size_t i = 0; i < n; i++)
        if (!unique || by_route(&v[unique - 1], &v[i]))
            v[unique++] = v[i];
    if (unique == m->n_routes && (!unique || !memcmp(v, m->routes, unique * sizeof(v[0]))))
        return;
    free(m->routes);
    m->routes = unique ? xmalloc(unique * sizeof(v[0])) : NULL;
    m->n_routes = unique;
    if (unique)
        memcpy(m->routes, v, unique * sizeof(v[0]));
    p->answers_changed = true;
}

void service_set_health(struct planner *p, struct service_memo *m, uint16_t port)
{
    struct service_memo_vec *v = &p->services->health;
    m->local_endpoints = port ? endpoints_local_ready(p, m) : 0;
    if (m->health_port == port)
        return;
    for (size_t i = 0; m->health_port && i < v->n; i++)
        if (v->v[i] == m) {
            vec_remove(v, i);
            break;
        }
    size_t at = 0;
    while (at < v->n && v->v[at]->health_port < port)
        at++;
    if (port)
        *vec_insert(v, at) = m;
    m->health_port = port;
}

static void free_problems(struct service_problems *s)
{
    vec_done(&s->v);
    arena_done(&s->mem);
    free(s);
}

void service_set_problems(struct planner *p, struct service_memo *m, struct service_problems *s)
{
    struct service_problems *fresh = NULL;
    if (s->v.n) {
        fresh = xmalloc(sizeof(*fresh));
        *fresh = *s;
    } else {
        arena_done(&s->mem);
    }
    size_t at = m->problems || fresh ? lower_bound(&p->services->troubled, m->owner) : 0;
    if (m->problems && !fresh)
        vec_remove(&p->services->troubled, at);
    else if (!m->problems && fresh)
        *vec_insert(&p->services->troubled, at) = m;
    if (m->problems)
        vec_push(&p->services->old_problems, m->problems);
    m->problems = fresh;
}

static void retire(struct planner *p, struct service_memo *m)
{
    claims_drop(p, m);
    service_set_group(p, m, NULL);
    service_set_ipvs(p, m, NULL);
    service_set_hairpins(p, m, NULL, 0);
    service_set_routes(p, m, NULL, 0);
    if (p->loadbalancer)
        lb_take(p, m, NULL);
    service_set_health(p, m, 0);
    service_set_problems(p, m, &(struct service_problems){ 0 });
    m->gone = true;
    vec_push(&p->services->removed, m);
}

/* ---- which Services ---- */

/* Another proxy's and headless ones are nobody's here. */
bool service_is_proxied(const struct planner *p, const struct service *s)
{
    if (!p->options->serviceproxy || s->other_proxy || s->headless ||
        s->type == SERVICE_EXTERNALNAME || !s->cluster_ips.n)
        return false;
    return *s->cluster_ips.v[0] && strcmp(s->cluster_ips.v[0], "None");
}

static bool is_ours(const struct planner *p, const struct service *s)
{
    return s && (service_is_proxied(p, s) || (p->loadbalancer && service_is_held(s)));
}

static struct service_memo *memo_new(const char *ns, const char *name)
{
    size_t owner = owner_size(ns, name), n = strlen(ns) + 1;
    struct service_memo *m = xcalloc(1, sizeof(*m) + owner + n);
    put_owner(m->text, owner, ns, name);
    m->owner = m->text;
    m->name = m->text + sizeof("service/") - 1 + n;
    m->ns = memcpy(m->text + owner, ns, n);
    return m;
}

static void take(struct planner *p, struct service_memo *m, const struct service *s)
{
    m->obj = s;
    if (p->loadbalancer)
        lb_take(p, m, s);
    claims_take(p, m);
    service_due(p, m);
}

static void change_service(struct planner *p, const struct change *c)
{
    struct service_memo_vec *v = &p->services->memos;
    char *owner = owner_of(c->ns, c->name);
    size_t at;
    struct service_memo *m = find(v, owner, &at);
    const struct service *s = snapshot_service(p->snap, c->ns, c->name);
    bool ours = is_ours(p, s);
    if (m && !ours) {
        vec_remove(v, at);
        retire(p, m);
    } else if (!m && ours) {
        m = memo_new(c->ns, c->name);
        *vec_insert(v, at) = m;
    }
    if (ours)
        take(p, m, s);
    free(owner);
}

static void change_slice(struct planner *p, const struct change *c)
{
    char *owner = owner_of(c->ns, c->service);
    size_t at;
    struct service_memo *m = find(&p->services->memos, owner, &at);
    if (m)
        service_due(p, m);
    free(owner);
}

static void take_all(struct planner *p)
{
    struct services *x = p->services;
    struct service_memo_vec old = x->memos;
    x->memos = (struct service_memo_vec){ 0 };
    for (size_t i = 0; i < old.n; i++)
        old.v[i]->obj = NULL;
    for (size_t i = 0; i < p->snap->n_services; i++) {
        const struct service *s = p->snap->services[i];
        if (!is_ours(p, s))
            continue;
        char *owner = owner_of(s->o.meta.ns, s->o.meta.name);
        size_t at;
        struct service_memo *m = find(&old, owner, &at);
        free(owner);
        if (!m)
            m = memo_new(s->o.meta.ns, s->o.meta.name);
        m->obj = s;
        vec_push(&x->memos, m);
    }
    for (size_t i = 0; i < old.n; i++)
        if (!old.v[i]->obj)
            retire(p, old.v[i]);
    vec_done(&old);
    if (x->memos.n > 1)
        qsort(x->memos.v, x->memos.n, sizeof(x->memos.v[0]), by_owner);
    for (size_t i = 0; i < x->memos.n; i++)
        take(p, x->memos.v[i], x->memos.v[i]->obj);
}

static void take_changed(struct planner *p)
{
    for (size_t i = 0; i < p->snap->n_changes; i++) {
        const struct change *c = &p->snap->changes[i];
        if (c->kind == KIND_SERVICE)
            change_service(p, c);
        else if (c->kind == KIND_ENDPOINTSLICE)
            change_slice(p, c);
    }
}

/* ---- this node ---- */

/* With IPVS, all nodes do: their addresses are bound nowhere. */
static bool concerns_node(const struct planner *p)
{
    const struct snapshot *s = p->snap;
    bool all = p->options->proxy_mode == PROXY_IPVS;
    if (!s->changes_known || s->host_changed)
        return true;
    for (size_t i = 0; i < s->n_changes; i++)
        if (s->changes[i].kind == KIND_SERVICECIDR ||
            (s->changes[i].kind == KIND_NODE && (all || !strcmp(s->changes[i].name, s->node))))
            return true;
    return false;
}

/* True when Services have to be programmed by other facts than before. */
static bool read_node(struct planner *p)
{
    struct services *x = p->services;
    struct service_node fresh;
    service_node_read(p, &fresh);
    bool same = service_node_same(&x->node, &fresh);
    if (x->node.group && nft_group_equal(x->node.group, fresh.group)) {
        nft_group_unref(fresh.group);
        fresh.group = nft_group_ref(x->node.group);
    }
    if (x->node.ipvs && ipvs_group_equal(x->node.ipvs->group, fresh.ipvs->group)) {
        ipvs_group_unref(fresh.ipvs->group);
        fresh.ipvs->group = ipvs_group_ref(x->node.ipvs->group);
    }
    x->node_before = x->node;
    x->node = fresh;
    return !same;
}

static bool has_port_within(const struct service_memo *m, uint8_t proto_index, uint16_t port,
                            uint16_t end)
{
    static const enum l4proto protos[] = { L4_TCP, L4_UDP, L4_SCTP };
    for (uint32_t i = 0; i < m->obj->n_ports; i++) {
        uint16_t number = service_node_port(m->obj, i), own = m->obj->ports[i].port;
        if (m->obj->ports[i].protocol == protos[proto_index] &&
            ((number && number >= port && number <= end) ||
             (m->held_here && own >= port && own <= end)))
            return true;
    }
    return false;
}

void services_mapping_changed(struct planner *p, const struct memo *mapping)
{
    struct services *x = p->services;
    for (size_t i = 0; i < x->memos.n; i++)
        if (has_port_within(x->memos.v[i], mapping->proto_index, mapping->port, mapping->end))
            service_due(p, x->memos.v[i]);
}

/* ---- the pass ---- */

static void program_due(struct planner *p)
{
    struct services *x = p->services;
    for (size_t i = 0; i < x->due.n; i++) {
        struct service_memo *m = x->due.v[i];
        m->due = false;
        if (!m->gone)
            service_program(p, m);
    }
    x->due.n = 0;
    hairpins_build(p);
}

void services_build(struct planner *p)
{
    struct services *x = p->services;
    const struct snapshot *s = p->snap;
    bool first = !p->n_passes, moved = p->loadbalancer && lb_read(p);
    bool other = (first || concerns_node(p)) && read_node(p);
    bool all = first || !s->changes_known || s->n_changes > 64 + s->n_services / 8;
    if (all)
        take_all(p);
    else
        take_changed(p);
    for (size_t i = 0; i < x->memos.n && (other || moved) && !all; i++)
        if (other || lb_moved(p, x->memos.v[i]))
            take(p, x->memos.v[i], x->memos.v[i]->obj);
    service_ipvs_owned_changed(p, x->node_before.ipvs);
    /* All mappings may answer otherwise than before. */
    for (size_t i = 0; i < x->memos.n && p->full; i++)
        if (x->memos.v[i]->met_mapping || service_meets_mapping(p, x->memos.v[i]))
            service_due(p, x->memos.v[i]);
    claims_settle(p);
    program_due(p);
    if (p->loadbalancer)
        lb_settle(p);
}

static void sort_problems(struct pass *pass)
{
    size_t n = 0;
    if (pass->problems.n > 1)
        qsort(pass->problems.v, pass->problems.n, sizeof(pass->problems.v[0]), problem_cmp);
    for (size_t i = 0; i < pass->problems.n; i++)
        if (!n || problem_cmp(&pass->problems.v[n - 1], &pass->problems.v[i]))
            pass->problems.v[n++] = pass->problems.v[i];
    pass->problems.n = n;
}

void services_publish(const struct services *x, struct pass *pass)
{
    vec_reserve(&pass->groups, pass->groups.n + x->groups.n + HAIRPIN_SHARDS + 1);
    if (x->node.group && x->node.group->n)
        vec_push(&pass->groups, x->node.group);
    for (size_t i = 0; i < HAIRPIN_SHARDS; i++)
        if (x->hairpins[i].group && x->hairpins[i].group->n)
            vec_push(&pass->groups, x->hairpins[i].group);
    for (size_t i = 0; i < x->groups.n; i++)
        vec_push(&pass->groups, x->groups.v[i]);
    for (size_t i = 0; i < x->node.n_problems; i++)
        vec_push(&pass->problems, x->node.problems[i]);
    for (size_t i = 0; i < x->troubled.n; i++)
        for (size_t j = 0; j < x->troubled.v[i]->problems->v.n; j++)
            vec_push(&pass->problems, x->troubled.v[i]->problems->v.v[j]);
    sort_problems(pass);
    pass->health_checks.n = 0;
    for (size_t i = 0; i < x->health.n; i++) {
        const struct service_memo *m = x->health.v[i];
        const struct health_check h = { .port = m->health_port,
                                        .ns = m->ns,
                                        .name = m->name,
                                        .local_endpoints = m->local_endpoints };
        vec_push(&pass->health_checks, h);
    }
}

/* ---- life ---- */

static void memo_free(struct service_memo *m)
{
    if (m->problems)
        free_problems(m->problems);
    for (size_t i = 0; i < m->ids.n; i++)
        free(m->ids.v[i]);
    vec_done(&m->ids);
    nft_group_unref(m->group);
    ipvs_group_unref(m->ipvs);
    free(m->claims);
    free(m->hairpins);
    free(m->routes);
    free(m);
}

void services_free_old(struct services *x)
{
    service_node_done(&x->node_before);
    for (size_t i = 0; i < x->old_problems.n; i++)
        free_problems(x->old_problems.v[i]);
    for (size_t i = 0; i < x->removed.n; i++)
        memo_free(x->removed.v[i]);
    for (size_t i = 0; i < x->old_ipvs.n; i++)
        ipvs_group_unref(x->old_ipvs.v[i]);
    x->old_problems.n = x->removed.n = x->old_ipvs.n = 0;
}

struct services *services_new(void)
{
    struct services *x = xcalloc(1, sizeof(*x));
    x->claims.keys_stay = true;
    return x;
}

void services_free(struct services *x)
{
    if (!x)
        return;
    services_free_old(x);
    for (size_t i = 0; i < x->memos.n; i++)
        memo_free(x->memos.v[i]);
    for (size_t i = 0; i < HAIRPIN_SHARDS; i++) {
        vec_done(&x->hairpins[i].v);
        nft_group_unref(x->hairpins[i].group);
    }
    service_node_done(&x->node);
    endpoints_done(&x->choice);
    vec_done(&x->held_choice.endpoints);
    map_done(&x->claims);
    vec_done(&x->memos);
    vec_done(&x->due);
    vec_done(&x->removed);
    vec_done(&x->renew);
    vec_done(&x->troubled);
    vec_done(&x->health);
    vec_done(&x->groups);
    vec_done(&x->ipvs);
    vec_done(&x->old_ipvs);
    vec_done(&x->old_problems);
    free(x);
}
