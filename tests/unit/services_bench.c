#include "services_bench.h"

#include "addr_help.h"
#include "store_help.h"

void begin(struct bench *b, const struct plan_options *options)
{
    memset(b, 0, sizeof(*b));
    b->addresses[0].ip = ip_of("10.0.0.1");
    b->addresses[1].ip = ip_of("192.0.2.7");
    b->iface = (struct host_iface){ "eth0", 1500, true, .addresses = b->addresses };
    b->iface.n_addresses = 1;
    b->host = (struct host){ .ifaces = &b->iface,
                             .n_ifaces = 1,
                             .forwarding4 = true,
                             .forwarding6 = true,
                             .ipv6 = true,
                             .forwarding4_error = "",
                             .forwarding6_error = "" };
    b->store = store_new();
    b->planner = planner_new(options);
    put(b, NODE("n", "10.0.0.1", ""));
}

void end(struct bench *b)
{
    planner_free(b->planner);
    store_free(b->store);
}

const struct plan *plan(struct bench *b, bool host_changed)
{
    struct snapshot snap = { .node = "n", .host = &b->host, .host_changed = host_changed };
    store_snapshot(b->store, &snap);
    b->plan = plan_build(b->planner, &snap);
    store_commit(b->store);
    return b->plan;
}

const struct plan *put(struct bench *b, const char *yaml)
{
    store_put_yaml(b->store, yaml);
    return plan(b, false);
}

const struct plan *take_away(struct bench *b, enum object_kind kind, const char *name)
{
    assert_true(store_remove(b->store, kind, kind == KIND_NODE ? "" : "a", name));
    return plan(b, false);
}
