#include "model/desired.h"

#include <string.h>

#define CMP(a, b) (((a) > (b)) - ((a) < (b)))
#define RETURN_IF(c)     \
    do {                 \
        int cmp_ = (c);  \
        if (cmp_)        \
            return cmp_; \
    } while (0)

static int prefix_cmp(const struct ip_prefix *a, const struct ip_prefix *b)
{
    RETURN_IF(ip_cmp(&a->ip, &b->ip));
    return CMP(a->len, b->len);
}

int desired_link_cmp(const struct desired_link *a, const struct desired_link *b)
{
    return strcmp(a->name, b->name);
}

int desired_addr_cmp(const struct desired_addr *a, const struct desired_addr *b)
{
    RETURN_IF(strcmp(a->ifname, b->ifname));
    return ip_cmp(&a->ip, &b->ip);
}

int desired_neigh_cmp(const struct desired_neigh *a, const struct desired_neigh *b)
{
    RETURN_IF(strcmp(a->ifname, b->ifname));
    return ip_cmp(&a->ip, &b->ip);
}

int desired_route_cmp(const struct desired_route *a, const struct desired_route *b)
{
    RETURN_IF(CMP(a->dst.ip.family, b->dst.ip.family));
    RETURN_IF(CMP(a->table, b->table));
    RETURN_IF(prefix_cmp(&a->dst, &b->dst));
    RETURN_IF(CMP((int)a->type, (int)b->type));
    return CMP(a->metric, b->metric);
}

int desired_rule_cmp(const struct desired_rule *a, const struct desired_rule *b)
{
    RETURN_IF(CMP(a->family, b->family));
    RETURN_IF(CMP(a->priority, b->priority));
    RETURN_IF(CMP(a->fwmark, b->fwmark));
    RETURN_IF(CMP(a->mask, b->mask));
    RETURN_IF(CMP(a->local, b->local));
    RETURN_IF(CMP(a->has_src, b->has_src));
    if (a->has_src)
        RETURN_IF(prefix_cmp(&a->src, &b->src));
    RETURN_IF(CMP(a->has_dst, b->has_dst));
    if (a->has_dst)
        RETURN_IF(prefix_cmp(&a->dst, &b->dst));
    RETURN_IF(CMP((int)a->action, (int)b->action));
    RETURN_IF(CMP(a->table, b->table));
    RETURN_IF(CMP(a->suppress_default, b->suppress_default));
    return CMP(a->goto_priority, b->goto_priority);
}

int desired_sysctl_cmp(const struct desired_sysctl *a, const struct desired_sysctl *b)
{
    return strcmp(a->path, b->path);
}
