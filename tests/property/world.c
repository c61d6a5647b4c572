#include "world.h"

#include <string.h>

#define PREFIX4(a, b, c, d, n)                                  \
    {                                                           \
        { .family = IP_V4, .bytes = { (a), (b), (c), (d) } }, n \
    }
static const struct ip_prefix pods[] = { PREFIX4(10, 244, 0, 0, 16) };
static const struct ip_prefix everywhere[] = {
    PREFIX4(0, 0, 0, 0, 0), { { .family = IP_V6, .bytes = { 0x20, 0x01 } }, 16 }
};

const struct plan_options world_options[GEN_NODES] = {
    { .portmap = true, .serviceproxy = true, .cluster_cidrs = pods, .n_cluster_cidrs = 1 },
    { .portmap = true,
      .serviceproxy = true,
      .node_cidr = true,
      .nodeport_addresses = everywhere,
      .n_nodeport_addresses = 2 },
    { .portmap = true,
      .serviceproxy = true,
      .cluster_cidrs = pods,
      .n_cluster_cidrs = 1,
      .masquerade_bit = MASQUERADE_BIT,
      .proxy_mode = PROXY_IPVS,
      .ipvs = { .scheduler = IPVS_WLC, .weight = 7 } },
    { .portmap = true, .serviceproxy = true, .masquerade_all = true },
    { .portmap = true },
};

static struct object *make(const struct world *w, const struct entry *e)
{
    struct rng r = { e->seed };
    struct object *o = gen_object(&r, w->manner, e->kind);
    o->meta.resource_version = arena_printf(&o->mem, "%u", e->version);
    if (e->kind == KIND_PORTMAP)
        ((struct portmap *)(void *)o)->status = e->portmap;
    if (e->kind == KIND_PORTMAPCLASS)
        ((struct portmap_class *)(void *)o)->status = e->class;
    return o;
}

static struct entry *find(struct world *w, enum object_kind kind, const char *ns, const char *name)
{
    for (size_t i = 0; i < w->entries.n; i++)
        if (w->entries.v[i].kind == kind && !strcmp(w->entries.v[i].ns, ns) &&
            !strcmp(w->entries.v[i].name, name))
            return &w->entries.v[i];
    return NULL;
}

/* ---- deep copies into the world's memory ---- */

static struct condition_list copy_conditions(struct arena *a, const struct condition_list *l)
{
    struct condition_list c = { arena_new_array(a, l->n, struct condition), l->n };
    for (uint32_t i = 0; i < l->n; i++) {
        c.v[i] = l->v[i];
        c.v[i].type = arena_strdup(a, l->v[i].type);
        c.v[i].reason = arena_strdup(a, l->v[i].reason);
        c.v[i].message = arena_strdup(a, l->v[i].message);
    }
    return c;
}

static struct portmap_status copy_portmap(struct arena *a, const struct portmap_status *s)
{
    struct portmap_status c = *s;
    c.endpoint_node = s->endpoint_node ? arena_strdup(a, s->endpoint_node) : NULL;
    c.endpoint_address = s->endpoint_address ? arena_strdup(a, s->endpoint_address) : NULL;
    c.published = arena_new_array(a, s->n_published, struct published);
    for (uint32_t i = 0; i < s->n_published; i++)
        c.published[i] = (struct published){ arena_strdup(a, s->published[i].node),
                                             arena_strdup(a, s->published[i].interface),
                                             arena_strdup(a, s->published[i].address) };
    c.conditions = copy_conditions(a, &s->conditions);
    return c;
}

static struct node_row copy_row(struct arena *a, const struct node_row *r)
{
    struct node_row c = *r;
    c.name = arena_strdup(a, r->name);
    c.message = arena_strdup(a, r->message);
    c.addresses = arena_new_array(a, r->n_addresses, struct node_row_address);
    for (uint32_t i = 0; i < r->n_addresses; i++)
        c.addresses[i] = (struct node_row_address){ arena_strdup(a, r->addresses[i].interface),
                                                    arena_strdup(a, r->addresses[i].address) };
    return c;
}

static void copy_links(struct arena *a, struct class_status *to, const struct link_claim *v,
                       uint32_t n)
{
    to->links = arena_new_array(a, n, struct link_claim);
    to->n_links = n;
    for (uint32_t i = 0; i < n; i++) {
        to->links[i] = v[i];
        to->links[i].key = arena_strdup(a, v[i].key);
        to->links[i].subnet = arena_strdup(a, v[i].subnet);
        for (int j = 0; j < 2; j++)
            to->links[i].peer[j] = arena_strdup(a, v[i].peer[j]);
    }
}

static struct class_status copy_class(struct arena *a, const struct class_status *s)
{
    struct class_status c = *s;
    copy_links(a, &c, s->links, s->n_links);
    c.nodes = arena_new_array(a, s->n_nodes, struct node_row);
    for (uint32_t i = 0; i < s->n_nodes; i++)
        c.nodes[i] = copy_row(a, &s->nodes[i]);
    c.conditions = copy_conditions(a, &s->conditions);
    return c;
}

/* ---- objects ---- */

static void put(struct world *w, enum object_kind kind)
{
    struct entry fresh = { .kind = kind, .seed = w->rng.state, .version = 1 };
    struct object *o = gen_object(&w->rng, w->manner, kind);
    struct entry *e = find(w, kind, o->meta.ns, o->meta.name);
    if (e) {
        e->seed = fresh.seed;
        e->version++;
    } else {
        fresh.ns = arena_strdup(&w->mem, o->meta.ns);
        fresh.name = arena_strdup(&w->mem, o->meta.name);
        if (kind == KIND_PORTMAPCLASS)
            fresh.class = copy_class(&w->mem, &((struct portmap_class *)(void *)o)->status);
        vec_push(&w->entries, fresh);
        e = &w->entries.v[w->entries.n - 1];
    }
    object_free(o);
    store_upsert(w->store, make(w, e));
}

static enum object_kind random_kind(struct rng *r)
{
    static const struct {
        enum object_kind kind;
        uint32_t weight;
    } often[] = { { KIND_PORTMAP, 8 },    { KIND_ENDPOINTSLICE, 7 }, { KIND_SERVICE, 4 },
                  { KIND_NODE, 1 },       { KIND_NAMESPACE, 1 },     { KIND_PORTMAPCLASS, 1 },
                  { KIND_SERVICECIDR, 1 } };
    uint32_t at = rng_below(r, 23), i = 0;
    for (; at >= often[i].weight; i++)
        at -= often[i].weight;
    return often[i].kind;
}

void world_mutate(struct world *w)
{
    uint32_t what = rng_below(&w->rng, 20);
    if (what == 0) {
        uint32_t i = rng_below(&w->rng, GEN_NODES);
        gen_host(&w->rng, w->manner, i, &w->mem, &w->hosts[i]);
        w->host_changed[i] = true;
    } else if (what <= 2 && w->entries.n) {
        size_t i = rng_below(&w->rng, (uint32_t)w->entries.n);
        struct entry *e = &w->entries.v[i];
        store_remove(w->store, e->kind, e->ns, e->name);
        vec_remove(&w->entries, i);
    } else {
        put(w, random_kind(&w->rng));
    }
    w->now += rng_below(&w->rng, 20000);
}

struct world *world_new(uint64_t seed, enum gen_manner manner, unsigned n_objects)
{
    struct world *w = xcalloc(1, sizeof(*w));
    w->rng.state = seed;
    w->manner = manner;
    w->now = 1000000;
    w->applied.acknowledged = true;
    w->store = store_new();
    for (unsigned i = 0; i < GEN_NODES; i++) {
        w->planners[i] = planner_new(&world_options[i]);
        gen_host(&w->rng, manner, i, &w->mem, &w->hosts[i]);
    }
    for (unsigned i = 0; i < 16; i++)
        put(w, KIND_NODE);
    for (unsigned i = 0; i < 8; i++)
        put(w, KIND_PORTMAPCLASS);
    for (unsigned i = 0; i < n_objects; i++)
        put(w, random_kind(&w->rng));
    return w;
}

void world_free(struct world *w)
{
    for (unsigned i = 0; i < GEN_NODES; i++)
        planner_free(w->planners[i]);
    store_free(w->store);
    vec_done(&w->entries);
    arena_done(&w->mem);
    free(w);
}

void world_snapshot(struct world *w)
{
    w->snap = (struct snapshot){ .now = w->now, .cni_vxlan_port = 8472 };
    store_snapshot(w->store, &w->snap);
}

struct snapshot world_view(const struct world *w, unsigned i)
{
    struct snapshot s = w->snap;
    s.node = gen_nodes[i];
    s.host = &w->hosts[i];
    s.host_changed = w->host_changed[i];
    return s;
}

static int by_owner(const void *a, const void *b)
{
    return strcmp(((const struct refusal *)a)->owner, ((const struct refusal *)b)->owner);
}

void world_refuse(struct world *w, const struct plan *plan)
{
    const struct desired *d = &plan->desired;
    struct refusal *v = arena_new_array(&w->mem, 3, struct refusal);
    size_t n = 0;
    if (d->n_groups && rng_one_in(&w->rng, 3))
        v[n++].owner =
            arena_strdup(&w->mem, d->groups[rng_below(&w->rng, (uint32_t)d->n_groups)]->owner);
    if (d->n_links && rng_one_in(&w->rng, 3))
        v[n++].owner =
            arena_strdup(&w->mem, d->links[rng_below(&w->rng, (uint32_t)d->n_links)].owner);
    for (size_t i = 0; i < n; i++) {
        v[i].object = "some object";
        v[i].error = 28;
        v[i].text = "No space left on device";
    }
    if (n)
        qsort(v, n, sizeof(v[0]), by_owner);
    w->applied =
        (struct applied){ .refusals = v, .n_refusals = n, .acknowledged = !rng_one_in(&w->rng, 4) };
}

/* ---- statuses ---- */

static void write_row(struct arena *a, struct class_status *s, const struct node_row *row)
{
    struct node_row *rows = arena_new_array(a, s->n_nodes + 1ul, struct node_row);
    uint32_t n = 0, i = 0;
    for (; i < s->n_nodes && strcmp(s->nodes[i].name, row->name) < 0; i++)
        rows[n++] = s->nodes[i];
    rows[n++] = copy_row(a, row);
    for (; i < s->n_nodes; i++)
        if (strcmp(s->nodes[i].name, row->name))
            rows[n++] = s->nodes[i];
    s->nodes = rows;
    s->n_nodes = n;
}

static void drop_rows(struct class_status *s, const struct string_list *drop)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        bool keep = true;
        for (uint32_t j = 0; j < drop->n; j++)
            keep &= strcmp(s->nodes[i].name, drop->v[j]) != 0;
        if (keep)
            s->nodes[n++] = s->nodes[i];
    }
    s->n_nodes = n;
}

bool world_write(struct world *w, const struct status_write *write)
{
    bool portmap = write->kind == WRITE_PORTMAP_STATUS;
    struct entry *e = find(w, portmap ? KIND_PORTMAP : KIND_PORTMAPCLASS, write->ns, write->name);
    if (!e ||
        (write->kind != WRITE_CLASS_ROW && (unsigned)atoi(write->resource_version) != e->version))
        return false;
    struct arena *a = &w->mem;
    switch (write->kind) {
    case WRITE_PORTMAP_STATUS:
        e->portmap = copy_portmap(a, &write->portmap);
        break;
    case WRITE_CLASS_ROW:
        e->class = copy_class(a, &e->class);
        write_row(a, &e->class, &write->row);
        break;
    case WRITE_CLASS_LINKS:
        copy_links(a, &e->class, write->links, write->n_links);
        break;
    case WRITE_CLASS_CONDITION:
        e->class = copy_class(a, &e->class);
        e->class.conditions = copy_conditions(a, &write->conditions);
        e->class.observed_generation = write->observed_generation;
        drop_rows(&e->class, &write->drop_rows);
        break;
    case WRITE_TRAFFIC_ROW: /* no such class is here */
    case WRITE_TRAFFIC_STATUS:
    case WRITE_NODE_ANNOTATIONS:
    case WRITE_SERVICE_STATUS:
        return false;
    }
    e->version++;
    store_upsert(w->store, make(w, e));
    return true;
}

struct store *world_shuffled(struct world *w)
{
    struct store *s = store_new();
    size_t n = w->entries.n;
    size_t *order = xmalloc(n * sizeof(*order));
    for (size_t i = 0; i < n; i++) {
        size_t j = rng_below(&w->rng, (uint32_t)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (size_t i = 0; i < n; i++)
        store_upsert(s, make(w, &w->entries.v[order[i]]));
    free(order);
    return s;
}
