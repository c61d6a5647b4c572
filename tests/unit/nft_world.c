#include "nft_world.h"

#include "test.h"

#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "fake_port.h"
#include "model/nft_text.h"
#include "netns.h"

const struct plan_options world_options = { .portmap = true,
                                            .serviceproxy = true,
                                            .masquerade_bit = MASQUERADE_BIT };
struct nl_port *port;
struct report report;
struct err err;

int world_setup(void **state)
{
    (void)state;
    netns_new();
    renew_port();
    return 0;
}

int world_teardown(void **state)
{
    (void)state;
    nl_close(port);
    report_done(&report);
    return 0;
}

const char *listing(void)
{
    return output("nft -s list table inet portolan 2>&1");
}

void load_text(struct nft_table table, struct nft_group *const *groups, size_t n)
{
    struct buf b = { 0 };
    run("nft flush ruleset");
    nft_text_table(&b, &table);
    nft_text_elements(&b, &table, groups, n);
    FILE *f = popen("nft -f /dev/stdin", "w");
    assert_non_null(f);
    assert_int_equal(fwrite(b.p, 1, b.n, f), b.n);
    assert_int_equal(pclose(f), 0);
    buf_done(&b);
}

void load_listing(void)
{
    run("text=$(nft list ruleset); nft flush ruleset; echo \"$text\" | nft -f -");
}

bool kernel_has(const char *text)
{
    return strstr(listing(), text) != NULL;
}

void renew_port(void)
{
    struct nl_port *real;
    nl_close(port);
    if (nl_open(NETLINK_NETFILTER, NULL, &real, &err))
        fail_msg("%s", err.text);
    port = fake_port_new(real);
}

struct nft_group *mapping(const char *owner, enum l4proto proto, uint16_t first, uint16_t end,
                          const char *pod)
{
    bool range = end > first;
    struct ip dialled = ip_of("203.0.113.9"), dialled6 = ip_of("2001:db8:113::9"), to = { 0 };
    struct nft_group_builder *b = nft_group_begin(owner);
    if (pod) {
        to = ip_of(pod);
        nft_put_flow(b, range ? NFT_OPENRANGE4 : NFT_OPEN4, &dialled, proto, first, end);
        nft_put_target(b, range ? NFT_TARGETRANGE4 : NFT_TARGET4, &dialled, proto, first, end, &to,
                       (uint16_t)(first + 1));
    } else {
        nft_put_flow(b, range ? NFT_REFUSERANGE4 : NFT_REFUSE4, &dialled, proto, first, end);
        nft_put_flow(b, range ? NFT_REFUSERANGE4 : NFT_REFUSE4, &dialled6, proto, first, end);
    }
    return nft_group_end(b);
}

struct nft_table table_with_limit(enum nft_set set, uint32_t size)
{
    static struct nft_set_def sets[NFT_SET_COUNT];
    memcpy(sets, nft_set_defs, sizeof(sets));
    sets[set].size = size;
    struct nft_table table = plan_ruleset(&world_options);
    table.sets = sets;
    return table;
}

struct words {
    const char *w[8]; /* "" where there are no more */
};

static uint32_t number(const char *word)
{
    return (uint32_t)strtoul(word, NULL, 0);
}

static void put_flow_line(struct nft_group_builder *b, const struct words *x)
{
    struct ip addr = ip_of(x->w[1]), ip = { 0 };
    enum l4proto proto = !strcmp(x->w[2], "udp") ? L4_UDP : L4_TCP;
    uint16_t port_number = (uint16_t)number(x->w[3]);
    struct ip_prefix prefix;
    struct nft_class class;
    if (!strcmp(x->w[0], "service")) {
        if (!nft_class_parse(x->w[4], &class))
            fail_msg("no class: %s", x->w[4]);
        nft_put_service(b, &addr, proto, port_number, &class);
    } else if (!strcmp(x->w[0], "endpoint")) {
        ip = ip_of(x->w[5]);
        nft_put_endpoint(b, &addr, proto, port_number, (uint16_t)number(x->w[4]), &ip,
                         (uint16_t)number(x->w[6]));
    } else if (!strcmp(x->w[0], "stay")) {
        ip = ip_of(x->w[4]);
        nft_put_affinity_endpoint(b, NFT_AFFINITYENDPOINT4, &addr, proto, port_number, &ip,
                                  (uint16_t)number(x->w[5]));
    } else if (!strcmp(x->w[0], "affinity")) {
        nft_put_affinity(b, &addr, proto, port_number, number(x->w[4]));
    } else if (!strcmp(x->w[0], "sourcerange")) {
        assert_true(ip_prefix_parse(x->w[4], &prefix));
        nft_put_source_range(b, &addr, proto, port_number, &prefix);
    } else {
        fail_msg("no element: %s", x->w[0]);
    }
}

static void put_line(struct nft_group_builder *b, const struct words *x)
{
    struct ip addr;
    struct ip_prefix prefix;
    if (!strcmp(x->w[0], "timeout")) {
        nft_put_affinity_timeout(b, number(x->w[1]), number(x->w[2]));
    } else if (ip_prefix_parse(x->w[1], &prefix)) {
        nft_put_prefix(b, strcmp(x->w[0], "podrange") ? NFT_SERVICERANGE4 : NFT_PODRANGE4, &prefix);
    } else if (!strcmp(x->w[0], "clusterip")) {
        addr = ip_of(x->w[1]);
        nft_put_address(b, NFT_CLUSTERIP4, &addr);
    } else if (!strcmp(x->w[0], "hairpin")) {
        addr = ip_of(x->w[1]);
        nft_put_pair(b, NFT_HAIRPIN4, &addr, &addr);
    } else {
        put_flow_line(b, x);
    }
}

struct nft_group *elements(const char *owner, const char *text)
{
    struct nft_group_builder *b = nft_group_begin(owner);
    char *copy = xstrdup(text), *rest = NULL;
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        struct words x;
        char *more = NULL, *word = strtok_r(line, " ", &more);
        for (size_t i = 0; i < 8; i++) {
            x.w[i] = word ? word : "";
            word = word ? strtok_r(NULL, " ", &more) : NULL;
        }
        put_line(b, &x);
    }
    free(copy);
    return nft_group_end(b);
}

static struct nft_group *node_group(void)
{
    struct ip four = ip_of("203.0.113.9"), six = ip_of("2001:db8:113::9"),
              end = ip_of("169.254.77.1"), end6 = ip_of("fd64:f5ac:e961::1");
    struct nft_group_builder *b = nft_group_begin("node");
    nft_put_ifname(b, NFT_LINKS, "pl4242");
    nft_put_ifaddr(b, "enp1s0", &four);
    nft_put_ifaddr(b, "enp1s0", &six);
    nft_put_mark(b, NFT_REPLYMARK4, &end, 0x6b700000);
    nft_put_mark(b, NFT_REPLYMARK4, &end6, 0x6b700000);
    nft_put_mark(b, NFT_REPLYMARK4, &four, 0x6b70ffff);
    nft_put_mark(b, NFT_REPLYMARK4, &six, 0x6b70ffff);
    return nft_group_end(b);
}

void world_init(struct world *w)
{
    run("nft flush ruleset");
    *w = (struct world){ .n = 4 };
    w->groups[0] = node_group();
    w->groups[1] = mapping("portmap/a/tcp", L4_TCP, 80, 80, "10.244.1.7");
    w->groups[2] = mapping("portmap/b/udp", L4_UDP, 27015, 27115, "10.244.1.8");
    w->groups[3] = mapping("portmap/c/none", L4_UDP, 3000, 3000, NULL);
    w->nft = nft_new(port, plan_ruleset(&world_options));
    report_reset(&report);
    assert_int_equal(nft_sync(w->nft, w->groups, w->n, false, &report, &err), 0);
    assert_int_equal(report.refusals.n, 0);
    report_reset(&report);
}

void world_done(struct world *w)
{
    for (size_t i = 0; i < w->n; i++)
        nft_group_unref(w->groups[i]);
    nft_free(w->nft);
}

void restart(struct world *w)
{
    renew_port();
    nft_free(w->nft);
    w->nft = nft_new(port, plan_ruleset(&world_options));
}

void replace(struct world *w, size_t i, struct nft_group *g)
{
    nft_group_unref(w->groups[i]);
    w->groups[i] = g;
}

void apply(struct world *w, bool audit)
{
    report_reset(&report);
    int r = nft_sync(w->nft, w->groups, w->n, audit, &report, &err);
    if (r)
        fail_msg("nft_sync: %s", err.text);
}

void assert_in_kernel(struct nft_group *const *groups, size_t n)
{
    struct buf out = { 0 };
    struct nft *other = nft_new(port, plan_ruleset(&world_options));
    if (nft_diff(other, groups, n, &out, &err))
        fail_msg("nft_diff: %s", err.text);
    assert_string_equal(buf_str(&out), "");
    buf_done(&out);
    nft_free(other);
}

void assert_successor_idle(const struct world *w)
{
    struct nft *successor = nft_new(port, plan_ruleset(&world_options));
    report_reset(&report);
    fake_forget_sent(port);
    assert_int_equal(nft_sync(successor, w->groups, w->n, false, &report, &err), 0);
    assert_int_equal(report.bytes, 0);
    assert_int_equal(fake_sent(port, NFNL_MSG_BATCH_BEGIN), 0);
    assert_false(nft_foreign_change(successor));
    nft_free(successor);
}
