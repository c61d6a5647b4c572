#include "source/kube/order.h"

#include <stdlib.h>
#include <string.h>

void order_done(struct order *o)
{
    for (size_t i = 0; i < o->faults.n; i++) {
        free(o->faults.v[i].reason);
        free(o->faults.v[i].note);
    }
    vec_done(&o->faults);
    patch_done(&o->patch);
    memset(o, 0, sizeof(*o));
}

static void add_fault(struct order *o, const char *reason, const char *note)
{
    vec_push(&o->faults, (struct fault){ xstrdup(reason), xstrdup(note) });
}

static void add_conditions(struct order *o, const struct condition_list *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->v[i].status == TRI_FALSE)
            add_fault(o, l->v[i].reason, l->v[i].message);
}

void order_add_faults(struct order *o, const struct status_write *w)
{
    struct buf b = { 0 };
    switch (w->kind) {
    case WRITE_PORTMAP_STATUS:
        add_conditions(o, &w->portmap.conditions);
        break;
    case WRITE_CLASS_ROW:
        buf_printf(&b, "node %s: %s", w->row.name, w->row.message);
        if (!w->row.ready)
            add_fault(o, "NodeNotReady", b.p);
        break;
    case WRITE_CLASS_LINKS:
        break;
    case WRITE_CLASS_CONDITION:
        add_conditions(o, &w->conditions);
        break;
    case WRITE_TRAFFIC_ROW:
        buf_printf(&b, "node %s: %s", w->traffic_row.name, w->traffic_row.message);
        if (!w->traffic_row.ready)
            add_fault(o, w->traffic_row.reason, b.p);
        break;
    case WRITE_TRAFFIC_STATUS:
        add_conditions(o, &w->traffic.conditions);
        break;
    case WRITE_NODE_ANNOTATIONS: /* what is wrong there is told by events_stand() */
    case WRITE_SERVICE_STATUS:
        break;
    }
    buf_done(&b);
}

bool order_equal(const struct order *a, const struct order *b)
{
    return a->base == b->base && !strcmp(buf_str(&a->patch.body), buf_str(&b->patch.body));
}
