#include "source/kube/client.h"

#include <stdlib.h>
#include <string.h>

#include "source/kube/client_impl.h"

/* One for each watch and a few for writes, when the server speaks HTTP/1.1 only. */
#define CONNECTIONS_MAX 16L

struct client_socket {
    uv_poll_t poll;
    struct client *client;
    curl_socket_t fd;
};

static void check_done(struct client *h)
{
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(h->multi, &left));) {
        struct client_request *r;
        CURLcode code = m->data.result;
        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &r);
        client_request_finish(r, code);
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct client_socket *s = poll->data;
    struct client *h = s->client;
    int running, flags = status < 0 ? CURL_CSELECT_ERR : 0;
    if (events & UV_READABLE)
        flags |= CURL_CSELECT_IN;
    if (events & UV_WRITABLE)
        flags |= CURL_CSELECT_OUT;
    curl_multi_socket_action(h->multi, s->fd, flags, &running);
    check_done(h);
}

static void on_timer(uv_timer_t *timer)
{
    struct client *h = timer->data;
    int running;
    curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    check_done(h);
}

static int set_timer(CURLM *multi, long ms, void *user)
{
    struct client *h = user;
    (void)multi;
    if (ms < 0) {
        uv_timer_stop(&h->timer);
        return 0;
    }
    uv_update_time(h->loop); /* what was decoded just now may have taken long */
    uv_timer_start(&h->timer, on_timer, (uint64_t)ms, 0);
    return 0;
}

static void free_socket(uv_handle_t *handle)
{
    free(handle->data);
}

static void drop_socket(struct client *h, struct client_socket *s)
{
    size_t i = 0;
    while (h->sockets.v[i] != s)
        i++;
    vec_remove(&h->sockets, i);
    uv_poll_stop(&s->poll);
    uv_close((uv_handle_t *)&s->poll, free_socket);
}

static int set_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *assigned)
{
    struct client *h = user;
    struct client_socket *s = assigned;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (s)
            drop_socket(h, s);
        curl_multi_assign(h->multi, fd, NULL);
        return 0;
    }
    if (!s) {
        s = xcalloc(1, sizeof(*s));
        s->client = h;
        s->fd = fd;
        s->poll.data = s;
        if (uv_poll_init_socket(h->loop, &s->poll, fd)) {
            free(s);
            return -1;
        }
        vec_push(&h->sockets, s);
        curl_multi_assign(h->multi, fd, s);
    }
    int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
    uv_poll_start(&s->poll, events, on_poll);
    return 0;
}

struct client *client_open(uv_loop_t *loop, const struct kube_config *config,
                           const char *user_agent)
{
    struct client *h = xcalloc(1, sizeof(*h));
    h->loop = loop;
    h->config = config;
    h->user_agent = xstrdup(user_agent);
    uv_timer_init(loop, &h->timer);
    h->timer.data = h;
    h->multi = curl_multi_init();
    if (!h->multi)
        abort();
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, set_socket);
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
    curl_multi_setopt(h->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, CONNECTIONS_MAX);
    return h;
}

static void free_client(uv_handle_t *handle)
{
    struct client *h = handle->data;
    vec_done(&h->sockets);
    vec_done(&h->counts);
    arena_done(&h->credentials_mem);
    free(h->user_agent);
    free(h);
}

void client_close(struct client *h)
{
    if (!h)
        return;
    curl_multi_cleanup(h->multi);
    while (h->sockets.n)
        drop_socket(h, h->sockets.v[0]);
    uv_close((uv_handle_t *)&h->timer, free_client);
}

void client_start(struct client *h, struct client_request *r, const struct client_call *call)
{
    r->client = h;
    client_request_setup(r, call);
    if (curl_multi_add_handle(h->multi, r->easy) != CURLM_OK)
        abort(); /* memory only: the handle is new */
}

bool client_active(const struct client_request *r)
{
    return r->easy;
}

void client_renew(struct client *h)
{
    h->credentials_us = 0;
}

size_t client_counts(const struct client *h, const struct client_count **ret)
{
    *ret = h->counts.v;
    return h->counts.n;
}
