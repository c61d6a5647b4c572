#include "plan/ipvs_rules.h"

#include <stdio.h>
#include <string.h>

#define NAT    "nat"
#define FILTER "filter"

#define DST     "dst,dst"
#define DST_SRC "dst,dst,src"

#define NEW     " -m conntrack --ctstate NEW"
#define TCP     " -p tcp"
#define FROM_US " -m addrtype --src-type LOCAL"
#define NOT_US  " -m addrtype ! --src-type LOCAL"
#define TO_US   " -m addrtype --dst-type LOCAL"
#define MASQ    "KUBE-MARK-MASQ"
/* An ICMP error is lost on a client of this machine, whose socket is busy sending: it connects again
 * after a second. */
#define RESET    "REJECT --reject-with tcp-reset"
#define DROP_BIT 15 /* what the kubelet, too, takes to have packets dropped */

struct rules {
    struct buf *out;
    const struct plan_options *options;
    uint8_t family;
    bool knows_pods;
};

/* ---- one rule ---- */

static void rule(const struct rules *r, const char *chain, const char *matches, const char *target)
{
    buf_printf(r->out, "-A %s%s -j %s\n", chain, matches, target);
}

/* `before` and `after`: further matches. */
static void put_set_rule(const struct rules *r, const char *chain, const char *before,
                         enum ipvs_set set, const char *fields, const char *after,
                         const char *target)
{
    buf_printf(r->out, "-A %s%s -m comment --comment \"%s\" -m set --match-set %s %s%s -j %s\n",
               chain, before, ipvs_set_defs[set].comment, ipvs_set_name(set, r->family), fields,
               after, target);
}

static void set_rule(const struct rules *r, const char *chain, enum ipvs_set set,
                     const char *fields, const char *target)
{
    put_set_rule(r, chain, "", set, fields, "", target);
}

static uint32_t masquerade_mark(const struct rules *r)
{
    return UINT32_C(1) << r->options->masquerade_bit;
}

static uint32_t drop_mark(const struct rules *r)
{
    return UINT32_C(1) << (r->options->masquerade_bit == DROP_BIT ? DROP_BIT - 1 : DROP_BIT);
}

static void begin_table(const struct rules *r, const char *table)
{
    buf_printf(r->out, "*%s\n", table);
    for (size_t i = 0; i < IPVS_CHAIN_COUNT; i++)
        if (!strcmp(ipvs_chains[i].table, table))
            buf_printf(r->out, ":%s - [0:0]\n", ipvs_chains[i].name);
}

#define MATCH_MAX 96

static const char *match(const struct rules *r, enum ipvs_set set, const char *negation,
                         const char *fields, char out[static MATCH_MAX])
{
    snprintf(out, MATCH_MAX, " -m set%s --match-set %s %s", negation, ipvs_set_name(set, r->family),
             fields);
    return out;
}

/* ---- table nat ---- */

/* What may be Local is not masqueraded, unless endpoints of other nodes serve it, whose replies would
 * find the client by another way, or this node itself dials: its address may be the service's. */
static void put_local(const struct rules *r, const char *chain, const char *before,
                      enum ipvs_set set, const char *fields, const char *target)
{
    char elsewhere[MATCH_MAX];
    match(r, KUBE_DROP_OUTSIDE, "", DST, elsewhere);
    put_set_rule(r, chain, before, set, fields, elsewhere, MASQ);
    put_set_rule(r, chain, before, set, fields, FROM_US, MASQ);
    put_set_rule(r, chain, before, set, fields, "", target);
}

static void put_cluster_ip(const struct rules *r)
{
    char not_pods[MATCH_MAX];
    if (r->options->masquerade_all)
        set_rule(r, "KUBE-SERVICES", KUBE_CLUSTER_IP, DST, MASQ);
    else if (r->knows_pods)
        put_set_rule(r, "KUBE-SERVICES", "", KUBE_CLUSTER_IP, DST,
                     match(r, KUBE_POD_RANGE, " !", "src", not_pods), MASQ);
    else /* this node, which takes the very address it dials for its own */
        set_rule(r, "KUBE-SERVICES", KUBE_CLUSTER_IP, "src,dst", MASQ);
}

/* Where a Service answers, accepting ends the look at others' rules: nobody translates once more. */
static void put_services(const struct rules *r)
{
    static const char chain[] = "KUBE-SERVICES";
    rule(r, chain, r->family == IP_V6 ? " -s ::1/128" : " -s 127.0.0.0/8", "RETURN");
    set_rule(r, chain, KUBE_LOAD_BALANCER, DST, "KUBE-LOAD-BALANCER");
    put_cluster_ip(r);
    put_local(r, chain, "", KUBE_EXTERNAL_IP_LOCAL, DST, "ACCEPT");
    set_rule(r, chain, KUBE_EXTERNAL_IP, DST, MASQ);
    set_rule(r, chain, KUBE_EXTERNAL_IP, DST, "ACCEPT");
    rule(r, chain, TO_US, "KUBE-NODE-PORT");
    set_rule(r, chain, KUBE_CLUSTER_IP, DST, "ACCEPT");
    set_rule(r, chain, KUBE_LOAD_BALANCER, DST, "ACCEPT");
}

static void put_load_balancers(const struct rules *r)
{
    static const char chain[] = "KUBE-LOAD-BALANCER", firewall[] = "KUBE-FIREWALL";
    set_rule(r, chain, KUBE_LOAD_BALANCER_FW, DST, firewall);
    put_local(r, chain, "", KUBE_LOAD_BALANCER_LOCAL, DST, "RETURN");
    rule(r, chain, "", MASQ);
    set_rule(r, firewall, KUBE_LOAD_BALANCER_SRC_CIDR, DST_SRC, "RETURN");
    set_rule(r, firewall, KUBE_LOAD_BALANCER_SOURCE_IP, DST_SRC, "RETURN");
    rule(r, firewall, "", "KUBE-MARK-DROP");
}

static void put_node_ports(const struct rules *r)
{
    static const char chain[] = "KUBE-NODE-PORT";
    put_local(r, chain, TCP, KUBE_NODE_PORT_LOCAL_TCP, "dst", "RETURN");
    put_set_rule(r, chain, TCP, KUBE_NODE_PORT_TCP, "dst", "", MASQ);
    put_local(r, chain, " -p udp", KUBE_NODE_PORT_LOCAL_UDP, "dst", "RETURN");
    put_set_rule(r, chain, " -p udp", KUBE_NODE_PORT_UDP, "dst", "", MASQ);
    put_local(r, chain, " -p sctp", KUBE_NODE_PORT_LOCAL_SCTP, DST, "RETURN");
    put_set_rule(r, chain, " -p sctp", KUBE_NODE_PORT_SCTP, DST, "", MASQ);
}

static void put_marks(const struct rules *r)
{
    uint32_t masquerade = masquerade_mark(r), drop = drop_mark(r);
    buf_printf(r->out, "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x%x/0x%x\n", masquerade, masquerade);
    buf_printf(r->out, "-A KUBE-MARK-DROP -j MARK --set-xmark 0x%x/0x%x\n", drop, drop);
    set_rule(r, "KUBE-POSTROUTING", KUBE_LOOP_BACK, DST_SRC, "MASQUERADE");
    buf_printf(r->out, "-A KUBE-POSTROUTING -m mark ! --mark 0x%x/0x%x -j RETURN\n", masquerade,
               masquerade);
    buf_printf(r->out, "-A KUBE-POSTROUTING -j MARK --set-xmark 0x%x/0x0\n", masquerade);
    rule(r, "KUBE-POSTROUTING", "", "MASQUERADE --random-fully");
}

/* ---- table filter ---- */

static void put_forward(const struct rules *r)
{
    static const char chain[] = "KUBE-FORWARD";
    rule(r, chain, " -m conntrack --ctstate INVALID", "DROP");
    buf_printf(r->out,
               "-A %s -m comment --comment \"kubernetes forwarding rules\" -m mark --mark "
               "0x%x/0x%x -j ACCEPT\n",
               chain, masquerade_mark(r), masquerade_mark(r));
    rule(r, chain,
         " -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate "
         "RELATED,ESTABLISHED",
         "ACCEPT");
}

/* And refuses what a server without destinations would refuse by ICMP. */
static void put_firewall(const struct rules *r)
{
    static const char chain[] = "KUBE-SOURCE-RANGES-FIREWALL";
    set_rule(r, "KUBE-PROXY-FIREWALL", KUBE_LOAD_BALANCER_FW, DST, chain);
    set_rule(r, chain, KUBE_LOAD_BALANCER_SRC_CIDR, DST_SRC, "RETURN");
    set_rule(r, chain, KUBE_LOAD_BALANCER_SOURCE_IP, DST_SRC, "RETURN");
    rule(r, chain, "", "DROP");
    put_set_rule(r, "KUBE-PROXY-FIREWALL", TCP NEW, KUBE_REJECT, DST, "", RESET);
}

/* Before IPVS, which takes what arrives after table filter has let it in. */
static void put_access(const struct rules *r)
{
    static const char chain[] = "KUBE-IPVS-FILTER";
    char not_pods[MATCH_MAX] = "", outside[MATCH_MAX + sizeof(NOT_US)];
    if (r->knows_pods)
        match(r, KUBE_POD_RANGE, " !", "src", not_pods);
    snprintf(outside, sizeof(outside), NOT_US "%s", not_pods);
    put_set_rule(r, chain, NEW, KUBE_DROP, DST, "", "DROP");
    put_set_rule(r, chain, NEW, KUBE_DROP_OUTSIDE, DST, outside, "DROP");
    set_rule(r, chain, KUBE_LOAD_BALANCER, DST, "RETURN");
    set_rule(r, chain, KUBE_CLUSTER_IP, DST, "RETURN");
    set_rule(r, chain, KUBE_EXTERNAL_IP, DST, "RETURN");
    set_rule(r, chain, KUBE_EXTERNAL_IP_LOCAL, DST, "RETURN");
    set_rule(r, chain, KUBE_HEALTH_CHECK_NODE_PORT, "dst", "RETURN");
    put_set_rule(r, chain, TCP NEW, KUBE_IPVS_IPS, "dst", "", RESET);
    put_set_rule(r, chain, NEW, KUBE_IPVS_IPS, "dst", "",
                 r->family == IP_V6 ? "REJECT --reject-with icmp6-port-unreachable"
                                    : "REJECT --reject-with icmp-port-unreachable");
}

/* What this node itself may not dial: IPVS has translated it by now, the mark is from before. */
static void put_leaving(const struct rules *r)
{
    buf_printf(r->out, "-A KUBE-IPVS-OUT-FILTER -m mark --mark 0x%x/0x%x -j DROP\n", drop_mark(r),
               drop_mark(r));
}

/* ---- all ---- */

void ipvs_rules(const struct plan_options *options, uint8_t family, bool knows_pods,
                struct buf *out)
{
    const struct rules r = { out, options, family, knows_pods };
    begin_table(&r, NAT);
    put_services(&r);
    put_load_balancers(&r);
    put_node_ports(&r);
    put_marks(&r);
    buf_puts(out, "COMMIT\n");
    begin_table(&r, FILTER);
    put_forward(&r);
    set_rule(&r, "KUBE-NODE-PORT", KUBE_HEALTH_CHECK_NODE_PORT, "dst", "ACCEPT");
    put_firewall(&r);
    put_access(&r);
    put_leaving(&r);
    buf_puts(out, "COMMIT\n");
}
