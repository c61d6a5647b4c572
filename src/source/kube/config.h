/* Where the API server is and who we are to it: from a pod's service account, or from a
 * kubeconfig file (client-go's format, clientcmd/api/v1). */
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"

/* Bytes of PEM, or nothing (p NULL). */
struct blob {
    const void *p;
    size_t n;
};

/* Strings are "" when absent. All of it lives in `mem`. */
struct kube_config {
    struct arena mem;
    const char *server; /* "https://10.96.0.1:443", without a slash at its end */
    const char *ca_file, *cert_file, *key_file;
    struct blob ca, cert, key; /* given in place; goes before the file */
    const char *token, *token_file;
    const char *tls_server_name, *proxy_url;
    bool insecure;
};

/* Accepts a zeroed one. */
void kube_config_done(struct kube_config *c);

/* KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT and the files under
 * /var/run/secrets/kubernetes.io/serviceaccount. */
int kube_config_in_cluster(struct kube_config *ret, struct err *err);
/* `context` "" or NULL: the file's current one. Relative file names in it start at its folder. */
int kube_config_file(const char *path, const char *context, struct kube_config *ret,
                     struct err *err);
/* The same for a text; `path` is for sentences and relative names. */
int kube_config_parse(const char *text, size_t n, const char *path, const char *context,
                      struct kube_config *ret, struct err *err);

/* Nothing but printable characters, and no blank among those. */
bool kube_config_is_word(const char *s);
/* The token's file as it is now; -EINVAL when what it holds is no token. A file that cannot be read
 * may come yet. */
int kube_config_check_token(const struct kube_config *c, struct err *err);

/* What proves who is who. */
struct kube_credentials {
    const char *token; /* "": none */
    struct blob ca, cert, key;
};

/* As they are now: of what is in a file, the file's content. A token's file that cannot be read,
 * or holds none, leaves the token given, another such file nothing. All in `mem`. */
void kube_config_credentials(const struct kube_config *c, struct arena *mem,
                             struct kube_credentials *ret);
