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
        a->n_addresses != b->n_addresses)
        return false;
    for (uint32_t i = 0; i < a->n_addresses; i++) {
        const struct host_address *x = &a->addresses[i], *y = &b->addresses[i];
        if (!ip_equal(&x->ip, &y->ip) || x->prefix_len != y->prefix_len ||
            x->temporary != y->temporary || x->deprecated != y->deprecated)
            return false;
    }
    return true;
}

bool host_equal(const struct host *a, const struct host *b)
{
    if (a->n_ifaces != b->n_ifaces || a->forwarding4 != b->forwarding4 ||
        a->forwarding6 != b->forwarding6 || a->ipv6 != b->ipv6 ||
        strcmp(a->forwarding4_error, b->forwarding4_error) ||
        strcmp(a->forwarding6_error, b->forwarding6_error))
        return false;
    for (uint32_t i = 0; i < a->n_ifaces; i++)
        if (!iface_equal(&a->ifaces[i], &b->ifaces[i]))
            return false;
    return true;
}
