#include "kernel/iptables_restore.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "kernel/iptables_child.h"

#define WAIT    "5"      /* seconds for somebody else who holds iptables' lock */
#define REST_US 40000000 /* after a program that hung: Services are served meanwhile */

/* What one family's tables have of ours: the rules of each chain, as iptables-save prints them. */
struct seen {
    struct buf rules[IPVS_CHAIN_COUNT]; /* by ipvs_chains */
    bool jump[IPVS_JUMP_COUNT];         /* by ipvs_jumps */
};

struct family {
    const char *tool, *tables; /* as listed in /proc */
    int af;
    char *rules;  /* wanted by the last call; NULL: there was none */
    bool right;   /* and the kernel has them */
    bool known;   /* `as` is how they look there; otherwise how they were written */
    bool written; /* or may be, since they were right the last time */
    struct seen as;
};

struct iptables {
    enum iptables_mode mode;
    const char *kind; /* "-nft", "-legacy", "": what is installed; NULL: not yet looked for */
    struct family family[2];
    int64_t rests_until_us;
    struct err hung; /* until then: why nothing is tried */
};

struct iptables *iptables_new(enum iptables_mode mode)
{
    struct iptables *t = xcalloc(1, sizeof(*t));
    t->mode = mode;
    t->family[0] =
        (struct family){ .tool = "iptables", .tables = "/proc/net/ip_tables_names", .af = AF_INET };
    t->family[1] = (struct family){ .tool = "ip6tables",
                                    .tables = "/proc/net/ip6_tables_names",
                                    .af = AF_INET6 };
    return t;
}

static void seen_done(struct seen *s)
{
    for (size_t i = 0; i < IPVS_CHAIN_COUNT; i++)
        buf_done(&s->rules[i]);
}

void iptables_free(struct iptables *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < 2; i++) {
        seen_done(&t->family[i].as);
        free(t->family[i].rules);
    }
    free(t);
}

/* ---- which kind ---- */

static int save(const char *tool, const char *kind, struct buf *out, struct err *err)
{
    static const char *const args[] = { NULL };
    char program[64];
    snprintf(program, sizeof(program), "%s%s-save", tool, kind);
    return iptables_child(program, args, "", out, err);
}

static bool has_rules(const char *saved)
{
    return !strncmp(saved, "-A ", 3) || strstr(saved, "\n-A ");
}

/* Asking makes tables of nobody: only those that are there are listed. */
static bool uses(const struct family *f, const char *kind, int *ret, struct err *err)
{
    struct buf out = { 0 };
    *ret = save(f->tool, kind, &out, err);
    bool uses = !*ret && has_rules(buf_str(&out));
    buf_done(&out);
    return uses;
}

static bool has_tables(const struct family *f)
{
    FILE *list = fopen(f->tables, "re");
    bool any = list && fgetc(list) != EOF;
    if (list)
        fclose(list);
    return any;
}

/* The kind in use, else what is installed; NULL when a program hangs, with why. */
static const char *kind_in_use(const struct iptables *t, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < 2 && r != -ETIMEDOUT; i++)
        if (has_tables(&t->family[i]) && uses(&t->family[i], "-legacy", &r, err))
            return "-legacy";
    for (size_t i = 0; i < 2 && r != -ETIMEDOUT; i++)
        if (uses(&t->family[i], "-nft", &r, err))
            return "-nft";
    if (r != -ETIMEDOUT)
        uses(&t->family[0], "", &r, err);
    return r == -ETIMEDOUT ? NULL : r ? "-legacy" : "";
}

static const char *find_kind(const struct iptables *t, struct err *err)
{
    switch (t->mode) {
    case IPTABLES_NFT:
        return "-nft";
    case IPTABLES_LEGACY:
        return "-legacy";
    case IPTABLES_AUTO:
        break;
    }
    return kind_in_use(t, err);
}

/* ---- reading ---- */

static size_t chain_of(const char *table, const char *name, size_t len)
{
    size_t i = 0;
    while (i < IPVS_CHAIN_COUNT &&
           (strcmp(ipvs_chains[i].table, table) || strlen(ipvs_chains[i].name) != len ||
            strncmp(ipvs_chains[i].name, name, len)))
        i++;
    return i;
}

static void put_jump(struct buf *out, const char *command, const struct iptables_jump *j)
{
    buf_printf(out, "%s %s -m comment --comment \"%s\" -j %s", command, j->chain, j->comment,
               j->target);
}

static void read_jump(const char *table, const char *line, size_t len, struct seen *s)
{
    struct buf text = { 0 };
    for (size_t i = 0; i < IPVS_JUMP_COUNT; i++) {
        buf_clear(&text);
        put_jump(&text, "-A", &ipvs_jumps[i]);
        if (!strcmp(ipvs_jumps[i].table, table) && text.n == len &&
            !strncmp(buf_str(&text), line, len))
            s->jump[i] = true;
    }
    buf_done(&text);
}

/* What iptables-save prints, and what iptables-restore reads. */
static void read_rules(const char *text, struct seen *s)
{
    char table[32] = "";
    for (size_t len; *text; text += len + (text[len] == '\n')) {
        len = strcspn(text, "\n");
        if (*text == '*')
            snprintf(table, sizeof(table), "%.*s", (int)len - 1, text + 1);
        if (strncmp(text, "-A ", 3))
            continue;
        size_t i = chain_of(table, text + 3, strcspn(text + 3, " \n"));
        if (i < IPVS_CHAIN_COUNT) {
            buf_put(&s->rules[i], text, len);
            buf_puts(&s->rules[i], "\n");
        } else {
            read_jump(table, text, len, s);
        }
    }
}

static int read_kernel(struct iptables *t, const struct family *f, struct seen *s, struct err *err)
{
    struct buf out = { 0 };
    if (!t->kind && !(t->kind = find_kind(t, err)))
        return -ETIMEDOUT;
    int r = save(f->tool, t->kind, &out, err);
    if (!r)
        read_rules(buf_str(&out), s);
    buf_done(&out);
    return r;
}

static bool chain_equal(const struct seen *a, const struct seen *b, size_t i)
{
    return !strcmp(buf_str(&a->rules[i]), buf_str(&b->rules[i]));
}

static bool is_right(const struct seen *have, const struct seen *want)
{
    for (size_t i = 0; i < IPVS_CHAIN_COUNT; i++)
        if (!chain_equal(have, want, i))
            return false;
    for (size_t i = 0; i < IPVS_JUMP_COUNT; i++)
        if (!have->jump[i])
            return false;
    return true;
}

/* ---- writing ---- */

/* The wanted rules and, where each table ends, the jumps that lack, last in their order: each goes to
 * the head of its chain. */
static void put_input(struct buf *out, const char *rules, const struct seen *have)
{
    char table[32] = "";
    for (size_t len; *rules; rules += len + (rules[len] == '\n')) {
        len = strcspn(rules, "\n");
        if (*rules == '*')
            snprintf(table, sizeof(table), "%.*s", (int)len - 1, rules + 1);
        for (size_t i = 0; i < IPVS_JUMP_COUNT && !strncmp(rules, "COMMIT", 6); i++)
            if (!have->jump[i] && !strcmp(ipvs_jumps[i].table, table)) {
                put_jump(out, "-I", &ipvs_jumps[i]);
                buf_puts(out, "\n");
            }
        buf_put(out, rules, len);
        buf_puts(out, "\n");
    }
}

static int restore(const struct iptables *t, const struct family *f, const struct seen *have,
                   struct err *err)
{
    static const char *const args[] = { "--noflush", "-w", WAIT, NULL };
    char program[64];
    struct buf input = { 0 }, out = { 0 };
    snprintf(program, sizeof(program), "%s%s-restore", f->tool, t->kind);
    put_input(&input, f->rules, have);
    int r = iptables_child(program, args, buf_str(&input), &out, err);
    buf_done(&input);
    buf_done(&out);
    return r;
}

/* iptables prints a rule in its own words: how ours look is known from then on. */
static int mend(struct iptables *t, struct family *f, const struct seen *have, struct err *err)
{
    struct seen now = { 0 };
    int r = restore(t, f, have, err);
    if (r && r != -ETIMEDOUT && t->mode == IPTABLES_AUTO && !*t->kind) {
        t->kind = "-legacy"; /* a kernel that lacks what the installed one writes to */
        r = restore(t, f, have, err);
        if (r)
            t->kind = NULL;
    }
    if (!r)
        r = read_kernel(t, f, &now, err);
    for (size_t i = 0; i < IPVS_JUMP_COUNT && !r; i++)
        if (!now.jump[i])
            r = err_set(err, EAGAIN, "the jump from %s %s to %s is not there after it was made",
                        ipvs_jumps[i].table, ipvs_jumps[i].chain, ipvs_jumps[i].target);
    if (r) {
        seen_done(&now);
        return r;
    }
    seen_done(&f->as);
    f->as = now;
    f->known = true;
    return 0;
}

static void want(struct family *f, const char *rules)
{
    if (f->rules && !strcmp(f->rules, rules))
        return;
    free(f->rules);
    f->rules = xstrdup(rules);
    f->right = f->known = false;
}

static void refuse(const struct family *f, int error, const struct err *err, struct report *report)
{
    report_refuse(report, "proxy", error, err->text, "rules of %s", f->tool);
}

static bool sync_family(struct iptables *t, struct family *f, struct report *report)
{
    struct seen have = { 0 };
    struct err err = { 0 };
    if (clock_mono_us() < t->rests_until_us) {
        f->right = false;
        refuse(f, ETIMEDOUT, &t->hung, report);
        return false;
    }
    if (!f->known) {
        seen_done(&f->as);
        read_rules(f->rules, &f->as);
    }
    int r = read_kernel(t, f, &have, &err);
    if (!r && !is_right(&have, &f->as)) {
        f->written = true;
        r = mend(t, f, &have, &err);
        report->changes += !r;
    }
    f->known = f->right = !r;
    bool wrote = f->right && f->written;
    f->written &= !wrote;
    if (r == -ETIMEDOUT) {
        t->rests_until_us = clock_mono_us() + REST_US;
        t->hung = err;
    }
    if (r)
        refuse(f, -r, &err, report);
    seen_done(&have);
    return wrote;
}

/* Without it there are no tables of it either: IPv6 may be switched off when the kernel starts. */
static bool kernel_has(const struct family *f)
{
    int fd = socket(f->af, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool has = fd >= 0 || errno != EAFNOSUPPORT;
    if (fd >= 0)
        close(fd);
    return has;
}

bool iptables_sync(struct iptables *t, const struct ipvs_want *wanted, bool audit,
                   struct report *report)
{
    const char *const rules[] = { wanted->rules4, wanted->rules6 };
    bool wrote = false;
    for (size_t i = 0; i < 2; i++) {
        if (!rules[i] || !kernel_has(&t->family[i]))
            continue;
        want(&t->family[i], rules[i]);
        if (audit || !t->family[i].right)
            wrote |= sync_family(t, &t->family[i], report);
    }
    return wrote;
}

int iptables_diff(struct iptables *t, const struct ipvs_want *want, struct buf *out,
                  struct err *err)
{
    const char *const rules[] = { want->rules4, want->rules6 };
    int r = 0;
    for (size_t f = 0; f < 2 && !r; f++) {
        struct seen have = { 0 }, as = { 0 };
        if (!rules[f] || !kernel_has(&t->family[f]))
            continue;
        read_rules(rules[f], &as);
        r = read_kernel(t, &t->family[f], &have, err);
        for (size_t i = 0; i < IPVS_CHAIN_COUNT && !r; i++)
            if (!chain_equal(&have, &as, i))
                buf_printf(out, "+ %s %s chain %s\n", t->family[f].tool, ipvs_chains[i].table,
                           ipvs_chains[i].name);
        for (size_t i = 0; i < IPVS_JUMP_COUNT && !r; i++)
            if (!have.jump[i])
                buf_printf(out, "+ %s %s jump from %s to %s\n", t->family[f].tool,
                           ipvs_jumps[i].table, ipvs_jumps[i].chain, ipvs_jumps[i].target);
        seen_done(&have);
        seen_done(&as);
    }
    return r;
}

bool iptables_stand(const struct iptables *t, enum iptables_mode *ret)
{
    bool all = t->kind;
    for (size_t i = 0; i < 2; i++)
        all &= !t->family[i].rules || t->family[i].right;
    if (all)
        *ret = !strcmp(t->kind, "-legacy") ? IPTABLES_LEGACY
               : !strcmp(t->kind, "-nft")  ? IPTABLES_NFT
                                           : IPTABLES_AUTO;
    return all;
}
