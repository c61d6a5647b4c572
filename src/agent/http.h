/* Health and metrics over HTTP, on the agent's loop.
 *
 *   /livez, /healthz  200 while the loop turns (that it answers is the proof)
 *   /readyz           200 when every needed object was seen, the source can be followed and
 *                     the last pass left nothing undone; else 503 with the reasons, one a line
 *   /metrics          Prometheus text */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "base/buf.h"
#include "base/err.h"

struct http;

struct http_handler {
    void *user;
    void (*metrics)(void *user, struct buf *out);
    /* Writes reasons; true when ready. */
    bool (*ready)(void *user, struct buf *out);
};

/* `address` is "IP:PORT" or "[IP6]:PORT"; -EINVAL says what would be right. */
int http_open(const char *address, uv_loop_t *loop, const struct http_handler *handler,
              struct http **ret, struct err *err);
/* Its handles close on the loop: run the loop once more, then http_free(). Accepts NULL. */
void http_close(struct http *h);
void http_free(struct http *h);
