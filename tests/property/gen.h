/* Random clusters. Names, ports and addresses come from small pools, so that objects meet:
 * conflicts, shared nodes, two classes on one number, claims that do not fit. */
#pragma once

#include "model/host.h"
#include "model/object.h"

struct rng {
    uint64_t state;
};
uint32_t rng_below(struct rng *r, uint32_t n);
bool rng_one_in(struct rng *r, uint32_t n);

enum gen_manner {
    GEN_SOUND, /* as an API server would let through */
    GEN_WILD,  /* whatever the types can hold */
};

#define GEN_NODES 5
extern const char *const gen_nodes[GEN_NODES];

/* A random object of the kind; which of the kind's names it has is random too. The same state
 * of the generator gives the same object. */
struct object *gen_object(struct rng *r, enum gen_manner manner, enum object_kind kind);
/* Writes the host of node i; the memory is the arena's. */
void gen_host(struct rng *r, enum gen_manner manner, unsigned i, struct arena *a, struct host *ret);
