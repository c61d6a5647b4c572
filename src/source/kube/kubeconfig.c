/* A kubeconfig file: three lists of named entries (clusters, users, contexts) and the name of the
 * context in force. */
#include <errno.h>
#include <string.h>

#include "source/kube/config.h"
#include "source/tokens.h"

struct reader {
    const char *path, *context;
    struct kube_config *config;
    struct err *err;
    int result;
    bool seen; /* a document */
    const struct tokens *t;
};

static int refuse(struct reader *r, uint32_t at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(struct reader *r, uint32_t at, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    const struct token *tok = &r->t->v.v[at];
    return err_set(r->err, EINVAL, "%s:%u:%u: %s", r->path, tok->line, tok->col, text);
}

/* The entry called `name` of a list such as `clusters`: its map under `key`. */
static int find_named(struct reader *r, uint32_t root, const char *list, const char *key,
                      const char *name, uint32_t *ret)
{
    const struct tokens *t = r->t;
    uint32_t at = token_find(t, root, list);
    if (at && t->v.v[at].type == TOKEN_LIST)
        for (uint32_t i = at + 1; t->v.v[i].type != TOKEN_END; i = t->v.v[i].end)
            if (!strcmp(token_string(t, i, "name"), name)) {
                uint32_t map = t->v.v[i].type == TOKEN_MAP ? token_find(t, i, key) : 0;
                if (!map || t->v.v[map].type != TOKEN_MAP)
                    return refuse(r, i, "%s \"%.100s\" has no map \"%s\": complete it", list, name,
                                  key);
                *ret = map;
                return 0;
            }
    return refuse(r, at ? at : root, "no entry of %s is called \"%.100s\": name one that is there",
                  list, name);
}

/* "" when it is not there or null. */
static int get_string(struct reader *r, uint32_t map, const char *key, const char **ret)
{
    uint32_t at = token_find(r->t, map, key);
    *ret = "";
    if (!at || (r->t->v.v[at].plain && r->t->v.v[at].type == TOKEN_SCALAR &&
                token_scalar_type(token_text(r->t, at)) == SCALAR_NULL))
        return 0;
    if (r->t->v.v[at].type != TOKEN_SCALAR || strlen(token_text(r->t, at)) != r->t->v.v[at].len)
        return refuse(r, at, "%s must be a string", key);
    *ret = arena_strdup(&r->config->mem, token_text(r->t, at));
    return 0;
}

/* What becomes part of a request: a line's end in it would begin a header of its own. */
static int get_word(struct reader *r, uint32_t map, const char *key, const char **ret)
{
    int e = get_string(r, map, key, ret);
    if (!e && !kube_config_is_word(*ret))
        e = refuse(r, token_find(r->t, map, key),
                   "%s holds a blank, a line's end or a control character: give it without", key);
    return e;
}

/* A file's name, from the kubeconfig's folder if it is relative. */
static int get_file(struct reader *r, uint32_t map, const char *key, const char **ret)
{
    const char *s, *slash = strrchr(r->path, '/');
    int e = get_string(r, map, key, &s);
    if (!e)
        *ret = *s && *s != '/' && slash
                   ? arena_printf(&r->config->mem, "%.*s/%s", (int)(slash - r->path), r->path, s)
                   : s;
    return e;
}

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *p = c ? strchr(digits, c) : NULL;
    return p ? (int)(p - digits) : -1;
}

/* RFC 4648, with padding; line ends inside are passed over. */
static bool base64_decode(const char *s, char *out, size_t *ret_n)
{
    uint32_t bits = 0;
    unsigned n_bits = 0, digits = 0, padding = 0;
    size_t n = 0;
    for (; *s; s++) {
        if (*s == '\n' || *s == '\r')
            continue;
        if (*s == '=') {
            padding++;
            continue;
        }
        int d = base64_digit(*s);
        if (d < 0 || padding)
            return false;
        digits++;
        bits = (bits << 6 | (uint32_t)d) & 0xffff;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out[n++] = (char)(bits >> n_bits);
        }
    }
    *ret_n = n;
    return (digits + padding) % 4 == 0 && padding < 3;
}

static int get_blob(struct reader *r, uint32_t map, const char *key, struct blob *ret)
{
    const char *s;
    int e = get_string(r, map, key, &s);
    if (e || !*s)
        return e;
    char *out = arena_alloc(&r->config->mem, strlen(s) / 4 * 3 + 3);
    size_t n;
    if (!base64_decode(s, out, &n) || !n)
        return refuse(r, token_find(r->t, map, key), "%s must be base64", key);
    *ret = (struct blob){ out, n };
    return 0;
}

static int get_bool(struct reader *r, uint32_t map, const char *key, bool *ret)
{
    uint32_t at = token_find(r->t, map, key);
    if (!at)
        return 0;
    if (!token_is(r->t, at, "true") && !token_is(r->t, at, "false"))
        return refuse(r, at, "%s must be true or false", key);
    *ret = token_is(r->t, at, "true");
    return 0;
}

static int get_server(struct reader *r, uint32_t cluster)
{
    const char *s;
    int e = get_string(r, cluster, "server", &s);
    if (e)
        return e;
    size_t scheme = !strncmp(s, "https://", 8) ? 8 : !strncmp(s, "http://", 7) ? 7 : 0;
    if (!scheme || !s[scheme] || s[scheme] == '/')
        return refuse(r, cluster, "server is \"%.100s\", must be https:// or http:// and a host",
                      s);
    if (strpbrk(s, "?#@ \t\r\n"))
        return refuse(r, cluster, "server is \"%.100s\", must be scheme, host, port and path only",
                      s);
    size_t n = strlen(s);
    while (s[n - 1] == '/')
        n--;
    r->config->server = arena_strndup(&r->config->mem, s, n);
    return 0;
}

static int get_cluster(struct reader *r, uint32_t cluster)
{
    struct kube_config *c = r->config;
    int e = get_server(r, cluster);
    if (!e)
        e = get_file(r, cluster, "certificate-authority", &c->ca_file);
    if (!e)
        e = get_blob(r, cluster, "certificate-authority-data", &c->ca);
    if (!e)
        e = get_bool(r, cluster, "insecure-skip-tls-verify", &c->insecure);
    if (!e)
        e = get_word(r, cluster, "tls-server-name", &c->tls_server_name);
    if (!e)
        e = get_word(r, cluster, "proxy-url", &c->proxy_url);
    if (!e && c->insecure && (c->ca.p || *c->ca_file))
        e = refuse(r, cluster,
                   "insecure-skip-tls-verify and a certificate-authority exclude each other: take "
                   "one out");
    return e;
}

/* What would make us run a program, or be somebody else. */
static int check_user(struct reader *r, uint32_t user)
{
    static const struct {
        const char *key, *instead;
    } refused[] = {
        { "exec", "no program is run for credentials; give token, tokenFile or a client "
                  "certificate" },
        { "auth-provider", "give token, tokenFile or a client certificate" },
        { "username", "give token, tokenFile or a client certificate" },
        { "password", "give token, tokenFile or a client certificate" },
        { "as", "use an account that has the rights itself" },
        { "as-uid", "use an account that has the rights itself" },
        { "as-groups", "use an account that has the rights itself" },
        { "as-user-extra", "use an account that has the rights itself" },
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        uint32_t at = token_find(r->t, user, refused[i].key);
        if (at)
            return refuse(r, at, "user.%s is not supported: %s", refused[i].key,
                          refused[i].instead);
    }
    return 0;
}

static int get_user(struct reader *r, uint32_t user)
{
    struct kube_config *c = r->config;
    int e = check_user(r, user);
    if (!e)
        e = get_file(r, user, "client-certificate", &c->cert_file);
    if (!e)
        e = get_blob(r, user, "client-certificate-data", &c->cert);
    if (!e)
        e = get_file(r, user, "client-key", &c->key_file);
    if (!e)
        e = get_blob(r, user, "client-key-data", &c->key);
    if (!e)
        e = get_word(r, user, "token", &c->token);
    if (!e)
        e = get_file(r, user, "tokenFile", &c->token_file);
    if (!e && (c->cert.p || *c->cert_file) != (c->key.p || *c->key_file))
        e = refuse(r, user, "client-certificate and client-key go together: give both");
    return e;
}

static int read_config(struct reader *r, uint32_t root)
{
    struct kube_config *c = r->config;
    const char *name = r->context, *cluster, *user;
    uint32_t context = 0, map = 0;
    c->server = c->ca_file = c->cert_file = c->key_file = c->token = c->token_file = "";
    c->tls_server_name = c->proxy_url = "";
    if (r->t->alias.line)
        return err_set(r->err, EINVAL, "%s:%u:%u: a YAML alias is not supported: write it out",
                       r->path, r->t->alias.line, r->t->alias.column);
    if (r->t->v.v[root].type != TOKEN_MAP)
        return refuse(r, root, "not a kubeconfig: it must be a map of kind Config");
    int e = !name || !*name ? get_string(r, root, "current-context", &name) : 0;
    if (e)
        return e;
    if (!*name)
        return refuse(r, root, "current-context is not set: set it, or give --context");
    e = find_named(r, root, "contexts", "context", name, &context);
    if (!e)
        e = get_string(r, context, "cluster", &cluster);
    if (!e)
        e = get_string(r, context, "user", &user);
    if (!e)
        e = find_named(r, root, "clusters", "cluster", cluster, &map);
    if (!e)
        e = get_cluster(r, map);
    if (!e && *user)
        e = find_named(r, root, "users", "user", user, &map);
    return e || !*user ? e : get_user(r, map);
}

static void on_document(void *user, const struct doc *doc)
{
    struct reader *r = user;
    if (r->seen)
        return;
    r->seen = true;
    r->t = doc->tokens;
    r->result = read_config(r, doc->root);
}

int kube_config_parse(const char *text, size_t n, const char *path, const char *context,
                      struct kube_config *ret, struct err *err)
{
    struct kube_config c = { 0 };
    struct reader r = { .path = path, .context = context, .config = &c, .err = err };
    struct codec_handler handler = { .user = &r, .object = on_document };
    struct place place = { 0 };
    int e = codec_parse(text, n, CODEC_YAML, &handler, &place, err);
    if (e)
        err_prefix(err, "%s:%u:%u", path, place.line, place.column);
    else if (!r.seen)
        e = err_set(err, EINVAL, "%s: it is empty: give a kubeconfig", path);
    else
        e = r.result;
    if (e)
        kube_config_done(&c);
    else
        *ret = c;
    return e;
}
