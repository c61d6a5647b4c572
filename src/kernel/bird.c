#include "kernel/bird.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <string.h>

#include "base/vec.h"
#include "netlink/nl_attr.h"

struct found {
    const uint32_t *tables;
    size_t n;
    struct arena mem;
    VEC(struct nlmsghdr *) routes; /* as dumped */
    VEC(size_t) at;                /* index in `tables` of each */
    size_t before;                 /* routes of the other family */
};

static int on_route(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = { [RTA_TABLE] = NL_U32 };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct found *f = user;
    if (m->nlmsg_type != RTM_NEWROUTE ||
        nl_parse(m, sizeof(struct rtmsg), policy, NL_POLICY_COUNT(policy), tb))
        return 0;
    const struct rtmsg *rtm = mnl_nlmsg_get_payload(m);
    uint32_t table = tb[RTA_TABLE] ? mnl_attr_get_u32(tb[RTA_TABLE]) : rtm->rtm_table;
    size_t i = 0;
    while (i < f->n && f->tables[i] != table)
        i++;
    if (i == f->n || rtm->rtm_protocol != RTPROT_BIRD || rtm->rtm_flags & RTM_F_CLONED)
        return 0;
    struct nlmsghdr *copy = arena_alloc(&f->mem, m->nlmsg_len);
    memcpy(copy, m, m->nlmsg_len);
    vec_push(&f->routes, copy);
    vec_push(&f->at, i);
    return 0;
}

static void on_restart(void *user)
{
    struct found *f = user;
    f->routes.n = f->at.n = f->before;
}

static int find_routes(struct nl_port *port, struct found *f, struct err *err)
{
    static const uint8_t families[] = { AF_INET, AF_INET6 };
    int e = 0;
    for (size_t i = 0; i < sizeof(families) && !e; i++) {
        struct rtmsg rtm = { .rtm_family = families[i], .rtm_protocol = RTPROT_BIRD };
        struct nl_buf b = { 0 };
        f->before = f->routes.n;
        e = nl_dump(port, nl_msg(&b, RTM_GETROUTE, 0, 0, &rtm, sizeof(rtm)), on_route, on_restart,
                    f, err);
        nl_buf_done(&b);
        if (e == -ENOENT || (families[i] == AF_INET6 && (e == -EAFNOSUPPORT || e == -EOPNOTSUPP)))
            e = 0;
    }
    if (e)
        err_prefix(err, "cannot read BIRD's routes");
    return e;
}

static void found_done(struct found *f)
{
    arena_done(&f->mem);
    vec_done(&f->routes);
    vec_done(&f->at);
}

/* The route as it was dumped is all that tells it from another of ours with its destination. */
static int delete_route(struct nl_port *port, const struct nlmsghdr *route, struct err *err)
{
    struct nl_buf b = { 0 };
    int e = nl_talk(port,
                    nl_msg(&b, RTM_DELROUTE, 0, 0, mnl_nlmsg_get_payload(route),
                           mnl_nlmsg_get_payload_len(route)),
                    err);
    nl_buf_done(&b);
    return e == -ESRCH || e == -ENOENT ? 0 : e;
}

int bird_flush_routes(struct nl_port *port, const uint32_t *tables, size_t n, struct err *err)
{
    struct found f = { .tables = tables, .n = n };
    int r = find_routes(port, &f, err), flushed = 0;
    for (size_t i = 0; i < f.routes.n; i++) {
        struct err one;
        int e = delete_route(port, f.routes.v[i], &one);
        if (!e)
            flushed++;
        else if (!r)
            r = err_set(err, -e, "cannot delete one of BIRD's routes: %s", one.text);
    }
    found_done(&f);
    return r ? r : flushed;
}

int bird_count_routes(struct nl_port *port, const uint32_t *tables, size_t n, uint32_t *ret_counts,
                      struct err *err)
{
    struct found f = { .tables = tables, .n = n };
    int r = find_routes(port, &f, err);
    memset(ret_counts, 0, n * sizeof(ret_counts[0]));
    for (size_t i = 0; i < f.at.n && !r; i++)
        ret_counts[f.at.v[i]]++;
    found_done(&f);
    return r;
}
