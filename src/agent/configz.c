#include "agent/configz.h"

#include <stdio.h>

#include "source/codec.h"

#define GROUP "kubeproxy.config.k8s.io"

static void put(struct writer *w, const char *key, const char *value)
{
    writer_key(w, key);
    writer_string(w, value);
}

static void put_address(struct writer *w, const char *key, const struct http_address *a)
{
    char text[HTTP_ADDRESS_TEXT_MAX];
    put(w, key, a->port ? http_address_format(a, text) : "");
}

/* As Go prints a duration. */
static void put_duration(struct writer *w, const char *key, uint32_t seconds)
{
    char text[40];
    uint32_t h = seconds / 3600, m = seconds / 60 % 60, s = seconds % 60;
    if (h)
        snprintf(text, sizeof(text), "%uh%um%us", h, m, s);
    else if (m)
        snprintf(text, sizeof(text), "%um%us", m, s);
    else
        snprintf(text, sizeof(text), "%us", s);
    put(w, key, text);
}

static void put_cluster_cidr(struct writer *w, const struct plan_options *o)
{
    char one[IP_PREFIX_TEXT_MAX];
    struct buf text = { 0 };
    for (size_t i = 0; i < o->n_cluster_cidrs; i++)
        buf_printf(&text, "%s%s", i ? "," : "", ip_prefix_format(&o->cluster_cidrs[i], one));
    put(w, "clusterCIDR", buf_str(&text));
    buf_done(&text);
}

static void put_prefixes(struct writer *w, const char *key, const struct ip_prefix *prefixes,
                         size_t n, const char *instead)
{
    char text[IP_PREFIX_TEXT_MAX];
    writer_key(w, key);
    writer_list(w);
    if (!n && instead)
        writer_string(w, instead);
    for (size_t i = 0; i < n; i++)
        writer_string(w, ip_prefix_format(&prefixes[i], text));
    writer_list_end(w);
}

/* Single addresses are what ranges of their whole length are. */
static void put_nodeport_addresses(struct writer *w, const struct plan_options *o)
{
    char text[IP_PREFIX_TEXT_MAX];
    const struct ipvs_options *ipvs = &o->ipvs;
    bool primary = o->proxy_mode != PROXY_IPVS || ipvs->nodeport_primary;
    if (!ipvs->n_node_addresses) {
        put_prefixes(w, "nodePortAddresses", o->nodeport_addresses, o->n_nodeport_addresses,
                     primary ? "primary" : NULL);
        return;
    }
    writer_key(w, "nodePortAddresses");
    writer_list(w);
    for (size_t i = 0; i < ipvs->n_node_addresses; i++) {
        const struct ip *ip = &ipvs->node_addresses[i];
        const struct ip_prefix whole = { *ip, ip_bits(ip->family) };
        writer_string(w, ip_prefix_format(&whole, text));
    }
    writer_list_end(w);
}

static void put_masquerade(struct writer *w, const char *mode, const struct plan_options *o)
{
    writer_key(w, mode);
    writer_map(w);
    writer_key(w, "masqueradeAll");
    writer_bool(w, o->masquerade_all);
    writer_key(w, "masqueradeBit");
    writer_int(w, o->masquerade_bit);
    writer_map_end(w);
}

static void put_ipvs(struct writer *w, const struct ipvs_options *o)
{
    writer_key(w, "ipvs");
    writer_map(w);
    put(w, "scheduler", ipvs_scheduler_name(o->scheduler));
    put_prefixes(w, "excludeCIDRs", o->exclude_cidrs, o->n_exclude_cidrs, NULL);
    writer_key(w, "strictARP");
    writer_bool(w, o->strict_arp);
    writer_map_end(w);
}

void configz_put(const struct proxy_options *o, struct buf *out)
{
    struct writer *w = writer_json_new(out, false);
    writer_map(w);
    writer_key(w, GROUP);
    writer_map(w);
    put(w, "apiVersion", GROUP "/v1alpha1");
    put(w, "kind", "KubeProxyConfiguration");
    bool ipvs = o->plan->proxy_mode == PROXY_IPVS;
    put(w, "mode", ipvs ? "ipvs" : "nftables");
    put(w, "hostnameOverride", o->node);
    put_address(w, "healthzBindAddress", &o->healthz);
    put_address(w, "metricsBindAddress", &o->metrics);
    put_duration(w, "configSyncPeriod", o->config_sync_seconds);
    put(w, "detectLocalMode", o->plan->node_cidr ? "NodeCIDR" : "ClusterCIDR");
    put_cluster_cidr(w, o->plan);
    put_nodeport_addresses(w, o->plan);
    /* kube-proxy's mode ipvs takes these of the mode iptables. */
    put_masquerade(w, ipvs ? "iptables" : "nftables", o->plan);
    if (ipvs)
        put_ipvs(w, &o->plan->ipvs);
    writer_map_end(w);
    writer_map_end(w);
    writer_free(w);
}
