#include "cli/planned.h"

#include <linux/netlink.h>

#include "base/buf.h"
#include "cli/source.h"
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
    if (!r && plan_needs_rules(&p->features.plan))
        r = host_observe_policy(port, &p->host_mem, p->features.plan.trafficclass, &p->host, err);
    nl_close(port);
    /* What this user may not write the agent may. */
    p->host.forwarding4_error = p->host.forwarding6_error = "";
    return r;
}

static int unknown_node(const struct snapshot *s)
{
    struct buf text = { 0 };
    buf_printf(&text, "--node %s: the source has no such Node object; it has: ", s->node);
    for (size_t i = 0; i < s->n_nodes && i < 20; i++)
        buf_printf(&text, "%s%s", i ? ", " : "", s->nodes[i]->o.meta.name);
    if (s->n_nodes > 20 || !s->n_nodes)
        buf_puts(&text, s->n_nodes ? ", ..." : "none");
    int r = cli_fail(buf_str(&text));
    buf_done(&text);
    return r;
}

int planned_make(struct planned *p, const struct cli_command *cmd, const char *host_file)
{
    const char *node;
    struct source_options source;
    unsigned port;
    if (cli_node(cmd, &node) || cli_source(cmd, &source) || cli_features(cmd, &p->features) ||
        cli_number(cmd, "cni-vxlan-port", 1, 65535, &port))
        return CLI_USAGE;
    source.kinds = source_kinds(p->features.list);
    struct err err = { 0 };
    if (world_load(&p->world, &source, &err) || observe(p, node, host_file, &err))
        return cli_fail(err.text);
    p->snap =
        (struct snapshot){ .node = node, .now = p->now, .host = &p->host, .cni_vxlan_port = port };
    store_snapshot(p->world.store, &p->snap);
    if (!snapshot_node(&p->snap, node))
        return unknown_node(&p->snap);
    p->planner = planner_new(&p->features.plan);
    p->plan = plan_build(p->planner, &p->snap);
    return CLI_DONE;
}

void planned_done(struct planned *p)
{
    planner_free(p->planner);
    world_done(&p->world);
    arena_done(&p->host_mem);
    cli_features_done(&p->features);
}
