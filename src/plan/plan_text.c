#include "plan/plan_text.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/timestamp.h"
#include "model/nft_text.h"

static const char *prefix_text(const struct ip_prefix *p, char out[static IP_PREFIX_TEXT_MAX])
{
    if (p->len)
        return ip_prefix_format(p, out);
    snprintf(out, IP_PREFIX_TEXT_MAX, "default");
    return out;
}

static void put_groups(const struct desired *d, struct buf *out)
{
    for (size_t i = 0; i < d->n_groups; i++) {
        const struct nft_group *g = d->groups[i];
        for (const struct nft_elem *e = NULL; (e = nft_group_next(g, e));) {
            buf_printf(out, "element %s %s { ", g->owner, nft_set_defs[e->set].name);
            nft_text_elem(out, e);
            buf_puts(out, " }\n");
        }
    }
}

static void put_ipvs(const struct desired *d, struct buf *out)
{
    for (size_t i = 0; i < d->n_ipvs; i++)
        for (uint32_t j = 0; j < d->ipvs[i]->n; j++) {
            buf_printf(out, "ipvs %s ", d->ipvs[i]->owner);
            ipvs_text_entry(out, &d->ipvs[i]->entries[j]);
            buf_puts(out, "\n");
        }
}

static void put_links(const struct desired *d, struct buf *out)
{
    char text[IP_TEXT_MAX], remote[IP_TEXT_MAX];
    for (size_t i = 0; i < d->n_links; i++) {
        const struct desired_link *l = &d->links[i];
        buf_printf(out, "link %s vni %u port %u local %s remote %s mtu %u", l->name, l->vni,
                   l->port, ip_format(&l->local, text),
                   l->remote.family ? ip_format(&l->remote, remote) : "none", l->mtu);
        buf_printf(out, " mac %02x:%02x:%02x:%02x:%02x:%02x alias \"%s\"\n", l->mac[0], l->mac[1],
                   l->mac[2], l->mac[3], l->mac[4], l->mac[5], l->alias);
    }
    for (size_t i = 0; i < d->n_addrs; i++)
        buf_printf(out, "address %s %s/%u\n", d->addrs[i].ifname, ip_format(&d->addrs[i].ip, text),
                   d->addrs[i].prefix_len);
}

static void put_neighs(const struct desired *d, struct buf *out)
{
    char text[IP_TEXT_MAX];
    for (size_t i = 0; i < d->n_neighs; i++) {
        const struct desired_neigh *n = &d->neighs[i];
        buf_printf(out, "neighbour %s %s mac %02x:%02x:%02x:%02x:%02x:%02x", n->ifname,
                   ip_format(&n->ip, text), n->mac[0], n->mac[1], n->mac[2], n->mac[3], n->mac[4],
                   n->mac[5]);
        if (n->outer.family)
            buf_printf(out, " at %s", ip_format(&n->outer, text));
        buf_puts(out, "\n");
    }
}

static void put_routes(const struct desired *d, struct buf *out)
{
    static const char *const words[] = {
        [ROUTE_UNICAST] = "", [ROUTE_UNREACHABLE] = "unreachable ", [ROUTE_THROW] = "throw "
    };
    char text[IP_PREFIX_TEXT_MAX], via[IP_TEXT_MAX];
    for (size_t i = 0; i < d->n_routes; i++) {
        const struct desired_route *r = &d->routes[i];
        buf_printf(out, "route IPv%u %s%s table %u", r->dst.ip.family, words[r->type],
                   prefix_text(&r->dst, text), r->table);
        if (r->via.family)
            buf_printf(out, " via %s", ip_format(&r->via, via));
        if (*r->ifname)
            buf_printf(out, " dev %s", r->ifname);
        if (r->metric)
            buf_printf(out, " metric %u", r->metric);
        buf_puts(out, "\n");
    }
}

static void put_action(const struct desired_rule *r, struct buf *out)
{
    switch (r->action) {
    case RULE_LOOKUP:
        buf_printf(out, " lookup %u%s\n", r->table,
                   r->suppress_default ? " suppress_prefixlength 0" : "");
        break;
    case RULE_GOTO:
        buf_printf(out, " goto %u\n", r->goto_priority);
        break;
    case RULE_NOP:
        buf_puts(out, " nop\n");
        break;
    }
}

static void put_rules(const struct desired *d, struct buf *out)
{
    char text[IP_PREFIX_TEXT_MAX];
    for (size_t i = 0; i < d->n_rules; i++) {
        const struct desired_rule *r = &d->rules[i];
        buf_printf(out, "rule IPv%u %u:", r->family, r->priority);
        if (r->mask)
            buf_printf(out, " fwmark 0x%x", r->fwmark);
        if (r->mask && r->mask != UINT32_MAX)
            buf_printf(out, "/0x%x", r->mask);
        if (r->local)
            buf_puts(out, " iif lo");
        if (r->has_src)
            buf_printf(out, " from %s", prefix_text(&r->src, text));
        if (r->has_dst)
            buf_printf(out, " to %s", prefix_text(&r->dst, text));
        put_action(r, out);
    }
    for (size_t i = 0; i < d->n_sysctls; i++)
        buf_printf(out, "sysctl %s = %s\n", d->sysctls[i].path, d->sysctls[i].value);
}

static void put_health_checks(const struct desired *d, struct buf *out)
{
    for (size_t i = 0; i < d->n_health_checks; i++) {
        const struct health_check *h = &d->health_checks[i];
        buf_printf(out, "health-check %u %s/%s %u local\n", h->port, h->ns, h->name,
                   h->local_endpoints);
    }
}

static void put_conditions(const char *what, const struct condition_list *l, struct buf *out)
{
    static const char *const status[] = {
        [TRI_UNKNOWN] = "Unknown", [TRI_FALSE] = "False", [TRI_TRUE] = "True"
    };
    char time[TIME_TEXT_MAX];
    for (uint32_t i = 0; i < l->n; i++) {
        const struct condition *c = &l->v[i];
        buf_printf(out, "%s %s=%s %s since %s", what, c->type, status[c->status], c->reason,
                   time_format(c->last_transition, time));
        if (*c->message)
            buf_printf(out, ": %s", c->message);
        buf_puts(out, "\n");
    }
}

static void put_portmap(const struct status_write *w, struct buf *out)
{
    const struct portmap_status *s = &w->portmap;
    struct buf what = { 0 };
    buf_printf(&what, "status PortMap %s/%s", w->ns, w->name);
    buf_printf(out, "%s observedGeneration %" PRId64 "\n", buf_str(&what), s->observed_generation);
    if (s->has_endpoint)
        buf_printf(out, "%s endpoint %s %s\n", buf_str(&what), s->endpoint_node,
                   s->endpoint_address);
    for (uint32_t i = 0; i < s->n_published; i++)
        buf_printf(out, "%s published %s %s %s\n", buf_str(&what), s->published[i].node,
                   s->published[i].interface,
                   *s->published[i].address ? s->published[i].address : "-");
    put_conditions(buf_str(&what), &s->conditions, out);
    buf_done(&what);
}

static void put_row(const struct status_write *w, struct buf *out)
{
    const struct node_row *r = &w->row;
    buf_printf(out, "status PortMapClass %s node %s %s underlayMTU %u linkMTU %u", w->name, r->name,
               r->ready ? "ready" : "not ready", r->underlay_mtu, r->link_mtu);
    for (uint32_t i = 0; i < r->n_addresses; i++)
        buf_printf(out, " %s=%s", r->addresses[i].interface, r->addresses[i].address);
    if (*r->message)
        buf_printf(out, ": %s", r->message);
    buf_puts(out, "\n");
}

static void put_claims(const struct status_write *w, struct buf *out)
{
    char time[TIME_TEXT_MAX];
    buf_printf(out, "status PortMapClass %s links %u\n", w->name, w->n_links);
    for (uint32_t i = 0; i < w->n_links; i++) {
        const struct link_claim *l = &w->links[i];
        buf_printf(out, "status PortMapClass %s link %s slot %u subnet %s", w->name, l->key,
                   l->slot, l->subnet);
        if (l->unused_since)
            buf_printf(out, " unusedSince %s", time_format(l->unused_since, time));
        buf_puts(out, "\n");
    }
}

static void put_class(const struct status_write *w, struct buf *out)
{
    struct buf what = { 0 };
    buf_printf(&what, "status PortMapClass %s", w->name);
    buf_printf(out, "%s observedGeneration %" PRId64 "\n", buf_str(&what), w->observed_generation);
    put_conditions(buf_str(&what), &w->conditions, out);
    for (uint32_t i = 0; i < w->drop_rows.n; i++)
        buf_printf(out, "%s drops node %s\n", buf_str(&what), w->drop_rows.v[i]);
    buf_done(&what);
}

static void put_traffic_row(const char *name, const char *what, const struct traffic_row *r,
                            struct buf *out)
{
    buf_printf(out, "status TrafficClass %s %s %s %s sessions %u/%u", name, what, r->name,
               r->ready ? "ready" : r->reason, r->sessions, r->sessions_expected);
    if (*r->message)
        buf_printf(out, ": %s", r->message);
    buf_puts(out, "\n");
}

static void put_traffic(const struct status_write *w, struct buf *out)
{
    const struct traffic_status *s = &w->traffic;
    struct buf what = { 0 };
    buf_printf(&what, "status TrafficClass %s", w->name);
    buf_printf(out, "%s observedGeneration %" PRId64 " ready %s\n", buf_str(&what),
               s->observed_generation, s->ready);
    put_conditions(buf_str(&what), &s->conditions, out);
    for (uint32_t i = 0; i < s->n_nodes; i++)
        put_traffic_row(w->name, "keeps", &s->nodes[i], out);
    buf_done(&what);
}

static void put_write(const struct status_write *w, struct buf *out)
{
    switch (w->kind) {
    case WRITE_PORTMAP_STATUS:
        put_portmap(w, out);
        return;
    case WRITE_CLASS_ROW:
        put_row(w, out);
        return;
    case WRITE_CLASS_LINKS:
        put_claims(w, out);
        return;
    case WRITE_CLASS_CONDITION:
        put_class(w, out);
        return;
    case WRITE_TRAFFIC_ROW:
        put_traffic_row(w->name, "node", &w->traffic_row, out);
        return;
    case WRITE_TRAFFIC_STATUS:
        put_traffic(w, out);
        return;
    case WRITE_NODE_ANNOTATIONS:
        buf_printf(out, "annotate Node %s addresses=%s overlay=%s\n", w->name, w->addresses,
                   w->overlay);
        return;
    case WRITE_SERVICE_STATUS:
        buf_printf(out, "status Service %s/%s ingress %s\n", w->ns, w->name,
                   *w->ingress ? w->ingress : "none");
        return;
    }
}

static void put_problem(const struct problem *p, struct buf *out)
{
    buf_printf(out, "problem %s %s%s%s %s", kind_info[p->kind].kind, p->ns, *p->ns ? "/" : "",
               p->name, p->field);
    if (*p->value)
        buf_printf(out, " \"%s\"", p->value);
    buf_printf(out, " %s: %s\n", p->reason, p->message);
}

void plan_text(const struct plan *plan, const struct status_writes *writes, struct buf *out)
{
    put_groups(&plan->desired, out);
    put_ipvs(&plan->desired, out);
    put_links(&plan->desired, out);
    put_neighs(&plan->desired, out);
    put_routes(&plan->desired, out);
    put_rules(&plan->desired, out);
    put_health_checks(&plan->desired, out);
    for (size_t i = 0; i < writes->n; i++)
        put_write(&writes->v[i], out);
    for (size_t i = 0; i < plan->problems.n; i++)
        put_problem(&plan->problems.v[i], out);
}
