#include "kernel/monitor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/filter.h>
#include <linux/if_link.h>
#include <linux/netconf.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "kernel/kernel.h"
#include "model/ipvs.h"
#include "model/names.h"
#include "netlink/nl.h"
#include "netlink/nl_attr.h"

#define NFT_TYPE(t) ((NFNL_SUBSYS_NFTABLES << 8) | (t))

struct monitor {
    struct nl_port *route, *nft;
    bool tables;
    char buf[64 * 1024] __attribute__((aligned(NLMSG_ALIGNTO)));
};

static int filter_routes(int fd, bool tables, uint32_t ifindex, struct err *err);
static int filter_own(int fd, uint32_t own_portid, struct err *err);
static unsigned drain(struct monitor *m, struct nl_port *p,
                      unsigned (*classify)(const struct nlmsghdr *m));
static unsigned classify_route_event(const struct nlmsghdr *m);
static unsigned classify_nft_event(const struct nlmsghdr *m);

int monitor_open(uint32_t own_portid, bool tables, struct monitor **ret, struct err *err)
{
    static const uint32_t route_groups[] = {
        RTNLGRP_LINK,
        RTNLGRP_IPV4_IFADDR,
        RTNLGRP_IPV6_IFADDR,
        RTNLGRP_IPV4_ROUTE,
        RTNLGRP_IPV6_ROUTE,
        RTNLGRP_IPV4_RULE,
        RTNLGRP_IPV6_RULE,
        RTNLGRP_IPV4_NETCONF,
        RTNLGRP_IPV6_NETCONF,
        RTNLGRP_NEIGH,
        0,
    };
    static const uint32_t nft_groups[] = { NFNLGRP_NFTABLES, 0 };
    struct monitor *m = xcalloc(1, sizeof(*m));
    int r = nl_open(NETLINK_ROUTE, route_groups, &m->route, err);
    if (!r)
        r = filter_routes(m->route->fd, tables, 0, err);
    m->tables = tables;
    if (!r)
        r = nl_open(NETLINK_NETFILTER, nft_groups, &m->nft, err);
    if (!r)
        r = filter_own(m->nft->fd, own_portid, err);
    if (r) {
        monitor_close(m);
        err_prefix(err, "cannot watch for changes by others");
        return r;
    }
    *ret = m;
    return 0;
}

void monitor_close(struct monitor *m)
{
    if (!m)
        return;
    nl_close(m->route);
    nl_close(m->nft);
    free(m);
}

int monitor_hear_nft(struct monitor *m, bool on, struct err *err)
{
    uint32_t group = NFNLGRP_NFTABLES;
    int what = on ? NETLINK_ADD_MEMBERSHIP : NETLINK_DROP_MEMBERSHIP;
    if (setsockopt(m->nft->fd, SOL_NETLINK, what, &group, sizeof(group)))
        return err_set(err, errno, "cannot %s hearing of nftables: %s", on ? "begin" : "end",
                       strerror(errno));
    return 0;
}

int monitor_ignore_addresses(struct monitor *m, uint32_t ifindex, struct err *err)
{
    return filter_routes(m->route->fd, m->tables, ifindex, err);
}

int monitor_fd_route(const struct monitor *m)
{
    return m->route->fd;
}

int monitor_fd_nft(const struct monitor *m)
{
    return m->nft->fd;
}

unsigned monitor_read(struct monitor *m)
{
    return drain(m, m->route, classify_route_event) | drain(m, m->nft, classify_nft_event);
}

static int attach(int fd, const struct sock_filter *code, size_t n, struct err *err)
{
    struct sock_fprog program = { .len = (unsigned short)n,
                                  .filter = (struct sock_filter *)(uintptr_t)code };
    if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)))
        return err_set(err, errno, "cannot attach a socket filter: %s", strerror(errno));
    return 0;
}

#define TYPE_AT     offsetof(struct nlmsghdr, nlmsg_type)
#define ROUTE_AT(x) (NLMSG_HDRLEN + offsetof(struct rtmsg, x))
#define INDEX_AT    (NLMSG_HDRLEN + offsetof(struct ifaddrmsg, ifa_index))
#define NEIGH_AT(x) (NLMSG_HDRLEN + offsetof(struct ndmsg, x))

/* A filter loads big endian; netlink types are in host order. Routes are what busy hosts have
 * many changes of: only ours, default routes of table main, and if asked for what others do in further
 * tables come through. Addresses of interface `ifindex` do not; 0 is none's. Neighbours come and go all
 * the time: those that somebody set do, and all that go, since they do not tell any more (entries of
 * forwarding databases do). */
static int filter_routes(int fd, bool tables, uint32_t ifindex, struct err *err)
{
    const struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, TYPE_AT),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htons(RTM_NEWNEIGH), 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htons(RTM_DELNEIGH), 0, 6),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, NEIGH_AT(ndm_family)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_BRIDGE, 0, 3),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, NEIGH_AT(ndm_state)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, htons(NUD_PERMANENT), 1, 0),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htons(RTM_NEWADDR), 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htons(RTM_DELADDR), 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, INDEX_AT),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(ifindex), 12, 11),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htons(RTM_NEWROUTE), 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htons(RTM_DELROUTE), 0, 9),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, ROUTE_AT(rtm_protocol)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RTPROT_PORTOLAN, 7, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RTPROT_BIRD, 7, 0),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, ROUTE_AT(rtm_table)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RT_TABLE_MAIN, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RT_TABLE_LOCAL, 4, 0),
        BPF_STMT(BPF_JMP | BPF_JA, tables ? 2 : 3),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, ROUTE_AT(rtm_dst_len)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    return attach(fd, code, sizeof(code) / sizeof(code[0]), err);
}

/* The kernel joins the notifications of one commit into larger datagrams, all from one sender:
 * the first message's port id speaks for the rest, its table does not. */
static int filter_own(int fd, uint32_t own_portid, struct err *err)
{
    const struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct nlmsghdr, nlmsg_pid)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(own_portid), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
    };
    return attach(fd, code, sizeof(code) / sizeof(code[0]), err);
}

static unsigned drain(struct monitor *m, struct nl_port *p,
                      unsigned (*classify)(const struct nlmsghdr *m))
{
    unsigned events = 0;
    for (;;) {
        ssize_t n = p->ops->recv(p, m->buf, sizeof(m->buf), 0);
        if (n == -EINTR)
            continue;
        if (n == -EAGAIN)
            return events;
        if (n == -ENOBUFS || n == -EMSGSIZE) {
            events |= MONITOR_LOST;
            continue;
        }
        if (n < 0)
            return events | MONITOR_LOST;
        const struct nlmsghdr *x = NULL;
        while ((x = nl_walk(m->buf, (size_t)n, x)))
            events |= classify(x);
    }
}

static unsigned classify_link(const struct nlmsghdr *m)
{
    static const struct nl_policy policy[] = {
        [IFLA_IFNAME] = NL_STRING,
        [IFLA_IFALIAS] = NL_STRING,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    uint32_t vni;
    uint16_t port;
    if (nl_parse(m, sizeof(struct ifinfomsg), policy, NL_POLICY_COUNT(policy), tb))
        return MONITOR_HOST | MONITOR_OURS;
    if (tb[IFLA_IFNAME] && !strcmp(mnl_attr_get_str(tb[IFLA_IFNAME]), IPVS_LINK))
        return m->nlmsg_type == RTM_DELLINK ? MONITOR_IPVS : 0;
    /* By name: a stranger's device that was in the way counts too. By alias: it may have been
     * renamed. */
    bool ours =
        (tb[IFLA_IFNAME] && link_name_parse(mnl_attr_get_str(tb[IFLA_IFNAME]), &vni, &port)) ||
        (tb[IFLA_IFALIAS] && !strncmp(mnl_attr_get_str(tb[IFLA_IFALIAS]), LINK_ALIAS_PREFIX,
                                      strlen(LINK_ALIAS_PREFIX)));
    return ours ? MONITOR_OURS : MONITOR_HOST;
}

static unsigned classify_addr(const struct nlmsghdr *m)
{
    if (mnl_nlmsg_get_payload_len(m) < sizeof(struct ifaddrmsg))
        return 0;
    const struct ifaddrmsg *ifa = mnl_nlmsg_get_payload(m);
    char name[IF_NAMESIZE];
    uint32_t vni;
    uint16_t port;
    /* When the device is gone its own event says so. */
    if (if_indextoname(ifa->ifa_index, name) && link_name_parse(name, &vni, &port))
        return MONITOR_OURS;
    return ifa->ifa_scope == RT_SCOPE_UNIVERSE || ifa->ifa_scope == RT_SCOPE_SITE ? MONITOR_HOST
                                                                                  : 0;
}

static unsigned classify_neigh(const struct nlmsghdr *m)
{
    if (mnl_nlmsg_get_payload_len(m) < sizeof(struct ndmsg))
        return 0;
    const struct ndmsg *ndm = mnl_nlmsg_get_payload(m);
    char name[IF_NAMESIZE];
    return if_indextoname((unsigned)ndm->ndm_ifindex, name) && !strcmp(name, OVERLAY_LINK)
               ? MONITOR_OURS
               : 0;
}

static unsigned classify_rule(const struct nlmsghdr *m)
{
    static const struct nl_policy policy[] = { [FRA_PROTOCOL] = NL_U8 };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    bool ours = !nl_parse(m, sizeof(struct fib_rule_hdr), policy, NL_POLICY_COUNT(policy), tb) &&
                tb[FRA_PROTOCOL] && mnl_attr_get_u8(tb[FRA_PROTOCOL]) == RTPROT_PORTOLAN;
    return ours ? MONITOR_OURS : MONITOR_POLICY;
}

/* The switches for all interfaces; every new interface announces its own. */
static unsigned classify_netconf(const struct nlmsghdr *m)
{
    static const struct nl_policy policy[] = {
        [NETCONFA_IFINDEX] = NL_U32, [NETCONFA_FORWARDING] = NL_U32, [NETCONFA_RP_FILTER] = NL_U32
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    if (nl_parse(m, sizeof(struct netconfmsg), policy, NL_POLICY_COUNT(policy), tb))
        return MONITOR_HOST;
    if (tb[NETCONFA_IFINDEX] &&
        mnl_attr_get_u32(tb[NETCONFA_IFINDEX]) == (uint32_t)NETCONFA_IFINDEX_ALL)
        return MONITOR_HOST;
    return tb[NETCONFA_RP_FILTER] && !tb[NETCONFA_FORWARDING] ? MONITOR_RP_FILTER : 0;
}

static unsigned classify_route_event(const struct nlmsghdr *m)
{
    switch (m->nlmsg_type) {
    case RTM_NEWLINK:
    case RTM_DELLINK:
        return classify_link(m);
    case RTM_NEWADDR:
    case RTM_DELADDR:
        return classify_addr(m);
    case RTM_NEWROUTE:
    case RTM_DELROUTE:
        if (mnl_nlmsg_get_payload_len(m) < sizeof(struct rtmsg))
            return 0;
        const struct rtmsg *rtm = mnl_nlmsg_get_payload(m);
        if (rtm->rtm_protocol == RTPROT_PORTOLAN)
            return MONITOR_OURS;
        return rtm->rtm_table == RT_TABLE_MAIN ? MONITOR_HOST : MONITOR_POLICY;
    case RTM_NEWRULE:
    case RTM_DELRULE:
        return classify_rule(m);
    case RTM_NEWNETCONF:
        return classify_netconf(m);
    case RTM_NEWNEIGH:
    case RTM_DELNEIGH:
        return classify_neigh(m);
    }
    return 0;
}

/* Every message of nftables begins with its table's name: NFTA_TABLE_NAME, NFTA_CHAIN_TABLE,
 * NFTA_RULE_TABLE, NFTA_SET_TABLE, NFTA_SET_ELEM_LIST_TABLE, NFTA_OBJ_TABLE are all 1. */
static unsigned classify_nft_event(const struct nlmsghdr *m)
{
    static const struct nl_policy policy[] = { [NFTA_TABLE_NAME] = NL_STRING };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    if (m->nlmsg_type == NFT_TYPE(NFT_MSG_NEWGEN))
        return MONITOR_GEN;
    if (nl_parse(m, sizeof(struct nfgenmsg), policy, NL_POLICY_COUNT(policy), tb))
        return MONITOR_NFT;
    const struct nfgenmsg *g = mnl_nlmsg_get_payload(m);
    bool ours = g->nfgen_family == NFPROTO_INET && tb[NFTA_TABLE_NAME] &&
                !strcmp(mnl_attr_get_str(tb[NFTA_TABLE_NAME]), PORTOLAN_NFT_TABLE);
    return ours ? MONITOR_NFT : 0;
}
