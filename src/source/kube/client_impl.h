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
    struct arena credentials_mem;
    struct kube_credentials credentials;
    int64_t credentials_us; /* when they were read, 0: never */
    VEC(struct client_count) counts;
    VEC(struct client_socket *) sockets;
};

void client_request_setup(struct client_request *r, const struct client_call *call);
/* Ends it: tells done(). */
void client_request_finish(struct client_request *r, CURLcode code);
