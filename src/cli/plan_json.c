#include "cli/plan_json.h"

#include <stdio.h>

#include "base/timestamp.h"
#include "model/nft_text.h"
#include "source/codec.h"

static void put(struct writer *w, const char *key, const char *value)
{
    writer_key(w, key);
    writer_string(w, value);
}

static void put_int(struct writer *w, const char *key, int64_t value)
{
    writer_key(w, key);
    writer_int(w, value);
}

static void put_ip(struct writer *w, const char *key, const struct ip *ip)
{
    char text[IP_TEXT_MAX];
    put(w, key, ip_format(ip, text));
}

static void put_prefix(struct writer *w, const char *key, const struct ip *ip, uint8_t len)
{
    char text[IP_PREFIX_TEXT_MAX];
    put(w, key, ip_prefix_format(&(struct ip_prefix){ *ip, len }, text));
}

static void put_mac(struct writer *w, const uint8_t mac[static 6])
{
    char text[18];
    snprintf(text, sizeof(text), "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3],
             mac[4], mac[5]);
    put(w, "mac", text);
}

static void begin_list(struct writer *w, const char *key)
{
    writer_key(w, key);
    writer_list(w);
}

/* ---- kernel objects ---- */

static void ruleset(struct writer *w, const struct plan_options *options, const struct desired *d)
{
    const struct nft_table table = plan_ruleset(options);
    struct buf text = { 0 };
    nft_text_table(&text, &table);
    nft_text_elements(&text, &table, d->groups, d->n_groups);
    put(w, "ruleset", buf_str(&text));
    buf_done(&text);
}

static void ipvs_entries(struct writer *w, const struct ipvs_group *g)
{
    struct buf text = { 0 };
    writer_key(w, "entries");
    writer_list(w);
    for (uint32_t i = 0; i < g->n; i++) {
        buf_clear(&text);
        ipvs_text_entry(&text, &g->entries[i]);
        writer_string(w, buf_str(&text));
    }
    writer_list_end(w);
    buf_done(&text);
}

static void ipvs(struct writer *w, const struct desired *d)
{
    if (!d->ipvs_node)
        return;
    writer_key(w, "ipvs");
    writer_map(w);
    begin_list(w, "groups");
    for (size_t i = 0; i < d->n_ipvs; i++) {
        writer_map(w);
        put(w, "owner", d->ipvs[i]->owner);
        ipvs_entries(w, d->ipvs[i]);
        writer_map_end(w);
    }
    writer_list_end(w);
    put(w, "iptables", d->ipvs_node->rules4);
    put(w, "ip6tables", d->ipvs_node->rules6);
    writer_map_end(w);
}

static void links(struct writer *w, const struct desired *d)
{
    begin_list(w, "links");
    for (size_t i = 0; i < d->n_links; i++) {
        const struct desired_link *l = &d->links[i];
        writer_map(w);
        put(w, "name", l->name);
        put(w, "owner", l->owner);
        put_int(w, "vni", l->vni);
        put_int(w, "port", l->port);
        put_ip(w, "local", &l->local);
        if (l->remote.family)
            put_ip(w, "remote", &l->remote);
        put_int(w, "mtu", l->mtu);
        put_mac(w, l->mac);
        writer_map_end(w);
    }
    writer_list_end(w);
}

static void addresses(struct writer *w, const struct desired *d)
{
    begin_list(w, "addresses");
    for (size_t i = 0; i < d->n_addrs; i++) {
        writer_map(w);
        put(w, "interface", d->addrs[i].ifname);
        put_prefix(w, "address", &d->addrs[i].ip, d->addrs[i].prefix_len);
        put(w, "owner", d->addrs[i].owner);
        writer_map_end(w);
    }
    writer_list_end(w);
}

static void neighbours(struct writer *w, const struct desired *d)
{
    begin_list(w, "neighbours");
    for (size_t i = 0; i < d->n_neighs; i++) {
        const struct desired_neigh *n = &d->neighs[i];
        writer_map(w);
        put(w, "interface", n->ifname);
        put_ip(w, "address", &n->ip);
        put_mac(w, n->mac);
        if (n->outer.family)
            put_ip(w, "outer", &n->outer);
        put(w, "owner", n->owner);
        writer_map_end(w);
    }
    writer_list_end(w);
}

static void routes(struct writer *w, const struct desired *d)
{
    static const char *const types[] = {
        [ROUTE_UNICAST] = "unicast", [ROUTE_UNREACHABLE] = "unreachable", [ROUTE_THROW] = "throw"
    };
    begin_list(w, "routes");
    for (size_t i = 0; i < d->n_routes; i++) {
        const struct desired_route *r = &d->routes[i];
        writer_map(w);
        put(w, "type", types[r->type]);
        put_prefix(w, "destination", &r->dst.ip, r->dst.len);
        put_int(w, "table", r->table);
        if (r->via.family)
            put_ip(w, "via", &r->via);
        if (*r->ifname)
            put(w, "interface", r->ifname);
        if (r->metric)
            put_int(w, "metric", r->metric);
        put(w, "owner", r->owner);
        writer_map_end(w);
    }
    writer_list_end(w);
}

static void put_action(struct writer *w, const struct desired_rule *r)
{
    switch (r->action) {
    case RULE_LOOKUP:
        put_int(w, "table", r->table);
        if (r->suppress_default)
            put_int(w, "suppressPrefixLength", 0);
        break;
    case RULE_GOTO:
        put(w, "action", "goto");
        put_int(w, "goto", r->goto_priority);
        break;
    case RULE_NOP:
        put(w, "action", "nop");
        break;
    }
}

static void rules(struct writer *w, const struct desired *d)
{
    begin_list(w, "rules");
    for (size_t i = 0; i < d->n_rules; i++) {
        const struct desired_rule *r = &d->rules[i];
        writer_map(w);
        put_int(w, "family", r->family);
        put_int(w, "priority", r->priority);
        if (r->mask)
            put_int(w, "fwmark", r->fwmark);
        if (r->mask && r->mask != UINT32_MAX)
            put_int(w, "fwmask", r->mask);
        if (r->has_src)
            put_prefix(w, "source", &r->src.ip, r->src.len);
        if (r->has_dst)
            put_prefix(w, "destination", &r->dst.ip, r->dst.len);
        put_action(w, r);
        put(w, "owner", r->owner);
        writer_map_end(w);
    }
    writer_list_end(w);
}

static void sysctls(struct writer *w, const struct desired *d)
{
    begin_list(w, "sysctls");
    for (size_t i = 0; i < d->n_sysctls; i++) {
        writer_map(w);
        put(w, "path", d->sysctls[i].path);
        put(w, "value", d->sysctls[i].value);
        put(w, "owner", d->sysctls[i].owner);
        writer_map_end(w);
    }
    writer_list_end(w);
}

static void health_checks(struct writer *w, const struct desired *d)
{
    begin_list(w, "healthChecks");
    for (size_t i = 0; i < d->n_health_checks; i++) {
        const struct health_check *h = &d->health_checks[i];
        writer_map(w);
        put_int(w, "port", h->port);
        put(w, "namespace", h->ns);
        put(w, "service", h->name);
        put_int(w, "localEndpoints", h->local_endpoints);
        writer_map_end(w);
    }
    writer_list_end(w);
}

/* ---- what is owed to the API ---- */

static void conditions(struct writer *w, const struct condition_list *list)
{
    static const char *const status[] = { "Unknown", "False", "True" };
    begin_list(w, "conditions");
    for (uint32_t i = 0; i < list->n; i++) {
        writer_map(w);
        put(w, "type", list->v[i].type);
        put(w, "status", status[list->v[i].status]);
        put(w, "reason", list->v[i].reason);
        put(w, "message", list->v[i].message);
        writer_map_end(w);
    }
    writer_list_end(w);
}

static void portmap_status(struct writer *w, const struct portmap_status *s)
{
    if (s->has_endpoint) {
        writer_key(w, "endpoint");
        writer_map(w);
        put(w, "node", s->endpoint_node);
        put(w, "address", s->endpoint_address);
        writer_map_end(w);
    }
    begin_list(w, "published");
    for (uint32_t i = 0; i < s->n_published; i++) {
        writer_map(w);
        put(w, "node", s->published[i].node);
        put(w, "interface", s->published[i].interface);
        put(w, "address", s->published[i].address);
        writer_map_end(w);
    }
    writer_list_end(w);
    conditions(w, &s->conditions);
}

static void node_row(struct writer *w, const struct node_row *r)
{
    writer_key(w, "node");
    writer_map(w);
    put(w, "name", r->name);
    writer_key(w, "ready");
    writer_bool(w, r->ready);
    put(w, "message", r->message);
    put_int(w, "underlayMTU", r->underlay_mtu);
    put_int(w, "linkMTU", r->link_mtu);
    writer_key(w, "addresses");
    writer_map(w);
    for (uint32_t i = 0; i < r->n_addresses; i++)
        put(w, r->addresses[i].interface, r->addresses[i].address);
    writer_map_end(w);
    writer_map_end(w);
}

static void traffic_row(struct writer *w, const struct traffic_row *r)
{
    writer_key(w, "node");
    writer_map(w);
    put(w, "name", r->name);
    writer_key(w, "ready");
    writer_bool(w, r->ready);
    put(w, "reason", r->reason);
    put(w, "message", r->message);
    put_int(w, "sessions", r->sessions);
    put_int(w, "sessionsExpected", r->sessions_expected);
    writer_map_end(w);
}

static void claims(struct writer *w, const struct link_claim *v, uint32_t n)
{
    char time[TIME_TEXT_MAX];
    begin_list(w, "links");
    for (uint32_t i = 0; i < n; i++) {
        writer_map(w);
        put(w, "key", v[i].key);
        put(w, "subnet", v[i].subnet);
        put_int(w, "slot", v[i].slot);
        if (v[i].unused_since)
            put(w, "unusedSince", time_format(v[i].unused_since, time));
        writer_map_end(w);
    }
    writer_list_end(w);
}

static void status_write(struct writer *w, const struct status_write *s)
{
    writer_map(w);
    put(w, "kind", kind_info[status_write_target(s->kind)].kind);
    if (*s->ns)
        put(w, "namespace", s->ns);
    put(w, "name", s->name);
    switch (s->kind) {
    case WRITE_PORTMAP_STATUS:
        portmap_status(w, &s->portmap);
        break;
    case WRITE_CLASS_ROW:
        node_row(w, &s->row);
        break;
    case WRITE_CLASS_LINKS:
        claims(w, s->links, s->n_links);
        break;
    case WRITE_CLASS_CONDITION:
        conditions(w, &s->conditions);
        break;
    case WRITE_TRAFFIC_ROW:
        traffic_row(w, &s->traffic_row);
        break;
    case WRITE_TRAFFIC_STATUS:
        put(w, "ready", s->traffic.ready);
        conditions(w, &s->traffic.conditions);
        break;
    case WRITE_NODE_ANNOTATIONS:
        put(w, "addresses", s->addresses);
        put(w, "overlay", s->overlay);
        break;
    case WRITE_SERVICE_STATUS:
        put(w, "ingress", s->ingress);
        break;
    }
    writer_map_end(w);
}

static void problem(struct writer *w, const struct problem *p)
{
    writer_map(w);
    put(w, "kind", kind_info[p->kind].kind);
    if (*p->ns)
        put(w, "namespace", p->ns);
    put(w, "name", p->name);
    put(w, "field", p->field);
    put(w, "value", p->value);
    put(w, "reason", p->reason);
    put(w, "message", p->message);
    writer_map_end(w);
}

void plan_print_json(const struct plan_options *options, const struct plan *plan,
                     const struct status_writes *writes)
{
    struct buf out = { 0 };
    struct writer *w = writer_json_new(&out, true);
    writer_map(w);
    if (plan_needs_nft(options))
        ruleset(w, options, &plan->desired);
    ipvs(w, &plan->desired);
    links(w, &plan->desired);
    addresses(w, &plan->desired);
    neighbours(w, &plan->desired);
    routes(w, &plan->desired);
    rules(w, &plan->desired);
    sysctls(w, &plan->desired);
    health_checks(w, &plan->desired);
    begin_list(w, "statuses");
    for (size_t i = 0; i < writes->n; i++)
        status_write(w, &writes->v[i]);
    writer_list_end(w);
    begin_list(w, "problems");
    for (size_t i = 0; i < plan->problems.n; i++)
        problem(w, &plan->problems.v[i]);
    writer_list_end(w);
    writer_map_end(w);
    writer_free(w);
    puts(buf_str(&out));
    buf_done(&out);
}
