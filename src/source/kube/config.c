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

static const char *read_token(const struct kube_config *c, struct arena *mem)
{
    char *text;
    size_t n;
    if (!*c->token_file || codec_read_file(c->token_file, &text, &n, NULL))
        return arena_strdup(mem, c->token);
    size_t from = strspn(text, " \t\r\n");
    size_t len = strcspn(text + from, " \t\r\n");
    const char *token = arena_strndup(mem, text + from, len);
    free(text);
    return token;
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
