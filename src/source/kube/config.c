#include "source/kube/config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "source/codec.h"

#define ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount"

void kube_config_done(struct kube_config *c)
{
    arena_done(&c->mem);
    memset(c, 0, sizeof(*c));
}

int kube_config_in_cluster(struct kube_config *ret, struct err *err)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    if (!host || !*host)
        return err_set(err, ENOENT,
                       "source kube: KUBERNETES_SERVICE_HOST is not set, so this is no pod: give "
                       "--kubeconfig FILE");
    if (access(ACCOUNT "/token", R_OK))
        return err_set(err, errno,
                       "source kube: " ACCOUNT "/token: %s: give the pod a service account, or "
                       "--kubeconfig FILE",
                       strerror(errno));
    struct kube_config c = { 0 };
    bool six = strchr(host, ':');
    c.server = arena_printf(&c.mem, "https://%s%s%s:%s", six ? "[" : "", host, six ? "]" : "",
                            port && *port ? port : "443");
    c.ca_file = ACCOUNT "/ca.crt";
    c.token_file = ACCOUNT "/token";
    c.cert_file = c.key_file = c.token = c.tls_server_name = c.proxy_url = "";
    *ret = c;
    return 0;
}

int kube_config_file(const char *path, const char *context, struct kube_config *ret,
                     struct err *err)
{
    char *text;
    size_t n;
    int r = codec_read_file(path, &text, &n, err);
    if (r)
        return r;
    r = kube_config_parse(text, n, path, context, ret, err);
    free(text);
    return r;
}

bool kube_config_is_word(const char *s)
{
    while (*s > ' ' && *s < 0x7f)
        s++;
    return !*s;
}

/* NULL: it cannot be read, or holds something else. */
static const char *read_token_file(const char *path, struct arena *mem, struct err *err)
{
    char *text;
    size_t n;
    *err->text = '\0';
    if (codec_read_file(path, &text, &n, NULL))
        return NULL;
    size_t from = strspn(text, " \t\r\n");
    while (n > from && strchr(" \t\r\n", text[n - 1]))
        n--;
    const char *token = arena_strndup(mem, text + from, n - from);
    bool good = strlen(token) == n - from && kube_config_is_word(token);
    free(text);
    if (!good)
        err_set(err, EINVAL,
                "%s: a blank, a line's end or a control character within the token: give one token "
                "and nothing else",
                path);
    return good ? token : NULL;
}

static const char *read_token(const struct kube_config *c, struct arena *mem)
{
    struct err err;
    const char *token = *c->token_file ? read_token_file(c->token_file, mem, &err) : NULL;
    return token ? token : arena_strdup(mem, c->token);
}

int kube_config_check_token(const struct kube_config *c, struct err *err)
{
    struct arena mem = { 0 };
    struct err why = { 0 };
    if (*c->token_file)
        read_token_file(c->token_file, &mem, &why);
    arena_done(&mem);
    return *why.text ? err_set(err, EINVAL, "%s", why.text) : 0;
}

static struct blob read_blob(const struct blob *given, const char *file, struct arena *mem)
{
    char *text;
    size_t n;
    if (given->p)
        return (struct blob){ arena_strndup(mem, given->p, given->n), given->n };
    if (!*file || codec_read_file(file, &text, &n, NULL))
        return (struct blob){ 0 };
    const struct blob blob = { arena_strndup(mem, text, n), n };
    free(text);
    return blob;
}

void kube_config_credentials(const struct kube_config *c, struct arena *mem,
                             struct kube_credentials *ret)
{
    *ret = (struct kube_credentials){ .token = read_token(c, mem),
                                      .ca = read_blob(&c->ca, c->ca_file, mem),
                                      .cert = read_blob(&c->cert, c->cert_file, mem),
                                      .key = read_blob(&c->key, c->key_file, mem) };
}
