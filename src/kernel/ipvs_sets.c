/* Sets: read, made, replaced. Of those that cannot be had, because somebody else has the name or the
 * kernel does not make them, all that is left out for them is decided here. */
#include <errno.h>
#include <linux/netfilter/ipset/ip_set.h>
#include <string.h>

#include "kernel/ipset.h"
#include "kernel/ipvs_impl.h"

#define MATCH " -m set "
#define NAME  "--match-set "

struct set_reading {
    struct ipvs *v;
    enum ipvs_set set;
    uint8_t family;
};

static void lack(struct ipvs *v, enum ipvs_set set, uint8_t family, int error,
                 const struct err *err)
{
    vec_push(&v->lacking, (struct ipvs_lacking){ set, family, error, *err });
}

static bool lacks(const struct ipvs *v, enum ipvs_set set, uint8_t family)
{
    for (size_t i = 0; i < v->lacking.n; i++)
        if (v->lacking.v[i].set == set && v->lacking.v[i].family == family)
            return true;
    return false;
}

/* ---- reading, making ---- */

static void on_element(void *user, const struct ipvs_key *k)
{
    struct ipvs_entry e = { .key = *k };
    ipvs_store_has(&((struct set_reading *)user)->v->store, &e, false);
}

static void on_set_again(void *user)
{
    struct set_reading *r = user;
    ipvs_store_forget_set(&r->v->store, r->set, r->family);
}

int ipvs_sets_read(struct ipvs *v, struct err *err)
{
    int r = 0;
    v->lacking.n = 0;
    for (int i = 0; i < 2 * KUBE_SET_COUNT && !r; i++) {
        struct set_reading s = { v, (enum ipvs_set)(i / 2), i % 2 ? IP_V6 : IP_V4 };
        const struct ipset_reader reader = { &s, on_element, on_set_again };
        r = ipset_read(v->ports.netfilter, s.set, s.family, &reader, &v->option[i % 2][s.set], err);
        v->missing[i % 2][s.set] = r == -ENOENT;
        if (r == -EEXIST)
            lack(v, s.set, s.family, EEXIST, err);
        if (r == -ENOENT || r == -EEXIST)
            r = 0;
    }
    return r;
}

static int talk(struct ipvs *v, struct err *err)
{
    return nl_talk(v->ports.netfilter, (struct nlmsghdr *)(void *)v->buf.p, err);
}

static int create(struct ipvs *v, const char *name, enum ipvs_set set, uint8_t family,
                  struct err *err)
{
    nl_buf_clear(&v->buf);
    ipset_put_create(&v->buf, v->ports.netfilter, name, set, family);
    return talk(v, err);
}

static int destroy_spare(struct ipvs *v, struct err *err)
{
    nl_buf_clear(&v->buf);
    ipset_put_destroy(&v->buf, v->ports.netfilter, IPSET_SPARE);
    return talk(v, err);
}

static int send_elements(struct ipvs *v, struct report *report, struct err *err)
{
    struct nl_error error;
    size_t n_errors;
    ((struct nlmsghdr *)(void *)(v->buf.p + v->buf.last))->nlmsg_flags |= NLM_F_ACK;
    size_t len = nl_end(&v->buf);
    report->bytes += len;
    int r = nl_batch(v->ports.netfilter, v->buf.p, len, v->ports.netfilter->seq, &error, 1,
                     &n_errors, err);
    nl_buf_clear(&v->buf);
    return r;
}

/* With all that the kernel's has: what is not wanted goes in its turn. */
static int fill_spare(struct ipvs *v, enum ipvs_set set, uint8_t family, struct report *report,
                      struct err *err)
{
    size_t n = 0;
    int r = 0;
    nl_buf_clear(&v->buf);
    for (size_t i = 0; i < v->store.records.n && !r; i++) {
        const struct ipvs_record *record = &v->store.records.v[i];
        const struct ipvs_key *k = &record->entry.key;
        if (!(record->state & IPVS_HAS) || k->kind != IPVS_SET_ENTRY || k->set != set ||
            k->family != family)
            continue;
        ipset_put_element(&v->buf, v->ports.netfilter, IPSET_CMD_ADD, IPSET_SPARE, k);
        if (++n % IPVS_BATCH == 0)
            r = send_elements(v, report, err);
    }
    return r || n % IPVS_BATCH == 0 ? r : send_elements(v, report, err);
}

static int swap(struct ipvs *v, const char *name, struct err *err)
{
    nl_buf_clear(&v->buf);
    ipset_put_swap(&v->buf, v->ports.netfilter, name, IPSET_SPARE);
    return talk(v, err);
}

/* Rules that use it match all the while. */
static void replace(struct ipvs *v, enum ipvs_set set, uint8_t family, struct report *report)
{
    const char *name = ipvs_set_name(set, family), *option = v->option[family == IP_V6][set];
    struct err err = { 0 };
    int r = create(v, IPSET_SPARE, set, family, &err);
    if (!r) {
        r = fill_spare(v, set, family, report, &err);
        if (!r)
            r = swap(v, name, &err);
        destroy_spare(v, NULL); /* one that stays goes with the next audit */
    }
    report->changes += !r;
    if (!r)
        return;
    v->is_known = false;
    err_set(&err, -r, "it was made with another %s than is needed, and cannot be replaced: %s",
            option, ipset_error(-r));
    report_refuse(report, "proxy", -r, err.text, "ipset %s", name);
}

/* What a predecessor left when it was killed. */
static void remove_spare(struct ipvs *v, struct report *report)
{
    bool exists;
    struct err err = { 0 };
    int r = ipset_exists(v->ports.netfilter, IPSET_SPARE, &exists, &err);
    if (!r && exists)
        r = destroy_spare(v, &err);
    report->deletes += !r && exists;
}

void ipvs_sets_make(struct ipvs *v, struct report *report)
{
    remove_spare(v, report);
    for (int i = 0; i < 2 * KUBE_SET_COUNT; i++) {
        enum ipvs_set set = (enum ipvs_set)(i / 2);
        uint8_t family = i % 2 ? IP_V6 : IP_V4;
        struct err err = { 0 };
        if (v->option[i % 2][set])
            replace(v, set, family, report);
        if (!v->missing[i % 2][set])
            continue;
        int r = create(v, ipvs_set_name(set, family), set, family, &err);
        v->missing[i % 2][set] = r;
        report->adds += !r;
        if (r) {
            err_set(&err, -r, "cannot make ipset %s: %s", ipvs_set_name(set, family),
                    ipset_error(-r));
            lack(v, set, family, -r, &err);
        }
    }
    for (size_t i = 0; i < v->lacking.n; i++) {
        const struct ipvs_lacking *l = &v->lacking.v[i];
        report_refuse(report, "proxy", l->error, l->err.text, "ipset %s",
                      ipvs_set_name(l->set, l->family));
    }
}

/* ---- what depends on them ---- */

/* Without these two no rule keeps out whom the source ranges do not admit; without the others that
 * tell the admitted nobody is. */
static bool is_open_to_all(const struct ipvs *v, const struct ipvs_key *server)
{
    struct ipvs_key k = { .kind = IPVS_SET_ENTRY,
                          .set = KUBE_LOAD_BALANCER_FW,
                          .family = server->family,
                          .proto = server->proto,
                          .port = server->port,
                          .ip = server->ip };
    if (!lacks(v, KUBE_LOAD_BALANCER, k.family) && !lacks(v, KUBE_LOAD_BALANCER_FW, k.family))
        return false;
    uint32_t i = ipvs_store_find(&v->store, &k);
    return i != IPVS_NONE && v->store.records.v[i].wanted;
}

bool ipvs_sets_allow(const struct ipvs *v, const struct ipvs_key *k)
{
    struct ipvs_key server;
    switch ((enum ipvs_kind)k->kind) {
    case IPVS_SET_ENTRY:
        return !lacks(v, (enum ipvs_set)k->set, k->family);
    case IPVS_BOUND:
        return true;
    case IPVS_SERVER:
        return !is_open_to_all(v, k);
    case IPVS_DEST:
        server = ipvs_server_of(k);
        return !is_open_to_all(v, &server);
    }
    return true;
}

/* What refuses the other ports of bound addresses would refuse those of Services, too, when one of
 * the sets that name these lacks. */
static bool is_of_no_use(const struct ipvs *v, uint8_t family, const char *name, size_t len)
{
    for (int i = 0; i < KUBE_SET_COUNT; i++) {
        const char *is = ipvs_set_name((enum ipvs_set)i, family);
        if (strlen(is) == len && !strncmp(is, name, len))
            return lacks(v, (enum ipvs_set)i, family) ||
                   (i == KUBE_IPVS_IPS &&
                    (lacks(v, KUBE_CLUSTER_IP, family) || lacks(v, KUBE_EXTERNAL_IP, family) ||
                     lacks(v, KUBE_LOAD_BALANCER, family)));
    }
    return false;
}

/* False for a rule that nothing would match. */
static bool put_rule(const struct ipvs *v, uint8_t family, const char *line, size_t len,
                     struct buf *out)
{
    const char *end = line + len, *at;
    while ((at = memmem(line, (size_t)(end - line), MATCH, strlen(MATCH)))) {
        const char *name = strstr(at, NAME) + strlen(NAME);
        size_t n = strcspn(name, " ");
        const char *next = name + n + 1 + strcspn(name + n + 1, " \n");
        bool gone = is_of_no_use(v, family, name, n);
        if (gone && at[strlen(MATCH)] != '!')
            return false;
        buf_put(out, line, (size_t)((gone ? at : next) - line));
        line = next;
    }
    buf_put(out, line, (size_t)(end - line));
    buf_puts(out, "\n");
    return true;
}

const char *ipvs_sets_rules(const struct ipvs *v, uint8_t family, const char *rules,
                            struct buf *scratch)
{
    struct buf line = { 0 };
    if (!v->lacking.n || !rules)
        return rules;
    for (size_t len; *rules; rules += len + (rules[len] == '\n')) {
        len = strcspn(rules, "\n");
        buf_clear(&line);
        if (put_rule(v, family, rules, len, &line))
            buf_puts(scratch, buf_str(&line));
    }
    buf_done(&line);
    return buf_str(scratch);
}
