#include "agent/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/ip.h"

#define CONNECTIONS_MAX 32
#define IDLE_SECONDS    10

struct http {
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer; /* libmicrohttpd closes idle connections when it is run */
    struct http_handler handler;
};

static void run(struct http *h);

static void on_timer(uv_timer_t *t)
{
    run(t->data);
}

static void on_readable(uv_poll_t *p, int status, int events)
{
    (void)status;
    (void)events;
    run(p->data);
}

static void run(struct http *h)
{
    MHD_UNSIGNED_LONG_LONG ms;
    MHD_run(h->daemon);
    if (MHD_get_timeout(h->daemon, &ms) == MHD_YES)
        uv_timer_start(&h->timer, on_timer, ms ? ms : 1, 0);
    else
        uv_timer_stop(&h->timer);
}

static enum MHD_Result reply(struct MHD_Connection *c, unsigned status, const char *type,
                             struct buf *body)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(
        body->n, (void *)(uintptr_t)buf_str(body), MHD_RESPMEM_MUST_COPY);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    enum MHD_Result queued = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    buf_done(body);
    return queued;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **state)
{
    (void)version;
    (void)upload;
    (void)state;
    struct http *h = user;
    struct buf body = { 0 };
    unsigned status = MHD_HTTP_OK;
    const char *type = "text/plain; charset=utf-8";
    if (*upload_size) { /* nothing here takes a body: read it away */
        *upload_size = 0;
        return MHD_YES;
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD)) {
        status = MHD_HTTP_METHOD_NOT_ALLOWED;
        buf_puts(&body, "GET or HEAD\n");
    } else if (!strcmp(url, "/livez") || !strcmp(url, "/healthz")) {
        buf_puts(&body, "ok\n");
    } else if (!strcmp(url, "/readyz")) {
        if (h->handler.ready(h->handler.user, &body))
            buf_puts(&body, "ok\n");
        else
            status = MHD_HTTP_SERVICE_UNAVAILABLE;
    } else if (!strcmp(url, "/metrics")) {
        type = "text/plain; version=0.0.4; charset=utf-8";
        h->handler.metrics(h->handler.user, &body);
    } else {
        status = MHD_HTTP_NOT_FOUND;
        buf_puts(&body, "/livez, /readyz, /healthz or /metrics\n");
    }
    return reply(c, status, type, &body);
}

/* "127.0.0.1:10266", "[::1]:10266" */
static bool parse_address(const char *text, struct sockaddr_storage *ret)
{
    char host[IP_TEXT_MAX];
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    bool bracketed = n > 2 && text[0] == '[' && text[n - 1] == ']';
    if (bracketed) {
        text++;
        n -= 2;
    }
    if (!n || n >= sizeof(host))
        return false;
    memcpy(host, text, n);
    host[n] = 0;
    size_t digits = strspn(colon + 1, "0123456789");
    int port = atoi(colon + 1);
    struct ip ip;
    if (!digits || digits > 5 || colon[1 + digits] || port < 1 || port > 65535 ||
        !ip_parse(host, &ip) || (ip.family == IP_V6) != bracketed)
        return false;
    memset(ret, 0, sizeof(*ret));
    if (ip.family == IP_V4) {
        struct sockaddr_in *sa = (struct sockaddr_in *)ret;
        sa->sin_family = AF_INET;
        sa->sin_port = htons((uint16_t)port);
        memcpy(&sa->sin_addr, ip.bytes, 4);
    } else {
        struct sockaddr_in6 *sa = (struct sockaddr_in6 *)ret;
        sa->sin6_family = AF_INET6;
        sa->sin6_port = htons((uint16_t)port);
        memcpy(&sa->sin6_addr, ip.bytes, 16);
    }
    return true;
}

static int listen_on(const char *text, const struct sockaddr_storage *sa, struct err *err)
{
    int on = 1;
    socklen_t len =
        sa->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    int fd = socket(sa->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (fd < 0 || bind(fd, (const struct sockaddr *)sa, len) || listen(fd, CONNECTIONS_MAX)) {
        int e = errno;
        if (fd >= 0)
            close(fd);
        return err_set(err, e, "--metrics-address %s: %s; give another one, or none", text,
                       strerror(e));
    }
    return fd;
}

int http_open(const char *address, uv_loop_t *loop, const struct http_handler *handler,
              struct http **ret, struct err *err)
{
    struct sockaddr_storage sa;
    if (!parse_address(address, &sa))
        return err_set(err, EINVAL, "--metrics-address %s: IP:PORT or [IP]:PORT is needed",
                       address);
    int fd = listen_on(address, &sa, err);
    if (fd < 0)
        return fd;
    struct http *h = xcalloc(1, sizeof(*h));
    h->handler = *handler;
    h->daemon =
        MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, h, MHD_OPTION_LISTEN_SOCKET, fd,
                         MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_END);
    if (!h->daemon) {
        close(fd);
        free(h);
        return err_set(err, EIO, "--metrics-address %s: the HTTP server did not start", address);
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    uv_poll_init(loop, &h->poll, info->epoll_fd);
    uv_timer_init(loop, &h->timer);
    h->poll.data = h->timer.data = h;
    uv_poll_start(&h->poll, UV_READABLE, on_readable);
    *ret = h;
    return 0;
}

void http_close(struct http *h)
{
    if (!h)
        return;
    uv_close((uv_handle_t *)&h->poll, NULL);
    uv_close((uv_handle_t *)&h->timer, NULL);
}

void http_free(struct http *h)
{
    if (!h)
        return;
    MHD_stop_daemon(h->daemon);
    free(h);
}
