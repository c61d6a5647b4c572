/* What this node owes the statuses of traffic classes: its row, and, if it is the one to say it,
 * conditions and counts, which follow from the rows of all nodes. */
#include <inttypes.h>

#include "plan/traffic.h"

struct rows { /* of the selected nodes, as the status has them */
    uint32_t reported, ready, sessions, expected;
    const struct traffic_row *gateway, *conflict, *mesh, *other; /* the first that is not well */
    const char *missing;                                         /* the first without a row */
};

/* ---- this node's row ---- */

static uint32_t established(const struct applied *applied, uint32_t table)
{
    const struct bird_applied *b = applied->bird;
    for (size_t i = 0; b && i < b->n_tables; i++)
        if (b->tables[i].table == table)
            return b->tables[i].established;
    return 0;
}

/* The first thing that is wrong; reason NULL: nothing. */
static struct verdict row_trouble(struct planner *p, const struct traffic_view *v,
                                  const struct applied *applied, uint32_t sessions)
{
    struct arena *a = &p->status_mem;
    const struct bird_applied *b = applied->bird;
    const struct verdict *const own[] = { &v->refused, &v->gateway, &v->conflict, &v->trouble };
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (own[i]->reason)
            return *own[i];
    const struct refusal *r =
        refusal_of(applied, arena_printf(a, "trafficclass/%s", v->obj->o.meta.name));
    if (r)
        return (struct verdict){ .reason = "KernelRefused",
                                 .message = arena_printf(a, "%s: %s", r->object, r->text) };
    if (traffic_needs_bird(v->obj) && b && *b->reason)
        return (struct verdict){ .reason = b->reason, .message = b->message };
    if (sessions < v->sessions)
        return (struct verdict){ .reason = "SessionsDown",
                                 .message = arena_printf(
                                     a, "%" PRIu32 " of %" PRIu32 " sessions are established",
                                     sessions, v->sessions) };
    return (struct verdict){ 0 };
}

static const struct traffic_row *row_of(const struct traffic_class *c, const char *node)
{
    for (uint32_t i = 0; i < c->status.n_nodes; i++)
        if (!strcmp(c->status.nodes[i].name, node))
            return &c->status.nodes[i];
    return NULL;
}

static void write_row(struct planner *p, const struct traffic_view *v,
                      const struct applied *applied)
{
    if (!v->here || !applied->acknowledged)
        return;
    uint32_t sessions = established(applied, v->obj->table);
    struct verdict bad = row_trouble(p, v, applied, sessions);
    struct traffic_row row = { .name = p->snap->node,
                               .ready = !bad.reason,
                               .reason = bad.reason ? bad.reason : "",
                               .message =
                                   bad.reason ? arena_strdup(&p->status_mem, bad.message) : "",
                               .sessions = sessions,
                               .sessions_expected = v->sessions };
    const struct traffic_row *old = row_of(v->obj, p->snap->node);
    if (!old || !traffic_row_equal(old, &row))
        status_add(p, WRITE_TRAFFIC_ROW, &v->obj->o.meta)->traffic_row = row;
}

/* ---- what the rows say together ---- */

static bool is_one_of(const char *reason, const char *const *words)
{
    while (*words && strcmp(*words, reason))
        words++;
    return *words;
}

static void sort_in(struct rows *rows, const struct traffic_row *r)
{
    static const char *const conflict[] = { "PriorityTaken", "CaughtBefore", NULL };
    static const char *const mesh[] = { "SessionsDown", NULL };
    const struct traffic_row **first = !strncmp(r->reason, "Gateway", strlen("Gateway"))
                                           ? &rows->gateway
                                       : is_one_of(r->reason, conflict) ? &rows->conflict
                                       : is_one_of(r->reason, mesh)     ? &rows->mesh
                                                                        : &rows->other;
    if (!*first)
        *first = r;
}

static struct rows look_at_rows(const struct snapshot *s, const struct traffic_view *v)
{
    struct rows rows = { 0 };
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (!traffic_selects(v->obj, s->nodes[i]))
            continue;
        const char *node = s->nodes[i]->o.meta.name;
        const struct traffic_row *r = row_of(v->obj, node);
        if (!r && !rows.missing)
            rows.missing = node;
        if (!r)
            continue;
        rows.reported++;
        rows.ready += r->ready;
        rows.sessions += r->sessions;
        rows.expected += r->sessions_expected;
        if (!r->ready)
            sort_in(&rows, r);
    }
    return rows;
}

/* ---- conditions ---- */

struct conditions {
    struct planner *p;
    const struct traffic_view *v;
    struct condition_list list;
};

static void say(struct conditions *c, const char *type, bool status, const char *reason,
                const char *message)
{
    const struct traffic_class *o = c->v->obj;
    c->list.v[c->list.n++] = condition_make(&c->p->status_mem, &o->status.conditions, type, status,
                                            reason, message, o->o.meta.generation, c->p->snap->now);
}

static const char *of_node(struct conditions *c, const struct traffic_row *r)
{
    return arena_printf(&c->p->status_mem, "node %s: %s", r->name, r->message);
}

static void say_mesh(struct conditions *c, const struct rows *rows)
{
    const char *text =
        arena_printf(&c->p->status_mem, "%" PRIu32 " of %" PRIu32 " sessions are established",
                     rows->sessions, rows->expected);
    if (rows->mesh)
        text = arena_printf(&c->p->status_mem, "%s; %s", text, of_node(c, rows->mesh));
    bool all = rows->sessions == rows->expected;
    say(c, "MeshReady", all, all ? "AllEstablished" : "SessionsDown", text);
}

static void say_programmed(struct conditions *c, const struct rows *rows)
{
    if (rows->other)
        say(c, "Programmed", false, rows->other->reason, of_node(c, rows->other));
    else if (rows->missing)
        say(c, "Programmed", false, "NodeNotReported",
            arena_printf(&c->p->status_mem, "node %s: its agent has not reported", rows->missing));
    else
        say(c, "Programmed", true, "AllNodesReady", "");
}

/* By type, as the status has them. */
static struct condition_list make_conditions(struct planner *p, const struct traffic_view *v,
                                             const struct rows *rows)
{
    struct conditions c = { .p = p, .v = v };
    const struct traffic_routes *r = v->obj->routes;
    const char *refused = v->refused.reason;
    c.list.v = arena_new_array(&p->status_mem, 5, struct condition);
    say(&c, "Accepted", !refused, refused ? refused : "Valid", refused ? v->refused.message : "");
    if (refused)
        return c.list;
    if (rows->conflict)
        say(&c, "Conflict", true, rows->conflict->reason, of_node(&c, rows->conflict));
    else
        say(&c, "Conflict", false, "NoConflict", "");
    if (r && r->gateway && rows->gateway)
        say(&c, "GatewayValid", false, rows->gateway->reason, of_node(&c, rows->gateway));
    else if (r && r->gateway)
        say(&c, "GatewayValid", true, "Valid", "");
    if (r && r->mesh)
        say_mesh(&c, rows);
    say_programmed(&c, rows);
    return c.list;
}

/* ---- the status ---- */

/* The first selected node that has a row; where none is selected, the first of all. */
static const char *writer(const struct snapshot *s, const struct traffic_view *v)
{
    for (size_t i = 0; i < s->n_nodes; i++)
        if (traffic_selects(v->obj, s->nodes[i]) && row_of(v->obj, s->nodes[i]->o.meta.name))
            return s->nodes[i]->o.meta.name;
    return !v->n_selected && s->n_nodes ? s->nodes[0]->o.meta.name : NULL;
}

static bool is_selected(const struct snapshot *s, const struct traffic_class *c, const char *name)
{
    const struct node *n = snapshot_node(s, name);
    return n && traffic_selects(c, n);
}

static void write_status(struct planner *p, const struct traffic_view *v)
{
    struct arena *a = &p->status_mem;
    const struct traffic_status *old = &v->obj->status;
    const char *who = writer(p->snap, v);
    if (!who || strcmp(who, p->snap->node))
        return;
    struct rows rows = look_at_rows(p->snap, v);
    struct traffic_status st = { .nodes_desired = v->n_selected,
                                 .nodes_ready = rows.ready,
                                 .ready = arena_printf(a, "%" PRIu32 "/%" PRIu32, rows.ready,
                                                       v->n_selected),
                                 .observed_generation = v->obj->o.meta.generation,
                                 .conditions = make_conditions(p, v, &rows) };
    st.nodes = arena_new_array(a, old->n_nodes, struct traffic_row);
    for (uint32_t i = 0; i < old->n_nodes; i++)
        if (is_selected(p->snap, v->obj, old->nodes[i].name))
            st.nodes[st.n_nodes++] = old->nodes[i];
    if (st.n_nodes == old->n_nodes && st.nodes_desired == old->nodes_desired &&
        st.nodes_ready == old->nodes_ready && !strcmp(st.ready, old->ready) &&
        st.observed_generation == old->observed_generation &&
        conditions_equal(&st.conditions, &old->conditions))
        return;
    status_add(p, WRITE_TRAFFIC_STATUS, &v->obj->o.meta)->traffic = st;
}

void traffic_statuses(struct planner *p, const struct applied *applied)
{
    const struct traffic_result *r = p->traffic->now;
    for (size_t i = 0; i < r->n_views; i++)
        write_row(p, &r->views[i], applied);
    for (size_t i = 0; i < r->n_views; i++)
        write_status(p, &r->views[i]);
}
