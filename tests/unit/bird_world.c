#include "bird_world.h"

#include "addr_help.h"

const struct bird_config *bird_world(enum bird_design design, bool bfd)
{
    static struct ip_prefix own[2], cidrs[4];
    static struct bird_peer peers[4];
    static struct bird_mesh mesh;
    static struct bird_table tables[2];
    static struct bird_config config;
    static const char *const links[] = { "mgmt0", "ingress0", "pod0", "node0" };
    own[0] = prefix_of("10.244.1.0/24");
    own[1] = prefix_of("fd00:244:1::/64");
    cidrs[0] = prefix_of("10.244.2.0/24");
    cidrs[1] = prefix_of("fd00:244:2::/64");
    cidrs[2] = prefix_of("10.244.3.0/24");
    cidrs[3] = prefix_of("fd00:244:3::/64");
    static const char *const nodes[] = { "k8s-2", "k8s-2", "k8s-3.example", "k8s-3.example" };
    static const char *const remote[] = { "10.48.0.2", "fd00:48::2", "10.48.0.3", "fd00:48::3" };
    for (int i = 0; i < 4; i++)
        peers[i] = (struct bird_peer){ .node = nodes[i],
                                       .local = ip_of(i % 2 ? "fd00:48::1" : "10.48.0.1"),
                                       .remote = ip_of(remote[i]),
                                       .cidrs = &cidrs[i],
                                       .n_cidrs = 1 };
    mesh = (struct bird_mesh){ .link = "pod0",
                               .asn = 64512,
                               .hold_time = 9,
                               .bfd = bfd,
                               .graceful_restart = true,
                               .peers = peers,
                               .n_peers = 4 };
    tables[0] = (struct bird_table){ .number = design == BIRD_TWO_TABLES ? 48 : 47,
                                     .owner = "trafficclass/pods",
                                     .families = { true, true },
                                     .own_cidrs = own,
                                     .n_own_cidrs = 2,
                                     .pod_device = "",
                                     .gateway_link = "",
                                     .mesh = &mesh };
    if (design == BIRD_ONE_TABLE) {
        tables[0].attached = links;
        tables[0].n_attached = 4;
        tables[0].pod_device = "cilium_host";
        tables[0].gateway_link = "ingress0";
        tables[0].gateway[0] = ip_of("10.47.0.254");
        tables[0].gateway[1] = ip_of("fd00:47::fe");
    }
    config =
        (struct bird_config){ .router_id = ip_of("10.46.0.1"), .tables = tables, .n_tables = 1 };
    return &config;
}
