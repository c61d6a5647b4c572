/* The planner: a pure function from a snapshot to what the kernel should hold, what this
 * node owes the API, and what is wrong with the objects. It never fails, never reads a
 * clock, never logs and makes no system call. The same snapshot gives the same bytes.
 *
 * Two stages, because "Programmed" may only be said after the kernel has acknowledged:
 * plan_build() before the apply, plan_statuses() after it.
 *
 * A struct planner remembers what it found for each mapping; with snapshot.changes_known it
 * redoes only what the changes can touch, and keeps pointers into the objects that did not
 * change: objects replaced or removed must stay readable until plan_build() returns.
 * Incremental and full give the same bytes (tests/property). Behaviour: docs/api.md. Next:
 * plan/internal.h, which tells the stages of a pass. */
#pragma once

#include "model/desired.h"
#include "model/snapshot.h"
#include "model/status.h"

struct planner;

struct plan {
    struct desired desired;
    struct problems problems;
};

struct planner *planner_new(void);
void planner_free(struct planner *p); /* accepts NULL */

/* The result belongs to the planner and is valid until the second next call. */
const struct plan *plan_build(struct planner *p, const struct snapshot *snap);

/* The status writes due after `applied`. Call with the snapshot of the last plan_build().
 * The result is valid until the next call of either function. */
struct status_writes plan_statuses(struct planner *p, const struct snapshot *snap,
                                   const struct applied *applied);

/* The constant nftables table: see model/nft_rule.h and plan/ruleset.c. */
struct nft_table;
const struct nft_table *plan_ruleset(void);
