/* Which objects the server has, by the last list and the watch since. */
#include <stdlib.h>
#include <string.h>

#include "source/kube/kube.h"
#include "source/tokens.h"

#define NO_NUMBER (1ull << 63)

uint64_t rv_number(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    if (digits && digits <= 18 && !text[digits])
        return strtoull(text, NULL, 10);
    return hash_bytes(text, strlen(text)) | NO_NUMBER;
}

bool rv_is_number(uint64_t version)
{
    return !(version & NO_NUMBER);
}

uint64_t rv_of(const struct doc *doc)
{
    const struct tokens *t = doc->tokens;
    bool map = t->v.v[doc->root].type == TOKEN_MAP;
    uint32_t meta = map ? token_find(t, doc->root, "metadata") : 0;
    return meta ? rv_number(token_string(t, meta, "resourceVersion")) : 0;
}

bool rv_has_reached(uint64_t version, uint64_t other)
{
    return version == other || !rv_is_number(other) || !rv_is_number(version) || version > other;
}

static bool is_written(enum object_kind kind)
{
    return kind == KIND_PORTMAP || kind == KIND_PORTMAPCLASS || kind == KIND_TRAFFICCLASS ||
           kind == KIND_NODE || kind == KIND_SERVICE;
}

/* Events name it. Of Services, which are many, only where there may be one. */
static const char *uid_of(const struct doc *doc)
{
    const struct tokens *t = doc->tokens;
    uint32_t meta = token_find(t, doc->root, "metadata"), spec = token_find(t, doc->root, "spec");
    bool held = spec && t->v.v[spec].type == TOKEN_MAP &&
                !strcmp(token_string(t, spec, "loadBalancerClass"), NODE_ADDRESS_CLASS);
    if (!meta || !is_written(doc->kind) || (doc->kind == KIND_SERVICE && !held))
        return "";
    return token_string(t, meta, "uid");
}

static const char *make_key(char *key, size_t size, const char *ns, const char *name)
{
    snprintf(key, size, "%s/%s", ns, name);
    return key;
}

#define KEY_MAX 400

static struct known *find(const struct reflector *r, const char *ns, const char *name)
{
    char key[KEY_MAX];
    make_key(key, sizeof(key), ns, name);
    return map_get(&r->known, key, strlen(key));
}

const struct known *known_find(const struct kube *k, enum object_kind kind, const char *ns,
                               const char *name)
{
    const struct reflector *r = k->reflectors[kind];
    return r ? find(r, ns, name) : NULL;
}

static void free_known(struct known *e)
{
    if (e->copy)
        object_free(&e->copy->o);
    free(e->refused);
    free(e);
}

/* `text` holds the key, then namespace, name and uid, each with its end. */
static struct known *add(struct reflector *r, const char *ns, const char *name, const char *uid)
{
    char key[KEY_MAX];
    make_key(key, sizeof(key), ns, name);
    size_t k = strlen(key), a = strlen(ns) + 1, b = strlen(name) + 1, c = strlen(uid) + 1;
    struct known *e = xcalloc(1, sizeof(*e) + k + a + b + c);
    memcpy(e->text, key, k);
    e->ns = memcpy(e->text + k, ns, a);
    e->name = memcpy(e->text + k + a, name, b);
    e->uid = memcpy(e->text + k + a + b, uid, c);
    struct known *old = map_get(&r->known, key, k);
    if (old) {
        e->given = old->given;
        map_del(&r->known, key, k);
        free_known(old);
    }
    map_put(&r->known, e->text, k, e);
    return e;
}

static void drop(struct reflector *r, struct known *e)
{
    struct kube *k = r->kube;
    char key[KEY_MAX];
    make_key(key, sizeof(key), e->ns, e->name);
    map_del(&r->known, key, strlen(key));
    if (is_written(r->kind))
        writes_seen(k, r->kind, e->ns, e->name, UINT64_MAX);
    if (e->given) {
        k->source.sink.removed(k->source.sink.user, r->kind, e->ns, e->name);
    }
    r->changed |= e->given || e->refused;
    free_known(e);
}

void known_begin(struct reflector *r)
{
    r->round++;
    r->incomplete = false;
}

void known_end(struct reflector *r)
{
    VEC(struct known *) gone = { 0 };
    size_t i = 0;
    void *v;
    while (!r->incomplete && map_next(&r->known, &i, NULL, NULL, &v))
        if (((struct known *)v)->round != r->round)
            vec_push(&gone, v);
    for (size_t g = 0; g < gone.n; g++)
        drop(r, gone.v[g]);
    vec_done(&gone);
}

void known_removed(struct reflector *r, const char *ns, const char *name)
{
    struct known *e = find(r, ns, name);
    if (e)
        drop(r, e);
}

static void refuse(struct reflector *r, struct known *e, const char *why)
{
    free(e->refused);
    e->refused = xstrdup(why);
    kube_note(r->kube, true, r->path, why);
}

void known_refuse(struct reflector *r, const char *ns, const char *name, const char *why)
{
    struct known *e = find(r, ns, name);
    if (!e)
        e = add(r, ns, name, "");
    e->round = r->round;
    refuse(r, e, why);
}

/* What lies in a namespace belongs to those who use that, and costs only itself: else any of them
 * could hold up every node. */
const struct known *known_missing(const struct reflector *r, size_t *i)
{
    void *v;
    while (!kind_info[r->kind].namespaced && map_next(&r->known, i, NULL, NULL, &v)) {
        const struct known *e = v;
        if (e->refused && !e->given)
            return e;
    }
    return NULL;
}

size_t known_refused(const struct reflector *r)
{
    size_t n = 0, i = 0;
    void *v;
    while (map_next(&r->known, &i, NULL, NULL, &v))
        n += ((const struct known *)v)->refused != NULL;
    return n;
}

static void give(struct reflector *r, struct known *e, const struct doc *doc)
{
    struct kube *k = r->kube;
    struct object *o;
    struct err err;
    if (doc_decode(doc, true, &o, NULL, &err)) {
        refuse(r, e, err.text);
        return;
    }
    free(e->refused);
    e->refused = NULL;
    if (r->kind == KIND_PORTMAPCLASS) {
        struct object *copy;
        if (e->copy)
            object_free(&e->copy->o);
        e->copy = doc_decode(doc, true, &copy, NULL, NULL) ? NULL : (struct portmap_class *)copy;
    }
    e->given = true;
    k->source.sink.upsert(k->source.sink.user, o);
    r->changed = true;
}

void known_take(struct reflector *r, const struct doc *doc)
{
    uint64_t version = rv_of(doc);
    const char *uid = uid_of(doc);
    struct known *e = find(r, doc->ns, doc->name);
    if (e) {
        e->round = r->round;
        if (e->version == version)
            return;
        /* In one watch, versions only grow; a list is the truth even when the server's store was
         * put back to an older state. */
        if (r->phase == PHASE_WATCH && !r->initial && rv_is_number(version) &&
            rv_is_number(e->version) && version < e->version)
            return;
    }
    if (!e || strcmp(e->uid, uid))
        e = add(r, doc->ns, doc->name, uid);
    e->round = r->round;
    e->version = version;
    if (is_written(r->kind))
        writes_seen(r->kube, r->kind, e->ns, e->name, version);
    give(r, e, doc);
}

void known_free(struct reflector *r)
{
    size_t i = 0;
    void *v;
    while (map_next(&r->known, &i, NULL, NULL, &v))
        free_known(v);
    map_done(&r->known);
}
