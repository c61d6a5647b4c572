/* What a node needs beside its Services: its end of the overlay, the way to pods behind other ends,
 * and for each other holder the marks by which replies find back to it. */
#include <stdio.h>

#include "plan/loadbalancer.h"

#define OWNER     "loadbalancer"
#define BRIDGE_NF "net/bridge/bridge-nf-call-iptables"

struct builder {
    struct planner *p;
    struct fabric *f;
    const struct lb_facts *facts;
    struct nft_group_builder *group;
    const char *device; /* the overlay's, as long as the fabric; NULL: there is none */
};

/* ---- problems ---- */

static void node_problem(struct builder *b, const char *node, bool event, const char *field,
                         const char *value, const char *reason, const char *message)
{
    struct arena *a = &b->f->mem;
    vec_push(&b->f->problems, (struct problem){ .kind = KIND_NODE,
                                                .ns = "",
                                                .name = arena_strdup(a, node),
                                                .field = arena_strdup(a, field),
                                                .value = arena_strdup(a, value),
                                                .reason = reason,
                                                .message = arena_strdup(a, message),
                                                .event = event });
}

/* Of a problem that all other nodes see, the first of them by name tells. */
static bool tells_of(const struct lb_facts *f, const struct lb_node *n)
{
    const struct lb_node *first = f->nodes == n ? n + 1 : f->nodes;
    return f->self == first;
}

static const char *why_not_reached(struct builder *b, const struct lb_node *n)
{
    struct arena *a = &b->f->mem;
    return n->rival
               ? arena_printf(a, "node %s has published the same address or hardware address",
                              n->rival)
               : arena_printf(a, "it is not behind %s of this node, or this node's own place there",
                              b->facts->overlay.device);
}

static void peer_problems(struct builder *b, const struct lb_node *n)
{
    const struct lb_facts *f = b->facts;
    struct arena *a = &b->f->mem;
    char text[IP_TEXT_MAX];
    if (n->bad_annotation)
        node_problem(b, n->name, f->nodes == f->self, n->bad_annotation, n->bad_value,
                     "InvalidAnnotation",
                     arena_printf(a, "%s: the node holds no address", n->bad_message));
    if (n == f->self || !n->forwards)
        return;
    if (!n->overlay.family)
        node_problem(b, n->name, tells_of(f, n), ANNOTATION_OVERLAY, "", "HolderWithoutOverlay",
                     "it holds an address and has not published its overlay: replies to what it "
                     "forwards cannot reach it");
    else if (!n->mark)
        node_problem(b, n->name, tells_of(f, n), ANNOTATION_ADDRESSES, "", "TooManyHolders",
                     arena_printf(a,
                                  "it holds an address, and %u other nodes before it by name do: "
                                  "replies to what it forwards cannot reach it",
                                  HOLDER_MARK_MAX - 1));
    else if (f->overlay.device && !lb_overlay_reaches(&f->overlay, n))
        node_problem(b, n->name, tells_of(f, n), ANNOTATION_OVERLAY, ip_format(&n->overlay, text),
                     "InvalidAnnotation",
                     arena_printf(a, "%s: replies to what it forwards cannot reach it",
                                  why_not_reached(b, n)));
}

static void own_problems(struct builder *b)
{
    const struct lb_overlay *o = &b->facts->overlay;
    const char *node = b->p->snap->node;
    struct arena *a = &b->f->mem;
    if (o->trouble)
        node_problem(b, node, true, "overlay", o->trouble_value, "OverlayUnavailable",
                     arena_printf(a,
                                  "%s: this node reaches no pods of other nodes for clients of "
                                  "held addresses, and answers no other holder's",
                                  o->trouble));
    if (o->bridge && b->p->snap->host->bridge_nf_call_iptables < 0)
        node_problem(b, node, true, "sysctl", "net.bridge.bridge-nf-call-iptables",
                     "BridgeNetfilter",
                     arena_printf(a,
                                  "it is not there (module br_netfilter is not loaded): pods on "
                                  "%s cannot answer clients of addresses that other nodes hold",
                                  o->device));
}

/* ---- the overlay ---- */

static void put_sysctl(struct builder *b, const char *path, const char *value, bool restore)
{
    vec_push(&b->f->sysctls,
             (struct desired_sysctl){
                 .owner = OWNER, .path = path, .value = value, .restore = restore });
}

static void put_neighbour(struct builder *b, const struct lb_node *n)
{
    const struct lb_overlay *o = &b->facts->overlay;
    if (n == b->facts->self || !n->internal.family || !lb_overlay_reaches(o, n))
        return;
    struct desired_neigh x = {
        .ifname = OVERLAY_LINK, .owner = OWNER, .ip = n->overlay, .outer = n->internal
    };
    memcpy(x.mac, n->mac, sizeof(x.mac));
    vec_push(&b->f->neighs, x);
}

static void put_vxlan(struct builder *b)
{
    const struct lb_facts *f = b->facts;
    const struct lb_overlay *o = &f->overlay;
    struct desired_link link = {
        .name = OVERLAY_LINK,
        .owner = OWNER,
        .alias = OVERLAY_ALIAS,
        .vni = OVERLAY_VNI,
        .port = OVERLAY_PORT,
        .local = f->self->internal,
        .mtu = b->p->underlay_mtu - VXLAN_OVERHEAD,
    };
    memcpy(link.mac, o->mac, sizeof(link.mac));
    vec_push(&b->f->links, link);
    vec_push(&b->f->addrs,
             (struct desired_addr){
                 .ifname = OVERLAY_LINK, .owner = OWNER, .ip = o->ip, .prefix_len = o->nets->len });
    nft_put_ifname(b->group, NFT_LINKS, OVERLAY_LINK);
    put_sysctl(b, "net/ipv4/conf/" OVERLAY_LINK "/rp_filter", "2", false);
    for (uint32_t i = 0; i < f->n_nodes; i++)
        put_neighbour(b, &f->nodes[i]);
}

static const char *conf(struct builder *b, const char *name)
{
    return arena_printf(&b->f->mem, "net/ipv4/conf/%s/%s", b->device, name);
}

/* Pods' replies to another holder enter and leave by the same device. The pod would be told by ICMP to
 * send all that is for the client there, and would for minutes, whoever forwards its connections by
 * then. And clients are not behind the device from which their packets come off it.
 * A bridge gets another hardware address with another port: neighbours and pods hear of it at once. */
static void put_device(struct builder *b)
{
    put_sysctl(b, "net/ipv4/conf/all/send_redirects", "0", true);
    put_sysctl(b, conf(b, "send_redirects"), "0", true);
    put_sysctl(b, conf(b, "rp_filter"), "2", true);
    put_sysctl(b, conf(b, "arp_notify"), "1", true);
}

static void put_overlay(struct builder *b)
{
    const struct lb_overlay *o = &b->facts->overlay;
    if (!o->device)
        return;
    if (o->vxlan)
        put_vxlan(b);
    else
        put_device(b);
    if (o->bridge && b->p->snap->host->bridge_nf_call_iptables >= 0)
        put_sysctl(b, BRIDGE_NF, "1", true);
}

/* ---- routes ---- */

static void put_route(struct builder *b, uint32_t table, const struct ip_prefix *dst,
                      const struct ip *via)
{
    vec_push(&b->f->routes, (struct desired_route){ .owner = OWNER,
                                                    .type = ROUTE_UNICAST,
                                                    .table = table,
                                                    .dst = *dst,
                                                    .via = *via,
                                                    .ifname = b->device });
}

static void put_rule(struct builder *b, uint32_t priority, uint32_t mark, uint32_t table)
{
    vec_push(&b->f->rules, (struct desired_rule){ .owner = OWNER,
                                                  .family = IP_V4,
                                                  .priority = priority,
                                                  .fwmark = mark,
                                                  .mask = HOLDER_MARK_MASK,
                                                  .table = table });
}

/* What a tunnel sends to the node carries the mark too, and must not go into the tunnel. */
static void put_outer(struct builder *b, uint32_t mark, const struct ip *node)
{
    if (!node->family)
        return;
    put_rule(b, RULE_PRIO_HELD_OUTER, mark, TABLE_MAIN);
    struct desired_rule *r = &b->f->rules.v[b->f->rules.n - 1];
    r->local = r->has_dst = true;
    r->dst = (struct ip_prefix){ *node, 32 };
}

static void put_holder(struct builder *b, const struct lb_node *n)
{
    const struct lb_overlay *o = &b->facts->overlay;
    if (!n->mark || !lb_overlay_reaches(o, n))
        return;
    uint32_t table = HOLDER_TABLE(n->mark);
    nft_put_holder(b->group, n->mac, n->mark);
    put_outer(b, HOLDER_MARK(n->mark), &n->internal);
    put_rule(b, RULE_PRIO_HOLDER, HOLDER_MARK(n->mark), table);
    put_route(b, table, &(struct ip_prefix){ { .family = IP_V4 }, 0 }, &n->overlay);
}

/* A pod in its node's own network. */
static bool is_internal_ip(const struct lb_facts *f, const struct ip *ip)
{
    for (uint32_t i = 0; i < f->n_nodes; i++)
        if (ip_equal(&f->nodes[i].internal, ip))
            return true;
    return false;
}

static int by_endpoint(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct held_route));
}

/* One route to an endpoint, whatever several Services' slices say of it. */
static void put_endpoints(struct builder *b)
{
    const struct service_memo_vec *memos = &b->p->loadbalancer->memos;
    struct held_route_vec v = { 0 };
    for (size_t i = 0; i < memos->n; i++)
        for (size_t j = 0; j < memos->v[i]->n_routes; j++)
            vec_push(&v, memos->v[i]->routes[j]);
    if (v.n > 1)
        qsort(v.v, v.n, sizeof(v.v[0]), by_endpoint);
    for (size_t i = 0; i < v.n; i++) {
        const struct ip *ep = &v.v[i].ep;
        if (i && ip_equal(&v.v[i - 1].ep, ep))
            continue;
        put_route(b, HELD_TABLE, &(struct ip_prefix){ *ep, 32 }, &v.v[i].via);
        if (is_internal_ip(b->facts, ep))
            put_outer(b, HELD_MARK, ep);
    }
    if (v.n)
        put_rule(b, RULE_PRIO_HELD, HELD_MARK, HELD_TABLE);
    vec_done(&v);
}

/* Of somebody else, where the packets that are led on would not meet it. */
static bool skips_others(const struct host *h)
{
    for (uint32_t i = 0; i < h->n_rules; i++)
        if (h->rules[i].family == IP_V4 && h->rules[i].priority >= RULE_PRIO_HELD_SKIP &&
            h->rules[i].priority < RULE_PRIO_HELD_END)
            return true;
    return false;
}

static void put_skip(struct builder *b, size_t n_rules)
{
    if (b->f->rules.n == n_rules || skips_others(b->p->snap->host))
        return;
    vec_push(&b->f->rules, (struct desired_rule){ .owner = OWNER,
                                                  .family = IP_V4,
                                                  .priority = RULE_PRIO_HELD_SKIP,
                                                  .mask = HOLDER_MARK_MASK,
                                                  .action = RULE_GOTO,
                                                  .goto_priority = RULE_PRIO_HELD_END });
    vec_push(&b->f->rules, (struct desired_rule){ .owner = OWNER,
                                                  .family = IP_V4,
                                                  .priority = RULE_PRIO_HELD_END,
                                                  .action = RULE_NOP });
}

void overlay_put(struct planner *p, struct fabric *f)
{
    const char *device = p->loadbalancer->facts.overlay.device;
    struct builder b = { p, f, &p->loadbalancer->facts, nft_group_begin(OWNER),
                         device ? arena_strdup(&f->mem, device) : NULL };
    put_overlay(&b);
    size_t n_rules = f->rules.n;
    for (uint32_t i = 0; i < b.facts->n_nodes; i++) {
        put_holder(&b, &b.facts->nodes[i]);
        peer_problems(&b, &b.facts->nodes[i]);
    }
    put_endpoints(&b);
    put_skip(&b, n_rules);
    own_problems(&b);
    f->loadbalancer = fabric_group(b.group, p->fabric ? p->fabric->loadbalancer : NULL);
}
