/* Sets that cannot be had: names of ours that somebody else has, or that the kernel does not make.
 * All that is left out for them is decided here. */
#include <errno.h>
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
        r = ipset_read(v->ports.netfilter, s.set, s.family, &reader, err);
        v->missing[i % 2][s.set] = r == -ENOENT;
        if (r == -EEXIST)
            lack(v, s.set, s.family, EEXIST, err);
        if (r == -ENOENT || r == -EEXIST)
            r = 0;
    }
    return r;
}

void ipvs_sets_make(struct ipvs *v, struct report *report)
{
    for (int i = 0; i < 2 * KUBE_SET_COUNT; i++) {
        enum ipvs_set set = (enum ipvs_set)(i / 2);
        uint8_t family = i % 2 ? IP_V6 : IP_V4;
        struct err err = { 0 };
        if (!v->missing[i % 2][set])
            continue;
        nl_buf_clear(&v->buf);
        ipset_put_create(&v->buf, v->ports.netfilter, set, family);
        int r = nl_talk(v->ports.netfilter, (struct nlmsghdr *)(void *)v->buf.p, &err);
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
