/* The vocabulary in text: the constant table is tests/unit/ruleset.nft to the byte, which
 * test_nft_kernel.c loads with nft. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "addr_help.h"
#include "base/vec.h"
#include "model/names.h"
#include "model/nft_text.h"
#include "plan/plan.h"

static char *golden_file(const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", getenv("UNIT_DATA"), name);
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("cannot read %s", path);
    char *text = xcalloc(1, 64 * 1024);
    assert_true(fread(text, 1, 64 * 1024 - 1, f) > 0);
    fclose(f);
    return text;
}

static const struct plan_options proxy_options = { .serviceproxy = true, .masquerade_bit = 14 };
static const struct plan_options both_options = { .portmap = true,
                                                  .serviceproxy = true,
                                                  .masquerade_bit = 31 };

static const struct plan_options held_options = { .loadbalancer = true,
                                                  .overlay = "weave",
                                                  .masquerade_bit = 14 };

static struct nft_group *services(const char *const *classes, size_t n)
{
    struct nft_group_builder *b = nft_group_begin("service/a/b");
    struct ip vip = ip_of("10.96.0.1"), vip6 = ip_of("fd00:96::1");
    for (size_t i = 0; i < n; i++) {
        struct nft_class c;
        assert_true(nft_class_parse(classes[i], &c));
        if (c.kind > NFT_CLASS_REMEMBER)
            continue; /* of no service */
        if (c.kind == NFT_CLASS_REMEMBER)
            nft_put_affinity_timeout(b, (uint32_t)i + 1, c.timeout);
        else
            nft_put_service(b, c.family == IP_V4 ? &vip : &vip6, L4_TCP, (uint16_t)(i + 1), &c);
    }
    return nft_group_end(b);
}

static const char *const classes[] = {
    "pick4-2",
    "pick4-2", /* one chain */
    "pick6-3-ranged-outside",
    "pick4-1-ranged-always-all5-affinity10",
    "pick6-0-all5",
    "pick6-5-offset",
    "pick4-0",
    "reject4",
    "reject6-ranged",
    "drop4",
    "drop6",
    "remember-10",
    "holder-250",
    "reply-7",
};
#define N_CLASSES (sizeof(classes) / sizeof(classes[0]))

/* Of this node as a holder, and of the others. */
static struct nft_group *held(void)
{
    struct nft_group_builder *b = nft_group_begin("node");
    struct ip dialled = ip_of("203.0.113.9"), ep = ip_of("10.244.2.7"),
              node = ip_of("203.0.113.20");
    struct ip_prefix overlay;
    assert_true(ip_prefix_parse("10.32.0.0/12", &overlay));
    nft_put_flow(b, NFT_HELD4, &dialled, L4_TCP, 80, 80);
    nft_put_flow(b, NFT_HELDROUTE4, &dialled, L4_TCP, 80, 80);
    nft_put_pair(b, NFT_HAIRPIN4, &node, &ep);
    nft_put_near(b, &overlay, &ep);
    nft_put_holder(b, (const uint8_t[6]){ 0x02, 0x6b, 0xa9, 0xfe, 0x60, 0x01 }, 200);
    nft_put_holder(b, (const uint8_t[6]){ 0x02, 0x6b, 0xa9, 0xfe, 0x60, 0x02 }, 1);
    return nft_group_end(b);
}

static void assert_golden(const char *name, const struct plan_options *options,
                          struct nft_group *const *groups, size_t n)
{
    char *golden = golden_file(name);
    struct buf b = { 0 };
    const struct nft_table table = plan_ruleset(options);
    nft_text_table(&b, &table);
    nft_text_elements(&b, &table, groups, n);
    assert_string_equal(buf_str(&b), golden);
    buf_done(&b);
    free(golden);
}

static void the_constant_tables_are_the_golden_ones(void **state)
{
    (void)state;
    struct nft_group *g = services(classes, N_CLASSES);
    assert_golden("ruleset.nft", &plan_options_default, NULL, 0);
    assert_golden("ruleset-proxy.nft", &proxy_options, &g, 1);
    nft_group_unref(g);
    g = held();
    assert_golden("ruleset-held.nft", &held_options, &g, 1);
    nft_group_unref(g);
}

static void held_addresses_need_the_whole_table(void **state)
{
    (void)state;
    const struct nft_table all = plan_ruleset(&both_options), t = plan_ruleset(&held_options);
    assert_int_equal(t.n_chains, all.n_chains + 3);
    for (size_t i = 0; i < all.n_chains; i++)
        assert_string_equal(t.chains[i]->name, all.chains[i]->name);
    for (int i = 0; i < NFT_SET_COUNT; i++)
        assert_true(nft_table_has(&t, i));
    assert_int_equal(t.masquerade_mark, 0x4000);
}

static void a_table_stays_when_another_is_made(void **state)
{
    (void)state;
    struct plan_options other = held_options;
    other.overlay = "vxlan";
    const struct nft_table first = plan_ruleset(&held_options), second = plan_ruleset(&other);
    assert_string_equal(first.overlay, "weave");
    assert_string_equal(second.overlay, OVERLAY_LINK);
}

static void both_features_make_one_table(void **state)
{
    (void)state;
    const struct nft_table a = plan_ruleset(&plan_options_default),
                           b = plan_ruleset(&proxy_options), t = plan_ruleset(&both_options);
    assert_int_equal(t.n_chains, a.n_chains + b.n_chains);
    for (size_t i = 0; i < t.n_chains; i++)
        assert_ptr_equal(t.chains[i], i < a.n_chains ? a.chains[i] : b.chains[i - a.n_chains]);
    for (int i = 0; i < NFT_SET_COUNT; i++) {
        assert_int_equal(nft_table_has(&a, i) + nft_table_has(&b, i), i < NFT_HELD4);
        assert_int_equal(nft_table_has(&t, i), i < NFT_HELD4);
    }
    assert_int_equal(b.masquerade_mark, 0x4000);
    assert_int_equal(t.masquerade_mark, 0x80000000);
}

struct seen {
    const struct nft_table *t;
    struct nft_class_chain *classes;
    size_t n_classes, lookups;
};

static bool can_be_jumped_to(const struct seen *s, const char *chain)
{
    for (size_t i = 0; i < s->t->n_chains; i++)
        if (!strcmp(s->t->chains[i]->name, chain))
            return !s->t->chains[i]->type;
    for (size_t i = 0; i < s->n_classes; i++)
        if (!strcmp(s->classes[i].name, chain))
            return true;
    return false;
}

/* Expressions and fields of the set that is looked up. */
static void check_key(struct seen *seen, const struct nft_stmt *s)
{
    static const enum nft_field field[] = {
        [NFT_EXPR_END] = NFT_FIELD_NONE,          [NFT_EXPR_IIFNAME] = NFT_FIELD_IFNAME,
        [NFT_EXPR_OIFNAME] = NFT_FIELD_IFNAME,    [NFT_EXPR_DIALLED4] = NFT_FIELD_IP4,
        [NFT_EXPR_DIALLED6] = NFT_FIELD_IP6,      [NFT_EXPR_L4PROTO] = NFT_FIELD_PROTO,
        [NFT_EXPR_DPORT] = NFT_FIELD_PORT,        [NFT_EXPR_DIALLED_PORT] = NFT_FIELD_PORT,
        [NFT_EXPR_SADDR4] = NFT_FIELD_IP4,        [NFT_EXPR_SADDR6] = NFT_FIELD_IP6,
        [NFT_EXPR_DADDR4] = NFT_FIELD_IP4,        [NFT_EXPR_DADDR6] = NFT_FIELD_IP6,
        [NFT_EXPR_PRIORITY] = NFT_FIELD_PRIORITY, [NFT_EXPR_ETHER_SADDR] = NFT_FIELD_ETHER,
        [NFT_EXPR_CT_MARK_TOP] = NFT_FIELD_MARK,
    };
    if (s->kind != NFT_STMT_IN && s->kind != NFT_STMT_NOT_IN && s->kind != NFT_STMT_DNAT &&
        s->kind != NFT_STMT_MARK && s->kind != NFT_STMT_VMAP && s->kind != NFT_STMT_PRIORITY &&
        s->kind != NFT_STMT_DADDR && s->kind != NFT_STMT_UPDATE && s->kind != NFT_STMT_DELETE)
        return;
    assert_true(nft_table_has(seen->t, (int)s->set));
    for (int f = 0; f < NFT_FIELDS_MAX; f++)
        assert_int_equal(field[nft_keys[s->key][f]], seen->t->sets[s->set].key[f]);
    seen->lookups++;
}

static void check_chain(struct seen *seen, const struct nft_chain *c)
{
    assert_true(c->n > 0);
    for (size_t j = 0; j < c->n; j++) {
        const struct nft_rule *r = &c->rules[j];
        bool counts = false;
        for (size_t k = 0; k < r->n; k++) {
            const struct nft_stmt *s = &r->stmts[k];
            /* Those of the holders are met by every packet: the chains they lead to count. */
            counts |= s->kind == NFT_STMT_COUNTER ||
                      (s->kind == NFT_STMT_VMAP && s->set >= NFT_HOLDERS) ||
                      (s->kind == NFT_STMT_GOTO && !strcmp(s->text, "answer"));
            if (s->kind == NFT_STMT_JUMP || s->kind == NFT_STMT_GOTO)
                assert_true(can_be_jumped_to(seen, s->text));
            check_key(seen, s);
        }
        assert_true(counts);
    }
}

static void every_rule_counts_and_names_what_there_is(void **state)
{
    (void)state;
    static const struct plan_options *const options[] = { &plan_options_default, &proxy_options,
                                                          &both_options, &held_options };
    static const char *const next[] = { "pick4-5-offset-affinity10",
                                        "pick4-5-offset-always-affinity10", "pick6-5-offset",
                                        "pick6-5-offset-always" };
    struct nft_class_chain chains[N_CLASSES + 4];
    for (size_t i = 0; i < N_CLASSES + 4; i++) {
        struct nft_class c;
        assert_true(nft_class_parse(i < N_CLASSES ? classes[i] : next[i - N_CLASSES], &c));
        nft_class_chain(&c, &chains[i]);
    }
    for (size_t i = 0; i < 4; i++) {
        const struct nft_table table = plan_ruleset(options[i]);
        struct seen seen = { &table, chains, i ? N_CLASSES + 4 : 0, 0 };
        for (size_t j = 0; j < table.n_chains; j++)
            check_chain(&seen, table.chains[j]);
        for (size_t j = 0; j < seen.n_classes; j++)
            check_chain(&seen, &chains[j].chain);
        assert_true(seen.lookups > 20);
    }
}

static void elements_print_sorted_across_groups(void **state)
{
    (void)state;
    struct ip four = ip_of("203.0.113.9"), six = ip_of("2001:db8:113::9"),
              pod = ip_of("10.244.1.7"), pod6 = ip_of("fd00:1::7");
    struct nft_group_builder *b = nft_group_begin("portmap/games/gs");
    nft_put_target(b, NFT_TARGETRANGE4, &four, L4_UDP, 27015, 27115, &pod, 0);
    nft_put_target(b, NFT_TARGET4, &six, L4_UDP, 3000, 3000, &pod6, 3001);
    nft_put_target(b, NFT_TARGET4, &four, L4_TCP, 80, 80, &pod, 8080);
    nft_put_flow(b, NFT_OPEN4, &four, L4_TCP, 80, 80);
    nft_put_flow(b, NFT_REFUSERANGE4, &six, L4_SCTP, 5, 9);
    struct nft_group *a = nft_group_end(b);
    b = nft_group_begin("node");
    nft_put_mark(b, NFT_REPLYMARK4, &four, 0x6b700001);
    nft_put_ifaddr(b, "enp1s0", &six);
    nft_put_ifaddr(b, "enp1s0", &four);
    nft_put_ifname(b, NFT_LINKS, "pl4242");
    struct nft_group *node = nft_group_end(b);
    struct buf text = { 0 };
    const struct nft_table table = plan_ruleset(&plan_options_default);
    nft_text_elements(&text, &table, (struct nft_group *[]){ a, node }, 2);
    assert_string_equal(
        buf_str(&text),
        "add element inet portolan links { \"pl4242\" }\n"
        "add element inet portolan ifaddr4 { \"enp1s0\" . 203.0.113.9 }\n"
        "add element inet portolan ifaddr6 { \"enp1s0\" . 2001:db8:113::9 }\n"
        "add element inet portolan open4 { 203.0.113.9 . tcp . 80 }\n"
        "add element inet portolan refuserange6 { 2001:db8:113::9 . sctp . 5-9 }\n"
        "add element inet portolan target4 { 203.0.113.9 . tcp . 80 : 10.244.1.7 . 8080 }\n"
        "add element inet portolan target6 { 2001:db8:113::9 . udp . 3000 : fd00:1::7 . 3001 }\n"
        "add element inet portolan targetrange4 { 203.0.113.9 . udp . 27015-27115 : 10.244.1.7 }\n"
        "add element inet portolan replymark4 { 203.0.113.9 : 0x6b700001 }\n");
    buf_clear(&text);
    nft_text_elements(&text, &table, NULL, 0);
    assert_string_equal(buf_str(&text), "");
    buf_done(&text);
    nft_group_unref(a);
    nft_group_unref(node);
}

static void a_class_is_the_name_of_its_chain(void **state)
{
    (void)state;
    static const struct {
        struct nft_class c;
        const char *name;
    } cases[] = {
        { { .family = IP_V4, .kind = NFT_CLASS_PICK, .n = 3 }, "pick4-3" },
        { { .family = IP_V6, .kind = NFT_CLASS_PICK }, "pick6-0" },
        { { IP_V4, NFT_CLASS_PICK, NFT_MASQUERADE_OUTSIDE, false, false, 1, 0, 0 },
          "pick4-1-outside" },
        { { IP_V6, NFT_CLASS_PICK, NFT_MASQUERADE_ALWAYS, true, false, 65535, 0, 10800 },
          "pick6-65535-ranged-always-affinity10800" },
        { { IP_V4, NFT_CLASS_PICK, NFT_MASQUERADE_NEVER, false, false, 0, 32767, UINT32_MAX },
          "pick4-0-all32767-affinity4294967295" },
        { { IP_V4, NFT_CLASS_PICK, NFT_MASQUERADE_ALWAYS, false, true, 7, 0, 1 },
          "pick4-7-offset-always-affinity1" },
        { { .family = IP_V4, .kind = NFT_CLASS_REJECT }, "reject4" },
        { { .family = IP_V6, .kind = NFT_CLASS_REJECT, .ranged = true }, "reject6-ranged" },
        { { .family = IP_V6, .kind = NFT_CLASS_DROP }, "drop6" },
        { { .kind = NFT_CLASS_REMEMBER, .timeout = 86400 }, "remember-86400" },
        { { .kind = NFT_CLASS_HOLDER, .n = 1 }, "holder-1" },
        { { .kind = NFT_CLASS_REPLY, .n = 250 }, "reply-250" },
    };
    char name[NFT_CLASS_NAME_MAX];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct nft_class c;
        assert_string_equal(nft_class_name(&cases[i].c, name), cases[i].name);
        assert_true(nft_class_parse(cases[i].name, &c));
        assert_memory_equal(&c, &cases[i].c, sizeof(c));
    }
    static const char *const others[] = {
        "",
        "pick",
        "pick4",
        "pick5-1",
        "pick4-01",
        "pick4-",
        "pick4--1",
        "pick4-65536",
        "pick4-1-",
        "pick4-1-always-ranged",
        "pick4-1-affinity0",
        "pick4-1-affinity4294967296",
        "pick4-1-all0",
        "pick4-1-all",
        "pick4-0-offset",
        "pick4-1-offset-all2",
        "pick-1",
        "reject",
        "reject4-always",
        "drop4-ranged",
        "drop4-1",
        "remember",
        "remember-",
        "remember-0",
        "remember4-1",
        "remember-1 ",
        "holder",
        "holder-0",
        "holder-251",
        "reply",
        "reply-01",
        "services",
        "refuse",
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        struct nft_class c;
        if (nft_class_parse(others[i], &c))
            fail_msg("taken for a class: %s", others[i]);
    }
}

static void a_class_sends_insiders_to_all_endpoints(void **state)
{
    (void)state;
    struct nft_class c, next[2];
    char name[NFT_CLASS_NAME_MAX];
    assert_true(nft_class_parse("pick6-2-ranged-all5-affinity30", &c));
    assert_int_equal(nft_class_next(&c, next), 2);
    assert_string_equal(nft_class_name(&next[0], name), "pick6-5-offset-affinity30");
    assert_string_equal(nft_class_name(&next[1], name), "pick6-5-offset-always-affinity30");
    assert_int_equal(nft_class_next(&next[0], next), 0);
}

static void elements_of_services_print(void **state)
{
    (void)state;
    struct ip vip = ip_of("10.96.0.1"), vip6 = ip_of("fd00:96::1"), pod = ip_of("10.244.1.7"),
              pod6 = ip_of("fd00:1::7");
    struct ip_prefix inner = prefix_of("10.1.2.3/16"), outer = prefix_of("10.0.0.0/8"),
                     before = prefix_of("9.0.0.0/8"), all = prefix_of("0.0.0.0/0"),
                     pods6 = prefix_of("fd00:1::/48");
    struct nft_class pick;
    assert_true(nft_class_parse("pick4-2-affinity30", &pick));
    struct nft_group_builder *b = nft_group_begin("service/a/b");
    nft_put_service(b, &vip, L4_TCP, 80, &pick);
    /* What a drop has no use for is not in its name. */
    struct nft_class drop = { IP_V6, NFT_CLASS_DROP, NFT_MASQUERADE_ALWAYS, true, true, 1, 2, 3 };
    nft_put_service(b, &vip6, L4_SCTP, 80, &drop);
    nft_put_endpoint(b, &vip, L4_TCP, 80, 1, &pod, 8080);
    nft_put_endpoint(b, &vip, L4_TCP, 80, (uint16_t)NFT_INDEX_ALL, &pod, 8080);
    nft_put_endpoint(b, &vip6, L4_UDP, 53, 0, &pod6, 5353);
    nft_put_affinity(b, &vip, L4_TCP, 80, 0xfefe1234);
    nft_put_affinity_timeout(b, 0xfefe1234, 30);
    nft_put_affinity_endpoint(b, NFT_AFFINITYENDPOINT4, &vip, L4_TCP, 80, &pod, 8080);
    nft_put_affinity_endpoint(b, NFT_AFFINITYALL4, &vip6, L4_TCP, 80, &pod6, 8080);
    nft_put_address(b, NFT_CLUSTERIP4, &vip);
    nft_put_pair(b, NFT_HAIRPIN4, &pod6, &pod6);
    nft_put_prefix(b, NFT_PODRANGE4, &inner);
    nft_put_prefix(b, NFT_PODRANGE4, &outer);
    nft_put_prefix(b, NFT_PODRANGE4, &before);
    nft_put_prefix(b, NFT_PODRANGE4, &pods6);
    nft_put_prefix(b, NFT_SERVICERANGE4, &inner);
    nft_put_prefix(b, NFT_SERVICERANGE4, &all);
    nft_put_source_range(b, &vip, L4_TCP, 80, &outer);
    nft_put_source_range(b, &vip, L4_TCP, 80, &inner);
    nft_put_source_range(b, &vip, L4_TCP, 81, &inner);
    struct nft_group *g = nft_group_end(b);
    struct buf text = { 0 };
    for (const struct nft_elem *e = NULL; (e = nft_group_next(g, e));) {
        buf_printf(&text, "%s ", nft_set_defs[e->set].name);
        nft_text_elem(&text, e);
        buf_puts(&text, "\n");
    }
    assert_string_equal(buf_str(&text),
                        "service4 10.96.0.1 . tcp . 80 : goto pick4-2-affinity30\n"
                        "service6 fd00:96::1 . sctp . 80 : goto drop6\n"
                        "endpoint4 10.96.0.1 . tcp . 80 . 32768 : 10.244.1.7 . 8080\n"
                        "endpoint4 10.96.0.1 . tcp . 80 . 1 : 10.244.1.7 . 8080\n"
                        "endpoint6 fd00:96::1 . udp . 53 . 0 : fd00:1::7 . 5353\n"
                        "clusterip4 10.96.0.1\n"
                        "servicerange4 0.0.0.0-255.255.255.255\n"
                        "podrange4 9.0.0.0-9.255.255.255\n"
                        "podrange4 10.0.0.0-10.255.255.255\n"
                        "podrange6 fd00:1::-fd00:1:0:ffff:ffff:ffff:ffff:ffff\n"
                        "sourcerange4 10.96.0.1 . tcp . 80 . 10.0.0.0-10.255.255.255\n"
                        "sourcerange4 10.96.0.1 . tcp . 81 . 10.1.0.0-10.1.255.255\n"
                        "hairpin6 fd00:1::7 . fd00:1::7\n"
                        "affinityid4 10.96.0.1 . tcp . 80 : 4278063668\n"
                        "affinityendpoint4 10.96.0.1 . tcp . 80 . 10.244.1.7 : 10.244.1.7 . 8080\n"
                        "affinityall6 fd00:96::1 . tcp . 80 . fd00:1::7 : fd00:1::7 . 8080\n"
                        "affinitytimeout 4278063668 : goto remember-30\n");
    buf_done(&text);
    nft_group_unref(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_class_is_the_name_of_its_chain),
        cmocka_unit_test(a_class_sends_insiders_to_all_endpoints),
        cmocka_unit_test(elements_of_services_print),
        cmocka_unit_test(the_constant_tables_are_the_golden_ones),
        cmocka_unit_test(a_table_stays_when_another_is_made),
        cmocka_unit_test(both_features_make_one_table),
        cmocka_unit_test(held_addresses_need_the_whole_table),
        cmocka_unit_test(every_rule_counts_and_names_what_there_is),
        cmocka_unit_test(elements_print_sorted_across_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
