/* What must hold of the elements of services, whatever the cluster. */
#pragma once

#include "plan/plan.h"

struct served { /* how often it was met */
    unsigned pick, reject, drop, all, ranged, affinity, hairpins, probed, conflicts, mapped, health;
};

/* Fails the test, naming the seed. */
void served_check(const struct plan *plan, uint64_t seed, struct served *met);
