#include "source/rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/map.h"
#include "source/kube/backoff.h"

/* Once or twice it may have been a person. */
#define UNDONE_TOLD 4
/* Both wait, each up to BACKOFF_MAX_MS. */
#define PEACE_US (3 * (int64_t)BACKOFF_MAX_MS * 1000)
/* What was due and is asked for so much later was mended in between, and is undone anew. */
#define LATE_US 1000000

struct row {
    char *body; /* as the server took it last */
    unsigned undone;
    int64_t undone_us; /* when it was found so last */
    int64_t due_us;    /* rows_hold_ms(): when to write it again */
    char name[];
};

struct rows {
    char *node;
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
    r->due_us = 0;
}

static void explain(const struct rows *rows, struct buf *out)
{
    buf_printf(out, "another agent writes what node %s says of itself; is --node right?",
               rows->node);
}

/* That the server or the folder took last just so; NULL: it is something else now. */
static struct row *find_same(const struct rows *rows, const char *name, const char *body)
{
    struct row *r = map_get(&rows->all, name, strlen(name));
    return r && !strcmp(r->body, body) ? r : NULL;
}

uint64_t rows_wait_ms(struct rows *rows, const char *name, const char *body, struct buf *ret_tell)
{
    struct row *r = find_same(rows, name, body);
    int64_t now = clock_mono_us();
    if (!r)
        return 0;
    if (now - r->undone_us > PEACE_US)
        r->undone = 0;
    r->undone_us = now;
    if (++r->undone == UNDONE_TOLD)
        explain(rows, ret_tell);
    return backoff_ms(r->undone, backoff_random());
}

uint64_t rows_hold_ms(struct rows *rows, const char *name, const char *body, struct buf *ret_tell)
{
    struct row *r = find_same(rows, name, body);
    int64_t now = clock_mono_us();
    if (!r)
        return 0;
    if (!r->due_us || now > r->due_us + LATE_US)
        r->due_us = now + (int64_t)rows_wait_ms(rows, name, body, ret_tell) * 1000;
    return r->due_us > now ? (uint64_t)(r->due_us - now) / 1000 + 1 : 0;
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

struct rows *rows_new(const char *node)
{
    struct rows *rows = xcalloc(1, sizeof(*rows));
    rows->node = xstrdup(node);
    rows->all.keys_stay = true;
    return rows;
}

void rows_free(struct rows *rows)
{
    if (!rows)
        return;
    size_t i = 0;
    void *v;
    while (map_next(&rows->all, &i, NULL, NULL, &v))
        free_row(v);
    map_done(&rows->all);
    free(rows->node);
    free(rows);
}
