/* Any bytes are what a list or a watch says: the first says which, of which kind, and in what
 * pieces they come. What the sink is told must be consistent: nothing is removed that is not there. */
#include <stdint.h>
#include <stdlib.h>

#include "source/kube/kube.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void upsert(void *user, struct object *obj)
{
    struct map *there = user;
    struct buf key = { 0 };
    buf_printf(&key, "%s/%s", obj->meta.ns, obj->meta.name);
    map_put(there, key.p, key.n, there);
    buf_done(&key);
    object_free(obj);
}

static void removed(void *user, enum object_kind kind, const char *ns, const char *name)
{
    struct buf key = { 0 };
    (void)kind;
    buf_printf(&key, "%s/%s", ns, name);
    if (!map_del(user, key.p, key.n))
        abort();
    buf_done(&key);
}

static void note(void *user, bool is_error, const char *where, const char *text)
{
    (void)user, (void)is_error, (void)where;
    if (!*text)
        abort();
}

static void changed(void *user)
{
    (void)user;
}

/* One answer; twice the same is a list again. */
static void answer(struct reflector *r, bool watch, const uint8_t *data, size_t n, size_t piece)
{
    r->phase = watch ? PHASE_WATCH : PHASE_LIST;
    known_begin(r);
    take_begin(r, watch);
    bool more = true;
    for (size_t at = 0; at < n && more; at += piece)
        more = take_data(r, (const char *)data + at, n - at < piece ? n - at : piece);
    if (!more && !*r->err.text)
        abort(); /* it ended and does not say why */
    if (!take_end(r, more) && more && !watch)
        known_end(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct map there = { 0 };
    struct kube k = { .source.sink = { &there, upsert, removed, note, changed, NULL } };
    uv_loop_t loop;
    if (!n)
        return 0;
    uint8_t how = data[0];
    k.config.server = "https://h";
    uv_loop_init(&loop);
    k.loop = &loop;
    struct reflector *r = reflector_new(&k, (enum object_kind)(how % KIND_COUNT));
    k.reflectors[r->kind] = r;
    r->timer = kube_timer(&k, r);
    r->initial = how & 0x40;
    answer(r, how & 0x80, data + 1, n - 1, (how / KIND_COUNT) % 10 + 1);
    answer(r, how & 0x80, data + 1, (n - 1) / 2, n);
    reflector_stop(r);
    reflector_free(r);
    uv_run(&loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&loop))
        abort();
    map_done(&there);
    return 0;
}
