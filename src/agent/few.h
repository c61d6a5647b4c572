/* Of one object no more than FEW things are told in a pass, in the log and by Events: one that is wrong
 * in 5,000 places would drown all others. What comes after them is one line, which counts the rest. */
#pragma once

#include "base/arena.h"
#include "model/desired.h"
#include "model/status.h"

#define FEW 10

/* The problems of one object stand together. Theirs that are left out are replaced by one with the
 * reason MoreProblems. Borrows from `all`; the rest is in `mem`. */
struct problems few_problems(struct arena *mem, const struct problems *all);
/* The same of refusals, by owner. Returns how many. */
size_t few_refusals(struct arena *mem, const struct refusal *all, size_t n,
                    const struct refusal **ret);
