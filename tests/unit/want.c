#include "want.h"

#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "model/names.h"

struct ip want_end(unsigned slot, unsigned side, bool ipv6)
{
    struct ip base, ip;
    assert_true(ip_parse(ipv6 ? "fd64:f5ac:e961::" : "169.254.77.0", &base));
    assert_true(ip_add(&base, 2 * slot + side, &ip));
    return ip;
}

const char *want_name(struct want *w, unsigned slot, uint16_t port)
{
    if (!port || port == LINK_DEFAULT_PORT)
        return arena_printf(&w->mem, "pl%u", 4242 + slot);
    return arena_printf(&w->mem, "pl%up%x", 4242 + slot, port);
}

static void want_rule(struct want *w, const char *owner, uint8_t family, uint32_t priority,
                      uint32_t mark, const struct ip *to, uint32_t table)
{
    struct desired_rule r = {
        .owner = owner,
        .family = family,
        .priority = priority,
        .fwmark = mark,
        .mask = UINT32_MAX,
        .table = table,
    };
    if (to) {
        r.has_dst = true;
        r.dst = (struct ip_prefix){ .ip = *to, .len = ip_bits(to->family) };
    }
    vec_push(&w->rules, r);
}

static void want_family(struct want *w, const struct want_slot *s, const char *name,
                        const char *owner, bool ipv6)
{
    uint32_t table = LINK_TABLE_BASE + s->slot;
    uint8_t family = ipv6 ? IP_V6 : IP_V4;
    vec_push(&w->addrs, (struct desired_addr){ .ifname = name,
                                               .owner = owner,
                                               .ip = want_end(s->slot, s->side, ipv6),
                                               .prefix_len = ipv6 ? 127 : 31 });
    vec_push(&w->routes, (struct desired_route){ .owner = owner,
                                                 .type = ROUTE_UNICAST,
                                                 .table = table,
                                                 .dst = { .ip = { .family = family } },
                                                 .via = want_end(s->slot, !s->side, ipv6),
                                                 .ifname = name });
    want_rule(w, owner, family, RULE_PRIO_LINK, LINK_MARK_BASE | s->slot, NULL, table);
}

void want_slot(struct want *w, struct want_slot s)
{
    const char *name = want_name(w, s.slot, s.port);
    const char *owner = arena_printf(&w->mem, "class/public link %u", s.slot);
    struct desired_link l = {
        .name = name,
        .owner = owner,
        .alias = arena_printf(&w->mem, "portolan: class public link %u", s.slot),
        .vni = 4242 + s.slot,
        .port = s.port ? s.port : LINK_DEFAULT_PORT,
        .local = s.local,
        .remote = s.remote,
        .mtu = s.mtu,
        .mac = { 2, 0x6b, 0x70, (uint8_t)s.side, (uint8_t)(s.slot >> 8), (uint8_t)s.slot },
    };
    vec_push(&w->links, l);
    want_family(w, &s, name, owner, false);
    if (s.ipv6)
        want_family(w, &s, name, owner, true);
    want_rule(w, owner, IP_V4, RULE_PRIO_OUTER, LINK_MARK_BASE | s.slot, &s.remote, 254);
}

static void overlay_mac(uint8_t self, uint8_t ret[static 6])
{
    memcpy(ret, (const uint8_t[6]){ 0x02, 0x6b, 169, 254, 96, self }, 6);
}

void want_overlay(struct want *w, uint8_t self, struct ip local)
{
    struct desired_link l = {
        .name = OVERLAY_LINK,
        .owner = "node",
        .alias = OVERLAY_ALIAS,
        .vni = OVERLAY_VNI,
        .port = OVERLAY_PORT,
        .local = local,
        .mtu = 1400,
    };
    overlay_mac(self, l.mac);
    vec_push(&w->links, l);
    vec_push(&w->addrs, (struct desired_addr){ .ifname = OVERLAY_LINK,
                                               .owner = "node",
                                               .ip = ip_v4(169, 254, 96, self),
                                               .prefix_len = 19 });
}

void want_peer(struct want *w, uint8_t peer, struct ip outer)
{
    struct desired_neigh n = {
        .ifname = OVERLAY_LINK, .owner = "node", .ip = ip_v4(169, 254, 96, peer), .outer = outer
    };
    overlay_mac(peer, n.mac);
    vec_push(&w->neighs, n);
}

void want_unreachable(struct want *w, const char *prefix)
{
    struct desired_route r = {
        .owner = "node", .type = ROUTE_UNREACHABLE, .table = 254, .ifname = ""
    };
    assert_true(ip_prefix_parse(prefix, &r.dst));
    vec_push(&w->routes, r);
}

#define SORTED(vec, cmp) ((vec)->n ? qsort((vec)->v, (vec)->n, sizeof((vec)->v[0]), cmp) : (void)0)

static int cmp_link(const void *a, const void *b)
{
    return desired_link_cmp(a, b);
}
static int cmp_addr(const void *a, const void *b)
{
    return desired_addr_cmp(a, b);
}
static int cmp_neigh(const void *a, const void *b)
{
    return desired_neigh_cmp(a, b);
}
static int cmp_route(const void *a, const void *b)
{
    return desired_route_cmp(a, b);
}
static int cmp_rule(const void *a, const void *b)
{
    return desired_rule_cmp(a, b);
}

const struct desired *want_finish(struct want *w)
{
    SORTED(&w->links, cmp_link);
    SORTED(&w->addrs, cmp_addr);
    SORTED(&w->neighs, cmp_neigh);
    SORTED(&w->routes, cmp_route);
    SORTED(&w->rules, cmp_rule);
    w->d = (struct desired){
        .links = w->links.v,
        .n_links = w->links.n,
        .addrs = w->addrs.v,
        .n_addrs = w->addrs.n,
        .neighs = w->neighs.v,
        .n_neighs = w->neighs.n,
        .routes = w->routes.v,
        .n_routes = w->routes.n,
        .rules = w->rules.v,
        .n_rules = w->rules.n,
    };
    return &w->d;
}

void want_done(struct want *w)
{
    vec_done(&w->links);
    vec_done(&w->addrs);
    vec_done(&w->neighs);
    vec_done(&w->routes);
    vec_done(&w->rules);
    arena_done(&w->mem);
}
