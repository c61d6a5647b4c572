#include <errno.h>
#include <linux/ip_vs.h>
#include <linux/netfilter/ipset/ip_set.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/ipset.h"
#include "kernel/ipvs_genl.h"
#include "kernel/ipvs_impl.h"

/* More than this says nothing new, and an owner is looked for. */
#define REFUSALS_MAX 256

/* Records of one kind that one thing happens to. */
struct step {
    struct ipvs *v;
    enum ipvs_kind kind;
    enum ipvs_action action;
    bool to_zero; /* CHANGE of a destination: to weight 0 */
    struct report *report;
};

static struct ipvs_record *record(struct ipvs *v, uint32_t i)
{
    return &v->store.records.v[i];
}

/* ---- the difference ---- */

static int by_key(const void *x, const void *y, void *user)
{
    const struct ipvs_record *records = user;
    return ipvs_key_cmp(&records[*(const uint32_t *)x].entry.key,
                        &records[*(const uint32_t *)y].entry.key);
}

static bool is_wanted(const struct ipvs *v, const struct ipvs_record *r)
{
    return r->wanted && ipvs_sets_allow(v, &r->entry.key);
}

static bool server_has(struct ipvs *v, const struct ipvs_key *dest, bool *ret_wanted)
{
    struct ipvs_key k = ipvs_server_of(dest);
    uint32_t i = ipvs_store_find(&v->store, &k);
    *ret_wanted = i != IPVS_NONE && is_wanted(v, record(v, i));
    return i != IPVS_NONE && record(v, i)->state & IPVS_HAS;
}

void ipvs_difference(struct ipvs *v, struct ipvs_ops *ret)
{
    for (size_t k = 0; k < v->store.touched.n; k++) {
        uint32_t i = v->store.touched.v[k];
        struct ipvs_record *r = record(v, i);
        enum ipvs_kind kind = r->entry.key.kind;
        bool wanted = is_wanted(v, r), server_wanted;
        if (wanted && !(r->state & IPVS_HAS))
            vec_push(&ret->of[IPVS_ADD][kind], i);
        else if (wanted && r->state & IPVS_DIFFERS)
            vec_push(&ret->of[IPVS_CHANGE][kind], i);
        else if (!wanted && r->state & IPVS_HAS) {
            if (kind == IPVS_DEST &&
                !(server_has(v, &r->entry.key, &server_wanted) && server_wanted))
                vec_push(&ret->taken_along, i);
            else
                vec_push(&ret->of[IPVS_DELETE][kind], i);
        }
    }
    struct ipvs_list *dests = &ret->of[IPVS_DELETE][IPVS_DEST]; /* each server's together */
    if (dests->n > 1)
        qsort_r(dests->v, dests->n, sizeof(dests->v[0]), by_key, v->store.records.v);
}

void ipvs_ops_done(struct ipvs_ops *ops)
{
    for (int a = 0; a < IPVS_ACTIONS; a++)
        for (int k = 0; k < IPVS_KINDS; k++)
            vec_done(&ops->of[a][k]);
    vec_done(&ops->taken_along);
}

/* ---- messages ---- */

static void put_server(struct ipvs *v, enum ipvs_action action, const struct ipvs_entry *e)
{
    static const uint8_t commands[] = { [IPVS_ADD] = IPVS_CMD_NEW_SERVICE,
                                        [IPVS_CHANGE] = IPVS_CMD_SET_SERVICE,
                                        [IPVS_DELETE] = IPVS_CMD_DEL_SERVICE };
    struct ipvs_service s = { .family = e->key.family,
                              .protocol = e->key.proto,
                              .port = e->key.port,
                              .ip = e->key.ip,
                              .persistence = e->timeout };
    snprintf(s.scheduler, sizeof(s.scheduler), "%s", ipvs_scheduler_name(e->scheduler));
    ipvs_genl_put_service(ipvs_genl_msg(&v->buf, v->ports.generic, v->genl, commands[action], 0),
                          &s, action != IPVS_DELETE);
}

static void put_dest(struct ipvs *v, enum ipvs_action action, const struct ipvs_entry *e,
                     uint32_t weight)
{
    static const uint8_t commands[] = { [IPVS_ADD] = IPVS_CMD_NEW_DEST,
                                        [IPVS_CHANGE] = IPVS_CMD_SET_DEST,
                                        [IPVS_DELETE] = IPVS_CMD_DEL_DEST };
    const struct ipvs_service s = {
        .family = e->key.family, .protocol = e->key.proto, .port = e->key.port, .ip = e->key.ip
    };
    const struct ipvs_dest d = { .ip = e->key.other, .port = e->key.dest_port, .weight = weight };
    struct nlmsghdr *m = ipvs_genl_msg(&v->buf, v->ports.generic, v->genl, commands[action], 0);
    ipvs_genl_put_service(m, &s, false);
    ipvs_genl_put_dest(m, &d, action != IPVS_DELETE);
}

static void put(const struct step *s, const struct ipvs_entry *e)
{
    struct ipvs *v = s->v;
    bool del = s->action == IPVS_DELETE;
    switch (s->kind) {
    case IPVS_SET_ENTRY:
        ipset_put_element(&v->buf, v->ports.netfilter, del ? IPSET_CMD_DEL : IPSET_CMD_ADD,
                          ipvs_set_name(e->key.set, e->key.family), &e->key);
        return;
    case IPVS_BOUND:
        ipvs_device_put_address(&v->buf, v->ports.route, del ? RTM_DELADDR : RTM_NEWADDR,
                                v->device.index, &e->key.ip);
        return;
    case IPVS_SERVER:
        put_server(v, s->action, e);
        return;
    case IPVS_DEST:
        put_dest(v, s->action, e, s->to_zero ? 0 : e->weight);
        return;
    }
}

/* ---- sending ---- */

static const char *owner_of(const struct ipvs *v, const struct ipvs_key *k)
{
    for (size_t i = 0; i < v->n_groups; i++) {
        const struct ipvs_group *g = v->groups[i];
        uint32_t low = 0, high = g->n;
        while (low < high) {
            uint32_t mid = low + (high - low) / 2;
            if (ipvs_key_cmp(&g->entries[mid].key, k) < 0)
                low = mid + 1;
            else
                high = mid;
        }
        if (low < g->n && !ipvs_key_cmp(&g->entries[low].key, k))
            return g->owner;
    }
    return "proxy";
}

/* That something is there, or not, which is thought not to be, is what another look finds out. */
static void refuse(const struct step *s, uint32_t i, const struct nl_error *e)
{
    vec_push(&s->v->refused, i);
    if (e->error == EEXIST || e->error == ENOENT || e->error == ESRCH || e->error == ENODEV)
        s->v->is_known = false;
    if (s->report->refusals.n >= REFUSALS_MAX)
        return;
    struct buf object = { 0 };
    const struct ipvs_entry *entry = &record(s->v, i)->entry;
    const char *text = e->text[0]                  ? e->text
                       : s->kind == IPVS_SET_ENTRY ? ipset_error(e->error)
                                                   : strerror(e->error);
    ipvs_text_entry(&object, entry);
    report_refuse(s->report, owner_of(s->v, &entry->key), e->error, text, "%s", buf_str(&object));
    buf_done(&object);
}

/* What is to go and is not there, or is to come and is there. */
static bool is_so_already(const struct step *s, int error)
{
    if (s->action == IPVS_DELETE)
        return error == ENOENT || error == ESRCH || error == EADDRNOTAVAIL || error == ENODEV ||
               error == IPSET_ERR_EXIST;
    return s->action == IPVS_ADD && s->kind == IPVS_BOUND && error == EEXIST;
}

static void acknowledged(const struct step *s, uint32_t i)
{
    struct ipvs_record *r = record(s->v, i);
    ipvs_udp_note(s->v, &r->entry.key);
    switch (s->action) {
    case IPVS_ADD:
        r->state = (r->state & IPVS_TOUCHED) | IPVS_HAS;
        s->report->adds++;
        return;
    case IPVS_CHANGE:
        if (s->to_zero)
            r->state |= IPVS_DRAINS | IPVS_DIFFERS;
        else
            r->state &= ~(uint32_t)(IPVS_DRAINS | IPVS_DIFFERS | IPVS_BUSY);
        s->report->changes++;
        return;
    case IPVS_DELETE:
        r->state &= IPVS_TOUCHED;
        s->report->deletes++;
        return;
    }
}

static struct nl_port *port_of(const struct step *s)
{
    switch (s->kind) {
    case IPVS_SET_ENTRY:
        return s->v->ports.netfilter;
    case IPVS_BOUND:
        return s->v->ports.route;
    case IPVS_SERVER:
    case IPVS_DEST:
        break;
    }
    return s->v->ports.generic;
}

/* Many messages in one datagram; the kernel works off each by itself, and says what it refuses. */
static int send_batch(const struct step *s, const uint32_t *records, size_t n, struct err *err)
{
    struct nl_error errors[IPVS_BATCH];
    struct nl_port *port = port_of(s);
    struct ipvs *v = s->v;
    size_t n_errors, k = 0;
    nl_buf_clear(&v->buf);
    for (size_t i = 0; i < n; i++)
        put(s, &record(v, records[i])->entry);
    uint32_t last = port->seq, first = last - (uint32_t)n + 1;
    ((struct nlmsghdr *)(void *)(v->buf.p + v->buf.last))->nlmsg_flags |= NLM_F_ACK;
    size_t len = nl_end(&v->buf);
    s->report->bytes += len;
    int r = nl_batch(port, v->buf.p, len, last, errors, IPVS_BATCH, &n_errors, err);
    if (r && !n_errors) { /* without an answer the kernel may have done it all the same */
        for (size_t i = 0; i < n; i++)
            ipvs_udp_note(v, &record(v, records[i])->entry.key);
        return r;
    }
    for (size_t i = 0; i < n; i++) {
        if (k == n_errors || errors[k].seq != first + i) {
            acknowledged(s, records[i]);
            continue;
        }
        if (is_so_already(s, errors[k].error)) {
            acknowledged(s, records[i]);
        } else {
            refuse(s, records[i], &errors[k]);
        }
        k++;
    }
    return 0;
}

static int send_all(const struct step *s, const uint32_t *records, size_t n, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < n && !r; i += IPVS_BATCH)
        r = send_batch(s, records + i, n - i < IPVS_BATCH ? n - i : IPVS_BATCH, err);
    return r;
}

/* ---- in order ---- */

static int step(struct ipvs *v, enum ipvs_kind kind, enum ipvs_action action,
                const struct ipvs_ops *ops, struct report *report, struct err *err)
{
    const struct step s = { .v = v, .kind = kind, .action = action, .report = report };
    return send_all(&s, ops->of[action][kind].v, ops->of[action][kind].n, err);
}

/* Those whose server could not be had say nothing of their own. */
static int add_dests(struct ipvs *v, const struct ipvs_ops *ops, struct report *report,
                     struct err *err)
{
    const struct step s = { .v = v, .kind = IPVS_DEST, .action = IPVS_ADD, .report = report };
    const struct ipvs_list *all = &ops->of[IPVS_ADD][IPVS_DEST];
    struct ipvs_list ready = { 0 };
    bool wanted;
    for (size_t i = 0; i < all->n; i++)
        if (server_has(v, &record(v, all->v[i])->entry.key, &wanted))
            vec_push(&ready, all->v[i]);
        else
            vec_push(&v->refused, all->v[i]);
    int r = send_all(&s, ready.v, ready.n, err);
    vec_done(&ready);
    return r;
}

struct leaving {
    struct ipvs_list idle, fade, draining;
};

static bool drains(const struct ipvs_record *r)
{
    return r->entry.key.proto != L4_UDP;
}

static int look_at_busy(struct ipvs *v, const struct leaving *l, struct err *err)
{
    struct ipvs_key last = { 0 };
    int r = 0;
    for (size_t i = 0; i < l->draining.n; i++)
        record(v, l->draining.v[i])->state &= ~(uint32_t)IPVS_BUSY;
    for (size_t i = 0; i < l->draining.n && !r; i++) {
        struct ipvs_key server = ipvs_server_of(&record(v, l->draining.v[i])->entry.key);
        if (memcmp(&server, &last, sizeof(server)))
            r = ipvs_read_busy(v, &server, err);
        last = server;
    }
    return r;
}

/* Those that are not looked at this time drain on. */
static void keep_drains(struct ipvs *v)
{
    size_t n = 0;
    for (size_t i = 0; i < v->drains.n; i++)
        if (!(record(v, v->drains.v[i])->state & IPVS_TOUCHED))
            v->drains.v[n++] = v->drains.v[i];
    v->drains.n = n;
}

/* No new connection, then a look whether there are old ones, then the end of those that have none. */
static int remove_dests(struct ipvs *v, const struct ipvs_ops *ops, struct report *report,
                        struct err *err)
{
    struct step s = {
        .v = v, .kind = IPVS_DEST, .action = IPVS_CHANGE, .to_zero = true, .report = report
    };
    struct leaving l = { 0 };
    const struct ipvs_list *all = &ops->of[IPVS_DELETE][IPVS_DEST];
    for (size_t i = 0; i < all->n; i++) {
        uint32_t at = all->v[i];
        if (!drains(record(v, at)))
            vec_push(&l.idle, at);
        else
            vec_push(&l.draining, at);
        if (drains(record(v, at)) && !(record(v, at)->state & IPVS_DRAINS))
            vec_push(&l.fade, at);
    }
    int r = send_all(&s, l.fade.v, l.fade.n, err);
    if (!r)
        r = look_at_busy(v, &l, err);
    keep_drains(v);
    for (size_t i = 0; i < l.draining.n; i++)
        if (record(v, l.draining.v[i])->state & IPVS_BUSY)
            vec_push(&v->drains, l.draining.v[i]);
        else
            vec_push(&l.idle, l.draining.v[i]);
    s.action = IPVS_DELETE;
    if (!r)
        r = send_all(&s, l.idle.v, l.idle.n, err);
    vec_done(&l.idle);
    vec_done(&l.fade);
    vec_done(&l.draining);
    return r;
}

/* A server that the kernel keeps keeps its destinations, too: the next call looks at them again. */
static void settle_taken_along(struct ipvs *v, const struct ipvs_list *dests)
{
    bool wanted;
    for (size_t i = 0; i < dests->n; i++) {
        struct ipvs_record *r = record(v, dests->v[i]);
        if (server_has(v, &r->entry.key, &wanted))
            vec_push(&v->refused, dests->v[i]);
        else
            r->state &= IPVS_TOUCHED;
    }
}

/* Whether one of the servers is known by this address or element. */
static bool tells_of(struct ipvs *v, const struct ipvs_list *servers, const struct ipvs_key *k)
{
    for (size_t i = 0; i < servers->n; i++) {
        const struct ipvs_key *s = &record(v, servers->v[i])->entry.key;
        if (s->family == k->family &&
            (k->ip.family ? ip_equal(&s->ip, &k->ip) : s->port == k->port))
            return true;
    }
    return false;
}

/* All but what servers that stay are known by. */
static int remove_tokens(struct ipvs *v, enum ipvs_kind kind, const struct ipvs_ops *ops,
                         const struct ipvs_list *stay, struct report *report, struct err *err)
{
    const struct step s = { .v = v, .kind = kind, .action = IPVS_DELETE, .report = report };
    const struct ipvs_list *all = &ops->of[IPVS_DELETE][kind];
    struct ipvs_list ready = { 0 };
    for (size_t i = 0; i < all->n; i++)
        vec_push(tells_of(v, stay, &record(v, all->v[i])->entry.key) ? &v->refused : &ready,
                 all->v[i]);
    int r = send_all(&s, ready.v, ready.n, err);
    vec_done(&ready);
    return r;
}

static int remove_servers(struct ipvs *v, const struct ipvs_ops *ops, struct report *report,
                          struct err *err)
{
    const struct ipvs_list *servers = &ops->of[IPVS_DELETE][IPVS_SERVER];
    struct ipvs_list stay = { 0 };
    int r = step(v, IPVS_SERVER, IPVS_DELETE, ops, report, err);
    settle_taken_along(v, &ops->taken_along);
    for (size_t i = 0; i < servers->n; i++)
        if (record(v, servers->v[i])->state & IPVS_HAS)
            vec_push(&stay, servers->v[i]);
    if (!r)
        r = remove_tokens(v, IPVS_BOUND, ops, &stay, report, err);
    if (!r)
        r = remove_tokens(v, IPVS_SET_ENTRY, ops, &stay, report, err);
    vec_done(&stay);
    return r;
}

int ipvs_apply_elements(struct ipvs *v, const struct ipvs_ops *ops, struct report *report,
                        struct err *err)
{
    return step(v, IPVS_SET_ENTRY, IPVS_ADD, ops, report, err);
}

int ipvs_apply(struct ipvs *v, const struct ipvs_ops *ops, struct report *report, struct err *err)
{
    static const struct {
        enum ipvs_kind kind;
        enum ipvs_action action;
    } adding[] = { { IPVS_BOUND, IPVS_ADD },
                   { IPVS_SERVER, IPVS_CHANGE },
                   { IPVS_SERVER, IPVS_ADD },
                   { IPVS_DEST, IPVS_CHANGE } };
    int r = 0;
    for (size_t i = 0; i < sizeof(adding) / sizeof(adding[0]) && !r; i++)
        r = step(v, adding[i].kind, adding[i].action, ops, report, err);
    if (!r)
        r = add_dests(v, ops, report, err);
    if (!r)
        r = remove_dests(v, ops, report, err);
    return r ? r : remove_servers(v, ops, report, err);
}
