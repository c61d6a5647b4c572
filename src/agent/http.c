#include "agent/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"

#define CONNECTIONS_MAX 128
#define PER_ADDRESS_MAX 16 /* one stranger does not fill all the places */
#define IDLE_SECONDS    10

struct http {
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer; /* libmicrohttpd closes idle connections when it is run */
    int handles;      /* not closed yet */
    struct http_handler handler;
};

static int listen_on(const struct http_address *address, struct err *err);
static enum MHD_Result on_request(void *user, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **state);
static void on_readable(uv_poll_t *p, int status, int events);
static void on_closed(uv_handle_t *handle);

bool http_address_parse(const char *text, struct http_address *ret)
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
    *ret = (struct http_address){ ip, (uint16_t)port };
    return true;
}

const char *http_address_format(const struct http_address *a, char out[HTTP_ADDRESS_TEXT_MAX])
{
    char ip[IP_TEXT_MAX];
    snprintf(out, HTTP_ADDRESS_TEXT_MAX, a->ip.family == IP_V6 ? "[%s]:%u" : "%s:%u",
             ip_format(&a->ip, ip), a->port);
    return out;
}

int http_open(const struct http_address *address, uv_loop_t *loop,
              const struct http_handler *handler, struct http **ret, struct err *err)
{
    int fd = listen_on(address, err);
    if (fd < 0)
        return fd;
    struct http *h = xcalloc(1, sizeof(*h));
    h->handler = *handler;
    h->daemon =
        MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, h, MHD_OPTION_LISTEN_SOCKET, fd,
                         MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
                         MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)PER_ADDRESS_MAX,
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_END);
    if (!h->daemon) {
        char text[HTTP_ADDRESS_TEXT_MAX];
        close(fd);
        free(h);
        return err_set(err, EIO,
                       "%s: the HTTP server did not start; the limit of open files may "
                       "be too low",
                       http_address_format(address, text));
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    uv_poll_init(loop, &h->poll, info->epoll_fd);
    uv_timer_init(loop, &h->timer);
    h->handles = 2;
    h->poll.data = h->timer.data = h;
    uv_poll_start(&h->poll, UV_READABLE, on_readable);
    *ret = h;
    return 0;
}

void http_close(struct http *h)
{
    if (!h)
        return;
    uv_poll_stop(&h->poll); /* before its descriptor goes */
    MHD_stop_daemon(h->daemon);
    uv_close((uv_handle_t *)&h->poll, on_closed);
    uv_close((uv_handle_t *)&h->timer, on_closed);
}

static void on_closed(uv_handle_t *handle)
{
    struct http *h = handle->data;
    if (!--h->handles)
        free(h);
}

/* ---- the loop ---- */

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

static unsigned connections(struct http *h)
{
    return MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)->num_connections;
}

/* At its limit of connections libmicrohttpd leaves the listening socket out of what it waits for,
 * and takes it in again when it is next run with room: a run that makes room needs another one, or
 * nothing wakes it for those who knock. */
static void run(struct http *h)
{
    MHD_UNSIGNED_LONG_LONG ms;
    unsigned before;
    do {
        before = connections(h);
        MHD_run(h->daemon);
    } while (connections(h) < before);
    if (MHD_get_timeout(h->daemon, &ms) == MHD_YES)
        uv_timer_start(&h->timer, on_timer, ms ? ms : 1, 0);
    else
        uv_timer_stop(&h->timer);
}

/* ---- a request ---- */

static enum MHD_Result reply(struct MHD_Connection *c, struct http_answer *a)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(
        a->body.n, (void *)(uintptr_t)buf_str(&a->body), MHD_RESPMEM_MUST_COPY);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, a->type);
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, MHD_HTTP_HEADER_SERVER, "portolan");
    if (a->header)
        MHD_add_response_header(r, a->header, a->header_value);
    enum MHD_Result queued = MHD_queue_response(c, a->status, r);
    MHD_destroy_response(r);
    buf_done(&a->body);
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
    struct http_answer a = { .status = MHD_HTTP_OK, .type = HTTP_TEXT };
    if (*upload_size) { /* nothing here takes a body: read it away */
        *upload_size = 0;
        return MHD_YES;
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD)) {
        a.status = MHD_HTTP_METHOD_NOT_ALLOWED;
        buf_puts(&a.body, "GET or HEAD\n");
    } else {
        h->handler.answer(h->handler.user, url, &a);
    }
    return reply(c, &a);
}

/* ---- the socket ---- */

static socklen_t to_sockaddr(const struct http_address *a, struct sockaddr_storage *ret)
{
    memset(ret, 0, sizeof(*ret));
    if (a->ip.family == IP_V4) {
        struct sockaddr_in *sa = (struct sockaddr_in *)ret;
        sa->sin_family = AF_INET;
        sa->sin_port = htons(a->port);
        memcpy(&sa->sin_addr, a->ip.bytes, 4);
        return sizeof(*sa);
    }
    struct sockaddr_in6 *sa = (struct sockaddr_in6 *)ret;
    sa->sin6_family = AF_INET6;
    sa->sin6_port = htons(a->port);
    memcpy(&sa->sin6_addr, a->ip.bytes, 16);
    return sizeof(*sa);
}

static int bind_to(const struct http_address *a)
{
    static const int on = 1, off = 0;
    struct sockaddr_storage sa;
    socklen_t len = to_sockaddr(a, &sa);
    int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (a->ip.family == IP_V6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, (const struct sockaddr *)&sa, len) || listen(fd, CONNECTIONS_MAX)) {
        int e = errno;
        close(fd);
        return -e;
    }
    return fd;
}

static int listen_on(const struct http_address *address, struct err *err)
{
    static const struct ip all4 = { .family = IP_V4 }, all6 = { .family = IP_V6 };
    bool all = ip_equal(&address->ip, &all4) || ip_equal(&address->ip, &all6);
    struct http_address a = { all ? all6 : address->ip, address->port };
    int fd = bind_to(&a);
    if (all && (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL)) { /* a kernel without IPv6 */
        a.ip = all4;
        fd = bind_to(&a);
    }
    char text[HTTP_ADDRESS_TEXT_MAX];
    if (fd < 0)
        return err_set(err, -fd, "%s: %s", http_address_format(address, text), strerror(-fd));
    return fd;
}
