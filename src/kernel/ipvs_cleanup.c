#include <errno.h>
#include <linux/ip_vs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/ipset.h"
#include "kernel/ipvs_genl.h"
#include "kernel/ipvs_impl.h"

struct found {
    struct ipvs_device device; /* its addresses in order */
    uint16_t genl;
    VEC(struct ipvs_service) services;
};

static int read_service(const struct nlmsghdr *m, void *user)
{
    struct ipvs_service s;
    if (ipvs_genl_service(m, &s))
        return -EBADMSG;
    vec_push(&((struct found *)user)->services, s);
    return 0;
}

static void forget_services(void *user)
{
    ((struct found *)user)->services.n = 0;
}

static int find_services(struct nl_port *generic, struct found *f, struct err *err)
{
    struct nl_buf b = { 0 };
    int r = ipvs_genl_family(generic, &f->genl, err);
    if (!r && f->genl)
        r = nl_dump(generic, ipvs_genl_msg(&b, generic, f->genl, IPVS_CMD_GET_SERVICE, 0),
                    read_service, forget_services, f, err);
    nl_buf_done(&b);
    return r;
}

static int delete_service(struct nl_port *generic, uint16_t genl, const struct ipvs_service *s,
                          struct err *err)
{
    struct nl_buf b = { 0 };
    struct nlmsghdr *m = ipvs_genl_msg(&b, generic, genl, IPVS_CMD_DEL_SERVICE, 0);
    ipvs_genl_put_service(m, s, false);
    int r = nl_talk(generic, m, err);
    nl_buf_done(&b);
    return r;
}

static int by_ip(const void *a, const void *b)
{
    return ip_cmp(a, b);
}

static bool on_device(const struct found *f, const struct ip *ip)
{
    return f->device.addresses.n &&
           bsearch(ip, f->device.addresses.v, f->device.addresses.n, sizeof(struct ip), by_ip);
}

static void put_service_line(const struct ipvs_service *s, const char *sign, const char *rest,
                             struct buf *out)
{
    char ip[IP_TEXT_MAX];
    buf_printf(out, "%s ipvs service ", sign);
    if (s->ip.family)
        buf_printf(out, s->ip.family == IP_V6 ? "%s [%s]:%u" : "%s %s:%u",
                   s->protocol == L4_TCP   ? "tcp"
                   : s->protocol == L4_UDP ? "udp"
                                           : "sctp",
                   ip_format(&s->ip, ip), s->port);
    else
        buf_printf(out, "of mark 0x%x", s->mark);
    buf_printf(out, "%s\n", rest);
}

static int clean_service(struct nl_port *generic, const struct found *f,
                         const struct ipvs_service *s, bool dry_run, struct buf *out,
                         struct err *err)
{
    bool theirs = on_device(f, &s->ip);
    int r = theirs && !dry_run ? delete_service(generic, f->genl, s, err) : 0;
    if (!r && theirs)
        put_service_line(s, "-", "", out);
    else if (!r)
        put_service_line(s, "!", " stays, because its address is not of " IPVS_LINK, out);
    return r;
}

int ipvs_kubeproxy_cleanup(struct nl_port *route, struct nl_port *generic, bool dry_run,
                           struct buf *out, struct err *err)
{
    struct found f = { 0 };
    int r = ipvs_device_read(route, &f.device, err);
    if (!r && f.device.index)
        r = find_services(generic, &f, err);
    if (f.device.addresses.n)
        qsort(f.device.addresses.v, f.device.addresses.n, sizeof(struct ip), by_ip);
    for (size_t i = 0; i < f.services.n && !r; i++)
        r = clean_service(generic, &f, &f.services.v[i], dry_run, out, err);
    if (!r && f.device.index && !dry_run)
        r = ipvs_device_delete(route, &f.device, err);
    if (!r && f.device.index)
        buf_puts(out, "- link " IPVS_LINK "\n");
    if (r)
        err_prefix(err, "kube-proxy's IPVS services and " IPVS_LINK);
    ipvs_device_done(&f.device);
    vec_done(&f.services);
    return r;
}

/* ---- ours ---- */

int ipvs_is_ours(struct nl_port *route, bool *ret, struct err *err)
{
    struct ipvs_device d = { 0 };
    int r = ipvs_device_read(route, &d, err);
    *ret = !r && d.index && d.ours;
    ipvs_device_done(&d);
    return r;
}

/* Nothing is wanted: all servers of ours go. */
static int delete_servers(struct ipvs *v, bool dry_run, struct buf *out, struct err *err)
{
    struct ipvs_ops ops = { 0 };
    int r = ipvs_genl_family(v->ports.generic, &v->genl, err);
    if (r || !v->genl)
        return r;
    r = ipvs_read(v, err);
    if (!r)
        ipvs_difference(v, &ops);
    const struct ipvs_list *servers = &ops.of[IPVS_DELETE][IPVS_SERVER];
    for (size_t i = 0; i < servers->n && !r; i++) {
        const struct ipvs_key *k = &v->store.records.v[servers->v[i]].entry.key;
        const struct ipvs_service s = {
            .family = k->family, .protocol = k->proto, .port = k->port, .ip = k->ip
        };
        r = dry_run ? 0 : delete_service(v->ports.generic, v->genl, &s, err);
        if (!r)
            put_service_line(&s, "-", "", out);
    }
    ipvs_ops_done(&ops);
    return r;
}

int ipvs_cleanup(const struct ipvs_ports *ports, bool dry_run, struct buf *out, struct err *err)
{
    static const struct ipvs_settings settings;
    struct ipvs *v = ipvs_new(ports, &settings);
    int r = ipvs_device_read(ports->route, &v->device, err);
    bool ours = !r && v->device.index && v->device.ours;
    if (ours)
        r = delete_servers(v, dry_run, out, err);
    if (!r && ours) /* by them a server is ours: they go after the last of them */
        r = ipset_cleanup(ports->netfilter, KUBEPROXY_OURS, dry_run, out, err);
    if (!r && ours && !dry_run)
        r = ipvs_device_delete(ports->route, &v->device, err);
    if (!r && ours)
        buf_puts(out, "- link " IPVS_LINK "\n");
    ipvs_free(v);
    return r;
}
