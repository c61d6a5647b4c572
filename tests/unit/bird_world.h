/* bird.conf as the three designs have it, without a planner: node k8s-1 of three. */
#pragma once

#include "model/bird.h"

enum bird_design { BIRD_HYBRID, BIRD_ONE_TABLE, BIRD_TWO_TABLES, BIRD_DESIGNS };
/* Static; the same every time. `bfd` for the mesh. */
const struct bird_config *bird_world(enum bird_design design, bool bfd);
