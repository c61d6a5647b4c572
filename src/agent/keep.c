#include "agent/keep.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/vec.h"
#include "model/names.h"

#define NAME       "kept"
#define NAME_BYTES 254 /* of a class, with its end */

struct keep {
    char *state_dir, *file;   /* paths */
    struct buf written, text; /* what the file says; what it should */
    struct arena mem[2];      /* owns the names: those of now, and of the one before */
    VEC(struct desired_keep) all[2];
    size_t n_gone; /* the first ones of all[now]: of classes that are gone */
    int now;
};

static void add(struct keep *k, int to, const struct desired_keep *x)
{
    struct desired_keep copy = *x;
    copy.traffic_class = arena_strdup(&k->mem[to], x->traffic_class);
    vec_push(&k->all[to], copy);
}

static void put_text(struct keep *k)
{
    buf_clear(&k->text);
    for (size_t i = 0; i < k->all[k->now].n; i++) {
        const struct desired_keep *x = &k->all[k->now].v[i];
        buf_printf(&k->text, "%s %u %" PRIu32 " %" PRIu32 "\n", x->traffic_class, x->family,
                   x->priority, x->table);
    }
}

/* ---- the file ---- */

/* A number and the character after it. */
static bool take_number(const char **at, char after, uint64_t max, uint32_t *ret)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(*at, &end, 10);
    if (**at < '0' || **at > '9' || errno || n > max || *end != after)
        return false;
    *ret = (uint32_t)n;
    *at = end + 1;
    return true;
}

/* Exactly as put_text() writes it: what is only like a line may be the half of one. */
static bool read_line(const char *line, char name[static NAME_BYTES], struct desired_keep *ret)
{
    const char *at = strchr(line, ' ');
    uint32_t family;
    if (!at || at == line || at - line >= NAME_BYTES)
        return false;
    snprintf(name, NAME_BYTES, "%.*s", (int)(at - line), line);
    at++;
    *ret = (struct desired_keep){ .traffic_class = name };
    if (!take_number(&at, ' ', IP_V6, &family) || (family != IP_V4 && family != IP_V6) ||
        !take_number(&at, ' ', UINT32_MAX, &ret->priority) ||
        !take_number(&at, '\n', UINT32_MAX, &ret->table))
        return false;
    ret->family = (uint8_t)family;
    return true;
}

static int read_lines(struct keep *k, FILE *f, struct err *err)
{
    char line[512], name[NAME_BYTES];
    errno = 0;
    while (fgets(line, sizeof(line), f)) {
        struct desired_keep x;
        if (!read_line(line, name, &x))
            return err_set(err, EINVAL,
                           "%s: line %zu is not CLASS FAMILY PRIORITY TABLE: remove the file, and "
                           "what classes left behind is removed, too",
                           k->file, k->all[0].n + 1);
        add(k, 0, &x);
    }
    return ferror(f) ? err_set(err, errno, "cannot read %s: %s", k->file, strerror(errno)) : 0;
}

int keep_open(const char *state_dir, struct keep **ret, struct err *err)
{
    struct keep *k = xcalloc(1, sizeof(*k));
    k->state_dir = xstrdup(state_dir);
    struct buf file = { 0 };
    buf_printf(&file, "%s/" NAME, state_dir);
    k->file = file.p;
    FILE *f = fopen(k->file, "re");
    int r = 0;
    if (f) {
        r = read_lines(k, f, err);
        fclose(f);
    } else if (errno != ENOENT) {
        r = err_set(err, errno, "cannot read %s: %s", k->file, strerror(errno));
    }
    if (r) {
        keep_close(k);
        return r;
    }
    put_text(k);
    buf_puts(&k->written, buf_str(&k->text));
    *ret = k;
    return 0;
}

void keep_close(struct keep *k)
{
    if (!k)
        return;
    free(k->state_dir);
    free(k->file);
    buf_done(&k->written);
    buf_done(&k->text);
    for (int i = 0; i < 2; i++) {
        arena_done(&k->mem[i]);
        vec_done(&k->all[i]);
    }
    free(k);
}

/* Before the first rule is: a crash must not lose what a class was promised. */
int keep_write(struct keep *k, struct err *err)
{
    if (!strcmp(buf_str(&k->text), buf_str(&k->written)))
        return 0;
    int r = file_replace(k->state_dir, NAME, buf_str(&k->text), k->text.n, err);
    if (r)
        return r;
    buf_clear(&k->written);
    buf_puts(&k->written, buf_str(&k->text));
    return 0;
}

int keep_cleanup(const char *state_dir, struct err *err)
{
    return file_remove(state_dir, NAME, err);
}

/* ---- what stays ---- */

static bool is_there(const struct snapshot *s, const char *traffic_class)
{
    for (size_t i = 0; i < s->n_traffic_classes; i++)
        if (!strcmp(s->traffic_classes[i]->o.meta.name, traffic_class))
            return true;
    return false;
}

static bool is_wanted(const struct desired *d, const struct desired_keep *x)
{
    bool own = x->table != TABLE_MAIN;
    for (size_t i = 0; i < d->n_rules; i++) {
        const struct desired_rule *r = &d->rules[i];
        if ((r->family == x->family && r->priority == x->priority) || (own && r->table == x->table))
            return true;
    }
    for (size_t i = 0; i < d->n_routes; i++)
        if (own && d->routes[i].table == x->table)
            return true;
    return false;
}

void keep_apply(struct keep *k, const struct snapshot *s, struct desired *d)
{
    int before = k->now;
    k->now = !before;
    arena_reset(&k->mem[k->now]);
    k->all[k->now].n = 0;
    for (size_t i = 0; i < k->all[before].n; i++) {
        const struct desired_keep *x = &k->all[before].v[i];
        if (!is_there(s, x->traffic_class) && !is_wanted(d, x))
            add(k, k->now, x);
    }
    k->n_gone = k->all[k->now].n;
    for (size_t i = 0; i < d->n_keeps; i++)
        add(k, k->now, &d->keeps[i]);
    d->kept = k->all[k->now].v;
    d->n_kept = k->n_gone;
    put_text(k);
}
