/* What classes of traffic leave behind, remembered in STATE_DIR/kept: the rules of those with
 * cleanupPolicy Keep, a line each, "CLASS FAMILY PRIORITY TABLE". The planner knows only classes
 * that are there; the file tells, also after a restart, what a class that is gone leaves to stay.
 *
 * An entry ends when a class of its name is there again, when a rule with its priority or anything
 * in its table is wanted, main excepted, and with `portolan cleanup`. */
#pragma once

#include "base/err.h"
#include "model/desired.h"
#include "model/snapshot.h"

struct keep;

/* Reads the file when there is one. */
int keep_open(const char *state_dir, struct keep **ret, struct err *err);
void keep_close(struct keep *k); /* accepts NULL */

/* Sets d->kept, which stays valid until the next call. */
void keep_apply(struct keep *k, const struct snapshot *s, struct desired *d);
/* Writes what the last keep_apply() found, when it is news. */
int keep_write(struct keep *k, struct err *err);
/* Removes the file, and the folder if nothing else is in it. */
int keep_cleanup(const char *state_dir, struct err *err);
