/* Health-check node ports: where a load balancer asks whether this node has endpoints of a Service
 * with external traffic policy Local (spec.healthCheckNodePort). One listener for each port and
 * address; any path answers. */
#pragma once

#include "agent/health.h"
#include "agent/http.h"
#include "agent/notes.h"
#include "base/vec.h"
#include "model/desired.h"

struct health_check_listener;

struct health_checks {
    uv_loop_t *loop;
    const struct health *health;
    VEC(struct health_check_listener *) listeners; /* by port, then address */
};

/* Listens for each check on each address, and nowhere else; both are sorted. What cannot be bound
 * is said in `notes`, and tried again by the next call. 0 or the last -errno, with its sentence. */
int health_checks_sync(struct health_checks *c, const struct health_check *checks, size_t n_checks,
                       const struct ip *addresses, size_t n_addresses, struct notes *notes,
                       struct err *err);
void health_checks_close(struct health_checks *c);
