#include "ipvs_world.h"

#include <errno.h>
#include <linux/genetlink.h>
#include <linux/ip_vs.h>
#include <linux/netfilter/ipset/ip_set.h>
#include <linux/rtnetlink.h>
#include <string.h>

#include "netns.h"
#include "test.h"

#define FAMILY 0x21

struct server {
    struct ipvs_service s;
    VEC(struct ipvs_dest) dests;
};
struct datagram {
    char *p;
    size_t n;
};

/* A port that counts, and can die; `real` NULL: plays IPVS. */
struct gate {
    struct nl_port port;
    struct nl_port *real;
    struct ipvs_world *world;
};

struct ipvs_world {
    struct gate route, generic, netfilter;
    VEC(struct server) servers;
    VEC(struct datagram) due;
    unsigned left, writes;
    uint8_t refused;
    unsigned refusals;
    int refusal;
    bool lose;
    struct buf commands, text;
};

/* ---- the played kernel ---- */

static bool same(const struct ipvs_service *a, const struct ipvs_service *b)
{
    return a->family == b->family && a->protocol == b->protocol && a->port == b->port &&
           ip_equal(&a->ip, &b->ip) && a->mark == b->mark;
}

static struct server *find(struct ipvs_world *w, const struct ipvs_service *s)
{
    for (size_t i = 0; i < w->servers.n; i++)
        if (same(&w->servers.v[i].s, s))
            return &w->servers.v[i];
    return NULL;
}

static struct ipvs_dest *find_dest(struct server *s, const struct ipvs_dest *d)
{
    for (size_t i = 0; i < s->dests.n; i++)
        if (ip_equal(&s->dests.v[i].ip, &d->ip) && s->dests.v[i].port == d->port)
            return &s->dests.v[i];
    return NULL;
}

static int change_server(struct ipvs_world *w, uint8_t command, const struct ipvs_service *s)
{
    struct server *have = find(w, s);
    if (command == IPVS_CMD_NEW_SERVICE) {
        if (have)
            return EEXIST;
        vec_push(&w->servers, (struct server){ .s = *s });
        return 0;
    }
    if (!have)
        return ESRCH;
    if (command == IPVS_CMD_SET_SERVICE) {
        have->s = *s;
        return 0;
    }
    vec_done(&have->dests);
    vec_remove(&w->servers, (size_t)(have - w->servers.v));
    return 0;
}

static int change_dest(struct ipvs_world *w, uint8_t command, const struct ipvs_service *s,
                       const struct ipvs_dest *d)
{
    struct server *server = find(w, s);
    if (!server)
        return ESRCH;
    struct ipvs_dest *have = find_dest(server, d);
    if (command == IPVS_CMD_NEW_DEST) {
        if (have)
            return EEXIST;
        vec_push(&server->dests, *d);
        return 0;
    }
    if (!have)
        return ENOENT;
    if (command == IPVS_CMD_SET_DEST)
        have->weight = d->weight;
    else
        vec_remove(&server->dests, (size_t)(have - server->dests.v));
    return 0;
}

static int change(struct ipvs_world *w, const struct nlmsghdr *m, uint8_t command)
{
    static const char *const names[] = {
        [IPVS_CMD_NEW_SERVICE] = "+server ", [IPVS_CMD_SET_SERVICE] = "=server ",
        [IPVS_CMD_DEL_SERVICE] = "-server ", [IPVS_CMD_NEW_DEST] = "+dest ",
        [IPVS_CMD_SET_DEST] = "=dest ",      [IPVS_CMD_DEL_DEST] = "-dest ",
    };
    struct ipvs_service s;
    struct ipvs_dest d;
    assert_int_equal(ipvs_genl_service(m, &s), 0);
    buf_puts(&w->commands, names[command]);
    if (w->refusals && w->refused == command) {
        w->refusals--;
        return w->refusal;
    }
    if (command <= IPVS_CMD_DEL_SERVICE)
        return change_server(w, command, &s);
    assert_int_equal(ipvs_genl_dest(m, &d), 0);
    return change_dest(w, command, &s, &d);
}

static void due(struct ipvs_world *w, struct nl_buf *b)
{
    size_t n = nl_end(b);
    vec_push(&w->due, (struct datagram){ xmalloc(n), n });
    memcpy(w->due.v[w->due.n - 1].p, b->p, n);
    nl_buf_done(b);
}

static void answer(struct ipvs_world *w, const struct nlmsghdr *m, int error)
{
    struct nl_buf b = { 0 };
    struct nlmsgerr e = { .error = -error, .msg = *m };
    nl_msg(&b, NLMSG_ERROR, NLM_F_CAPPED, m->nlmsg_seq, &e, sizeof(e));
    due(w, &b);
}

static void tell_family(struct ipvs_world *w, const struct nlmsghdr *m)
{
    struct nl_buf b = { 0 };
    struct genlmsghdr g = { .cmd = CTRL_CMD_NEWFAMILY };
    mnl_attr_put_u16(nl_msg(&b, GENL_ID_CTRL, 0, m->nlmsg_seq, &g, sizeof(g)), CTRL_ATTR_FAMILY_ID,
                     FAMILY);
    due(w, &b);
}

static struct nlmsghdr *told(struct nl_buf *b, const struct nlmsghdr *request, uint8_t command)
{
    struct genlmsghdr g = { .cmd = command };
    return nl_msg(b, FAMILY, NLM_F_MULTI, request->nlmsg_seq, &g, sizeof(g));
}

static void put_counted_dest(struct nlmsghdr *m, const struct ipvs_dest *d)
{
    ipvs_genl_put_dest(m, d, true);
    /* Into the nest, which is the message's last attribute. */
    struct nlattr *nest =
        (void *)((char *)m + NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(struct genlmsghdr)));
    mnl_attr_put_u32(m, IPVS_DEST_ATTR_ACTIVE_CONNS, d->connections);
    nest->nla_len = (uint16_t)((char *)mnl_nlmsg_get_payload_tail(m) - (char *)nest);
}

static void dump(struct ipvs_world *w, const struct nlmsghdr *m, uint8_t command)
{
    static const int32_t ok;
    struct nl_buf b = { 0 };
    struct ipvs_service s;
    if (command == IPVS_CMD_GET_SERVICE) {
        for (size_t i = 0; i < w->servers.n; i++)
            ipvs_genl_put_service(told(&b, m, IPVS_CMD_NEW_SERVICE), &w->servers.v[i].s, true);
    } else {
        assert_int_equal(ipvs_genl_service(m, &s), 0);
        struct server *server = find(w, &s);
        for (size_t i = 0; server && i < server->dests.n; i++)
            put_counted_dest(told(&b, m, IPVS_CMD_NEW_DEST), &server->dests.v[i]);
    }
    nl_msg(&b, NLMSG_DONE, NLM_F_MULTI, m->nlmsg_seq, &ok, sizeof(ok));
    due(w, &b);
}

static void play(struct ipvs_world *w, const struct nlmsghdr *m)
{
    uint8_t command = ((const struct genlmsghdr *)mnl_nlmsg_get_payload(m))->cmd;
    int error = 0;
    if (m->nlmsg_type == GENL_ID_CTRL) {
        tell_family(w, m);
    } else if (command == IPVS_CMD_GET_SERVICE || command == IPVS_CMD_GET_DEST) {
        dump(w, m, command);
        return;
    } else {
        error = change(w, m, command);
    }
    if (error || m->nlmsg_flags & NLM_F_ACK)
        answer(w, m, error);
}

/* ---- ports ---- */

static bool is_write(const struct gate *g, const struct nlmsghdr *m)
{
    uint8_t command = ((const struct genlmsghdr *)mnl_nlmsg_get_payload(m))->cmd;
    if (g == &g->world->generic)
        return m->nlmsg_type == FAMILY && command != IPVS_CMD_GET_SERVICE &&
               command != IPVS_CMD_GET_DEST;
    if (g == &g->world->route)
        return m->nlmsg_type != RTM_GETLINK && m->nlmsg_type != RTM_GETADDR;
    return (m->nlmsg_type & 0xff) != IPSET_CMD_LIST && (m->nlmsg_type & 0xff) != IPSET_CMD_HEADER;
}

static int gate_send(struct nl_port *p, const void *buf, size_t len)
{
    struct gate *g = (struct gate *)p;
    struct ipvs_world *w = g->world;
    if (!w->left)
        return -EIO;
    w->left--;
    const struct nlmsghdr *m = NULL;
    while ((m = nl_walk(buf, len, m))) {
        w->writes += is_write(g, m);
        if (!g->real)
            play(w, m);
    }
    return g->real ? g->real->ops->send(g->real, buf, len) : 0;
}

static void lose_due(struct ipvs_world *w)
{
    for (size_t i = 0; i < w->due.n; i++)
        free(w->due.v[i].p);
    w->due.n = 0;
}

static ssize_t gate_recv(struct nl_port *p, void *buf, size_t len, int timeout_ms)
{
    struct gate *g = (struct gate *)p;
    struct ipvs_world *w = g->world;
    if (g->real)
        return g->real->ops->recv(g->real, buf, len, timeout_ms);
    if (!w->due.n)
        return -EAGAIN;
    if (w->lose) {
        w->lose = false;
        lose_due(w);
        return -ENOBUFS;
    }
    struct datagram d = w->due.v[0];
    vec_remove(&w->due, 0);
    assert_true(d.n <= len);
    memcpy(buf, d.p, d.n);
    free(d.p);
    return (ssize_t)d.n;
}

static void gate_open(struct gate *g, struct ipvs_world *w, int bus)
{
    static const struct nl_port_ops ops = { .send = gate_send, .recv = gate_recv };
    struct err err = { 0 };
    *g = (struct gate){ .port = { .ops = &ops, .fd = -1 }, .world = w };
    if (bus != NETLINK_GENERIC && nl_open(bus, NULL, &g->real, &err))
        fail_msg("%s", err.text);
}

struct ipvs_world *ipvs_world_new(void)
{
    struct ipvs_world *w = xcalloc(1, sizeof(*w));
    close(netns_new());
    run("ip link add kube-ipvs0 type bridge; ip link set kube-ipvs0 alias portolan:");
    gate_open(&w->route, w, NETLINK_ROUTE);
    gate_open(&w->generic, w, NETLINK_GENERIC);
    gate_open(&w->netfilter, w, NETLINK_NETFILTER);
    w->left = UINT32_MAX;
    return w;
}

void ipvs_world_free(struct ipvs_world *w)
{
    nl_close(w->route.real);
    nl_close(w->netfilter.real);
    for (size_t i = 0; i < w->servers.n; i++)
        vec_done(&w->servers.v[i].dests);
    vec_done(&w->servers);
    vec_done(&w->due);
    buf_done(&w->commands);
    buf_done(&w->text);
    free(w);
}

struct ipvs_ports ipvs_world_ports(struct ipvs_world *w)
{
    return (struct ipvs_ports){ &w->route.port, &w->generic.port, &w->netfilter.port };
}

void ipvs_world_die_after(struct ipvs_world *w, unsigned datagrams)
{
    w->left = datagrams;
}

void ipvs_world_revive(struct ipvs_world *w)
{
    w->left = UINT32_MAX;
}

unsigned ipvs_world_writes(struct ipvs_world *w)
{
    unsigned n = w->writes;
    w->writes = 0;
    return n;
}

const char *ipvs_world_commands(struct ipvs_world *w)
{
    static char text[4096];
    snprintf(text, sizeof(text), "%s", buf_str(&w->commands));
    buf_clear(&w->commands);
    return text;
}

void ipvs_world_refuse(struct ipvs_world *w, uint8_t command, unsigned times, int error)
{
    w->refused = command;
    w->refusals = times;
    w->refusal = error;
}

void ipvs_world_lose_answer(struct ipvs_world *w)
{
    w->lose = true;
}

/* ---- others, and looking ---- */

void ipvs_world_put(struct ipvs_world *w, const struct ipvs_service *s)
{
    assert_int_equal(change_server(w, IPVS_CMD_NEW_SERVICE, s), 0);
}

void ipvs_world_put_dest(struct ipvs_world *w, const struct ipvs_service *s,
                         const struct ipvs_dest *d)
{
    assert_int_equal(change_dest(w, IPVS_CMD_NEW_DEST, s, d), 0);
}

void ipvs_world_connect(struct ipvs_world *w, const char *dest, uint32_t connections)
{
    struct ip ip;
    assert_true(ip_parse(dest, &ip));
    for (size_t i = 0; i < w->servers.n; i++)
        for (size_t j = 0; j < w->servers.v[i].dests.n; j++)
            if (ip_equal(&w->servers.v[i].dests.v[j].ip, &ip))
                w->servers.v[i].dests.v[j].connections = connections;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void put_sorted(struct buf *out, char **lines, size_t n, const char *end)
{
    if (n)
        qsort(lines, n, sizeof(*lines), by_text);
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%s%s", lines[i], end);
}

static char *server_text(struct arena *mem, const struct server *s)
{
    char ip[IP_TEXT_MAX];
    struct buf out = { 0 };
    VEC(char *) dests = { 0 };
    if (s->s.ip.family)
        buf_printf(&out, "%s %s:%u", s->s.protocol == 6 ? "tcp" : "udp", ip_format(&s->s.ip, ip),
                   s->s.port);
    else
        buf_printf(&out, "mark %u", s->s.mark);
    buf_printf(&out, " %s %u:", s->s.scheduler, s->s.persistence);
    for (size_t i = 0; i < s->dests.n; i++) {
        const struct ipvs_dest *d = &s->dests.v[i];
        vec_push(&dests, arena_printf(mem, " %s:%u/%u", ip_format(&d->ip, ip), d->port, d->weight));
    }
    put_sorted(&out, dests.v, dests.n, "");
    char *text = arena_strdup(mem, buf_str(&out));
    vec_done(&dests);
    buf_done(&out);
    return text;
}

const char *ipvs_world_text(struct ipvs_world *w)
{
    struct arena mem = { 0 };
    VEC(char *) lines = { 0 };
    for (size_t i = 0; i < w->servers.n; i++)
        vec_push(&lines, server_text(&mem, &w->servers.v[i]));
    buf_clear(&w->text);
    put_sorted(&w->text, lines.v, lines.n, "\n");
    vec_done(&lines);
    arena_done(&mem);
    return buf_str(&w->text);
}
