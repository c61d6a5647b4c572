#include "model/host.h"

#include <string.h>

const struct host_iface *host_iface_find(const struct host *h, const char *name)
{
    for (uint32_t i = 0; i < h->n_ifaces; i++)
        if (!strcmp(h->ifaces[i].name, name))
            return &h->ifaces[i];
    return NULL;
}

const struct host_iface *host_address_owner(const struct host *h, const struct ip *ip)
{
    for (uint32_t i = 0; i < h->n_ifaces; i++)
        for (uint32_t j = 0; j < h->ifaces[i].n_addresses; j++)
            if (ip_equal(&h->ifaces[i].addresses[j].ip, ip))
                return &h->ifaces[i];
    return NULL;
}

static bool iface_equal(const struct host_iface *a, const struct host_iface *b)
{
    if (strcmp(a->name, b->name) || a->mtu != b->mtu || a->up != b->up ||
        a->default4 != b->default4 || a->default6 != b->default6 || a->accept_ra != b->accept_ra ||
        a->rp_filter != b->rp_filter || memcmp(a->mac, b->mac, sizeof(a->mac)) != 0 ||
        a->bridge != b->bridge || a->n_addresses != b->n_addresses)
        return false;
    for (uint32_t i = 0; i < a->n_addresses; i++) {
        const struct host_address *x = &a->addresses[i], *y = &b->addresses[i];
        if (!ip_equal(&x->ip, &y->ip) || x->prefix_len != y->prefix_len ||
            x->temporary != y->temporary || x->deprecated != y->deprecated)
            return false;
    }
    return true;
}

static bool prefix_equal(const struct ip_prefix *a, const struct ip_prefix *b)
{
    return a->len == b->len && ip_equal(&a->ip, &b->ip);
}

static bool policy_equal(const struct host *a, const struct host *b)
{
    if (a->n_rules != b->n_rules || a->n_foreign_tables != b->n_foreign_tables)
        return false;
    for (uint32_t i = 0; i < a->n_rules; i++) {
        const struct host_rule *x = &a->rules[i], *y = &b->rules[i];
        if (x->family != y->family || x->priority != y->priority || x->has_src != y->has_src ||
            x->has_dst != y->has_dst || !prefix_equal(&x->src, &y->src) ||
            !prefix_equal(&x->dst, &y->dst) || x->selective != y->selective ||
            strcmp(x->text, y->text))
            return false;
    }
    for (uint32_t i = 0; i < a->n_foreign_tables; i++)
        if (a->foreign_tables[i].table != b->foreign_tables[i].table ||
            a->foreign_tables[i].protocol != b->foreign_tables[i].protocol)
            return false;
    return true;
}

bool host_equal(const struct host *a, const struct host *b)
{
    if (a->n_ifaces != b->n_ifaces || a->forwarding4 != b->forwarding4 ||
        a->forwarding6 != b->forwarding6 ||
        a->bridge_nf_call_iptables != b->bridge_nf_call_iptables || a->ipv6 != b->ipv6 ||
        strcmp(a->forwarding4_error, b->forwarding4_error) ||
        strcmp(a->forwarding6_error, b->forwarding6_error) || !policy_equal(a, b))
        return false;
    for (uint32_t i = 0; i < a->n_ifaces; i++)
        if (!iface_equal(&a->ifaces[i], &b->ifaces[i]))
            return false;
    return true;
}
