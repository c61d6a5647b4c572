/* What a list or a watch says, piece by piece. One object that cannot be read is told of and costs
 * nothing else. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "source/kube/kube.h"
#include "source/tokens.h"

/* ---- one object ---- */

/* Items of built-in lists do not say their kind. */
static bool as_kind(struct reflector *r, struct doc *doc)
{
    const struct kind_info *info = &kind_info[r->kind];
    struct err err;
    if (!*doc->kind_name && !*doc->api_version) {
        doc->kind = r->kind;
        doc->kind_name = info->kind;
        doc->api_version = info->api_version;
        if (!info->namespaced)
            doc->ns = "";
    }
    if (doc->kind == r->kind && *doc->name)
        return true;
    r->incomplete |= !*doc->name;
    err_set(&err, EINVAL, "an object of kind \"%.60s\" named \"%.100s\" instead of a %s: ignored",
            doc->kind_name, doc->name, info->kind);
    kube_note(r->kube, true, r->path, err.text);
    return false;
}

static void take_object(struct reflector *r, const struct doc *given)
{
    struct doc doc = *given;
    if (as_kind(r, &doc))
        known_take(r, &doc);
}

static void passed_over(struct reflector *r, const char *ns, const char *name)
{
    struct err err;
    err_set(&err, E2BIG, "%s %s%s%s is larger than %u MiB: passed over", kind_info[r->kind].kind,
            ns, *ns ? "/" : "", *name ? name : "without a name that was read",
            LINE_MAX_BYTES >> 20);
    if (*name) {
        known_refuse(r, ns, name, err.text);
    } else {
        kube_note(r->kube, true, r->path, err.text);
        r->incomplete = true;
    }
}

static void set_text(char **to, const char *text)
{
    free(*to);
    *to = *text ? xstrdup(text) : NULL;
}

/* ---- a list's page ---- */

static void on_skipped(void *user, const char *ns, const char *name)
{
    passed_over(user, ns, name);
}

static void on_list(void *user, const struct doc *doc)
{
    struct reflector *r = user;
    uint32_t meta = token_find(doc->tokens, doc->root, "metadata");
    set_text(&r->more, meta ? token_string(doc->tokens, meta, "continue") : "");
    set_text(&r->version, meta ? token_string(doc->tokens, meta, "resourceVersion") : "");
}

static void on_item(void *user, const struct doc *doc)
{
    const struct tokens *t = doc->tokens;
    if (t->v.v[doc->root].type == TOKEN_MAP && token_find(t, doc->root, "items"))
        on_list(user, doc); /* items: null */
    else
        take_object(user, doc);
}

/* ---- a watch ---- */

/* Only forward: an event may come late. */
static void advance(struct reflector *r, const struct tokens *t, uint32_t object)
{
    uint32_t meta = token_find(t, object, "metadata");
    const char *text = meta ? token_string(t, meta, "resourceVersion") : "";
    uint64_t was = r->version ? rv_number(r->version) : 0, is = rv_number(text);
    if (*text && (!r->version || !rv_is_number(is) || !rv_is_number(was) || is > was))
        set_text(&r->version, text);
}

static void on_bookmark(struct reflector *r, const struct tokens *t, uint32_t object)
{
    uint32_t meta = token_find(t, object, "metadata");
    uint32_t notes =
        meta && t->v.v[meta].type == TOKEN_MAP ? token_find(t, meta, "annotations") : 0;
    bool end = notes && !strcmp(token_string(t, notes, "k8s.io/initial-events-end"), "true");
    if (!end || !r->initial)
        return;
    r->initial = false;
    known_end(r);
    r->synced = true;
    r->changed = true;
    reflector_settled(r);
}

/* A Status: the watch is over. */
static void on_error(struct reflector *r, const struct tokens *t, uint32_t object)
{
    uint32_t code = token_find(t, object, "code"), details = token_find(t, object, "details");
    long n = code && t->v.v[code].type == TOKEN_SCALAR ? strtol(token_text(t, code), NULL, 10) : 0;
    if (details && t->v.v[details].type == TOKEN_MAP) {
        uint32_t after = token_find(t, details, "retryAfterSeconds");
        long s = after && t->v.v[after].type == TOKEN_SCALAR
                     ? strtol(token_text(t, after), NULL, 10)
                     : 0;
        r->retry_after_ms = s > 0 && s < 86400 ? (uint64_t)s * 1000 : 0;
    }
    /* Too busy is no reason to ask for more. */
    r->relist = n != 429 && n < 500;
    r->expired = n == 410;
    /* A server that knows such watches may still be unable: its etcd may not report progress. */
    r->no_stream |= r->initial && n != 429 && (n < 502 || n > 504);
    err_set(&r->err, EPROTO, "the watch ended with error %ld: %.300s", n,
            token_string(t, object, "message"));
}

struct event {
    struct reflector *reflector;
    bool good;
};

static void on_event(void *user, const struct doc *doc)
{
    struct event *e = user;
    struct reflector *r = e->reflector;
    const struct tokens *t = doc->tokens;
    const char *type = token_string(t, doc->root, "type");
    uint32_t object = t->v.v[doc->root].type == TOKEN_MAP ? token_find(t, doc->root, "object") : 0;
    if (!*type || !object || t->v.v[object].type != TOKEN_MAP)
        return;
    e->good = true;
    if (!strcmp(type, "ERROR")) {
        on_error(r, t, object);
        return;
    }
    r->alive = true;
    if (!strcmp(type, "BOOKMARK")) {
        on_bookmark(r, t, object);
    } else if (!strcmp(type, "DELETED")) {
        struct doc gone = tokens_doc(t, object);
        if (as_kind(r, &gone))
            known_removed(r, gone.ns, gone.name);
    } else if (!strcmp(type, "ADDED") || !strcmp(type, "MODIFIED")) {
        struct doc it = tokens_doc(t, object);
        take_object(r, &it);
    }
    advance(r, t, object);
}

static bool on_line(void *user, const char *p, size_t n)
{
    struct reflector *r = user;
    struct event event = { .reflector = r };
    struct codec_handler handler = { .user = &event, .object = on_event };
    struct place place;
    struct err err = { .text = "it has no type and object" };
    int e = codec_parse(p, n, CODEC_JSON, &handler, &place, &err);
    if (e == -E2BIG) {
        passed_over(r, "", "");
        return true;
    }
    if (e || !event.good) {
        /* An event is lost: only a list can tell what it was. */
        err_set(&r->err, EPROTO, "the watch sent a line that is no event: %.300s", err.text);
        r->relist = true;
    }
    return !*r->err.text;
}

static bool on_long_line(void *user, const char *start)
{
    (void)start;
    passed_over(user, "", "");
    return true;
}

/* ---- an answer ---- */

void take_begin(struct reflector *r, bool watch)
{
    static const struct codec_handler handler = { .object = on_item,
                                                  .list = on_list,
                                                  .skipped = on_skipped };
    struct codec_handler h = handler;
    h.user = r;
    *r->err.text = '\0';
    r->retry_after_ms = 0;
    r->alive = r->relist = r->expired = false;
    lines_done(&r->lines);
    codec_stream_free(r->stream);
    r->stream = watch ? NULL : codec_stream_new(&h);
    r->lines = (struct lines){
        .user = r, .line = on_line, .too_long = on_long_line, .max = LINE_MAX_BYTES
    };
}

bool take_data(void *reflector, const char *p, size_t n)
{
    struct reflector *r = reflector;
    bool more =
        r->stream ? !codec_stream_put(r->stream, p, n, &r->err) : lines_put(&r->lines, p, n);
    if (r->changed) {
        r->changed = false;
        r->kube->source.sink.changed(r->kube->source.sink.user);
    }
    return more;
}

int take_end(struct reflector *r, bool whole)
{
    int e = r->stream && whole ? codec_stream_end(r->stream, &r->err) : 0;
    codec_stream_free(r->stream);
    r->stream = NULL;
    lines_done(&r->lines);
    return e;
}
