#include "kernel/iptables.h"

#include <errno.h>
#include <fcntl.h>
/* clang-format off */
#include <netinet/in.h>
#include <net/if.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
/* clang-format on */
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "kernel/kubeproxy.h"

#define LOCK_FILE        "/run/xtables.lock"
#define LOCK_PATIENCE_US 5000000
/* Somebody without the lock changed the table between our reading and our writing. */
#define TRIES 8

/* Both families' structs differ in the entry alone. */
_Static_assert(sizeof(struct ipt_getinfo) == sizeof(struct ip6t_getinfo), "one for both");
_Static_assert(sizeof(struct ipt_replace) == sizeof(struct ip6t_replace), "one for both");

struct family {
    const char *tool, *tables; /* as listed in /proc */
    int af, level;
    size_t entry_size, target_at, next_at, counters_at;
};
static const struct family families[] = {
    { "iptables-legacy", "/proc/net/ip_tables_names", AF_INET, IPPROTO_IP, sizeof(struct ipt_entry),
      offsetof(struct ipt_entry, target_offset), offsetof(struct ipt_entry, next_offset),
      offsetof(struct ipt_entry, counters) },
    { "ip6tables-legacy", "/proc/net/ip6_tables_names", AF_INET6, IPPROTO_IPV6,
      sizeof(struct ip6t_entry), offsetof(struct ip6t_entry, target_offset),
      offsetof(struct ip6t_entry, next_offset), offsetof(struct ip6t_entry, counters) },
};

struct entry {
    uint32_t at, next;  /* byte offsets in the table */
    uint32_t moved_to;  /* where it, or what follows it, will be */
    size_t chain;       /* index; NO_CHAIN for the table's last entry */
    const int *verdict; /* of a jump or of a rule that only counts; NULL: neither */
    bool goes;
};
#define NO_CHAIN SIZE_MAX

struct reading {
    const struct family *family;
    const char *table;
    int fd;
    struct ipt_getinfo info;
    struct ipt_get_entries *blob;
    struct kubeproxy_table t;
    VEC(uint32_t) firsts; /* of each chain: where a jump leads; rising */
    VEC(struct entry) entries;
};

/* ---- reading ---- */

static uint16_t number_at(const void *entry, size_t at)
{
    uint16_t v;
    memcpy(&v, (const char *)entry + at, sizeof(v));
    return v;
}

static const void *entry_at(const struct reading *r, uint32_t at)
{
    return (const char *)r->blob->entrytable + at;
}

static bool is_base(const struct reading *r, uint32_t at)
{
    for (int h = 0; h < NF_INET_NUMHOOKS; h++)
        if (r->info.valid_hooks & 1u << h && r->info.hook_entry[h] == at)
            return true;
    return false;
}

static void begin_chain(struct reading *r, const char *name, uint32_t first)
{
    vec_push(&r->t.chains, (struct kubeproxy_chain){
                               .name = name,
                               .base = !*name,
                               .leftover = kubeproxy_is_chain(r->t.whose, r->table, name),
                           });
    vec_push(&r->firsts, first);
}

/* A user's chain begins with an entry whose target is ERROR and has its name; one of that name ends
 * the table. */
static int read_entry(struct reading *r, uint32_t at)
{
    const struct family *f = r->family;
    const void *e = entry_at(r, at);
    uint32_t room = r->blob->size - at;
    if (room < f->entry_size)
        return -EBADMSG;
    uint16_t target = number_at(e, f->target_at), next = number_at(e, f->next_at);
    if (next > room || target < f->entry_size || target + sizeof(struct xt_standard_target) > next)
        return -EBADMSG;
    const struct xt_entry_target *t = (const void *)((const char *)e + target);
    struct entry x = { .at = at, .next = at + next };
    if (!strcmp(t->u.user.name, XT_ERROR_TARGET)) {
        const struct xt_error_target *error = (const void *)t;
        if (target + sizeof(*error) > next ||
            !memchr(error->errorname, 0, sizeof(error->errorname)))
            return -EBADMSG;
        bool last = !strcmp(error->errorname, XT_ERROR_TARGET);
        if (!last)
            begin_chain(r, arena_strdup(&r->t.mem, error->errorname), x.next);
        x.chain = last ? NO_CHAIN : r->t.chains.n - 1;
    } else {
        if (is_base(r, at))
            begin_chain(r, "", at);
        if (!r->t.chains.n)
            return -EBADMSG;
        x.chain = r->t.chains.n - 1;
        if (!strcmp(t->u.user.name, XT_STANDARD_TARGET))
            x.verdict = &((const struct xt_standard_target *)(const void *)t)->verdict;
    }
    vec_push(&r->entries, x);
    return 0;
}

/* The chain a verdict leads to, NO_CHAIN: to none. */
static size_t chain_of(const struct reading *r, uint32_t first)
{
    size_t low = 0, high = r->firsts.n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (r->firsts.v[mid] < first)
            low = mid + 1;
        else
            high = mid;
    }
    return low < r->firsts.n && r->firsts.v[low] == first ? low : NO_CHAIN;
}

static void find_jumps(struct reading *r)
{
    for (size_t i = 0; i < r->entries.n; i++) {
        const struct entry *e = &r->entries.v[i];
        bool leads = e->verdict && *e->verdict >= 0; /* somewhere, if only to the next rule */
        size_t to = leads ? chain_of(r, (uint32_t)*e->verdict) : NO_CHAIN;
        if (to != NO_CHAIN && r->t.chains.v[to].leftover)
            vec_push(&r->t.jumps, (struct kubeproxy_jump){ e->chain, to, i });
    }
}

static int read_table(struct reading *r)
{
    socklen_t size = sizeof(r->info);
    snprintf(r->info.name, sizeof(r->info.name), "%s", r->table);
    if (getsockopt(r->fd, r->family->level, IPT_SO_GET_INFO, &r->info, &size))
        return -errno;
    size = (socklen_t)(sizeof(*r->blob) + r->info.size);
    free(r->blob);
    r->blob = xcalloc(1, size);
    r->blob->size = r->info.size;
    snprintf(r->blob->name, sizeof(r->blob->name), "%s", r->table);
    if (getsockopt(r->fd, r->family->level, IPT_SO_GET_ENTRIES, r->blob, &size))
        return -errno;
    kubeproxy_table_reset(&r->t);
    r->firsts.n = r->entries.n = 0;
    int ret = 0;
    for (uint32_t at = 0; at < r->blob->size && !ret; at = r->entries.v[r->entries.n - 1].next)
        if ((ret = read_entry(r, at)))
            return ret;
    find_jumps(r);
    return r->entries.n == r->info.num_entries ? 0 : -EBADMSG;
}

/* ---- replacing ---- */

/* The new place of what was there. */
static uint32_t moved(const struct reading *r, uint32_t at)
{
    size_t low = 0, high = r->entries.n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (r->entries.v[mid].at < at)
            low = mid + 1;
        else
            high = mid;
    }
    return low < r->entries.n ? r->entries.v[low].moved_to : at;
}

/* Decides what goes; the bytes and the number of what stays. */
static uint32_t arrange(struct reading *r, uint32_t *ret_n)
{
    uint32_t size = 0, n = 0;
    for (size_t i = 0; i < r->t.jumps.n; i++)
        if (r->t.chains.v[r->t.jumps.v[i].from].base)
            r->entries.v[r->t.jumps.v[i].handle].goes = true;
    for (size_t i = 0; i < r->entries.n; i++) {
        struct entry *e = &r->entries.v[i];
        e->goes |= e->chain != NO_CHAIN && kubeproxy_chain_goes(&r->t.chains.v[e->chain]);
        e->moved_to = size;
        size += e->goes ? 0 : e->next - e->at;
        n += !e->goes;
    }
    *ret_n = n;
    return size;
}

static void put_entries(const struct reading *r, char *to)
{
    for (size_t i = 0; i < r->entries.n; i++) {
        const struct entry *e = &r->entries.v[i];
        if (e->goes)
            continue;
        memcpy(to + e->moved_to, entry_at(r, e->at), e->next - e->at);
        if (!e->verdict || *e->verdict < 0)
            continue;
        size_t verdict_at = (size_t)((const char *)e->verdict - (const char *)entry_at(r, e->at));
        int verdict = (int)moved(r, (uint32_t)*e->verdict);
        memcpy(to + e->moved_to + verdict_at, &verdict, sizeof(verdict));
    }
}

/* A replaced table counts from zero: what rules had counted is added. */
static void keep_counts(const struct reading *r, const struct xt_counters *old, uint32_t n)
{
    size_t size = sizeof(struct xt_counters_info) + n * sizeof(struct xt_counters);
    struct xt_counters_info *add = xcalloc(1, size);
    snprintf(add->name, sizeof(add->name), "%s", r->table);
    add->num_counters = n;
    for (size_t i = 0, k = 0; i < r->entries.n; i++)
        if (!r->entries.v[i].goes)
            add->counters[k++] = old[i];
    (void)setsockopt(r->fd, r->family->level, IPT_SO_SET_ADD_COUNTERS, add, (socklen_t)size);
    free(add);
}

static int replace(struct reading *r)
{
    uint32_t n, size = arrange(r, &n);
    struct ipt_replace *t = xcalloc(1, sizeof(*t) + size);
    struct xt_counters *old = xcalloc(r->info.num_entries, sizeof(*old));
    snprintf(t->name, sizeof(t->name), "%s", r->table);
    t->valid_hooks = r->info.valid_hooks;
    t->num_entries = n;
    t->size = size;
    for (int h = 0; h < NF_INET_NUMHOOKS; h++) {
        if (!(t->valid_hooks & 1u << h))
            continue;
        t->hook_entry[h] = moved(r, r->info.hook_entry[h]);
        t->underflow[h] = moved(r, r->info.underflow[h]);
    }
    t->num_counters = r->info.num_entries;
    t->counters = old;
    put_entries(r, (char *)t->entries);
    int ret =
        setsockopt(r->fd, r->family->level, IPT_SO_SET_REPLACE, t, (socklen_t)(sizeof(*t) + size))
            ? -errno
            : 0;
    if (!ret)
        keep_counts(r, old, n);
    free(old);
    free(t);
    return ret;
}

static int clean_once(struct reading *r, bool dry_run, struct buf *out)
{
    char where[64];
    struct buf lines = { 0 };
    snprintf(where, sizeof(where), "%s table %s", r->family->tool, r->table);
    int ret = read_table(r);
    if (!ret && kubeproxy_settle(&r->t, where, &lines) && !dry_run)
        ret = replace(r);
    if (!ret)
        buf_puts(out, buf_str(&lines));
    buf_done(&lines);
    return ret;
}

static int clean_table(const struct family *f, const char *table, enum kubeproxy_whose whose,
                       bool dry_run, struct buf *out, struct err *err)
{
    struct reading r = { .family = f, .table = table, .t.whose = whose };
    r.fd = socket(f->af, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int ret = r.fd < 0 ? -errno : -EAGAIN;
    for (int i = 0; i < TRIES && ret == -EAGAIN; i++)
        ret = clean_once(&r, dry_run, out);
    if (ret)
        err_set(err, -ret, "KUBE-... chains in table %s of %s: %s", table, f->tool, strerror(-ret));
    if (r.fd >= 0)
        close(r.fd);
    free(r.blob);
    kubeproxy_table_done(&r.t);
    vec_done(&r.firsts);
    vec_done(&r.entries);
    return ret;
}

static int clean_family(const struct family *f, enum kubeproxy_whose whose, bool dry_run,
                        struct buf *out, struct err *err)
{
    static const char *const tables[] = { "nat", "filter", "mangle" };
    char used[XT_TABLE_MAXNAMELEN + 2];
    int r = 0;
    FILE *list = fopen(f->tables, "re"); /* not there: a kernel without xtables */
    while (list && !r && fgets(used, sizeof(used), list)) {
        used[strcspn(used, "\n")] = 0;
        for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]) && !r; i++)
            if (!strcmp(used, tables[i]))
                r = clean_table(f, tables[i], whose, dry_run, out, err);
    }
    if (list)
        fclose(list);
    return r;
}

/* iptables' own lock. Where its folder cannot be written there is no iptables to keep out. */
static int take_lock(int *ret, struct err *err)
{
    static const struct timespec pause = { .tv_nsec = 10000000 };
    int64_t until = clock_mono_us() + LOCK_PATIENCE_US;
    *ret = open(LOCK_FILE, O_CREAT | O_RDONLY | O_CLOEXEC, 0600);
    while (*ret >= 0 && flock(*ret, LOCK_EX | LOCK_NB)) {
        if (clock_mono_us() > until)
            return err_set(err, EBUSY, LOCK_FILE ": another program holds iptables' lock");
        nanosleep(&pause, NULL);
    }
    return 0;
}

int iptables_kubeproxy_cleanup(enum kubeproxy_whose whose, bool dry_run, struct buf *out,
                               struct err *err)
{
    int lock = -1, r = dry_run ? 0 : take_lock(&lock, err);
    for (size_t i = 0; i < 2 && !r; i++)
        r = clean_family(&families[i], whose, dry_run, out, err);
    if (lock >= 0)
        close(lock);
    return r;
}
