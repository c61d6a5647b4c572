/* Requests to one API server: libcurl's multi interface on a libuv loop. Connections are kept and
 * shared, by HTTP/2 where the server offers it. Redirects are not followed: an API server sends
 * none, and the token must not go elsewhere.
 *
 * A path that went dead is noticed by the kernel within 30 s (TCP keepalive on an idle
 * connection, TCP_USER_TIMEOUT with data under way). Not by a time without data: a watch is silent
 * when nothing happens, and bookmarks come about once a minute but are promised by nobody. A proxy
 * that keeps our side alive over a dead one is found by the request's own limit in time.
 *
 * Everything is bounded: header bytes, body bytes after decompression, time. */
#pragma once

#include <curl/curl.h>
#include <uv.h>

#include "base/buf.h"
#include "base/vec.h"
#include "source/kube/config.h"

#define CLIENT_HEADER_MAX (64u << 10)
/* Of an answer that is not a success: a Status object. */
#define CLIENT_ERROR_BODY_MAX (64u << 10)

struct client;

struct client_answer {
    long status;             /* 0: none came, or it was cut short */
    uint64_t retry_after_ms; /* 0: not said */
    const char *text;        /* a sentence: why it failed; "" for a success */
    bool begun;              /* a status came, whatever became of the rest */
    bool distrust;           /* 401, or no TLS: credentials may be out of date */
};

/* One request at a time; embedded by its user, zeroed at first. */
struct client_request {
    void *user;
    /* The body of a success, piece by piece. False: enough; done() comes with status 0. Starts and
     * cancels nothing itself. May be NULL: the body is kept in `body`. */
    bool (*data)(void *user, const char *p, size_t n);
    /* Once, unless cancelled; may start the next. */
    void (*done)(void *user, const struct client_answer *a);

    /* private */
    struct client *client;
    CURL *easy;
    struct curl_slist *headers, *connect_to;
    const char *verb;
    struct buf body; /* of an error, or of a success without data() */
    size_t limit, got, header_got;
    const char *stopped; /* why we ended it ourselves */
    char error[CURL_ERROR_SIZE];
};

struct client_call {
    const char *verb; /* "LIST", "WATCH" (both GET), "PATCH", "POST" */
    const char *path; /* with the query */
    const char *content_type, *body;
    size_t body_n;
    unsigned timeout_s;
    size_t limit; /* bytes of the body, decompressed */
};

struct client_count {
    const char *verb;
    long status; /* 0: none came */
    uint64_t n;
};

/* `config` is read anew for each request and stays the caller's. */
struct client *client_open(uv_loop_t *loop, const struct kube_config *config,
                           const char *user_agent);
/* All requests must have been cancelled. Handles close on the loop. Accepts NULL. */
void client_close(struct client *h);

void client_start(struct client *h, struct client_request *r, const struct client_call *call);
bool client_active(const struct client_request *r);
/* Of the answer that is coming in; 0: none yet. */
long client_status(const struct client_request *r);
/* done() will not be called. Accepts an idle one. Not inside data(). */
void client_cancel(struct client_request *r);
/* Credentials are read again before the next request, as once a minute. A connection serves only
 * requests with the certificates it was made with. */
void client_renew(struct client *h);

size_t client_counts(const struct client *h, const struct client_count **ret);
