#include "kernel/rtnl.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>

#include "diff/diff.h"
#include "kernel/rtnl_kind.h"

static const struct rtnl_kind *const kinds[RTNL_KINDS] = {
    [RTNL_LINK] = &rtnl_link_kind,   [RTNL_ADDR] = &rtnl_addr_kind, [RTNL_NEIGH] = &rtnl_neigh_kind,
    [RTNL_ROUTE] = &rtnl_route_kind, [RTNL_RULE] = &rtnl_rule_kind,
};

/* What is wanted, as arrays, with what rtnetlink adds to it. */
struct wanted {
    const struct desired *d;
    struct diff_array of[RTNL_KINDS];
    VEC(struct desired_addr) addrs;
};

/* CLEAR comes before ADD and removes what would be in its way. */
enum step { CLEAR, ADD, REMOVE };

/* One kind in one step of a sync. */
struct pass {
    struct rtnl *r;
    const struct rtnl_kind *kind;
    enum step step;
    const struct wanted *wanted;
    struct rtnl_known next;
    VEC(const void *) last; /* to be removed when all others have been looked at */
};

static void wanted_init(struct wanted *w, const struct desired *d);
static int dump_kind(struct rtnl *r, enum rtnl_kind_id id, struct err *err);
static int dump_all(struct rtnl *r, struct err *err);
static void sync_kind(struct rtnl *r, enum rtnl_kind_id id, const struct wanted *w, enum step step);
static void list_difference(struct rtnl *r, const struct wanted *w, struct buf *out);

struct rtnl *rtnl_new(struct nl_port *port)
{
    struct rtnl *r = xcalloc(1, sizeof(*r));
    r->port = port;
    r->words.keys_stay = true;
    return r;
}

void rtnl_free(struct rtnl *r)
{
    if (!r)
        return;
    for (int i = 0; i < RTNL_KINDS; i++)
        free(r->known[i].v);
    nl_buf_done(&r->msg);
    map_done(&r->words);
    arena_done(&r->words_mem);
    free(r);
}

int rtnl_add(struct rtnl *r, const struct desired *d, bool audit, struct report *report,
             struct err *err)
{
    int e = audit || !r->dumped ? dump_all(r, err) : 0;
    if (e)
        return e;
    struct wanted w;
    wanted_init(&w, d);
    r->report = report;
    r->addrs_moved = false;
    for (int i = 0; i < RTNL_KINDS && !e; i++) {
        if (i == RTNL_ADDR)
            sync_kind(r, RTNL_ADDR, &w, CLEAR);
        if (i == RTNL_ADDR && r->addrs_moved)
            e = dump_kind(r, RTNL_ADDR, err);
        if (!e)
            sync_kind(r, (enum rtnl_kind_id)i, &w, ADD);
    }
    r->dumped &= !e;
    vec_done(&w.addrs);
    return e;
}

void rtnl_remove(struct rtnl *r, const struct desired *d, struct report *report)
{
    struct wanted w;
    wanted_init(&w, d);
    r->report = report;
    for (int i = RTNL_KINDS; i > 0; i--)
        sync_kind(r, (enum rtnl_kind_id)(i - 1), &w, REMOVE);
    vec_done(&w.addrs);
}

int rtnl_diff(struct rtnl *r, const struct desired *d, struct buf *out, struct err *err)
{
    int e = dump_all(r, err);
    if (e)
        return e;
    struct wanted w;
    wanted_init(&w, d);
    list_difference(r, &w, out);
    vec_done(&w.addrs);
    return 0;
}

int rtnl_cleanup(struct rtnl *r, bool dry_run, struct buf *out, struct err *err)
{
    static const struct desired nothing;
    int e = rtnl_diff(r, &nothing, out, err);
    if (e || dry_run)
        return e;
    struct report report = { 0 };
    rtnl_remove(r, &nothing, &report);
    if (report.refusals.n) {
        const struct refusal *f = &report.refusals.v[0];
        e = err_set(err, f->error, "cannot remove %s: %s", f->object, f->text);
    }
    report_done(&report);
    return e;
}

/* Forwarded IPv6 packets need neighbour discovery to have a source address of its own on the
 * link: a link-local one. The kernel would make one, but test it for a second first. */
static struct desired_addr link_local(const struct desired_link *l)
{
    const uint8_t *m = l->mac;
    return (struct desired_addr){
        .ifname = l->name,
        .owner = l->owner,
        .prefix_len = 64,
        .ip = { .family = IP_V6,
                .bytes = { 0xfe, 0x80, [8] = (uint8_t)(m[0] ^ 2), m[1], m[2], 0xff, 0xfe, m[3],
                           m[4], m[5] } },
    };
}

static int addr_order(const void *a, const void *b)
{
    return desired_addr_cmp(a, b);
}

static void wanted_init(struct wanted *w, const struct desired *d)
{
    *w = (struct wanted){ .d = d,
                          .of = {
                              [RTNL_LINK] = { d->links, d->n_links, sizeof(d->links[0]) },
                              [RTNL_NEIGH] = { d->neighs, d->n_neighs, sizeof(d->neighs[0]) },
                              [RTNL_ROUTE] = { d->routes, d->n_routes, sizeof(d->routes[0]) },
                              [RTNL_RULE] = { d->rules, d->n_rules, sizeof(d->rules[0]) },
                          } };
    for (size_t i = 0; i < d->n_addrs; i++)
        vec_push(&w->addrs, d->addrs[i]);
    for (size_t i = 0, j = 0; i < d->n_links; i++) {
        const struct desired_link *l = &d->links[i];
        bool has6 = false;
        int cmp;
        for (; j < d->n_addrs && (cmp = strcmp(d->addrs[j].ifname, l->name)) <= 0; j++)
            has6 |= !cmp && d->addrs[j].ip.family == IP_V6;
        if (has6)
            vec_push(&w->addrs, link_local(l));
    }
    if (w->addrs.n)
        qsort(w->addrs.v, w->addrs.n, sizeof(w->addrs.v[0]), addr_order);
    w->of[RTNL_ADDR] = (struct diff_array){ w->addrs.v, w->addrs.n, sizeof(w->addrs.v[0]) };
}

static int known_order(const void *a, const void *b, void *user)
{
    const struct rtnl_kind *k = user;
    int cmp = k->cmp(a, b);
    return cmp || !k->plain ? cmp : k->plain(b) - k->plain(a);
}

static int dump_kind(struct rtnl *r, enum rtnl_kind_id id, struct err *err)
{
    struct rtnl_known fresh = { 0 };
    int e = kinds[id]->dump(r, &fresh, err);
    if (e) {
        free(fresh.v);
        err_prefix(err, "cannot read links, addresses, neighbours, routes and rules");
        return e;
    }
    if (fresh.n)
        qsort_r(fresh.v, fresh.n, kinds[id]->have_size, known_order, (void *)kinds[id]);
    free(r->known[id].v);
    r->known[id] = fresh;
    return 0;
}

static int dump_all(struct rtnl *r, struct err *err)
{
    int e = 0;
    for (int i = 0; i < RTNL_KINDS && !e; i++)
        e = dump_kind(r, (enum rtnl_kind_id)i, err);
    r->dumped = !e;
    return e;
}

/* Of a wanted object, or of a known one; nobody's when it was found in the kernel. */
static const char *owner(const struct pass *p, const void *object)
{
    const char *o = *(const char *const *)(const void *)((const char *)object + p->kind->owner_at);
    return o ? o : "node";
}

static void refuse(struct pass *p, const char *who, const void *object, int e,
                   const struct err *err)
{
    struct buf text = { 0 };
    (p->kind->label ? p->kind->label : p->kind->text)(object, &text);
    report_refuse(p->r->report, who, -e, err->text, "%s", buf_str(&text));
    buf_done(&text);
    p->r->dumped = false; /* something is not as thought: look again next time */
}

static void keep(struct pass *p, const void *have)
{
    rtnl_known_push(&p->next, have, p->kind->have_size);
}

static void on_keep(const void *have, const void *want, void *user)
{
    struct pass *p = user;
    keep(p, have);
    char *kept = (char *)p->next.v + (p->next.n - 1) * p->kind->have_size;
    *(const char **)(void *)(kept + p->kind->owner_at) = rtnl_word(p->r, owner(p, want));
}

static bool add(struct pass *p, const void *want)
{
    union rtnl_any have = { 0 };
    struct err err = { 0 };
    int e = p->kind->add(p->r, want, &have, &err);
    if (e)
        refuse(p, owner(p, want), want, e, &err);
    else
        on_keep(&have, want, p);
    return !e;
}

static bool is_held(const struct desired *d, const struct rtnl_kind *kind, const void *object)
{
    const struct desired_rule *r = object;
    for (size_t i = 0; kind == &rtnl_rule_kind && i < d->n_held; i++)
        if (d->held[i] == r->table)
            return true;
    return false;
}

/* A class that is gone left it to stay. */
static bool is_kept(const struct desired *d, const struct rtnl_kind *kind, const void *object)
{
    const struct desired_rule *rule = object;
    const struct desired_route *route = object;
    for (size_t i = 0; i < d->n_kept; i++) {
        const struct desired_keep *k = &d->kept[i];
        if (kind == &rtnl_rule_kind && rule->family == k->family && rule->priority == k->priority &&
            rule->table == k->table && !rule->fwmark)
            return true;
        if (kind == &rtnl_route_kind && route->table == k->table && k->table != RT_TABLE_MAIN)
            return true;
    }
    return false;
}

static void on_add(const void *want, void *user)
{
    struct pass *p = user;
    if (p->step == ADD && !is_held(p->wanted->d, p->kind, want) && add(p, want))
        p->r->report->adds++;
}

static bool del(struct pass *p, const void *have, const char *who)
{
    struct err err = { 0 };
    int e = p->kind->del(p->r, have, &err);
    if (e) {
        refuse(p, who, have, e, &err);
        keep(p, have);
    }
    return !e;
}

/* An address of ours that is now the far end's: the route to there is refused while we
 * have it, and the right one would be its secondary and go with it. */
static bool in_the_way(const struct pass *p, const void *have)
{
    if (p->step != CLEAR)
        return false;
    const struct rtnl_addr *a = have;
    const struct desired_route *routes = p->wanted->of[RTNL_ROUTE].v;
    for (size_t i = 0; i < p->wanted->of[RTNL_ROUTE].n; i++)
        if (ip_equal(&routes[i].via, &a->d.ip))
            return true;
    return false;
}

static void remove_one(struct pass *p, const void *have)
{
    if (del(p, have, owner(p, have))) {
        p->r->report->deletes++;
        p->r->addrs_moved = true;
    }
}

static void on_del(const void *have, void *user)
{
    struct pass *p = user;
    const struct desired *d = p->wanted->d;
    if ((p->step != REMOVE && !in_the_way(p, have)) || is_held(d, p->kind, have) ||
        is_kept(d, p->kind, have)) {
        keep(p, have);
    } else if (p->kind == &rtnl_rule_kind) {
        vec_push(&p->last, have);
    } else {
        remove_one(p, have);
    }
}

/* The last rule first: one before it may keep traffic from it. */
static void remove_last(struct pass *p)
{
    for (size_t i = p->last.n; i > 0; i--)
        remove_one(p, p->last.v[i - 1]);
    if (p->last.n && p->next.n)
        qsort_r(p->next.v, p->next.n, p->kind->have_size, known_order, (void *)p->kind);
    vec_done(&p->last);
}

static void on_change(const void *have, const void *want, void *user)
{
    struct pass *p = user;
    if (p->step != ADD) {
        keep(p, have);
        return;
    }
    bool changed;
    if (p->kind->in_place && p->kind->in_place(have, want)) {
        union rtnl_any now = { 0 };
        struct err err = { 0 };
        int e = p->kind->change(p->r, have, want, &now, &err);
        changed = !e;
        if (e) {
            refuse(p, owner(p, want), want, e, &err);
            keep(p, have);
        } else {
            on_keep(&now, want, p);
        }
    } else {
        changed = del(p, have, owner(p, want)) && add(p, want);
    }
    p->r->report->changes += changed;
}

static void sync_kind(struct rtnl *r, enum rtnl_kind_id id, const struct wanted *w, enum step step)
{
    const struct rtnl_kind *k = kinds[id];
    struct pass p = { .r = r, .kind = k, .step = step, .wanted = w };
    const struct diff_ops ops = {
        .cmp = k->cmp,
        .equal = k->equal,
        .add = on_add,
        .change = on_change,
        .keep = on_keep,
        .del = on_del,
    };
    diff_run((struct diff_array){ r->known[id].v, r->known[id].n, k->have_size }, w->of[id], &ops,
             &p);
    remove_last(&p);
    free(r->known[id].v);
    r->known[id] = p.next;
}

/* Listing: the same differences as lines. */
struct listing {
    const struct rtnl_kind *kind;
    const struct desired *d;
    struct buf *out;
};

static void list_add(const void *want, void *user)
{
    struct listing *l = user;
    buf_puts(l->out, "+ ");
    l->kind->text(want, l->out);
    buf_puts(l->out, "\n");
}

static void list_gone(struct listing *l, const void *have)
{
    buf_puts(l->out, "- ");
    l->kind->text(have, l->out);
    if (l->kind->note)
        l->kind->note(have, l->out);
    buf_puts(l->out, "\n");
}

static void list_del(const void *have, void *user)
{
    struct listing *l = user;
    if (!is_kept(l->d, l->kind, have))
        list_gone(l, have);
}

static void list_change(const void *have, const void *want, void *user)
{
    list_gone(user, have);
    list_add(want, user);
}

static void list_difference(struct rtnl *r, const struct wanted *w, struct buf *out)
{
    for (int i = 0; i < RTNL_KINDS; i++) {
        struct listing l = { .kind = kinds[i], .d = w->d, .out = out };
        const struct diff_ops ops = {
            .cmp = kinds[i]->cmp,
            .equal = kinds[i]->equal,
            .add = list_add,
            .change = list_change,
            .del = list_del,
        };
        diff_run((struct diff_array){ r->known[i].v, r->known[i].n, kinds[i]->have_size }, w->of[i],
                 &ops, &l);
    }
}
