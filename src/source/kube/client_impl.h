/* Between client.c (the loop) and client_request.c (one request). */
#pragma once

#include "source/kube/client.h"

struct client_socket;

struct client {
    uv_loop_t *loop;
    CURLM *multi;
    uv_timer_t timer;
    const struct kube_config *config;
    char *user_agent;
    struct arena token_mem;
    const char *token;
    int64_t token_us; /* when it was read, 0: never */
    bool fresh;       /* the next request uses a new connection */
    VEC(struct client_count) counts;
    VEC(struct client_socket *) sockets;
};

void client_request_setup(struct client_request *r, const struct client_call *call);
/* Ends it: tells done(). */
void client_request_finish(struct client_request *r, CURLcode code);
