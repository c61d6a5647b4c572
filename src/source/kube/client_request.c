/* One request: what it asks of libcurl, and what its end means. */
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "source/codec.h"
#include "source/kube/client_impl.h"
#include "source/tokens.h"

/* Tokens of pods are replaced long before they end (Kubernetes: at 80 % of an hour). */
#define CREDENTIALS_AGE_US 60000000
#define CONNECT_S          10L
/* 10 s idle, then a probe every 5 s, three unanswered: 25 s. */
#define KEEP_IDLE_S       10
#define KEEP_INTERVAL_S   5
#define KEEP_COUNT        3
#define USER_TIMEOUT_MS   25000
#define BUFFER_BYTES      65536L
#define RETRY_AFTER_MAX_S 86400

/* ---- asking ---- */

static int set_keepalive(void *user, curl_socket_t fd, curlsocktype purpose)
{
    static const struct {
        int level, name, value;
    } options[] = {
        { SOL_SOCKET, SO_KEEPALIVE, 1 },
        { IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S },
        { IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL_S },
        { IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT },
        { IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS },
    };
    (void)user;
    (void)purpose;
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        if (setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int)))
            return CURL_SOCKOPT_ERROR;
    return CURL_SOCKOPT_OK;
}

long client_status(const struct client_request *r)
{
    long status = 0;
    if (r->easy)
        curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static bool is_success(const struct client_request *r)
{
    long status = client_status(r);
    return status >= 200 && status < 300;
}

static size_t on_body(char *p, size_t size, size_t n, void *user)
{
    struct client_request *r = user;
    n *= size;
    bool success = is_success(r);
    r->got += n;
    if (!success) {
        size_t room = CLIENT_ERROR_BODY_MAX - r->body.n;
        buf_put(&r->body, p, n < room ? n : room);
        if (r->got > CLIENT_ERROR_BODY_MAX)
            r->stopped = "the error's text is too long";
        return r->stopped ? 0 : n;
    }
    if (r->got > r->limit) {
        r->stopped = "the answer is too large";
        return 0;
    }
    if (!r->data) {
        buf_put(&r->body, p, n);
        return n;
    }
    if (r->data(r->user, p, n))
        return n;
    r->stopped = "it was enough";
    return 0;
}

static size_t on_header(char *p, size_t size, size_t n, void *user)
{
    struct client_request *r = user;
    (void)p;
    r->header_got += n * size;
    if (r->header_got <= CLIENT_HEADER_MAX)
        return n * size;
    r->stopped = "the answer's headers are too long";
    return 0;
}

static void set_blob(CURL *easy, CURLoption option, const struct blob *blob)
{
    struct curl_blob b = { .data = (void *)(uintptr_t)blob->p,
                           .len = blob->n,
                           .flags = CURL_BLOB_COPY };
    curl_easy_setopt(easy, option, &b);
}

/* Certificates go in by content: libcurl would keep a CA file's content for a day, and go on using
 * connections made with the client certificate a file held before. By name only what cannot be
 * read, so that libcurl says so. */
static void set_tls(CURL *easy, const struct kube_config *c, const struct kube_credentials *now)
{
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (c->insecure) {
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
    } else if (c->ca.p || *c->ca_file) {
        /* This one and no other: the system's folder would be trusted beside it. */
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
        if (now->ca.p)
            set_blob(easy, CURLOPT_CAINFO_BLOB, &now->ca);
        else
            curl_easy_setopt(easy, CURLOPT_CAINFO, c->ca_file);
    }
    if (now->cert.p)
        set_blob(easy, CURLOPT_SSLCERT_BLOB, &now->cert);
    else if (*c->cert_file)
        curl_easy_setopt(easy, CURLOPT_SSLCERT, c->cert_file);
    if (now->key.p)
        set_blob(easy, CURLOPT_SSLKEY_BLOB, &now->key);
    else if (*c->key_file)
        curl_easy_setopt(easy, CURLOPT_SSLKEY, c->key_file);
}

static void add_header(struct client_request *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void add_header(struct client_request *r, const char *fmt, ...)
{
    struct buf b = { 0 };
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    r->headers = curl_slist_append(r->headers, b.p);
    if (!r->headers)
        abort();
    buf_done(&b);
}

/* The name the certificate must have may differ from the address: the URL then carries the name
 * (curl takes it for SNI and verification), and the connection goes to the address. */
static void set_url(struct client_request *r, const struct kube_config *c, const char *path)
{
    struct buf url = { 0 };
    const char *host = strstr(c->server, "://") + 3;
    size_t n = strcspn(host, "/");
    if (!*c->tls_server_name) {
        buf_printf(&url, "%s%s", c->server, path);
    } else {
        const char *port = memrchr(host, ':', n);
        bool has_port = port && !memchr(port, ']', n - (size_t)(port - host));
        int host_n = (int)(has_port ? port - host : (ptrdiff_t)n);
        int port_n = has_port ? (int)(n - (size_t)(port - host)) : 0;
        buf_printf(&url, "%.*s%s%.*s%s%s", (int)(host - c->server), c->server, c->tls_server_name,
                   port_n, has_port ? port : "", host + n, path);
        struct buf to = { 0 };
        buf_printf(&to, "::%.*s:%.*s", host_n, host, port_n ? port_n - 1 : 0,
                   has_port ? port + 1 : "");
        r->connect_to = curl_slist_append(NULL, to.p);
        buf_done(&to);
        add_header(r, "Host: %.*s", (int)n, host);
        curl_easy_setopt(r->easy, CURLOPT_CONNECT_TO, r->connect_to);
    }
    curl_easy_setopt(r->easy, CURLOPT_URL, url.p);
    buf_done(&url);
}

static const struct kube_credentials *current_credentials(struct client *h)
{
    int64_t now = clock_mono_us();
    if (!h->credentials_us || now - h->credentials_us > CREDENTIALS_AGE_US) {
        arena_reset(&h->credentials_mem);
        kube_config_credentials(h->config, &h->credentials_mem, &h->credentials);
        h->credentials_us = now;
    }
    return &h->credentials;
}

static void set_headers(struct client_request *r, const struct client_call *call, const char *token)
{
    add_header(r, "Accept: application/json");
    add_header(r, "Expect:");
    if (*token)
        add_header(r, "Authorization: Bearer %s", token);
    if (call->body)
        add_header(r, "Content-Type: %s", call->content_type);
    curl_easy_setopt(r->easy, CURLOPT_HTTPHEADER, r->headers);
    curl_easy_setopt(r->easy, CURLOPT_USERAGENT, r->client->user_agent);
}

static void set_limits(CURL *easy, const struct client_call *call)
{
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT, (long)call->timeout_s);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, set_keepalive);
}

void client_request_setup(struct client_request *r, const struct client_call *call)
{
    struct client *h = r->client;
    const struct kube_config *c = h->config;
    const struct kube_credentials *now = current_credentials(h);
    r->easy = curl_easy_init();
    if (!r->easy)
        abort();
    r->verb = call->verb;
    r->limit = call->limit;
    r->got = r->header_got = 0;
    r->stopped = NULL;
    *r->error = '\0';
    buf_clear(&r->body);
    set_limits(r->easy, call);
    set_url(r, c, call->path);
    set_headers(r, call, now->token);
    set_tls(r->easy, c, now);
    if (*c->proxy_url)
        curl_easy_setopt(r->easy, CURLOPT_PROXY, c->proxy_url);
    curl_easy_setopt(r->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    /* Wait for the first connection to say whether it takes more: TLS says so at once, clear text
     * only with the first answer's end. */
    curl_easy_setopt(r->easy, CURLOPT_PIPEWAIT, strncmp(c->server, "https", 5) ? 0L : 1L);
    /* Not for a watch: servers that compress one flush it as several gzip members, after the
     * first of which libcurl (7.88) refuses what follows. */
    if (strcmp(call->verb, "WATCH"))
        curl_easy_setopt(r->easy, CURLOPT_ACCEPT_ENCODING, "gzip");
    curl_easy_setopt(r->easy, CURLOPT_ERRORBUFFER, r->error);
    curl_easy_setopt(r->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(r->easy, CURLOPT_WRITEDATA, r);
    curl_easy_setopt(r->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(r->easy, CURLOPT_HEADERDATA, r);
    curl_easy_setopt(r->easy, CURLOPT_PRIVATE, r);
    if (call->body) {
        curl_easy_setopt(r->easy, CURLOPT_POSTFIELDSIZE, (long)call->body_n);
        curl_easy_setopt(r->easy, CURLOPT_COPYPOSTFIELDS, call->body);
        curl_easy_setopt(r->easy, CURLOPT_CUSTOMREQUEST, call->verb);
    }
}

/* ---- the end ---- */

static void release(struct client_request *r)
{
    if (!r->easy)
        return;
    curl_multi_remove_handle(r->client->multi, r->easy);
    curl_easy_cleanup(r->easy);
    curl_slist_free_all(r->headers);
    curl_slist_free_all(r->connect_to);
    r->easy = NULL;
    r->headers = r->connect_to = NULL;
}

void client_cancel(struct client_request *r)
{
    release(r);
    buf_done(&r->body);
}

static void count(struct client *h, const char *verb, long status)
{
    for (size_t i = 0; i < h->counts.n; i++)
        if (h->counts.v[i].status == status && !strcmp(h->counts.v[i].verb, verb)) {
            h->counts.v[i].n++;
            return;
        }
    /* A server that answers with every number there is must not fill us. */
    if (h->counts.n < 100)
        vec_push(&h->counts, (struct client_count){ verb, status, 1 });
}

static void take_message(void *user, const struct doc *doc)
{
    struct buf *text = user;
    const char *message = token_string(doc->tokens, doc->root, "message");
    if (*message && !text->n)
        buf_printf(text, ": %.300s", message);
}

/* The sentence of an answer that is not a success. */
static void explain_status(struct client_request *r, long status, struct buf *text)
{
    struct codec_handler handler = { .user = text, .object = take_message };
    struct place place;
    struct buf message = { 0 };
    char *location = NULL;
    handler.user = &message;
    codec_parse(buf_str(&r->body), r->body.n, CODEC_JSON, &handler, &place, NULL);
    curl_easy_getinfo(r->easy, CURLINFO_REDIRECT_URL, &location);
    if (location)
        buf_printf(text, "the API server answered %ld, a redirect to %.200s: it is not followed",
                   status, location);
    else
        buf_printf(text, "the API server answered %ld%s", status, buf_str(&message));
    buf_done(&message);
}

static bool is_tls(CURLcode code)
{
    return code == CURLE_SSL_CONNECT_ERROR || code == CURLE_SSL_CERTPROBLEM ||
           code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
}

void client_request_finish(struct client_request *r, CURLcode code)
{
    struct client_answer a = { 0 };
    struct buf text = { 0 };
    long status = 0;
    curl_off_t retry_after = 0;
    curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(r->easy, CURLINFO_RETRY_AFTER, &retry_after);
    if (retry_after > 0)
        a.retry_after_ms =
            (uint64_t)(retry_after < RETRY_AFTER_MAX_S ? retry_after : RETRY_AFTER_MAX_S) * 1000;
    if (code == CURLE_OK && status >= 200 && status < 300) {
        a.status = status;
    } else if (code == CURLE_OK && status) {
        a.status = status;
        explain_status(r, status, &text);
    } else if (r->stopped) {
        buf_puts(&text, r->stopped);
    } else {
        buf_puts(&text, *r->error ? r->error : curl_easy_strerror(code));
        while (text.n && text.p[text.n - 1] == ' ') /* curl ends some with a blank */
            text.p[--text.n] = '\0';
    }
    a.begun = status;
    a.distrust = status == 401 || is_tls(code);
    a.text = buf_str(&text);
    count(r->client, r->verb, a.status);
    release(r);
    r->done(r->user, &a);
    buf_done(&text);
}
