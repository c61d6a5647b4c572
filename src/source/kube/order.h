/* One write that is wanted of the server: what is sent, and which Events it is followed by. */
#pragma once

#include "source/kube/kube.h"

struct fault { /* becomes an Event of the object */
    char *reason, *note;
};

struct order {
    struct patch patch;
    uint64_t base; /* the version it was decided on, 0: any */
    VEC(struct fault) faults;
};

/* The conditions and rows of the write that say what is wrong. */
void order_add_faults(struct order *o, const struct status_write *w);
/* The same patch of the same version. */
bool order_equal(const struct order *a, const struct order *b);
void order_done(struct order *o); /* may be used again */
