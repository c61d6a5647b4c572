#include "kernel/nft.h"

#include <errno.h>
#include <linux/netfilter/nf_tables.h>
#include <string.h>

#include "kernel/nft_impl.h"
#include "model/nft_text.h"

/* Without progress: a stranger who changes the ruleset between our reading and our writing
 * this often in a row is left to the next call. */
#define TRIES      8
#define ERRORS_MAX 1024

struct nft {
    struct nl_port *port;
    struct nft_table table;
    bool is_known; /* `known` is what the kernel held at generation `genid` */
    struct nft_group **known;
    size_t n_known;
    struct nft_classes classes; /* of the elements of `known`, and chains nobody needs */
    uint32_t genid;
    bool told; /* conntrack has heard of every flow once */
    struct nft_flows udp;
    struct nl_buf buf;
};

/* One call: what is wanted, and what has been learnt on the way. */
struct pass {
    struct nft *nft;
    struct nft_group *const *groups;
    size_t n;
    bool *skip; /* refused groups */
    struct report *report;
    bool read; /* layout and found are the kernel's at nft->genid */
    enum nft_layout layout;
    struct buf why;
    struct arena mem;
    struct nft_ops found;
    struct nft_ops have, want;
    struct nft_difference diff;
    struct nft_classes classes; /* nft->classes once the difference is made */
    bool single;                /* one element to a message, so that an error names it */
    int error;                  /* that ended the last batch which failed; 0: none did */
};

struct nft *nft_new(struct nl_port *port, struct nft_table table)
{
    struct nft *n = xcalloc(1, sizeof(*n));
    n->port = port;
    n->table = table;
    return n;
}

static void forget(struct nft *n)
{
    for (size_t i = 0; i < n->n_known; i++)
        nft_group_unref(n->known[i]);
    n->n_known = 0;
    nft_classes_forget(&n->classes);
    n->is_known = false;
}

void nft_free(struct nft *n)
{
    if (!n)
        return;
    forget(n);
    free(n->known);
    vec_done(&n->classes);
    nft_flows_done(&n->udp);
    nl_buf_done(&n->buf);
    free(n);
}

static void pass_init(struct pass *p, struct nft *n, struct nft_group *const *groups,
                      size_t n_groups, struct report *report)
{
    *p = (struct pass){ .nft = n, .groups = groups, .n = n_groups, .report = report };
    p->skip = xcalloc(n_groups + 1, sizeof(*p->skip));
    p->mem.chunk_size = 64 * 1024;
}

static void pass_done(struct pass *p)
{
    /* After a big batch, not after a change. */
    if (p->read)
        nl_buf_done(&p->nft->buf);
    free(p->skip);
    buf_done(&p->why);
    arena_done(&p->mem);
    vec_done(&p->found);
    vec_done(&p->have);
    vec_done(&p->want);
    vec_done(&p->diff.dels);
    vec_done(&p->diff.adds);
    vec_done(&p->diff.late);
    vec_done(&p->classes);
}

static void refuse(struct pass *p, const struct nft_op *op, int error, const char *text)
{
    size_t i = 0;
    while (p->groups[i] != op->group)
        i++;
    if (p->skip[i])
        return;
    p->skip[i] = true;
    struct buf b = { 0 };
    nft_text_element(&b, &p->nft->table, op->elem);
    if (p->report)
        report_refuse(p->report, op->group->owner, error, text, "%s", buf_str(&b));
    buf_done(&b);
}

/* ---- reading and comparing ---- */

static int read_kernel(struct pass *p, struct err *err)
{
    struct nft *n = p->nft;
    forget(n);
    buf_clear(&p->why);
    arena_reset(&p->mem);
    p->found.n = 0;
    /* The generation comes first: what changes while we read makes the batch fail. */
    int r = nft_genid(n->port, &n->genid, err);
    if (!r)
        r = nft_layout_read(n->port, &n->table, &p->layout, &n->classes, &p->why, err);
    if (!r && p->layout == NFT_LAYOUT_WANTED)
        r = nft_elem_read(n->port, &n->table, &n->classes, &p->mem, &p->found, err);
    else
        nft_classes_forget(&n->classes); /* they go with the table */
    nft_classes_count(&n->classes, &p->found, 1);
    p->read = !r;
    return r;
}

static void compare(struct pass *p)
{
    struct nft *n = p->nft;
    const struct nft_op *twice;
    do {
        p->have.n = p->want.n = 0;
        if (n->is_known)
            nft_ops_put_changed(n->known, n->n_known, p->groups, p->n, p->skip, &p->have, &p->want);
        for (size_t i = 0; i < p->n && !n->is_known; i++)
            if (!p->skip[i])
                nft_ops_put_group(&p->want, p->groups[i]);
        nft_ops_sort(&p->have);
        twice = nft_ops_sort_wanted(&p->want);
        if (twice)
            refuse(p, twice, EEXIST, "another owner has the same key");
    } while (twice);
    nft_ops_diff(n->is_known ? &p->have : &p->found, &p->want, &p->diff);
    nft_classes_copy(&p->classes, &n->classes);
    nft_classes_count(&p->classes, &p->diff.dels, -1);
    nft_classes_count(&p->classes, &p->diff.adds, 1);
    nft_classes_number(&p->classes);
}

/* The kernel has what is wanted, apart from the refused. Groups that stay are not touched: with
 * ten thousand of them the memory alone would take longer than the change. */
static void remember(struct pass *p)
{
    struct nft *n = p->nft;
    struct nft_group **now = xmalloc((p->n + 1) * sizeof(struct nft_group *));
    size_t i = 0, k = 0;
    for (size_t j = 0; j < p->n; j++) {
        if (p->skip[j])
            continue;
        while (i < n->n_known && n->known[i] != p->groups[j] &&
               strcmp(n->known[i]->owner, p->groups[j]->owner) <= 0)
            nft_group_unref(n->known[i++]);
        if (i < n->n_known && n->known[i] == p->groups[j])
            now[k++] = n->known[i++];
        else
            now[k++] = nft_group_ref(p->groups[j]);
    }
    while (i < n->n_known)
        nft_group_unref(n->known[i++]);
    free(n->known);
    n->known = now;
    n->n_known = k;
    n->is_known = true;
}

static bool replaces(const struct pass *p)
{
    return p->read && p->layout != NFT_LAYOUT_WANTED;
}

static void applied(struct pass *p)
{
    struct nft *n = p->nft;
    const struct nft_difference *d = &p->diff;
    /* A predecessor may have ended between its batch and conntrack: at first all is told. */
    nft_udp_collect(d, &p->want, !n->told, &n->udp);
    n->told = true;
    p->report->adds += d->adds.n - d->changes + replaces(p);
    p->report->deletes += d->dels.n - d->changes;
    p->report->changes += d->changes;
    nft_classes_copy(&n->classes, &p->classes);
    remember(p);
}

/* ---- sending ---- */

/* What to do after an attempt, beside 0 (done) and -errno (given up). */
enum { AGAIN = 1, AGAIN_WITHOUT_REFUSED };

/* By what it makes of the attempt, the mildest first. */
enum fault { FAULT_REFUSED, FAULT_SHARED, FAULT_STALE, FAULT_FATAL };

/* The kernel is not what it was when we looked, or had no time. */
static bool passes(int error)
{
    return error == ERESTART || error == ENOENT || error == EBUSY || error == EAGAIN ||
           error == EINTR || error == ENOBUFS;
}

/* What a batch comes to that failed whole. */
static int failed(struct pass *p, int r)
{
    p->error = -r;
    return passes(-r) ? AGAIN : r;
}

static enum fault classify(const struct nft *n, const struct nl_error *e, const struct nft_op *op,
                           bool alone)
{
    bool clash = e->error == EEXIST || e->error == EBUSY;
    if (op && clash ? n->is_known : passes(e->error))
        return FAULT_STALE;
    if (!op)
        return FAULT_FATAL;
    return alone ? FAULT_REFUSED : FAULT_SHARED;
}

static void refuse_op(struct pass *p, const struct nft_op *op, const struct nl_error *e)
{
    char text[256];
    snprintf(text, sizeof(text), "%s%s%s", strerror(e->error), e->text[0] ? ": " : "", e->text);
    if (e->error == ENFILE)
        snprintf(text, sizeof(text), "the set holds its limit of %u elements",
                 p->nft->table.sets[op->elem->set].size);
    refuse(p, op, e->error, text);
}

/* What a batch that failed tells. */
static int learn(struct pass *p, const struct nl_error *errors, size_t n_errors, int r)
{
    struct nft *n = p->nft;
    enum fault worst = n_errors ? FAULT_REFUSED : passes(-r) ? FAULT_STALE : FAULT_FATAL;
    for (size_t i = 0; i < n_errors; i++) {
        bool alone = true;
        const struct nft_op *op = nft_ops_find(&p->diff.adds, errors[i].seq, &alone);
        enum fault f = classify(n, &errors[i], op, alone);
        if (f > worst)
            worst = f;
    }
    if (!n_errors) {
        /* Without an answer the kernel may have done it all the same. */
        nft_udp_collect(&p->diff, &p->want, false, &n->udp);
        n->told = false;
    }
    switch (worst) {
    case FAULT_STALE:
    case FAULT_FATAL:
        forget(n);
        p->error = -r;
        p->read = false;
        return worst == FAULT_STALE ? AGAIN : r;
    case FAULT_SHARED:
        p->single = true;
        return AGAIN;
    case FAULT_REFUSED:
        break;
    }
    bool alone;
    for (size_t i = 0; i < n_errors; i++)
        refuse_op(p, nft_ops_find(&p->diff.adds, errors[i].seq, &alone), &errors[i]);
    return AGAIN_WITHOUT_REFUSED;
}

static void committed(struct nft *n)
{
    if (!++n->genid) /* the kernel skips 0, too */
        n->genid = 1;
}

/* Chains that elements are about to lead to. In the batch that makes a chain it is empty for a
 * packet that began before: such a packet may find the new element all the same, and would pass
 * untranslated. One batch later the chain is the same for all. 0, -errno or AGAIN. */
static int send_classes(struct pass *p, struct err *err)
{
    struct nft *n = p->nft;
    struct nl_error e;
    size_t n_errors = 0;
    nft_batch_begin(&n->buf, n->port, n->genid);
    nft_classes_put_due(&n->buf, n->port, &n->table, &p->classes);
    int r = nft_batch_send(&n->buf, n->port, &e, 1, &n_errors, err);
    p->report->bytes += n->buf.n;
    if (r) {
        forget(n);
        p->read = false;
        return failed(p, r);
    }
    committed(n);
    nft_classes_learn(&n->classes, &p->classes);
    nft_classes_made(&p->classes);
    return 0;
}

static int send_batch(struct pass *p, struct err *err)
{
    struct nft *n = p->nft;
    nft_batch_begin(&n->buf, n->port, n->genid);
    if (replaces(p)) {
        nft_layout_put(&n->buf, n->port, &n->table);
        nft_classes_put_due(&n->buf, n->port, &n->table, &p->classes);
    }
    nft_elem_put(&n->buf, n->port, &n->table, NFT_MSG_DELSETELEM, &p->classes, &p->diff.dels,
                 p->single);
    nft_elem_put(&n->buf, n->port, &n->table, NFT_MSG_NEWSETELEM, &p->classes, &p->diff.adds,
                 p->single);
    struct nl_error *errors = xmalloc(ERRORS_MAX * sizeof(*errors));
    size_t n_errors = 0;
    int r = nft_batch_send(&n->buf, n->port, errors, ERRORS_MAX, &n_errors, err);
    p->report->bytes += n->buf.n;
    if (r)
        r = learn(p, errors, n_errors < ERRORS_MAX ? n_errors : ERRORS_MAX, r);
    else
        committed(n);
    if (!r)
        nft_classes_made(&p->classes);
    free(errors);
    return r;
}

/* What only packets of the world before need. 0, -errno or AGAIN, when the kernel is unknown. */
static int send_late(struct pass *p, struct err *err)
{
    struct nft *n = p->nft;
    bool chains = nft_classes_any(&p->classes, nft_class_is_left);
    int r = 0;
    while (chains || p->diff.late.n) {
        struct nl_error e;
        size_t n_errors = 0;
        nft_batch_begin(&n->buf, n->port, n->genid);
        nft_elem_put(&n->buf, n->port, &n->table, NFT_MSG_DELSETELEM, &p->classes, &p->diff.late,
                     false);
        if (chains)
            nft_classes_put_left(&n->buf, n->port, &n->table, &p->classes);
        r = nft_batch_send(&n->buf, n->port, &e, 1, &n_errors, err);
        p->report->bytes += n->buf.n;
        if (!(r == -EBUSY && chains))
            break;
        chains = false; /* kernels before 6.2 let go of a chain late: the next call tries again */
        r = 0;
    }
    if (r)
        return failed(p, r);
    if (chains || p->diff.late.n)
        committed(n);
    if (chains)
        nft_classes_gone(&p->classes);
    p->report->deletes += p->diff.late.n;
    return 0;
}

/* One attempt: 0, -errno, or what to do again. */
static int attempt(struct pass *p, struct err *err)
{
    struct nft *n = p->nft;
    int r = n->is_known || p->read ? 0 : read_kernel(p, err);
    if (r)
        return r;
    compare(p);
    bool late = p->diff.late.n || nft_classes_any(&p->classes, nft_class_is_left);
    bool due = nft_classes_any(&p->classes, nft_class_is_due) && !replaces(p);
    if (due)
        r = send_classes(p, err);
    if (!r && (p->diff.dels.n || p->diff.adds.n || replaces(p))) {
        r = send_batch(p, err);
    } else if (!n->is_known && !late && !due) {
        uint32_t now = 0;
        r = nft_genid(n->port, &now, err);
        if (!r && now != n->genid) {
            p->read = false;
            r = AGAIN;
        }
    }
    if (r)
        return r;
    r = send_late(p, err); /* before the groups it names may be forgotten */
    applied(p);
    if (r) {
        forget(n);
        p->read = false;
    }
    return r;
}

int nft_sync(struct nft *n, struct nft_group *const *groups, size_t n_groups, bool audit,
             struct report *report, struct err *err)
{
    struct pass p;
    pass_init(&p, n, groups, n_groups, report);
    nft_flows_done(&n->udp);
    if (audit)
        forget(n);
    int r = AGAIN;
    for (int i = 0; i < TRIES && r > 0;) {
        r = attempt(&p, err);
        i += r == AGAIN;
    }
    if (r > 0 && p.error && p.error != ERESTART) {
        err_prefix(err, "table inet %s: %d attempts failed, the last one", n->table.name, TRIES);
        r = -EAGAIN;
    } else if (r > 0) {
        r = err_set(err, EAGAIN,
                    "table inet %s: somebody else kept changing the ruleset in %d "
                    "attempts to read and correct it",
                    n->table.name, TRIES);
    } else if (r) {
        err_prefix(err, "table inet %s", n->table.name);
    }
    pass_done(&p);
    if (n->buf.cap > 2 * NL_MSG_ROOM) /* a whole table went through it */
        nl_buf_done(&n->buf);
    return r;
}

size_t nft_udp_changes(const struct nft *n, const struct flow_target **ret)
{
    *ret = n->udp.v;
    return n->udp.n;
}

bool nft_foreign_change(struct nft *n)
{
    uint32_t now;
    return !n->is_known || nft_genid(n->port, &now, NULL) || now != n->genid;
}

void nft_accept_generation(struct nft *n)
{
    uint32_t now;
    if (n->is_known && !nft_genid(n->port, &now, NULL))
        n->genid = now;
}

/* ---- diff ---- */

static void print_classes(struct buf *out, const struct nft_table *t, const struct nft_classes *c)
{
    char name[NFT_CLASS_NAME_MAX];
    for (size_t i = 0; i < c->n; i++) {
        const struct nft_class_ref *r = &c->v[i];
        nft_class_name(&r->class, name);
        if (nft_class_is_left(r) || (r->exists && nft_class_is_due(r)))
            buf_printf(out, "- chain inet %s %s\n", t->name, name);
        if (nft_class_is_due(r))
            buf_printf(out, "+ chain inet %s %s\n", t->name, name);
    }
}

static void print_ops(struct buf *out, const struct nft_table *t, const struct nft_ops *ops,
                      char sign)
{
    for (size_t i = 0; i < ops->n; i++) {
        buf_printf(out, "%c ", sign);
        nft_text_element(out, t, ops->v[i].elem);
        buf_puts(out, "\n");
    }
}

int nft_diff(struct nft *n, struct nft_group *const *groups, size_t n_groups, struct buf *out,
             struct err *err)
{
    struct pass p;
    pass_init(&p, n, groups, n_groups, NULL);
    int r = read_kernel(&p, err);
    if (!r) {
        compare(&p);
        if (p.layout == NFT_LAYOUT_OTHER)
            buf_printf(out, "- table inet %s: %s\n", n->table.name, buf_str(&p.why));
        if (p.layout != NFT_LAYOUT_WANTED)
            buf_printf(out, "+ table inet %s\n", n->table.name);
        print_classes(out, &n->table, &p.classes);
        print_ops(out, &n->table, &p.diff.dels, '-');
        print_ops(out, &n->table, &p.diff.late, '-');
        print_ops(out, &n->table, &p.diff.adds, '+');
    }
    pass_done(&p);
    return r;
}
