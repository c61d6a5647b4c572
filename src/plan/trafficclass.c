/* Which traffic classes hold, and this node's part of those that do.
 *
 * Whether a class holds follows from the objects alone, so that all nodes agree; what is wrong on
 * one node (its gateway, its links, somebody else's rules) concerns that node only. */
#include <inttypes.h>

#include "plan/traffic.h"

/* ---- small things ---- */

bool traffic_has_family(const struct traffic_class *c, enum family_index f)
{
    return c->families & (f == F4 ? FAMILIES_V4 : FAMILIES_V6);
}

bool traffic_selects(const struct traffic_class *c, const struct node *n)
{
    return !c->has_selector || selector_matches(&c->selector, &n->o.meta.labels);
}

const char *traffic_owner(struct traffic_pass *t, const struct traffic_class *c)
{
    return arena_printf(&t->out->mem, "trafficclass/%s", c->o.meta.name);
}

void traffic_problem(struct traffic_pass *t, const struct traffic_class *c,
                     const struct node *subject, struct verdict v)
{
    struct arena *a = &t->out->mem;
    const struct meta *of = subject ? &subject->o.meta : &c->o.meta;
    vec_push(&t->out->problems, (struct problem){ .kind = of->kind,
                                                  .ns = "",
                                                  .name = arena_strdup(a, of->name),
                                                  .field = arena_strdup(a, v.field),
                                                  .value = arena_strdup(a, v.value),
                                                  .reason = v.reason,
                                                  .message = arena_strdup(a, v.message) });
}

/* ---- which classes hold ---- */

static const char *table_text(struct traffic_pass *t, const struct traffic_class *c)
{
    return arena_printf(&t->out->mem, "%" PRIu32, c->table);
}

static bool share_a_node(const struct snapshot *s, const struct traffic_class *a,
                         const struct traffic_class *b)
{
    for (size_t i = 0; i < s->n_nodes; i++)
        if (traffic_selects(a, s->nodes[i]) && traffic_selects(b, s->nodes[i]))
            return true;
    return false;
}

/* A rule of `c` that has family and priority of one of `first`, or NULL. */
static const struct traffic_rule *same_rule(const struct traffic_class *c,
                                            const struct traffic_class *first)
{
    for (uint32_t i = 0; i < c->n_rules; i++)
        for (uint32_t j = 0; j < first->n_rules; j++)
            if (c->rules[i].family == first->rules[j].family &&
                c->rules[i].priority == first->rules[j].priority)
                return &c->rules[i];
    return NULL;
}

/* Why `c` cannot be beside `first`, which is older. */
static struct verdict clash(struct traffic_pass *t, const struct traffic_class *c,
                            const struct traffic_class *first)
{
    struct arena *a = &t->out->mem;
    const char *name = first->o.meta.name;
    const struct traffic_rule *rule = same_rule(c, first);
    bool table = c->table == first->table && c->table != TABLE_MAIN;
    if ((!table && !rule) || !share_a_node(t->snap, c, first))
        return (struct verdict){ 0 };
    if (table)
        return (struct verdict){ .reason = "TableConflict",
                                 .field = "spec.table",
                                 .value = table_text(t, c),
                                 .message =
                                     arena_printf(a,
                                                  "class %s, which is older, has this table: "
                                                  "take another",
                                                  name) };
    return (struct verdict){ .reason = "PriorityConflict",
                             .field = "spec.rules",
                             .value = arena_printf(a, "%" PRIu32, rule->priority),
                             .message = arena_printf(a,
                                                     "class %s, which is older, has an IPv%u rule "
                                                     "of this priority: take another",
                                                     name, rule->family) };
}

/* A return link has the table. Its claim may be older or younger: two that write to one table are
 * both wrong, and the link's number cannot be chosen. */
static const char *link_with_table(const struct snapshot *s, uint32_t table, const char **ret_class)
{
    for (size_t i = 0; i < s->n_classes; i++)
        for (uint32_t j = 0; j < s->classes[i]->status.n_links; j++)
            if (link_table(s->classes[i]->status.links[j].slot) == table) {
                *ret_class = s->classes[i]->o.meta.name;
                return s->classes[i]->status.links[j].key;
            }
    return NULL;
}

static struct verdict own_merits(struct traffic_pass *t, const struct traffic_class *c)
{
    const char *link_class = "", *link = link_with_table(t->snap, c->table, &link_class);
    if (c->has_selector && !selector_valid(&c->selector))
        return (struct verdict){
            "InvalidSelector",
            "the selector is invalid and selects no node; operators are In and NotIn with values, "
            "Exists and DoesNotExist without",
            "spec.nodeSelector", ""
        };
    if (link)
        return (struct verdict){ .reason = "TableTaken",
                                 .field = "spec.table",
                                 .value = table_text(t, c),
                                 .message = arena_printf(
                                     &t->out->mem,
                                     "the return link %s of PortMapClass %s has this table: take "
                                     "one below %u",
                                     link, link_class, LINK_TABLE_BASE) };
    return (struct verdict){ 0 };
}

static int by_age(const void *x, const void *y)
{
    const struct meta *a = &(*(struct traffic_view *const *)x)->obj->o.meta,
                      *b = &(*(struct traffic_view *const *)y)->obj->o.meta;
    if (a->creation != b->creation)
        return a->creation < b->creation ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Of two that clash the older one holds. */
static void accept_round(struct traffic_pass *t, struct traffic_view **v)
{
    size_t n = t->out->n_views;
    for (size_t i = 0; i < n; i++) {
        if (v[i]->uncovered)
            continue;
        v[i]->refused = own_merits(t, v[i]->obj);
        for (size_t j = 0; j < i && !v[i]->refused.reason; j++)
            if (!v[j]->refused.reason)
                v[i]->refused = clash(t, v[i]->obj, v[j]->obj);
    }
}

/* ---- a default needs something before it ---- */

/* An accepted rule that takes all traffic to pods to main before this class sees it. */
static bool main_has_the_pods(struct traffic_pass *t, const struct traffic_class *c,
                              const struct traffic_rule *rule)
{
    enum family_index f = rule->family == IP_V4 ? F4 : F6;
    bool found = false;
    for (size_t i = 0; i < t->out->n_views && !found; i++) {
        const struct traffic_view *v = &t->out->views[i];
        if (v->refused.reason || v->obj->table != TABLE_MAIN || v->obj == c)
            continue;
        for (uint32_t j = 0; j < v->obj->n_rules && !found; j++) {
            const struct traffic_rule *r = &v->obj->rules[j];
            struct prefix_list to = prefixes_of(&t->sets, &r->to, f);
            found = r->family == rule->family && r->priority < rule->priority && !r->from.n &&
                    prefixes_cover(&to, &t->sets.pods[f]);
            vec_done(&to);
        }
    }
    return found;
}

/* True when it refuses the class. */
static bool refuse_uncovered(struct traffic_pass *t, struct traffic_view *v)
{
    const struct traffic_class *c = v->obj;
    if (v->refused.reason || !c->routes || !c->routes->gateway || c->routes->fall_through.n)
        return false;
    for (uint32_t i = 0; i < c->n_rules; i++) {
        enum family_index f = c->rules[i].family == IP_V4 ? F4 : F6;
        struct prefix_list reject = prefixes_of(&t->sets, &c->routes->reject, f);
        bool good =
            prefixes_cover(&reject, &t->sets.pods[f]) || main_has_the_pods(t, c, &c->rules[i]);
        vec_done(&reject);
        if (good)
            continue;
        v->refused = (struct verdict){
            .reason = "PodsUncovered",
            .field = "spec.routes.fallThrough",
            .value = "[]",
            .message = arena_printf(&t->out->mem,
                                    "with a gateway, nothing that falls through, and no earlier "
                                    "rule that looks up main for the pod CIDRs, traffic between "
                                    "pods could leave by the gateway (IPv%u rule %" PRIu32
                                    "): add PodCIDRs, or such a rule",
                                    c->rules[i].family, c->rules[i].priority)
        };
        v->uncovered = true;
        return true;
    }
    return false;
}

/* A class that is refused stands in no other's way: those it had refused are looked at again. */
static void accept_all(struct traffic_pass *t)
{
    size_t n = t->out->n_views;
    struct traffic_view **v = arena_new_array(&t->out->mem, n, struct traffic_view *);
    for (size_t i = 0; i < n; i++)
        v[i] = &t->out->views[i];
    if (n > 1)
        qsort(v, n, sizeof(v[0]), by_age);
    for (bool again = true; again;) {
        accept_round(t, v);
        again = false;
        for (size_t i = 0; i < n && !again; i++)
            again = refuse_uncovered(t, v[i]);
    }
}

/* ---- this node ---- */

static const struct host_table *foreign_table(const struct host *h, uint32_t table)
{
    for (uint32_t i = 0; i < h->n_foreign_tables; i++)
        if (h->foreign_tables[i].table == table)
            return &h->foreign_tables[i];
    return NULL;
}

/* Sorted by class, since the views are. */
static void put_keeps(struct traffic_pass *t, const struct traffic_class *c)
{
    for (uint32_t i = 0; i < c->n_rules && c->cleanup == CLEANUP_KEEP; i++)
        vec_push(&t->out->keeps,
                 (struct desired_keep){ .traffic_class = arena_strdup(&t->out->mem, c->o.meta.name),
                                        .family = (uint8_t)c->rules[i].family,
                                        .priority = c->rules[i].priority,
                                        .table = c->table });
}

static void build_here(struct traffic_pass *t, struct traffic_view *v, struct bird_table **tables)
{
    const struct traffic_class *c = v->obj;
    const struct host_table *foreign = foreign_table(t->host, c->table);
    if (foreign && c->routes) {
        v->trouble = (struct verdict){
            .reason = "ForeignRoutes",
            .field = "spec.table",
            .value = table_text(t, c),
            .message = arena_printf(&t->out->mem,
                                    "the table holds a route of somebody else (protocol %u): the "
                                    "class needs a table of its own",
                                    foreign->protocol)
        };
        traffic_problem(t, c, NULL, v->trouble);
        return;
    }
    traffic_links_check(t, v);
    traffic_routes_build(t, v);
    if (traffic_needs_bird(c)) {
        t->out->has_bird = true;
        traffic_mesh_build(t, v, (*tables)++);
    }
    traffic_rules_build(t, v);
    put_keeps(t, c);
}

/* The first IPv4 InternalIP; without one a number made of the node's name. */
static struct ip router_id(const struct traffic_pass *t)
{
    uint32_t h = 0x811c9dc5u; /* FNV-1a */
    for (uint32_t i = 0; t->node && i < t->node->n_internal_ips; i++)
        if (t->node->internal_ips[i].family == IP_V4 &&
            ip_is_global_unicast(&t->node->internal_ips[i]))
            return t->node->internal_ips[i];
    for (const char *s = t->snap->node; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x01000193u;
    return ip_v4((uint8_t)(h >> 24 | 1), (uint8_t)(h >> 16), (uint8_t)(h >> 8), (uint8_t)h);
}

static int table_order(const void *a, const void *b)
{
    uint32_t x = ((const struct bird_table *)a)->number, y = ((const struct bird_table *)b)->number;
    return (x > y) - (x < y);
}

static void build_all(struct traffic_pass *t)
{
    struct traffic_result *out = t->out;
    struct bird_table *tables = arena_new_array(&out->mem, out->n_views, struct bird_table);
    struct bird_table *end = tables;
    for (size_t i = 0; i < out->n_views; i++) {
        struct traffic_view *v = &out->views[i];
        if (v->refused.reason)
            traffic_problem(t, v->obj, NULL, v->refused);
        else if (v->here)
            build_here(t, v, &end);
    }
    out->bird = (struct bird_config){ router_id(t), tables, (size_t)(end - tables) };
    if (out->bird.n_tables > 1)
        qsort(tables, out->bird.n_tables, sizeof(tables[0]), table_order);
}

static int route_order(const void *a, const void *b)
{
    return desired_route_cmp(a, b);
}

static int rule_order(const void *a, const void *b)
{
    return desired_rule_cmp(a, b);
}

static struct traffic_result *build(const struct snapshot *s)
{
    struct traffic_result *out = xcalloc(1, sizeof(*out));
    struct traffic_pass t = {
        .snap = s, .host = s->host, .node = snapshot_node(s, s->node), .out = out
    };
    out->refs = 1;
    out->n_views = s->n_traffic_classes;
    out->views = arena_new_array(&out->mem, out->n_views, struct traffic_view);
    prefix_sets_build(s, &t.sets);
    for (size_t i = 0; i < out->n_views; i++) {
        struct traffic_view *v = &out->views[i];
        v->obj = s->traffic_classes[i];
        v->here = t.node && traffic_selects(v->obj, t.node);
        for (size_t j = 0; j < s->n_nodes; j++)
            v->n_selected += traffic_selects(v->obj, s->nodes[j]);
    }
    accept_all(&t);
    build_all(&t);
    prefix_sets_done(&t.sets);
    if (out->routes.n > 1)
        qsort(out->routes.v, out->routes.n, sizeof(out->routes.v[0]), route_order);
    if (out->rules.n > 1)
        qsort(out->rules.v, out->rules.n, sizeof(out->rules.v[0]), rule_order);
    if (out->problems.n > 1)
        qsort(out->problems.v, out->problems.n, sizeof(out->problems.v[0]), problem_cmp);
    return out;
}

/* ---- as part of the planner ---- */

static void result_unref(struct traffic_result *r)
{
    if (!r || --r->refs)
        return;
    vec_done(&r->routes);
    vec_done(&r->rules);
    vec_done(&r->problems);
    vec_done(&r->keeps);
    arena_done(&r->mem);
    free(r);
}

struct traffic *traffic_new(void)
{
    return xcalloc(1, sizeof(struct traffic));
}

void traffic_free(struct traffic *t)
{
    if (!t)
        return;
    result_unref(t->now);
    free(t);
}

static bool is_due(const struct planner *p)
{
    bool due = p->full || !p->traffic->now;
    for (size_t i = 0; i < p->snap->n_changes && !due; i++)
        due = p->snap->changes[i].kind == KIND_TRAFFICCLASS ||
              p->snap->changes[i].kind == KIND_SERVICECIDR;
    return due;
}

void traffic_build(struct planner *p)
{
    if (!is_due(p))
        return;
    result_unref(p->traffic->now);
    p->traffic->now = build(p->snap);
    p->answers_changed = true; /* of which some ask traffic_gateway_table() */
}

uint32_t traffic_gateway_table(const struct planner *p, const char *link, enum family_index f)
{
    const struct traffic_result *r = p->traffic ? p->traffic->now : NULL;
    uint32_t found = 0;
    for (size_t i = 0; r && i < r->n_views; i++) {
        const struct traffic_class *c = r->views[i].obj;
        if (r->views[i].leads_out[f] && !strcmp(c->routes->gateway->link, link) &&
            c->table <= EDGE_TABLE_MAX && (!found || c->table < found))
            found = c->table;
    }
    return found;
}

static void merge_routes(struct pass *pass, const struct traffic_result *r)
{
    const struct desired *d = &pass->plan.desired;
    pass->routes.n = 0;
    for (size_t i = 0, j = 0; i < d->n_routes || j < r->routes.n;) {
        bool first = j == r->routes.n ||
                     (i < d->n_routes && desired_route_cmp(&d->routes[i], &r->routes.v[j]) < 0);
        vec_push(&pass->routes, first ? d->routes[i++] : r->routes.v[j++]);
    }
}

static void merge_rules(struct pass *pass, const struct traffic_result *r)
{
    const struct desired *d = &pass->plan.desired;
    pass->rules.n = 0;
    for (size_t i = 0, j = 0; i < d->n_rules || j < r->rules.n;) {
        bool first = j == r->rules.n ||
                     (i < d->n_rules && desired_rule_cmp(&d->rules[i], &r->rules.v[j]) < 0);
        vec_push(&pass->rules, first ? d->rules[i++] : r->rules.v[j++]);
    }
}

void traffic_publish(struct planner *p, struct pass *pass)
{
    struct traffic_result *r = p->traffic->now;
    result_unref(pass->traffic);
    pass->traffic = r;
    r->refs++;
    merge_routes(pass, r);
    merge_rules(pass, r);
    for (size_t i = 0; i < r->problems.n; i++)
        vec_push(&pass->problems, r->problems.v[i]);
    if (pass->problems.n > 1)
        qsort(pass->problems.v, pass->problems.n, sizeof(pass->problems.v[0]), problem_cmp);
    pass->plan.problems = (struct problems){ pass->problems.v, pass->problems.n };
    struct desired *d = &pass->plan.desired;
    d->routes = pass->routes.v;
    d->n_routes = pass->routes.n;
    d->rules = pass->rules.v;
    d->n_rules = pass->rules.n;
    d->bird = r->has_bird ? &r->bird : NULL;
    d->keeps = r->keeps.v;
    d->n_keeps = r->keeps.n;
}

void traffic_pass_done(struct pass *pass)
{
    result_unref(pass->traffic);
    vec_done(&pass->routes);
    vec_done(&pass->rules);
}
