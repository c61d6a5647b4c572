/* A plan as one JSON document, for programs. Its keys are those of the text form. */
#pragma once

#include "plan/plan.h"

/* `options` are those the plan was made with. */
void plan_print_json(const struct plan_options *options, const struct plan *plan,
                     const struct status_writes *writes);
