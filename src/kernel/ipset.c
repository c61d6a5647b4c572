#include "kernel/ipset.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/ipset/ip_set.h>
#include <linux/netfilter/nfnetlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/vec.h"
#include "netlink/nl_attr.h"

#define PATIENCE_US 1000000
/* The first kernels and tools that have all that is used here know this revision of each type, and
 * later ones still do. */
#define REVISION 3
#define HASHSIZE 1024

static const struct nl_policy message_policy[] = {
    [IPSET_ATTR_SETNAME] = NL_STRING, [IPSET_ATTR_TYPENAME] = NL_STRING,
    [IPSET_ATTR_FAMILY] = NL_U8,      [IPSET_ATTR_DATA] = NL_NEST,
    [IPSET_ATTR_ADT] = NL_NEST,
};
#define N_MESSAGE NL_POLICY_COUNT(message_policy)

/* A set being read. */
struct reading {
    enum ipvs_set set;
    uint8_t family;
    const struct ipset_reader *reader;
    char other[64];     /* the type of a set that is not the wanted one */
    const char *option; /* of `ipset create`, as ipset_read() tells it */
};

static struct nlmsghdr *msg(struct nl_buf *b, struct nl_port *port, uint16_t command,
                            uint16_t flags);
static uint16_t af_of(enum ipvs_set set, uint8_t family);
static void put_ip(struct nlmsghdr *m, uint16_t type, const struct ip *ip);
static void put_port(struct nlmsghdr *m, uint16_t type, uint16_t port);
static int read_message(const struct nlmsghdr *m, void *user);
static void read_again(void *user);

const char *ipset_error(int error)
{
    switch (error) {
    case IPSET_ERR_FIND_TYPE:
        return "this kernel does not have a set of this type";
    case IPSET_ERR_MAX_SETS:
        return "there are too many sets";
    case IPSET_ERR_BUSY:
        return "a rule uses it";
    case IPSET_ERR_EXIST:
        return "it is not there";
    case IPSET_ERR_TYPE_SPECIFIC:
        return "the set is full";
    }
    return error < IPSET_ERR_PRIVATE ? strerror(error) : "the kernel does not accept it";
}

void ipset_put_create(struct nl_buf *b, struct nl_port *netfilter, const char *name,
                      enum ipvs_set set, uint8_t family)
{
    enum ipvs_set_type type = ipvs_set_defs[set].type;
    struct nlmsghdr *m = msg(b, netfilter, IPSET_CMD_CREATE, NLM_F_CREATE | NLM_F_EXCL);
    mnl_attr_put_strz(m, IPSET_ATTR_SETNAME, name);
    mnl_attr_put_strz(m, IPSET_ATTR_TYPENAME, ipvs_set_type_name(type));
    mnl_attr_put_u8(m, IPSET_ATTR_REVISION, REVISION);
    mnl_attr_put_u8(m, IPSET_ATTR_FAMILY, (uint8_t)af_of(set, family));
    struct nlattr *nest = mnl_attr_nest_start(m, IPSET_ATTR_DATA);
    if (type == IPSET_BITMAP_PORT) {
        put_port(m, IPSET_ATTR_PORT, 0);
        put_port(m, IPSET_ATTR_PORT_TO, UINT16_MAX);
    } else {
        mnl_attr_put_u32(m, IPSET_ATTR_HASHSIZE | NLA_F_NET_BYTEORDER, htonl(HASHSIZE));
        mnl_attr_put_u32(m, IPSET_ATTR_MAXELEM | NLA_F_NET_BYTEORDER, htonl(IPVS_SET_MAXELEM));
    }
    mnl_attr_nest_end(m, nest);
}

void ipset_put_destroy(struct nl_buf *b, struct nl_port *netfilter, const char *name)
{
    struct nlmsghdr *m = msg(b, netfilter, IPSET_CMD_DESTROY, 0);
    mnl_attr_put_strz(m, IPSET_ATTR_SETNAME, name);
}

void ipset_put_swap(struct nl_buf *b, struct nl_port *netfilter, const char *a, const char *z)
{
    struct nlmsghdr *m = msg(b, netfilter, IPSET_CMD_SWAP, 0);
    mnl_attr_put_strz(m, IPSET_ATTR_SETNAME, a);
    mnl_attr_put_strz(m, IPSET_ATTR_SETNAME2, z);
}

void ipset_put_element(struct nl_buf *b, struct nl_port *netfilter, uint8_t command,
                       const char *name, const struct ipvs_key *k)
{
    struct nlmsghdr *m = msg(b, netfilter, command, 0);
    mnl_attr_put_strz(m, IPSET_ATTR_SETNAME, name);
    struct nlattr *nest = mnl_attr_nest_start(m, IPSET_ATTR_DATA);
    if (k->ip.family)
        put_ip(m, IPSET_ATTR_IP, &k->ip);
    if (k->port)
        put_port(m, IPSET_ATTR_PORT, k->port);
    if (k->proto)
        mnl_attr_put_u8(m, IPSET_ATTR_PROTO, k->proto);
    if (k->other.family)
        put_ip(m, IPSET_ATTR_IP2, &k->other);
    if (k->prefix_len)
        mnl_attr_put_u8(m, k->other.family ? IPSET_ATTR_CIDR2 : IPSET_ATTR_CIDR, k->prefix_len);
    mnl_attr_nest_end(m, nest);
}

int ipset_read(struct nl_port *netfilter, enum ipvs_set set, uint8_t family,
               const struct ipset_reader *reader, const char **ret_option, struct err *err)
{
    struct nl_buf b = { 0 };
    struct reading r = { .set = set, .family = family, .reader = reader };
    const char *name = ipvs_set_name(set, family);
    struct nlmsghdr *m = msg(&b, netfilter, IPSET_CMD_LIST, 0);
    mnl_attr_put_strz(m, IPSET_ATTR_SETNAME, name);
    int e = nl_dump(netfilter, m, read_message, read_again, &r, err);
    nl_buf_done(&b);
    *ret_option = r.option;
    if (*r.other)
        return err_set(err, EEXIST,
                       "ipset %s is of type %s, where %s of %s is needed; destroy it, together "
                       "with the rules that use it",
                       name, r.other, ipvs_set_type_name(ipvs_set_defs[set].type),
                       family == IP_V6 ? "inet6" : "inet");
    return e == -EINVAL || e == -EOPNOTSUPP ? -ENOENT : e; /* no such subsystem */
}

int ipset_exists(struct nl_port *netfilter, const char *name, bool *ret, struct err *err)
{
    struct nl_buf b = { 0 };
    struct nlmsghdr *m = msg(&b, netfilter, IPSET_CMD_HEADER, 0);
    mnl_attr_put_strz(m, IPSET_ATTR_SETNAME, name);
    int r = nl_talk(netfilter, m, err);
    nl_buf_done(&b);
    *ret = !r;
    return r == -ENOENT ? 0 : r;
}

/* ---- codec ---- */

static struct nlmsghdr *msg(struct nl_buf *b, struct nl_port *port, uint16_t command,
                            uint16_t flags)
{
    struct nfgenmsg g = { .version = NFNETLINK_V0 };
    struct nlmsghdr *m = nl_msg(b, (uint16_t)(NFNL_SUBSYS_IPSET << 8 | command),
                                (uint16_t)(NLM_F_REQUEST | flags), nl_seq(port), &g, sizeof(g));
    mnl_attr_put_u8(m, IPSET_ATTR_PROTOCOL, IPSET_PROTOCOL_MIN);
    return m;
}

static uint16_t af_of(enum ipvs_set set, uint8_t family)
{
    if (ipvs_set_defs[set].type == IPSET_BITMAP_PORT)
        return AF_UNSPEC;
    return family == IP_V6 ? AF_INET6 : AF_INET;
}

static void put_ip(struct nlmsghdr *m, uint16_t type, const struct ip *ip)
{
    struct nlattr *nest = mnl_attr_nest_start(m, type);
    mnl_attr_put(m,
                 NLA_F_NET_BYTEORDER |
                     (ip->family == IP_V6 ? IPSET_ATTR_IPADDR_IPV6 : IPSET_ATTR_IPADDR_IPV4),
                 ip_len(ip->family), ip->bytes);
    mnl_attr_nest_end(m, nest);
}

static void put_port(struct nlmsghdr *m, uint16_t type, uint16_t port)
{
    mnl_attr_put_u16(m, type | NLA_F_NET_BYTEORDER, htons(port));
}

static bool get_ip(const struct nlattr *nest, uint8_t family, struct ip *ret)
{
    static const struct nl_policy policy[] = {
        [IPSET_ATTR_IPADDR_IPV4] = NL_BYTES(4), [IPSET_ATTR_IPADDR_IPV6] = NL_BYTES(16)
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    if (nl_parse_nested(nest, policy, NL_POLICY_COUNT(policy), tb))
        return false;
    const struct nlattr *a = tb[family == IP_V6 ? IPSET_ATTR_IPADDR_IPV6 : IPSET_ATTR_IPADDR_IPV4];
    return nl_get_ip(a, ret);
}

static bool get_element(const struct nlattr *nest, const struct reading *r, struct ipvs_key *ret)
{
    static const struct nl_policy policy[] = {
        [IPSET_ATTR_IP] = NL_NEST,  [IPSET_ATTR_CIDR] = NL_U8,  [IPSET_ATTR_PORT] = NL_U16,
        [IPSET_ATTR_PROTO] = NL_U8, [IPSET_ATTR_IP2] = NL_NEST, [IPSET_ATTR_CIDR2] = NL_U8,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    *ret = (struct ipvs_key){ .kind = IPVS_SET_ENTRY, .set = (uint8_t)r->set, .family = r->family };
    if (nl_parse_nested(nest, policy, NL_POLICY_COUNT(policy), tb) ||
        (tb[IPSET_ATTR_IP] && !get_ip(tb[IPSET_ATTR_IP], r->family, &ret->ip)) ||
        (tb[IPSET_ATTR_IP2] && !get_ip(tb[IPSET_ATTR_IP2], r->family, &ret->other)))
        return false;
    const struct nlattr *cidr = tb[tb[IPSET_ATTR_IP2] ? IPSET_ATTR_CIDR2 : IPSET_ATTR_CIDR];
    enum ipvs_set_type type = ipvs_set_defs[r->set].type;
    ret->port = tb[IPSET_ATTR_PORT] ? ntohs(mnl_attr_get_u16(tb[IPSET_ATTR_PORT])) : 0;
    ret->proto = tb[IPSET_ATTR_PROTO] ? mnl_attr_get_u8(tb[IPSET_ATTR_PROTO]) : 0;
    /* A whole address has no length in some kernels' lists. */
    if (type == IPSET_HASH_NET || type == IPSET_HASH_IP_PORT_NET)
        ret->prefix_len = cidr ? mnl_attr_get_u8(cidr) : ip_bits(r->family);
    return true;
}

static bool is_wanted(const struct nlattr *const *tb, const struct reading *r)
{
    return !strcmp(mnl_attr_get_str(tb[IPSET_ATTR_TYPENAME]),
                   ipvs_set_type_name(ipvs_set_defs[r->set].type)) &&
           (!tb[IPSET_ATTR_FAMILY] ||
            mnl_attr_get_u8(tb[IPSET_ATTR_FAMILY]) == af_of(r->set, r->family));
}

static uint32_t get_be32(const struct nlattr *a)
{
    return a ? ntohl(mnl_attr_get_u32(a)) : 0;
}

/* The size of its hash table does not matter: it grows. */
static int read_options(const struct nlattr *data, struct reading *r)
{
    static const struct nl_policy policy[] = {
        [IPSET_ATTR_PORT] = NL_U16,       [IPSET_ATTR_PORT_TO] = NL_U16,
        [IPSET_ATTR_TIMEOUT] = NL_U32,    [IPSET_ATTR_MAXELEM] = NL_U32,
        [IPSET_ATTR_CADT_FLAGS] = NL_U32, [IPSET_ATTR_NETMASK] = NL_U8,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    if (nl_parse_nested(data, policy, NL_POLICY_COUNT(policy), tb))
        return -EBADMSG;
    const struct nlattr *first = tb[IPSET_ATTR_PORT], *last = tb[IPSET_ATTR_PORT_TO];
    if (tb[IPSET_ATTR_MAXELEM] && get_be32(tb[IPSET_ATTR_MAXELEM]) < IPVS_SET_MAXELEM)
        r->option = "maxelem";
    else if (first && last &&
             (mnl_attr_get_u16(first) || ntohs(mnl_attr_get_u16(last)) != UINT16_MAX))
        r->option = "range";
    else if (tb[IPSET_ATTR_TIMEOUT])
        r->option = "timeout";
    else if (tb[IPSET_ATTR_NETMASK] &&
             mnl_attr_get_u8(tb[IPSET_ATTR_NETMASK]) != ip_bits(r->family))
        r->option = "netmask";
    else if (get_be32(tb[IPSET_ATTR_CADT_FLAGS]) & IPSET_FLAG_WITH_FORCEADD)
        r->option = "forceadd";
    return 0;
}

static int read_elements(const struct nlattr *list, const struct reading *r)
{
    const char *end = (const char *)mnl_attr_get_payload(list) + mnl_attr_get_payload_len(list);
    const struct nlattr *a = mnl_attr_get_payload(list);
    for (; mnl_attr_ok(a, (int)(end - (const char *)a)); a = mnl_attr_next(a)) {
        struct ipvs_key k;
        if (!get_element(a, r, &k))
            return -EBADMSG;
        r->reader->element(r->reader->user, &k);
    }
    return 0;
}

/* The first message of a set has its header, every one may have elements. */
static int read_message(const struct nlmsghdr *m, void *user)
{
    const struct nlattr *tb[N_MESSAGE];
    struct reading *r = user;
    if (nl_parse(m, sizeof(struct nfgenmsg), message_policy, N_MESSAGE, tb))
        return -EBADMSG;
    if (tb[IPSET_ATTR_TYPENAME] && !is_wanted(tb, r)) {
        snprintf(r->other, sizeof(r->other), "%s%s", mnl_attr_get_str(tb[IPSET_ATTR_TYPENAME]),
                 tb[IPSET_ATTR_FAMILY] && mnl_attr_get_u8(tb[IPSET_ATTR_FAMILY]) == AF_INET6
                     ? " of inet6"
                     : "");
        return -EEXIST;
    }
    int e =
        tb[IPSET_ATTR_TYPENAME] && tb[IPSET_ATTR_DATA] ? read_options(tb[IPSET_ATTR_DATA], r) : 0;
    return !e && tb[IPSET_ATTR_ADT] ? read_elements(tb[IPSET_ATTR_ADT], r) : e;
}

static void read_again(void *user)
{
    struct reading *r = user;
    *r->other = 0;
    r->option = NULL;
    r->reader->restart(r->reader->user);
}

/* ---- removing them ---- */

struct found {
    struct arena mem;
    VEC(const char *) sets;
    bool (*wanted)(const char *name);
};

static bool is_among(const char *name, int n)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(name, ipvs_set_defs[i].name4) || !strcmp(name, ipvs_set_defs[i].name6))
            return true;
    return false;
}

static bool is_ours(const char *name)
{
    return is_among(name, KUBE_SET_COUNT) || !strcmp(name, IPSET_SPARE);
}

/* pkg/proxy/ipvs of Kubernetes, and kpng: their names are ours but for our last, and for these. */
static bool is_theirs_alone(const char *name)
{
    static const char *const names[] = { "LOAD-BALANCER-SOURCE-CIDR", "NODE-PORT-SCTP-HASH",
                                         "NODE-PORT-LOCAL-SCTP-HASH" };
    const char *rest = !strncmp(name, "KUBE-6-", 7) ? name + 7
                       : !strncmp(name, "KUBE-", 5) ? name + 5
                                                    : "";
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(rest, names[i]))
            return true;
    return false;
}

static bool is_kube_proxys(const char *name)
{
    return is_theirs_alone(name) || is_among(name, KUBE_IPVS_IPS + 1);
}

static void restart(void *user)
{
    struct found *f = user;
    arena_reset(&f->mem);
    f->sets.n = 0;
}

static int read_set(const struct nlmsghdr *m, void *user)
{
    const struct nlattr *tb[N_MESSAGE];
    struct found *f = user;
    if (nl_parse(m, sizeof(struct nfgenmsg), message_policy, N_MESSAGE, tb))
        return -EBADMSG;
    const char *name = tb[IPSET_ATTR_SETNAME] ? mnl_attr_get_str(tb[IPSET_ATTR_SETNAME]) : "";
    if (f->wanted(name))
        vec_push(&f->sets, arena_strdup(&f->mem, name));
    return 0;
}

static int destroy(struct nl_port *port, const char *set, struct err *err)
{
    struct nl_buf b = { 0 };
    ipset_put_destroy(&b, port, set);
    int r = nl_talk(port, (struct nlmsghdr *)(void *)b.p, err);
    nl_buf_done(&b);
    return r == -ENOENT ? 0 : r;
}

/* The kernel lets go of a set a while after it has removed the rule that used it. */
static int destroy_soon(struct nl_port *port, const char *set, int64_t until_us, struct err *err)
{
    static const struct timespec pause = { .tv_nsec = 10000000 };
    int r;
    while ((r = destroy(port, set, err)) == -IPSET_ERR_BUSY && clock_mono_us() < until_us)
        nanosleep(&pause, NULL);
    return r;
}

static int find(struct nl_port *port, struct found *f, struct err *err)
{
    struct nl_buf b = { 0 };
    struct nlmsghdr *m = msg(&b, port, IPSET_CMD_LIST, 0);
    mnl_attr_put_u32(m, IPSET_ATTR_FLAGS, htonl(IPSET_FLAG_LIST_SETNAME));
    int r = nl_dump(port, m, read_set, restart, f, err);
    nl_buf_done(&b);
    return r == -EINVAL || r == -EOPNOTSUPP ? 0 : r; /* no such subsystem */
}

int ipset_cleanup(struct nl_port *netfilter, enum kubeproxy_whose whose, bool dry_run,
                  struct buf *out, struct err *err)
{
    static bool (*const tests[])(const char *name) = { [KUBEPROXY_ITS] = is_kube_proxys,
                                                       [KUBEPROXY_BESIDE] = is_theirs_alone,
                                                       [KUBEPROXY_OURS] = is_ours };
    struct found f = { .wanted = tests[whose] };
    int64_t until = clock_mono_us() + PATIENCE_US;
    int r = find(netfilter, &f, err);
    for (size_t i = 0; i < f.sets.n && !r; i++) {
        r = dry_run ? 0 : destroy_soon(netfilter, f.sets.v[i], until, err);
        bool used = r == -IPSET_ERR_BUSY;
        if (used)
            r = 0;
        if (!r)
            buf_printf(out, used ? "! ipset %s stays, because a rule uses it\n" : "- ipset %s\n",
                       f.sets.v[i]);
    }
    if (r)
        err_prefix(err, "ipsets");
    arena_done(&f.mem);
    vec_done(&f.sets);
    return r;
}
