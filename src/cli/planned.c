#include "cli/planned.h"

#include <linux/netlink.h>

#include "kernel/host.h"
#include "source/codec.h"

static int observe(struct planned *p, const char *node, const char *host_file, struct err *err)
{
    if (*host_file)
        return host_decode_file(host_file, node, &p->host_mem, &p->host, err);
    struct nl_port *port = NULL;
    int r = nl_open(NETLINK_ROUTE, NULL, &port, err);
    if (!r)
        r = host_observe(port, &p->host_mem, &p->host, err);
    nl_close(port);
    return r;
}

int planned_make(struct planned *p, const struct cli_command *cmd, const char *host_file)
{
    const char *node = cli_value(cmd, "node"), *source = cli_value(cmd, "source");
    unsigned port;
    if (!*node)
        return cli_usage(cmd, "--node NAME is needed: the name of a Node object");
    if (!*source)
        return cli_usage(cmd, "--source dir:DIR is needed: the folder of manifests");
    if (cli_number(cmd, "cni-vxlan-port", 1, 65535, &port))
        return CLI_USAGE;
    struct err err = { 0 };
    if (world_load(&p->world, source, &err) || observe(p, node, host_file, &err))
        return cli_fail(err.text);
    p->snap =
        (struct snapshot){ .node = node, .now = p->now, .host = &p->host, .cni_vxlan_port = port };
    store_snapshot(p->world.store, &p->snap);
    p->planner = planner_new();
    p->plan = plan_build(p->planner, &p->snap);
    return CLI_DONE;
}

void planned_done(struct planned *p)
{
    planner_free(p->planner);
    world_done(&p->world);
    arena_done(&p->host_mem);
}
