/* One listening socket that answers HTTP, on the agent's loop. Who listens says what the answers
 * are: agent/agent.c, agent/proxy.c, agent/health_check.c. */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/ip.h"

struct http;

struct http_address {
    struct ip ip; /* 0.0.0.0 and :: are all addresses of both families */
    uint16_t port;
};

#define HTTP_TEXT "text/plain; charset=utf-8"
#define HTTP_JSON "application/json"

struct http_answer {
    unsigned status;
    const char *type; /* Content-Type */
    struct buf body;
    const char *header; /* one more; NULL: none */
    char header_value[24];
};

struct http_handler {
    void *user;
    /* Answers a GET or HEAD of `path`. `ret` is 200 and HTTP_TEXT with an empty body before. */
    void (*answer)(void *user, const char *path, struct http_answer *ret);
};

/* "IP:PORT" or "[IP6]:PORT" */
bool http_address_parse(const char *text, struct http_address *ret);
#define HTTP_ADDRESS_TEXT_MAX (IP_TEXT_MAX + 9)
const char *http_address_format(const struct http_address *a, char out[HTTP_ADDRESS_TEXT_MAX]);

/* `handler` is copied. The sentence of `err` names the address. */
int http_open(const struct http_address *address, uv_loop_t *loop,
              const struct http_handler *handler, struct http **ret, struct err *err);
/* Listens no more; its memory goes in a later turn of the loop. Accepts NULL. */
void http_close(struct http *h);
