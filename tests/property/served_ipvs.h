/* What must hold of the IPVS side of a plan, whatever the cluster. */
#pragma once

#include "model/snapshot.h"
#include "plan/plan.h"

struct served_ipvs { /* how often it was met */
    unsigned dests, empty, persistent, dropped, outside, ranged, local, loop_back, shared, bound,
        unbound, health;
};

/* Fails the test, naming the seed. */
void served_ipvs_check(const struct plan *plan, const struct snapshot *s, uint64_t seed,
                       struct served_ipvs *met);
