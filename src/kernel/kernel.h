/* What the kernel back ends share: the report of an apply.
 *
 * Each back end can dump, compare and apply one kind of kernel object. None includes
 * another. "Applied" means acknowledged by the kernel: a back end keeps what it knows of
 * the kernel (`known`) and sends only differences; `audit` makes it dump again first.
 * A refused object goes into the report with its owner and is retried on the next call;
 * everything else of the call is applied. */
#pragma once

#include "base/arena.h"
#include "base/vec.h"
#include "model/desired.h"

struct flow_end {
    struct ip ip;
    uint16_t port;
};

/* Where the packets of one UDP flow key go now: to the target, or of a service also to others. */
struct flow_target {
    struct ip dialled;
    uint16_t port, end;
    struct ip target;              /* IP_NONE: nowhere */
    uint16_t target_port;          /* of the first port; 0: ports are kept */
    const struct flow_end *others; /* by ip and port */
    size_t n_others;
    uint32_t nat; /* IPS_*: conntrack itself must translate by one of these; 0: anybody may */
};
int flow_end_cmp(const void *x, const void *y);

struct report {
    struct arena mem; /* texts of the refusals, and what is made of them; until the next pass */
    VEC(struct refusal) refusals;
    size_t adds, changes, deletes; /* operations acknowledged */
    size_t bytes;                  /* sent */
};

/* "pl4242", "pl4242p1f90" or OVERLAY_LINK, and nothing else: model/names.h. */
bool link_name_parse(const char *name, uint32_t *ret_vni, uint16_t *ret_port);
bool link_is_ours(const char *name, const char *kind, const char *alias);

void report_refuse(struct report *r, const char *owner, int error, const char *text,
                   const char *object_fmt, ...) __attribute__((format(printf, 5, 6)));
void report_reset(struct report *r);
void report_done(struct report *r);
