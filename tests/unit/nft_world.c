#include "nft_world.h"

#include "test.h"

#include <linux/netlink.h>
#include <string.h>

#include "base/buf.h"
#include "fake_port.h"
#include "netns.h"

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

struct ip ip_of(const char *text)
{
    struct ip ret = { 0 };
    assert_true(ip_parse(text, &ret));
    return ret;
}

const char *listing(void)
{
    return output("nft -s list table inet portolan 2>&1");
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
    w->nft = nft_new(port, plan_ruleset(&plan_options_default));
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
    struct nft *other = nft_new(port, plan_ruleset(&plan_options_default));
    if (nft_diff(other, groups, n, &out, &err))
        fail_msg("nft_diff: %s", err.text);
    assert_string_equal(buf_str(&out), "");
    buf_done(&out);
    nft_free(other);
}
