/* What this node says of itself and nobody else should write: its row in the status of a class, its
 * Node's annotations.
 *
 * One that is to be written again as it was written last has been changed by somebody: most likely
 * an agent on another machine that was given this node's name. Each would undo the other as fast as
 * the server takes it, so that from the first time on each waits longer. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "source/kube/backoff.h"
#include "source/kube/kube.h"

/* Once or twice it may have been a person. */
#define UNDONE_TOLD 4
/* Both wait, each up to BACKOFF_MAX_MS. */
#define PEACE_US (3 * (int64_t)BACKOFF_MAX_MS * 1000)

struct row {
    char *body; /* as the server took it last */
    unsigned undone;
    int64_t undone_us; /* when it was found so last */
    char name[];
};

struct rows {
    struct kube *kube;
    struct map all;
};

void rows_landed(struct rows *rows, const char *name, const char *body)
{
    size_t n = strlen(name);
    struct row *r = map_get(&rows->all, name, n);
    if (!r) {
        r = xcalloc(1, sizeof(*r) + n + 1);
        memcpy(r->name, name, n + 1);
        map_put(&rows->all, r->name, n, r);
    }
    free(r->body);
    r->body = xstrdup(body);
}

static void explain(const struct rows *rows, struct buf *out)
{
    buf_printf(out, "another agent writes what node %s says of itself; is --node right?",
               rows->kube->node);
}

uint64_t rows_wait_ms(struct rows *rows, const char *name, const char *path, const char *body)
{
    struct row *r = map_get(&rows->all, name, strlen(name));
    int64_t now = clock_mono_us();
    if (!r || strcmp(r->body, body))
        return 0;
    if (now - r->undone_us > PEACE_US)
        r->undone = 0;
    r->undone_us = now;
    if (++r->undone == UNDONE_TOLD) {
        struct buf text = { 0 };
        explain(rows, &text);
        kube_note(rows->kube, true, path, text.p);
        buf_done(&text);
    }
    return backoff_ms(r->undone, backoff_random());
}

void rows_unready(const struct rows *rows, struct buf *out)
{
    size_t i = 0;
    void *v;
    while (map_next(&rows->all, &i, NULL, NULL, &v)) {
        const struct row *r = v;
        if (r->undone < UNDONE_TOLD || clock_mono_us() - r->undone_us > PEACE_US)
            continue;
        buf_puts(out, "source: ");
        explain(rows, out);
        buf_puts(out, "\n");
        return;
    }
}

static void free_row(struct row *r)
{
    free(r->body);
    free(r);
}

void rows_forget(struct rows *rows, const char *name)
{
    struct row *r = map_del(&rows->all, name, strlen(name));
    if (r)
        free_row(r);
}

struct rows *rows_new(struct kube *k)
{
    struct rows *rows = xcalloc(1, sizeof(*rows));
    rows->kube = k;
    rows->all.keys_stay = true;
    return rows;
}

void rows_free(struct rows *rows)
{
    size_t i = 0;
    void *v;
    while (map_next(&rows->all, &i, NULL, NULL, &v))
        free_row(v);
    map_done(&rows->all);
    free(rows);
}
