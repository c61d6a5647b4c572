#include <arpa/inet.h>
#include <errno.h>
#include <linux/ip_vs.h>
#include <string.h>

#include "kernel/ipvs_genl.h"
#include "kernel/ipvs_impl.h"

/* ---- addresses ---- */

static int read_device(struct ipvs *v, struct err *err)
{
    int r = ipvs_device_read(v->ports.route, &v->device, err);
    for (size_t i = 0; !r && i < v->device.addresses.n; i++) {
        const struct ip *ip = &v->device.addresses.v[i];
        struct ipvs_entry e = { .key = { .kind = IPVS_BOUND, .family = ip->family, .ip = *ip } };
        ipvs_store_has(&v->store, &e, false);
    }
    return r;
}

/* ---- servers ---- */

struct server {
    struct ipvs_entry entry;
    bool odd;
};
struct servers {
    VEC(struct server) v;
};

static struct ipvs_entry server_entry(const struct ipvs_service *s, bool *ret_odd)
{
    struct ipvs_entry e = { .key = { .kind = IPVS_SERVER,
                                     .family = s->family,
                                     .proto = s->protocol,
                                     .port = s->port,
                                     .ip = s->ip },
                            .timeout = s->persistence };
    enum ipvs_scheduler scheduler = IPVS_RR;
    *ret_odd = s->odd || !ipvs_scheduler_parse(s->scheduler, &scheduler);
    e.scheduler = (uint8_t)scheduler;
    return e;
}

static int on_server(const struct nlmsghdr *m, void *user)
{
    struct servers *found = user;
    struct ipvs_service s;
    struct server x;
    if (ipvs_genl_service(m, &s))
        return -EBADMSG;
    if (!s.ip.family)
        return 0;
    x.entry = server_entry(&s, &x.odd);
    vec_push(&found->v, x);
    return 0;
}

static void on_servers_again(void *user)
{
    ((struct servers *)user)->v.n = 0;
}

static bool has(const struct ipvs *v, const struct ipvs_key *k)
{
    uint32_t i = ipvs_store_find(&v->store, k);
    return i != IPVS_NONE && v->store.records.v[i].state & IPVS_HAS;
}

static bool is_listed(const struct ipvs *v, const struct ipvs_key *server)
{
    static const enum ipvs_set sets[] = {
        KUBE_CLUSTER_IP,           KUBE_EXTERNAL_IP,         KUBE_EXTERNAL_IP_LOCAL,
        KUBE_LOAD_BALANCER,        KUBE_LOAD_BALANCER_LOCAL, KUBE_NODE_PORT_SCTP,
        KUBE_NODE_PORT_LOCAL_SCTP, KUBE_NODE_PORT_TCP,       KUBE_NODE_PORT_LOCAL_TCP,
        KUBE_NODE_PORT_UDP,        KUBE_NODE_PORT_LOCAL_UDP,
    };
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        struct ipvs_key k = { .kind = IPVS_SET_ENTRY,
                              .set = (uint8_t)sets[i],
                              .family = server->family,
                              .port = server->port };
        bool tcp = sets[i] == KUBE_NODE_PORT_TCP || sets[i] == KUBE_NODE_PORT_LOCAL_TCP;
        bool bitmap = ipvs_set_defs[sets[i]].type == IPSET_BITMAP_PORT;
        if (bitmap && server->proto != (tcp ? IPPROTO_TCP : IPPROTO_UDP))
            continue;
        if (!bitmap) {
            k.proto = server->proto;
            k.ip = server->ip;
        }
        if (has(v, &k))
            return true;
    }
    return false;
}

static bool is_ours(const struct ipvs *v, const struct ipvs_key *server)
{
    struct ipvs_key bound = { .kind = IPVS_BOUND, .family = server->family, .ip = server->ip };
    uint32_t i = ipvs_store_find(&v->store, server);
    if (i != IPVS_NONE && v->store.records.v[i].wanted)
        return true;
    for (size_t j = 0; j < v->settings.n_exclude; j++)
        if (ip_prefix_contains(&v->settings.exclude[j], &server->ip))
            return false;
    return i != IPVS_NONE || has(v, &bound) || is_listed(v, server);
}

/* ---- destinations ---- */

struct dests {
    struct ipvs *v;
    const struct ipvs_key *server;
};

static struct ipvs_entry dest_entry(const struct ipvs_key *server, const struct ipvs_dest *d)
{
    struct ipvs_entry e = { .key = *server, .weight = d->weight };
    e.key.kind = IPVS_DEST;
    e.key.other = d->ip;
    e.key.dest_port = d->port;
    return e;
}

static int on_dest(const struct nlmsghdr *m, void *user)
{
    struct dests *x = user;
    struct ipvs_dest d;
    if (ipvs_genl_dest(m, &d))
        return -EBADMSG;
    struct ipvs_entry e = dest_entry(x->server, &d);
    ipvs_store_has(&x->v->store, &e, d.odd);
    return 0;
}

/* One server's, which is rare: whatever was told stays, and the next audit finds it gone. */
static int on_busy(const struct nlmsghdr *m, void *user)
{
    struct dests *x = user;
    struct ipvs_dest d;
    if (ipvs_genl_dest(m, &d))
        return -EBADMSG;
    struct ipvs_entry e = dest_entry(x->server, &d);
    uint32_t i = ipvs_store_find(&x->v->store, &e.key);
    if (i != IPVS_NONE && d.connections)
        x->v->store.records.v[i].state |= IPVS_BUSY;
    return 0;
}

static int dump_dests(struct ipvs *v, const struct ipvs_key *server,
                      int (*cb)(const struct nlmsghdr *m, void *user), struct err *err)
{
    struct dests x = { v, server };
    const struct ipvs_service s = {
        .family = server->family, .protocol = server->proto, .port = server->port, .ip = server->ip
    };
    nl_buf_clear(&v->buf);
    struct nlmsghdr *m = ipvs_genl_msg(&v->buf, v->ports.generic, v->genl, IPVS_CMD_GET_DEST, 0);
    ipvs_genl_put_service(m, &s, false);
    return nl_dump(v->ports.generic, m, cb, NULL, &x, err);
}

int ipvs_read_busy(struct ipvs *v, const struct ipvs_key *server, struct err *err)
{
    return dump_dests(v, server, on_busy, err);
}

static int read_servers(struct ipvs *v, struct err *err)
{
    struct servers found = { 0 };
    nl_buf_clear(&v->buf);
    int r = nl_dump(v->ports.generic,
                    ipvs_genl_msg(&v->buf, v->ports.generic, v->genl, IPVS_CMD_GET_SERVICE, 0),
                    on_server, on_servers_again, &found, err);
    for (size_t i = 0; i < found.v.n && !r; i++) {
        const struct server *s = &found.v.v[i];
        if (!is_ours(v, &s->entry.key))
            continue;
        ipvs_store_has(&v->store, &s->entry, s->odd);
        r = dump_dests(v, &s->entry.key, on_dest, err);
        if (r == -ESRCH) /* it went in between */
            r = 0;
    }
    vec_done(&found.v);
    return r;
}

/* The sets and addresses first: by them a server is ours. */
int ipvs_read(struct ipvs *v, struct err *err)
{
    ipvs_store_forget_all(&v->store);
    v->drains.n = 0;
    int r = ipvs_sets_read(v, err);
    if (!r)
        r = read_device(v, err);
    if (!r)
        r = read_servers(v, err);
    if (r)
        err_prefix(err, "what IPVS has");
    return r;
}
