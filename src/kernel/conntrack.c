#include "kernel/conntrack.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <stdatomic.h>
#include <string.h>

#include "base/map.h"
#include "base/vec.h"
#include "netlink/nl_attr.h"

/* CTA_FILTER_ORIG_FLAGS, of net/netfilter/nf_internals.h: the kernel's headers for programs
 * leave them out. Since Linux 5.8; older kernels ignore the filter and tell everything. */
#define FILTER_IP_DST         0x02u
#define FILTER_PROTO_NUM      0x08u
#define FILTER_PROTO_DST_PORT 0x20u

/* Each filtered dump walks the whole table: with more keys one dump of all UDP is cheaper. */
#define FEW_KEYS 4

#define DELETES_PER_BATCH 512

static atomic_bool kernel_ignores_filter;

/* One conntrack entry, and where in its message the parts are that name it. */
struct entry {
    struct ip dialled, source; /* original destination, reply source */
    uint16_t port, source_port;
    uint32_t status; /* IPS_* */
    const struct nlattr *tuple, *id, *zone;
};

struct flush {
    const struct flow_target *keys;
    size_t n;
    const struct flow_target *asked; /* the one key the kernel filters by, or NULL */
    struct map exact;                /* struct exact_key -> key */
    VEC(const struct flow_target *) ranges;
    struct nl_port *port;
    struct nl_buf deletes;
    size_t checkpoint; /* bytes of `deletes` before the dump in progress */
};
struct exact_key {
    uint8_t ip[17];
    uint8_t port[2];
};

static void index_keys(struct flush *f);
static int collect(struct flush *f, uint8_t family, struct err *err);
static int send_deletes(struct flush *f, struct err *err);

int conntrack_flush_udp(struct nl_port *port, const struct flow_target *keys, size_t n,
                        struct err *err)
{
    static const uint8_t families[] = { IP_V4, IP_V6 };
    struct flush f = { .keys = keys, .n = n, .port = port };
    int r = 0;
    index_keys(&f);
    bool few = n <= FEW_KEYS && !atomic_load(&kernel_ignores_filter);
    for (size_t i = 0; few && i < n && !r; i++) {
        f.asked = &keys[i];
        r = collect(&f, keys[i].dialled.family, err);
    }
    for (size_t i = 0; !few && i < sizeof(families) && !r; i++) {
        bool any = false;
        for (size_t j = 0; j < n && !any; j++)
            any = keys[j].dialled.family == families[i];
        r = any ? collect(&f, families[i], err) : 0;
    }
    if (!r)
        r = send_deletes(&f, err);
    if (r < 0)
        err_prefix(err, "cannot delete UDP flows that lead to where nothing is served any more");
    nl_buf_done(&f.deletes);
    vec_done(&f.ranges);
    map_done(&f.exact);
    return r;
}

static struct exact_key exact_key(const struct ip *ip, uint16_t port)
{
    struct exact_key k = { .port = { (uint8_t)(port >> 8), (uint8_t)port } };
    k.ip[0] = ip->family;
    memcpy(k.ip + 1, ip->bytes, sizeof(ip->bytes));
    return k;
}

static void index_keys(struct flush *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct flow_target *t = &f->keys[i];
        if (t->port == t->end) {
            struct exact_key k = exact_key(&t->dialled, t->port);
            map_put(&f->exact, &k, sizeof(k), (void *)(uintptr_t)t);
        } else {
            vec_push(&f->ranges, t);
        }
    }
}

static const struct flow_target *key_of(const struct flush *f, const struct entry *e)
{
    struct exact_key k = exact_key(&e->dialled, e->port);
    const struct flow_target *t = map_get(&f->exact, &k, sizeof(k));
    for (size_t i = 0; !t && i < f->ranges.n; i++) {
        const struct flow_target *range = f->ranges.v[i];
        if (e->port >= range->port && e->port <= range->end &&
            ip_equal(&e->dialled, &range->dialled))
            t = range;
    }
    return t;
}

static bool leads_otherwise(const struct flow_target *t, const struct entry *e)
{
    bool stays = ip_equal(&e->source, &e->dialled) && e->source_port == e->port;
    return t->nat && !(e->status & t->nat) && !stays;
}

static bool leads_elsewhere(const struct flow_target *t, const struct entry *e)
{
    uint16_t want = t->target_port ? (uint16_t)(t->target_port + (e->port - t->port)) : e->port;
    if (ip_equal(&e->source, &t->target) && e->source_port == want)
        return false;
    struct flow_end end = { e->source, e->source_port };
    return !t->n_others ||
           !bsearch(&end, t->others, t->n_others, sizeof(t->others[0]), flow_end_cmp);
}

/* Of a tuple of UDP: one of its addresses and its port. */
static bool tuple_decode(const struct nlattr *tuple, bool destination, struct ip *ip,
                         uint16_t *port)
{
    static const struct nl_policy tuple_policy[] = {
        [CTA_TUPLE_IP] = NL_NEST,
        [CTA_TUPLE_PROTO] = NL_NEST,
    };
    static const struct nl_policy ip_policy[] = {
        [CTA_IP_V4_SRC] = NL_BYTES(4),
        [CTA_IP_V4_DST] = NL_BYTES(4),
        [CTA_IP_V6_SRC] = NL_BYTES(16),
        [CTA_IP_V6_DST] = NL_BYTES(16),
    };
    static const struct nl_policy proto_policy[] = {
        [CTA_PROTO_NUM] = NL_U8,
        [CTA_PROTO_SRC_PORT] = NL_U16,
        [CTA_PROTO_DST_PORT] = NL_U16,
    };
    const struct nlattr *t[NL_POLICY_COUNT(tuple_policy)], *i[NL_POLICY_COUNT(ip_policy)],
        *p[NL_POLICY_COUNT(proto_policy)];
    if (!tuple || nl_parse_nested(tuple, tuple_policy, NL_POLICY_COUNT(tuple_policy), t) ||
        !t[CTA_TUPLE_IP] || !t[CTA_TUPLE_PROTO] ||
        nl_parse_nested(t[CTA_TUPLE_IP], ip_policy, NL_POLICY_COUNT(ip_policy), i) ||
        nl_parse_nested(t[CTA_TUPLE_PROTO], proto_policy, NL_POLICY_COUNT(proto_policy), p) ||
        !p[CTA_PROTO_NUM] || mnl_attr_get_u8(p[CTA_PROTO_NUM]) != IPPROTO_UDP)
        return false;
    const struct nlattr *v4 = i[destination ? CTA_IP_V4_DST : CTA_IP_V4_SRC];
    const struct nlattr *n = p[destination ? CTA_PROTO_DST_PORT : CTA_PROTO_SRC_PORT];
    if (!n || !nl_get_ip(v4 ? v4 : i[destination ? CTA_IP_V6_DST : CTA_IP_V6_SRC], ip))
        return false;
    *port = ntohs(mnl_attr_get_u16(n));
    return true;
}

static bool entry_decode(const struct nlmsghdr *m, struct entry *ret)
{
    static const struct nl_policy policy[] = {
        [CTA_TUPLE_ORIG] = NL_NEST, [CTA_TUPLE_REPLY] = NL_NEST, [CTA_STATUS] = NL_U32,
        [CTA_ID] = NL_U32,          [CTA_ZONE] = NL_U16,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    if (nl_parse(m, sizeof(struct nfgenmsg), policy, NL_POLICY_COUNT(policy), tb) ||
        !tuple_decode(tb[CTA_TUPLE_ORIG], true, &ret->dialled, &ret->port) ||
        !tuple_decode(tb[CTA_TUPLE_REPLY], false, &ret->source, &ret->source_port))
        return false;
    ret->status = tb[CTA_STATUS] ? ntohl(mnl_attr_get_u32(tb[CTA_STATUS])) : 0;
    ret->tuple = tb[CTA_TUPLE_ORIG];
    ret->id = tb[CTA_ID];
    ret->zone = tb[CTA_ZONE];
    return true;
}

static void put_copy(struct nlmsghdr *m, const struct nlattr *a)
{
    if (a)
        mnl_attr_put(m, a->nla_type, mnl_attr_get_payload_len(a), mnl_attr_get_payload(a));
}

static int on_entry(const struct nlmsghdr *m, void *user)
{
    struct flush *f = user;
    struct entry e = { 0 };
    if (!entry_decode(m, &e))
        return 0;
    if (f->asked && ((e.dialled.family == IP_V4 && !ip_equal(&e.dialled, &f->asked->dialled)) ||
                     (f->asked->port == f->asked->end && e.port != f->asked->port)))
        atomic_store(&kernel_ignores_filter, true);
    const struct flow_target *t = key_of(f, &e);
    if (!t || (f->asked && t != f->asked) || !(leads_elsewhere(t, &e) || leads_otherwise(t, &e)))
        return 0;
    /* The id makes sure that it is this entry and not a newer one of the same tuple. */
    const struct nfgenmsg *g = mnl_nlmsg_get_payload(m);
    struct nfgenmsg head = { .nfgen_family = g->nfgen_family, .version = NFNETLINK_V0 };
    struct nlmsghdr *d = nl_msg(&f->deletes, (NFNL_SUBSYS_CTNETLINK << 8) | IPCTNL_MSG_CT_DELETE,
                                NLM_F_REQUEST, 0, &head, sizeof(head));
    put_copy(d, e.tuple);
    put_copy(d, e.id);
    put_copy(d, e.zone);
    nl_end(&f->deletes);
    return 0;
}

static void on_restart(void *user)
{
    struct flush *f = user;
    f->deletes.n = f->checkpoint;
}

static void put_filter(struct nlmsghdr *m, const struct flow_target *t)
{
    uint32_t flags = FILTER_PROTO_NUM;
    struct nlattr *tuple = mnl_attr_nest_start(m, CTA_TUPLE_ORIG);
    /* Of IPv6 the kernel tells just what does not have the address (seen on 6.18): there the
     * port must do. */
    if (t && t->dialled.family == IP_V4) {
        flags |= FILTER_IP_DST;
        struct nlattr *ip = mnl_attr_nest_start(m, CTA_TUPLE_IP);
        nl_put_ip(m, CTA_IP_V4_DST, &t->dialled);
        mnl_attr_nest_end(m, ip);
    }
    struct nlattr *proto = mnl_attr_nest_start(m, CTA_TUPLE_PROTO);
    mnl_attr_put_u8(m, CTA_PROTO_NUM, IPPROTO_UDP);
    if (t && t->port == t->end) {
        flags |= FILTER_PROTO_DST_PORT;
        mnl_attr_put_u16(m, CTA_PROTO_DST_PORT, htons(t->port));
    }
    mnl_attr_nest_end(m, proto);
    mnl_attr_nest_end(m, tuple);
    struct nlattr *filter = mnl_attr_nest_start(m, CTA_FILTER);
    mnl_attr_put_u32(m, CTA_FILTER_ORIG_FLAGS, flags);
    mnl_attr_put_u32(m, CTA_FILTER_REPLY_FLAGS, 0);
    mnl_attr_nest_end(m, filter);
}

/* The deletes of one dump, by f->asked or of all UDP. */
static int collect(struct flush *f, uint8_t family, struct err *err)
{
    struct nl_buf b = { 0 };
    struct nfgenmsg head = { .nfgen_family = family == IP_V6 ? AF_INET6 : AF_INET,
                             .version = NFNETLINK_V0 };
    struct nlmsghdr *m =
        nl_msg(&b, (NFNL_SUBSYS_CTNETLINK << 8) | IPCTNL_MSG_CT_GET, 0, 0, &head, sizeof(head));
    put_filter(m, f->asked);
    f->checkpoint = f->deletes.n;
    int r = nl_dump(f->port, m, on_entry, on_restart, f, err);
    nl_buf_done(&b);
    return r;
}

/* How many went. An entry that ended by itself in the meantime is as good as deleted. */
static int send_deletes(struct flush *f, struct err *err)
{
    struct nl_error errors[DELETES_PER_BATCH];
    int gone = 0;
    size_t in_batch = 0;
    const uint8_t *start = f->deletes.p;
    struct nlmsghdr *m = NULL;
    while ((m = nl_walk(f->deletes.p, f->deletes.n, m))) {
        const uint8_t *end = (const uint8_t *)m + NLMSG_ALIGN(m->nlmsg_len);
        m->nlmsg_seq = nl_seq(f->port);
        if (++in_batch < DELETES_PER_BATCH && end < f->deletes.p + f->deletes.n)
            continue;
        m->nlmsg_flags |= NLM_F_ACK;
        size_t failed = 0;
        int r = nl_batch(f->port, start, (size_t)(end - start), m->nlmsg_seq, errors,
                         DELETES_PER_BATCH, &failed, err);
        if (r && !failed)
            return r;
        for (size_t i = 0; i < failed && i < DELETES_PER_BATCH; i++)
            if (errors[i].error != ENOENT)
                return err_set(err, errors[i].error, "%s", strerror(errors[i].error));
        gone += (int)(in_batch - failed);
        in_batch = 0;
        start = end;
    }
    return gone;
}
