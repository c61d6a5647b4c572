/* The vocabulary in text: the constant table is tests/unit/ruleset.nft to the byte, which
 * test_nft_kernel.c loads with nft. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "model/nft_text.h"
#include "plan/plan.h"

static struct ip ip(const char *text)
{
    struct ip ret = { 0 };
    assert_true(ip_parse(text, &ret));
    return ret;
}

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

static void the_constant_table_is_the_golden_one(void **state)
{
    (void)state;
    char *golden = golden_file("ruleset.nft");
    struct buf b = { 0 };
    nft_text_table(&b, plan_ruleset(&plan_options_default));
    assert_string_equal(buf_str(&b), golden);
    buf_done(&b);
    free(golden);
}

static void every_rule_counts_and_jumps_to_a_chain_there_is(void **state)
{
    (void)state;
    const struct nft_table *t = plan_ruleset(&plan_options_default);
    for (size_t i = 0; i < t->n_chains; i++) {
        assert_true(t->chains[i].n > 0);
        for (size_t j = 0; j < t->chains[i].n; j++) {
            const struct nft_rule *r = &t->chains[i].rules[j];
            bool counts = false;
            for (size_t k = 0; k < r->n; k++) {
                const struct nft_stmt *s = &r->stmts[k];
                counts |= s->kind == NFT_STMT_COUNTER;
                if (s->kind != NFT_STMT_JUMP && s->kind != NFT_STMT_GOTO)
                    continue;
                size_t c = 0;
                while (c < t->n_chains && strcmp(t->chains[c].name, s->text))
                    c++;
                assert_true(c < t->n_chains && !t->chains[c].type);
            }
            assert_true(counts);
        }
    }
}

static void a_key_has_the_fields_of_the_set_it_is_looked_up_in(void **state)
{
    (void)state;
    static const enum nft_field field[] = {
        [NFT_EXPR_END] = NFT_FIELD_NONE,       [NFT_EXPR_IIFNAME] = NFT_FIELD_IFNAME,
        [NFT_EXPR_OIFNAME] = NFT_FIELD_IFNAME, [NFT_EXPR_DIALLED4] = NFT_FIELD_IP4,
        [NFT_EXPR_DIALLED6] = NFT_FIELD_IP6,   [NFT_EXPR_L4PROTO] = NFT_FIELD_PROTO,
        [NFT_EXPR_DPORT] = NFT_FIELD_PORT,     [NFT_EXPR_DIALLED_PORT] = NFT_FIELD_PORT,
    };
    const struct nft_table *t = plan_ruleset(&plan_options_default);
    int seen = 0;
    for (size_t i = 0; i < t->n_chains; i++)
        for (size_t j = 0; j < t->chains[i].n; j++)
            for (size_t k = 0; k < t->chains[i].rules[j].n; k++) {
                const struct nft_stmt *s = &t->chains[i].rules[j].stmts[k];
                if (s->kind != NFT_STMT_IN && s->kind != NFT_STMT_DNAT && s->kind != NFT_STMT_MARK)
                    continue;
                for (int f = 0; f < 3; f++)
                    assert_int_equal(field[nft_keys[s->key][f]], t->sets[s->set].key[f]);
                seen++;
            }
    assert_true(seen > 20);
}

static void elements_print_sorted_across_groups(void **state)
{
    (void)state;
    struct ip four = ip("203.0.113.9"), six = ip("2001:db8:113::9"), pod = ip("10.244.1.7"),
              pod6 = ip("fd00:1::7");
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
    nft_text_elements(&text, plan_ruleset(&plan_options_default), (struct nft_group *[]){ a, node },
                      2);
    assert_string_equal(
        buf_str(&text),
        "add element inet portolan links { \"pl4242\" }\n"
        "add element inet portolan ifaddr4 { \"enp1s0\" . 203.0.113.9 }\n"
        "add element inet portolan ifaddr6 { \"enp1s0\" . 2001:db8:113::9 }\n"
        "add element inet portolan open4 { 203.0.113.9 . tcp . 80 }\n"
        "add element inet portolan refuserange6 { 2001:db8:113::9 . 132 . 5-9 }\n"
        "add element inet portolan target4 { 203.0.113.9 . tcp . 80 : 10.244.1.7 . 8080 }\n"
        "add element inet portolan target6 { 2001:db8:113::9 . udp . 3000 : fd00:1::7 . 3001 }\n"
        "add element inet portolan targetrange4 { 203.0.113.9 . udp . 27015-27115 : 10.244.1.7 }\n"
        "add element inet portolan replymark4 { 203.0.113.9 : 0x6b700001 }\n");
    buf_clear(&text);
    nft_text_elements(&text, plan_ruleset(&plan_options_default), NULL, 0);
    assert_string_equal(buf_str(&text), "");
    buf_done(&text);
    nft_group_unref(a);
    nft_group_unref(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_constant_table_is_the_golden_one),
        cmocka_unit_test(every_rule_counts_and_jumps_to_a_chain_there_is),
        cmocka_unit_test(a_key_has_the_fields_of_the_set_it_is_looked_up_in),
        cmocka_unit_test(elements_print_sorted_across_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
