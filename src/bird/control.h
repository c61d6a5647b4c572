/* BIRD's control socket, on the loop: one command at a time, each with one reply.
 *
 * It connects by itself, again and again while it must; `state` tells when it is there and when it
 * is gone. A command that finds no connection, loses it, or has no reply in time fails; after the
 * last two it connects anew. All callbacks come from the loop, none from within a call; a callback
 * may give the next command, and may close. */
#pragma once

#include <uv.h>

#include "base/err.h"
#include "bird/reply.h"

struct bird_control;

struct bird_control_options {
    const char *path; /* of the socket; copied */
    void *user;
    /* Connected and greeted, or not any more, with why. Only what changes. */
    void (*state)(void *user, bool up, const char *why);
    unsigned reply_ms; /* how long a reply may take; 0: 10 s */
    unsigned retry_ms; /* between two attempts to connect; 0: 1 s */
};

struct bird_control *bird_control_open(uv_loop_t *loop, const struct bird_control_options *opt);
/* The handles close on the loop; no callback comes any more. Accepts NULL. */
void bird_control_close(struct bird_control *c);
bool bird_control_up(const struct bird_control *c);

/* `done` is called exactly once, unless closed before: with a reply, valid until it returns, or
 * with NULL and why there is none. `command` is one line without its end. Commands wait for those
 * before them. */
void bird_control_command(struct bird_control *c, const char *command,
                          void (*done)(void *user, const struct bird_reply *reply, const char *why),
                          void *user);
