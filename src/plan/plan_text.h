/* A plan as text for people: `plan -o text`, and the goldens. One fact a line, in a fixed order,
 * so that a difference between two plans reads as what differs. Without the constant table. */
#pragma once

#include "base/buf.h"
#include "plan/plan.h"

void plan_text(const struct plan *plan, const struct status_writes *writes, struct buf *out);
