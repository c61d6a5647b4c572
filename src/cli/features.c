#include "cli/features.h"

#include <string.h>

#include "source/shape.h"

#define SERVICEPROXY "serviceproxy"
#define TRAFFICCLASS "trafficclass"
#define LOADBALANCER "loadbalancer"
#define KNOWN        "known: portmap, " SERVICEPROXY ", " TRAFFICCLASS ", " LOADBALANCER
/* The first bit of the packet mark's top byte, which tells holders apart (HOLDER_MARK). */
#define HOLDER_BIT 24

#define IPVS_OPTIONS                                                                   \
    "scheduling-method", "weight", "node-address", "strict-arp", "ipvs-exclude-cidrs", \
        "iptables-mode"

static bool is(const char *text, size_t n, const char *word)
{
    return strlen(word) == n && !strncmp(word, text, n);
}

static int read_list(const struct cli_command *cmd, struct features *ret)
{
    const char *list = ret->list;
    if (!*list)
        return cli_usage(cmd, "--features: it is empty; " KNOWN);
    while (*list) {
        size_t n = strcspn(list, ",");
        bool portmap = is(list, n, "portmap"), serviceproxy = is(list, n, SERVICEPROXY),
             trafficclass = is(list, n, TRAFFICCLASS), loadbalancer = is(list, n, LOADBALANCER);
        if (!portmap && !serviceproxy && !trafficclass && !loadbalancer)
            return cli_usage(cmd, "--features: '%.*s' is unknown; " KNOWN, (int)n, list);
        ret->plan.portmap |= portmap;
        ret->plan.serviceproxy |= serviceproxy;
        ret->plan.trafficclass |= trafficclass;
        ret->plan.loadbalancer |= loadbalancer;
        list += n + (list[n] == ',');
    }
    return CLI_DONE;
}

/* An option that would do nothing is most likely a mistake. */
static int check_unused(const struct cli_command *cmd, const struct plan_options *plan)
{
    const struct {
        const char *feature;
        bool on;
        const char *options[13];
    } all[] = {
        { SERVICEPROXY,
          plan->serviceproxy,
          { "proxy-mode", "cluster-cidr", "detect-local-mode", "nodeport-addresses",
            "masquerade-all", "masquerade-bit", IPVS_OPTIONS } },
        { LOADBALANCER, plan->loadbalancer, { "overlay", "overlay-subnet", "address-exclude" } },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        for (const char *const *name = all[i].options; !all[i].on && *name; name++)
            if (cli_given(cmd, *name))
                return cli_usage(cmd, "--%s: it goes with --features %s only", *name,
                                 all[i].feature);
    return CLI_DONE;
}

int cli_features_unused(const struct cli_command *cmd, const char *name)
{
    return cli_usage(cmd, "--%s: it goes with --features " SERVICEPROXY " only", name);
}

static int read_mode(const struct cli_command *cmd, struct features *ret)
{
    const char *mode = cli_value(cmd, "proxy-mode");
    if (!strcmp(mode, "ipvs"))
        ret->plan.proxy_mode = PROXY_IPVS;
    else if (strcmp(mode, "nft") && strcmp(mode, "nftables"))
        return cli_usage(cmd, "--proxy-mode %s: nft or ipvs is needed", mode);
    return CLI_DONE;
}

static int read_cidrs(const struct cli_command *cmd, const char *name, struct arena *mem,
                      const struct ip_prefix **ret, size_t *ret_n)
{
    const char *text = cli_value(cmd, name);
    size_t n = 1, k = 0;
    for (const char *p = text; *p; p++)
        n += *p == ',';
    struct ip_prefix *v = arena_new_array(mem, n, struct ip_prefix);
    while (*text) {
        size_t len = strcspn(text, ",");
        char *one = arena_strndup(mem, text, len);
        if (!ip_prefix_parse(one, &v[k]))
            return cli_usage(cmd,
                             "--%s: '%s' is no CIDR; such as 10.244.0.0/16 or fd00:10::/56 "
                             "is needed, several with commas",
                             name, one);
        v[k] = ip_prefix_masked(&v[k]);
        k++;
        text += len + (text[len] == ',');
    }
    *ret = v;
    *ret_n = k;
    return CLI_DONE;
}

/* Who is a pod is asked of the ranges, or of the Node. */
static int read_local_mode(const struct cli_command *cmd, struct features *ret)
{
    const char *mode = cli_value(cmd, "detect-local-mode");
    if (!strcmp(mode, "NodeCIDR")) {
        ret->plan.node_cidr = true;
        if (cli_given(cmd, "cluster-cidr"))
            return cli_usage(cmd, "--cluster-cidr: it goes with --detect-local-mode ClusterCIDR "
                                  "only");
        return CLI_DONE;
    }
    if (!strcmp(mode, "BridgeInterface") || !strcmp(mode, "InterfaceNamePrefix"))
        return cli_usage(cmd,
                         "--detect-local-mode %s: this version knows ClusterCIDR and NodeCIDR "
                         "only",
                         mode);
    if (strcmp(mode, "ClusterCIDR"))
        return cli_usage(cmd, "--detect-local-mode %s: ClusterCIDR or NodeCIDR is needed", mode);
    return read_cidrs(cmd, "cluster-cidr", &ret->mem, &ret->plan.cluster_cidrs,
                      &ret->plan.n_cluster_cidrs);
}

static int read_overlay(const struct cli_command *cmd, struct features *ret)
{
    const char *name = cli_value(cmd, "overlay");
    const char *subnet = cli_value(cmd, "overlay-subnet");
    bool vxlan = !strcmp(name, OVERLAY_VXLAN);
    struct ip_prefix p;
    if (!*name)
        return cli_usage(cmd,
                         "--overlay is needed with --features " LOADBALANCER
                         ": the name of an L2 overlay's bridge, such as weave, or " OVERLAY_VXLAN
                         " for one of our own");
    if (!vxlan && check_interface(name))
        return cli_usage(cmd, "--overlay '%s': %s, or " OVERLAY_VXLAN ", is needed", name,
                         check_interface(name));
    if (!vxlan && cli_given(cmd, "overlay-subnet"))
        return cli_usage(cmd, "--overlay-subnet: it goes with --overlay " OVERLAY_VXLAN " only");
    if (!ip_prefix_parse(subnet, &p) || p.ip.family != IP_V4 || p.len > 30)
        return cli_usage(cmd,
                         "--overlay-subnet: '%s' is no IPv4 CIDR of /30 or larger; such "
                         "as " OVERLAY_SUBNET " is needed",
                         subnet);
    ret->plan.overlay = name;
    ret->plan.overlay_subnet = ip_prefix_masked(&p);
    return CLI_DONE;
}

static void read_excludes(const struct cli_command *cmd, struct features *ret)
{
    const char *text = cli_value(cmd, "address-exclude");
    size_t n = 1, k = 0;
    for (const char *p = text; *p; p++)
        n += *p == ',';
    const char **v = arena_new_array(&ret->mem, n, const char *);
    while (*text) {
        size_t len = strcspn(text, ",");
        if (len)
            v[k++] = arena_strndup(&ret->mem, text, len);
        text += len + (text[len] == ',');
    }
    ret->plan.address_exclude = v;
    ret->plan.n_address_exclude = k;
}

static int read_load_balancer(const struct cli_command *cmd, struct features *ret)
{
    if (!ret->plan.loadbalancer)
        return CLI_DONE;
    if (ret->plan.masquerade_bit >= HOLDER_BIT)
        return cli_usage(cmd,
                         "--masquerade-bit %u: with --features " LOADBALANCER " it is below %d: "
                         "the marks of the nodes that hold addresses take the bits from there on",
                         ret->plan.masquerade_bit, HOLDER_BIT);
    read_excludes(cmd, ret);
    return read_overlay(cmd, ret);
}

/* ---- of IPVS ---- */

static int check_unused_ipvs(const struct cli_command *cmd)
{
    static const char *const names[] = { IPVS_OPTIONS };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (cli_given(cmd, names[i]))
            return cli_usage(cmd, "--%s: it goes with --proxy-mode ipvs only", names[i]);
    return CLI_DONE;
}

static int read_scheduler(const struct cli_command *cmd, struct ipvs_options *ret)
{
    const char *name = cli_value(cmd, "scheduling-method");
    unsigned weight;
    if (!ipvs_scheduler_parse(name, &ret->scheduler))
        return cli_usage(cmd,
                         "--scheduling-method %s: one of rr, wrr, lc, wlc, lblc, lblcr, dh, sh, "
                         "seq (sed), nq is needed",
                         name);
    int r = cli_number(cmd, "weight", 1, 65535, &weight);
    if (!r)
        ret->weight = weight;
    return r;
}

static int read_node_addresses(const struct cli_command *cmd, struct features *ret)
{
    static const char name[] = "node-address";
    const char *text = cli_value(cmd, name);
    if (cli_given(cmd, name) && cli_given(cmd, "nodeport-addresses"))
        return cli_usage(cmd, "--%s: it does not go together with --nodeport-addresses", name);
    size_t n = 1, k = 0;
    for (const char *p = text; *p; p++)
        n += *p == ',';
    struct ip *v = arena_new_array(&ret->mem, n, struct ip);
    for (size_t i = 0; i < n && cli_given(cmd, name); i++) {
        size_t len = strcspn(text, ",");
        char *one = arena_strndup(&ret->mem, text, len);
        if (!ip_parse(one, &v[k]))
            return cli_usage(cmd,
                             "--%s: '%s' is no IP address; such as 192.0.2.10 or 2001:db8::10 is "
                             "needed, several with commas",
                             name, one);
        if (ip_special(&v[k]))
            return cli_usage(cmd, "--%s: %s is %s: node ports do not answer there", name, one,
                             ip_special(&v[k]));
        k++;
        text += len + (text[len] == ',');
    }
    ret->plan.ipvs.node_addresses = v;
    ret->plan.ipvs.n_node_addresses = k;
    return CLI_DONE;
}

static int read_iptables_mode(const struct cli_command *cmd, struct features *ret)
{
    static const char *const names[] = {
        [IPTABLES_AUTO] = "auto", [IPTABLES_NFT] = "nft", [IPTABLES_LEGACY] = "legacy"
    };
    const char *mode = cli_value(cmd, "iptables-mode");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(mode, names[i])) {
            ret->iptables_mode = (enum iptables_mode)i;
            return CLI_DONE;
        }
    return cli_usage(cmd, "--iptables-mode %s: auto, nft or legacy is needed", mode);
}

static int read_ipvs(const struct cli_command *cmd, struct features *ret)
{
    struct ipvs_options *o = &ret->plan.ipvs;
    if (ret->plan.proxy_mode != PROXY_IPVS)
        return check_unused_ipvs(cmd);
    o->strict_arp = cli_given(cmd, "strict-arp");
    o->nodeport_primary = cli_given(cmd, "nodeport-addresses") &&
                          !strcmp(cli_value(cmd, "nodeport-addresses"), "primary");
    int r = read_scheduler(cmd, o);
    if (!r)
        r = read_node_addresses(cmd, ret);
    if (!r)
        r = read_cidrs(cmd, "ipvs-exclude-cidrs", &ret->mem, &o->exclude_cidrs,
                       &o->n_exclude_cidrs);
    return r ? r : read_iptables_mode(cmd, ret);
}

/* ---- all ---- */

int cli_features(const struct cli_command *cmd, struct features *ret)
{
    *ret = (struct features){ .list = cli_value(cmd, "features"),
                              .plan.masquerade_all = cli_given(cmd, "masquerade-all"),
                              .nodeport_addresses_given = cli_given(cmd, "nodeport-addresses") ||
                                                          cli_given(cmd, "node-address") };
    unsigned bit;
    int r = read_list(cmd, ret);
    if (!r)
        r = check_unused(cmd, &ret->plan);
    if (!r)
        r = read_mode(cmd, ret);
    if (!r)
        r = read_local_mode(cmd, ret);
    if (!r && strcmp(cli_value(cmd, "nodeport-addresses"), "primary"))
        r = read_cidrs(cmd, "nodeport-addresses", &ret->mem, &ret->plan.nodeport_addresses,
                       &ret->plan.n_nodeport_addresses);
    if (!r)
        r = cli_number(cmd, "masquerade-bit", 0, 31, &bit);
    if (r)
        return r;
    ret->plan.masquerade_bit = (uint8_t)bit;
    r = read_load_balancer(cmd, ret);
    return r ? r : read_ipvs(cmd, ret);
}

void cli_features_done(struct features *f)
{
    arena_done(&f->mem);
}
