#include "kernel/rtnl_kind.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <string.h>

const char *rtnl_word(struct rtnl *r, const char *s)
{
    return rtnl_bytes(r, s, strlen(s) + 1);
}

const void *rtnl_bytes(struct rtnl *r, const void *p, size_t len)
{
    void *bytes = map_get(&r->words, p, len);
    if (!bytes) {
        bytes = arena_alloc(&r->words_mem, len);
        memcpy(bytes, p, len);
        map_put(&r->words, bytes, len, bytes);
    }
    return bytes;
}

void rtnl_known_push(struct rtnl_known *k, const void *object, size_t size)
{
    if (k->n == k->cap)
        k->v = vec_grow(k->v, &k->cap, k->n + 1, size);
    memcpy((char *)k->v + k->n++ * size, object, size);
}

struct nlmsghdr *rtnl_msg(struct rtnl *r, uint16_t type, uint16_t flags, const void *header,
                          size_t len)
{
    nl_buf_clear(&r->msg);
    return nl_msg(&r->msg, type, flags, 0, header, len);
}

int rtnl_talk(struct rtnl *r, struct nlmsghdr *m, struct err *err)
{
    r->report->bytes += m->nlmsg_len;
    return nl_talk(r->port, m, err);
}

bool rtnl_gone(int error)
{
    return error == -ENOENT || error == -ESRCH || error == -ENODEV || error == -EADDRNOTAVAIL;
}

void rtnl_forget_device(struct rtnl *r, const char *ifname, bool only6)
{
    struct rtnl_known *k = &r->known[RTNL_ADDR];
    size_t n = 0;
    struct rtnl_addr *addrs = k->v;
    for (size_t i = 0; i < k->n; i++)
        if (strcmp(addrs[i].d.ifname, ifname) || (only6 && addrs[i].d.ip.family != IP_V6))
            addrs[n++] = addrs[i];
    k->n = n;
    if (!only6)
        rtnl_forget_neighs(r, ifname);
    k = &r->known[RTNL_ROUTE];
    n = 0;
    struct rtnl_route *routes = k->v;
    for (size_t i = 0; i < k->n; i++)
        if (strcmp(routes[i].d.ifname, ifname) || (only6 && routes[i].d.dst.ip.family != IP_V6))
            routes[n++] = routes[i];
    k->n = n;
}

void rtnl_forget_neighs(struct rtnl *r, const char *ifname)
{
    struct rtnl_known *k = &r->known[RTNL_NEIGH];
    size_t n = 0;
    struct rtnl_neigh *neighs = k->v;
    for (size_t i = 0; i < k->n; i++)
        if (strcmp(neighs[i].d.ifname, ifname))
            neighs[n++] = neighs[i];
    k->n = n;
}

const struct rtnl_link *rtnl_link_by_name(const struct rtnl *r, const char *name)
{
    const struct rtnl_link *links = r->known[RTNL_LINK].v;
    for (size_t i = 0; i < r->known[RTNL_LINK].n; i++)
        if (!strcmp(links[i].d.name, name))
            return &links[i];
    return NULL;
}

const struct rtnl_link *rtnl_link_by_index(const struct rtnl_known *known, int ifindex)
{
    const struct rtnl_link *links = known->v;
    for (size_t i = 0; i < known->n; i++)
        if (links[i].ifindex == ifindex)
            return &links[i];
    return NULL;
}
