/* Keeps BIRD at what the plan wants, and tells how it stands: the file, the control socket, the
 * sessions, and the routes BIRD left behind when it is gone for too long.
 *
 * A new configuration is written beside the old one, judged by the running BIRD (`configure
 * check`), put in its place and taken into use (`configure`). One that is refused changes nothing
 * and is not tried again until it differs or BIRD was started anew; one that cannot be written is
 * tried every second, since a full disk has room again. While BIRD is away nobody
 * judges: then the file is written only when there is none, since BIRD needs one to start, and when
 * BIRD is gone for away_seconds, since it may be the old one that keeps it from starting. */
#pragma once

#include <uv.h>

#include "base/buf.h"
#include "model/desired.h"
#include "netlink/nl.h"

struct mesh;

struct mesh_options {
    const char *conf;      /* path of bird.conf */
    const char *socket;    /* of BIRD's control socket */
    unsigned away_seconds; /* gone so long, its routes count as stale */
};

/* `port` is borrowed. changed(): mesh_applied() is another than before. */
struct mesh *mesh_open(const struct mesh_options *opt, uv_loop_t *loop, struct nl_port *port,
                       void (*changed)(void *user), void *user);
/* Its handles close on the loop; then mesh_free(). Both accept NULL. */
void mesh_close(struct mesh *m);
void mesh_free(struct mesh *m);

/* NULL: no class needs BIRD. */
void mesh_want(struct mesh *m, const struct bird_config *config);
/* Valid until the loop turns. */
const struct bird_applied *mesh_applied(struct mesh *m);
/* The tables BIRD has to be told of first: it is there, or may be, and has neither taken nor refused
 * its newest configuration. Valid until the next mesh_want(). */
const uint32_t *mesh_unsettled(const struct mesh *m, size_t *ret_n);
/* In Prometheus' text format. */
void mesh_metrics(const struct mesh *m, struct buf *out);
