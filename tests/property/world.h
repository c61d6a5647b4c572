/* A cluster of random objects that changes, with one planner for each node, and an API server's
 * rules for status writes: compared by resourceVersion, kept when the spec changes. */
#pragma once

#include "base/buf.h"
#include "base/vec.h"
#include "gen.h"
#include "plan/plan.h"
#include "store/store.h"

struct entry {
    enum object_kind kind;
    uint64_t seed; /* makes the object again, all but its status */
    const char *ns, *name;
    unsigned version;
    struct portmap_status portmap;
    struct class_status class;
};

struct world {
    struct rng rng;
    enum gen_manner manner;
    int64_t now;
    struct arena mem; /* statuses and names, for the life of the world */
    struct store *store;
    VEC(struct entry) entries;
    struct host hosts[GEN_NODES];
    bool host_changed[GEN_NODES];
    struct planner *planners[GEN_NODES];
    struct snapshot snap; /* of the last world_snapshot(), without node and host */
    struct applied applied;
};

/* What each node plans with. */
extern const struct plan_options world_options[GEN_NODES];

struct world *world_new(uint64_t seed, enum gen_manner manner, unsigned n_objects);
void world_free(struct world *w);
/* Adds, replaces or removes one object, or changes a host. */
void world_mutate(struct world *w);
void world_snapshot(struct world *w);
/* The snapshot as node i sees it. */
struct snapshot world_view(const struct world *w, unsigned i);
/* Random refusals of what node i's plan holds. */
void world_refuse(struct world *w, const struct plan *plan);
/* As an API server would: false when the object is another meanwhile. */
bool world_write(struct world *w, const struct status_write *write);
/* Another store with the same objects, put in in another order. */
struct store *world_shuffled(struct world *w);
