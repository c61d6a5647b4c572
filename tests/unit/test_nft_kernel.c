/* The nftables back end against a real kernel, in a network namespace of its own. The witness
 * is the nft tool. */
#include "test.h"

#include <errno.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "fake_port.h"
#include "kernel/nft.h"
#include "model/nft_text.h"
#include "plan/plan.h"

#define NEWSETELEM (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWSETELEM)
#define DELSETELEM (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELSETELEM)

static struct nl_port *port; /* a fake one that stands before the kernel's */
static struct report report;
static struct err err;

static void renew_port(void)
{
    struct nl_port *real;
    nl_close(port);
    if (nl_open(NETLINK_NETFILTER, NULL, &real, &err))
        fail_msg("%s", err.text);
    port = fake_port_new(real);
}

/* ---- witnesses ---- */

/* Runs a command; what it printed, errors included. The caller frees. */
static char *run(const char *command, int want_status)
{
    struct buf out = { 0 };
    char chunk[4096];
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t n;
    while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0)
        buf_put(&out, chunk, n);
    int status = pclose(f);
    if (want_status >= 0 && status != want_status)
        fail_msg("%s: status %d\n%s", command, status, buf_str(&out));
    char *text = xstrdup(buf_str(&out));
    buf_done(&out);
    return text;
}

static void shell(const char *command)
{
    free(run(command, 0));
}

static char *listing(void)
{
    return run("nft -s list table inet portolan 2>&1", 0);
}

static bool kernel_has(const char *text)
{
    char *all = listing();
    bool has = strstr(all, text) != NULL;
    free(all);
    return has;
}

/* Loads what the text back end prints. */
static void load_text(struct nft_group *const *groups, size_t n)
{
    struct buf b = { 0 };
    nft_text_table(&b, plan_ruleset());
    nft_text_elements(&b, plan_ruleset(), groups, n);
    FILE *f = popen("nft -f /dev/stdin", "w");
    assert_non_null(f);
    assert_int_equal(fwrite(b.p, 1, b.n, f), b.n);
    assert_int_equal(pclose(f), 0);
    buf_done(&b);
}

/* ---- groups ---- */

static struct ip ip(const char *text)
{
    struct ip ret = { 0 };
    assert_true(ip_parse(text, &ret));
    return ret;
}

/* A mapping to a pod, or refused when the pod is NULL; a range when end is above port. */
static struct nft_group *mapping(const char *owner, enum l4proto proto, uint16_t port_,
                                 uint16_t end, const char *pod)
{
    bool range = end > port_;
    struct ip dialled = ip("203.0.113.9"), dialled6 = ip("2001:db8:113::9"), to = { 0 };
    struct nft_group_builder *b = nft_group_begin(owner);
    if (pod) {
        to = ip(pod);
        nft_put_flow(b, range ? NFT_OPENRANGE4 : NFT_OPEN4, &dialled, proto, port_, end);
        nft_put_target(b, range ? NFT_TARGETRANGE4 : NFT_TARGET4, &dialled, proto, port_, end, &to,
                       (uint16_t)(port_ + 1));
    } else {
        nft_put_flow(b, range ? NFT_REFUSERANGE4 : NFT_REFUSE4, &dialled, proto, port_, end);
        nft_put_flow(b, range ? NFT_REFUSERANGE4 : NFT_REFUSE4, &dialled6, proto, port_, end);
    }
    return nft_group_end(b);
}

static struct nft_group *node_group(void)
{
    struct ip four = ip("203.0.113.9"), six = ip("2001:db8:113::9"), end = ip("169.254.77.1"),
              end6 = ip("fd64:f5ac:e961::1");
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

struct world {
    struct nft_group *groups[8];
    size_t n;
    struct nft *nft;
};

/* Four groups, in the kernel. */
static void world_init(struct world *w)
{
    shell("nft flush ruleset");
    *w = (struct world){ .n = 4 };
    w->groups[0] = node_group();
    w->groups[1] = mapping("portmap/a/tcp", L4_TCP, 80, 80, "10.244.1.7");
    w->groups[2] = mapping("portmap/b/udp", L4_UDP, 27015, 27115, "10.244.1.8");
    w->groups[3] = mapping("portmap/c/none", L4_UDP, 3000, 3000, NULL);
    w->nft = nft_new(port, plan_ruleset());
    report_reset(&report);
    assert_int_equal(nft_sync(w->nft, w->groups, w->n, false, &report, &err), 0);
    assert_int_equal(report.refusals.n, 0);
    report_reset(&report);
}

static void world_done(struct world *w)
{
    for (size_t i = 0; i < w->n; i++)
        nft_group_unref(w->groups[i]);
    nft_free(w->nft);
}

static void replace(struct world *w, size_t i, struct nft_group *g)
{
    nft_group_unref(w->groups[i]);
    w->groups[i] = g;
}

static void apply(struct world *w, bool audit)
{
    report_reset(&report);
    int r = nft_sync(w->nft, w->groups, w->n, audit, &report, &err);
    if (r)
        fail_msg("nft_sync: %s", err.text);
}

/* Another agent that reads the kernel finds it as wanted. */
static void assert_in_kernel(struct nft_group *const *groups, size_t n)
{
    struct buf out = { 0 };
    struct nft *other = nft_new(port, plan_ruleset());
    if (nft_diff(other, groups, n, &out, &err))
        fail_msg("nft_diff: %s", err.text);
    assert_string_equal(buf_str(&out), "");
    buf_done(&out);
    nft_free(other);
}

/* ---- tests ---- */

static void what_is_installed_lists_like_its_text(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    char *ours = listing();
    assert_non_null(strstr(ours, "203.0.113.9 . tcp . 80 counter : 10.244.1.7 . 81"));
    shell("nft list ruleset | nft -c -f -");
    shell("nft flush ruleset");
    load_text(w.groups, w.n);
    char *loaded = listing();
    assert_string_equal(ours, loaded);
    /* Again over what there is. */
    shell("nft list ruleset | nft -c -f -");
    free(ours);
    free(loaded);
    world_done(&w);
}

static void a_successor_finds_nothing_to_do(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    struct nft *successor = nft_new(port, plan_ruleset());
    fake_forget_sent(port);
    assert_int_equal(nft_sync(successor, w.groups, w.n, false, &report, &err), 0);
    assert_int_equal(report.bytes, 0);
    assert_int_equal(fake_sent(port, NFNL_MSG_BATCH_BEGIN), 0);
    assert_false(nft_foreign_change(successor));
    nft_free(successor);
    world_done(&w);
}

static void what_others_edit_is_put_back(void **state)
{
    (void)state;
#define T "inet portolan "
    static const char *const edits[] = {
        "nft flush ruleset",
        "nft delete table " T,
        "nft delete element " T "target4 '{ 203.0.113.9 . tcp . 80 }'",
        "nft 'delete element " T "target4 { 203.0.113.9 . tcp . 80 }; "
        "add element " T "target4 { 203.0.113.9 . tcp . 80 : 10.9.9.9 . 99 }'",
        "nft add element " T "open4 '{ 203.0.113.9 . tcp . 22 }'",
        "nft add element " T "openrange4 '{ 203.0.113.9 . tcp . 1-1000 }'",
        "nft 'delete element " T "openrange4 { 203.0.113.9 . udp . 27015-27115 }; "
        "add element " T "openrange4 { 203.0.113.0/24 . udp . 27000-27115 }'",
        "nft flush map " T "replymark4",
        "nft flush chain " T "refuse",
        "nft insert rule " T "arrive counter accept",
        "nft add rule " T "reply meta mark set 7",
        "nft flush chain " T "mss '; add rule " T "mss oifname \"wt0\" counter'",
        "nft add set " T "mine '{ type ipv4_addr; }'",
        "nft add chain " T "mine",
        "nft add counter " T "mine",
        "nft add chain " T "identity '{ policy drop; }'",
        "nft flush chain " T "mss '; delete chain " T "mss'",
        "nft flush chain " T "mss '; delete chain " T "mss; add chain " T
        "mss { type filter hook forward priority 5; }'",
        "nft flush chain " T "mss '; delete set " T "links'",
        "nft add table " T "'{ flags dormant; }'",
        "nft delete table " T "'; add table " T "; add set " T
        "links { type ipv4_addr; elements = { 1.2.3.4 }; }'",
    };
    struct world w;
    world_init(&w);
    char *want = listing();
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        shell(edits[i]);
        assert_true(nft_foreign_change(w.nft));
        char *edited = run("nft -s list table inet portolan 2>&1", -1);
        if (!strcmp(edited, want))
            fail_msg("changes nothing: %s", edits[i]);
        apply(&w, true);
        assert_true(report.adds + report.changes + report.deletes > 0);
        assert_false(nft_foreign_change(w.nft));
        char *mended = listing();
        if (strcmp(mended, want))
            fail_msg("after %s:\n%s", edits[i], mended);
        free(edited);
        free(mended);
    }
    free(want);
    world_done(&w);
}

static void the_element_for_all_other_keys_is_removed(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    shell("nft add element inet portolan replymark4 '{ * : 7 }'");
    assert_true(kernel_has("* : 0x00000007"));
    apply(&w, true);
    assert_false(kernel_has("* :"));
    assert_in_kernel(w.groups, w.n);
    world_done(&w);
}

static void tables_of_others_stay(void **state)
{
    (void)state;
    static const char others[] = "nft -a list table ip portolan; nft -a list table inet other";
    struct world w;
    shell("nft flush ruleset");
    world_init(&w);
    shell("nft 'add table ip portolan; add set ip portolan links { type ipv4_addr; }; "
          "add table inet other; add chain inet other mss; add rule inet other mss counter'");
    char *before = run(others, 0);
    apply(&w, true);
    assert_int_equal(report.bytes, 0); /* and they are not taken for ours */
    shell("nft add chain inet portolan strange");
    apply(&w, true);
    bool existed = false;
    assert_int_equal(nft_cleanup(port, false, &existed, &err), 0);
    assert_true(existed);
    char *after = run(others, 0);
    assert_string_equal(before, after);
    free(before);
    free(after);
    world_done(&w);
}

static void a_moved_endpoint_is_one_change(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    replace(&w, 1, mapping("portmap/a/tcp", L4_TCP, 80, 80, "10.244.2.2"));
    fake_forget_sent(port);
    apply(&w, false);
    assert_int_equal(report.changes, 1);
    assert_int_equal(report.adds + report.deletes, 0);
    assert_int_equal(fake_sent(port, DELSETELEM), 1);
    assert_int_equal(fake_sent(port, NEWSETELEM), 1);
    assert_true(kernel_has("203.0.113.9 . tcp . 80 counter : 10.244.2.2 . 81"));
    assert_in_kernel(w.groups, w.n);
    fake_forget_sent(port);
    apply(&w, false);
    assert_int_equal(fake_sent(port, 0), 0); /* nothing to do, nothing to ask */
    world_done(&w);
}

static void a_key_may_change_its_owner(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    /* Same flow and pod: it stays; another pod: it changes in one batch. */
    replace(&w, 1, mapping("portmap/a/renamed", L4_TCP, 80, 80, "10.244.1.7"));
    apply(&w, false);
    assert_int_equal(report.bytes, 0);
    assert_in_kernel(w.groups, w.n);
    replace(&w, 1, mapping("portmap/a/again", L4_TCP, 80, 80, "10.244.1.9"));
    apply(&w, false);
    assert_int_equal(report.changes, 1);
    assert_in_kernel(w.groups, w.n);
    /* From a range to ports, from a target to refusal. */
    replace(&w, 2, mapping("portmap/b/udp", L4_UDP, 27020, 27021, "10.244.1.8"));
    replace(&w, 1, mapping("portmap/a/again", L4_TCP, 80, 80, NULL));
    apply(&w, false);
    assert_in_kernel(w.groups, w.n);
    world_done(&w);
}

static void a_full_set_refuses_one_group_and_no_other(void **state)
{
    (void)state;
    struct nft_set_def sets[NFT_SET_COUNT];
    memcpy(sets, nft_set_defs, sizeof(sets));
    sets[NFT_TARGET4].size = 2;
    struct nft_table small = *plan_ruleset();
    small.sets = sets;
    shell("nft flush ruleset");
    struct world w = { .n = 4, .nft = nft_new(port, &small) };
    w.groups[0] = mapping("portmap/a/1", L4_TCP, 1, 1, "10.0.0.1");
    w.groups[1] = mapping("portmap/a/2", L4_TCP, 2, 2, "10.0.0.2");
    w.groups[2] = mapping("portmap/a/3", L4_TCP, 3, 3, "10.0.0.3");
    w.groups[3] = mapping("portmap/a/4", L4_TCP, 4, 4, NULL);
    apply(&w, false);
    assert_int_equal(report.refusals.n, 1);
    assert_string_equal(report.refusals.v[0].owner, "portmap/a/3");
    assert_string_equal(report.refusals.v[0].object,
                        "element inet portolan target4 { 203.0.113.9 . tcp . 3 : 10.0.0.3 . 4 }");
    assert_string_equal(report.refusals.v[0].text, "the set holds its limit of 2 elements");
    assert_int_equal(report.refusals.v[0].error, ENFILE);
    /* Nothing of the refused mapping, all of the others. */
    assert_false(kernel_has("203.0.113.9 . tcp . 3"));
    assert_true(kernel_has("203.0.113.9 . tcp . 2 counter : 10.0.0.2 . 3"));
    assert_true(kernel_has("203.0.113.9 . tcp . 4"));

    /* It is tried again, and others go on meanwhile. */
    replace(&w, 1, mapping("portmap/a/2", L4_TCP, 2, 2, "10.0.0.9"));
    apply(&w, false);
    assert_int_equal(report.refusals.n, 1);
    assert_true(kernel_has("203.0.113.9 . tcp . 2 counter : 10.0.0.9 . 3"));
    replace(&w, 1, mapping("portmap/a/2", L4_TCP, 2, 2, NULL));
    apply(&w, false);
    assert_int_equal(report.refusals.n, 0);
    assert_true(kernel_has("203.0.113.9 . tcp . 3 counter : 10.0.0.3 . 4"));
    world_done(&w);
}

static void a_group_refused_while_it_changes_is_gone_whole(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    replace(&w, 1, mapping("portmap/a/tcp", L4_TCP, 80, 80, "10.244.2.2"));
    replace(&w, 3, mapping("portmap/c/none", L4_UDP, 3000, 3000, "10.244.2.3"));
    /* The batch adds one element to open4 and, in one message, two to target4. That message is
     * refused; told apart, the first of the two. */
    fake_refuse_type(port, NEWSETELEM, 1, 1, ENOMEM, "");
    fake_refuse_type(port, NEWSETELEM, 2, 1, ENOMEM, "no room");
    apply(&w, false);
    assert_int_equal(report.refusals.n, 1);
    assert_string_equal(report.refusals.v[0].owner, "portmap/a/tcp");
    assert_string_equal(report.refusals.v[0].text, "Cannot allocate memory: no room");
    assert_false(kernel_has("203.0.113.9 . tcp . 80"));
    assert_true(kernel_has("203.0.113.9 . udp . 3000 counter : 10.244.2.3 . 3001"));
    apply(&w, false);
    assert_int_equal(report.refusals.n, 0);
    assert_in_kernel(w.groups, w.n);
    world_done(&w);
}

static void of_two_owners_of_a_key_the_first_has_it(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.groups[w.n++] = mapping("portmap/z/tcp", L4_TCP, 80, 80, "10.244.9.9");
    for (int audit = 0; audit < 2; audit++) {
        apply(&w, audit);
        assert_int_equal(report.refusals.n, 1);
        assert_string_equal(report.refusals.v[0].owner, "portmap/z/tcp");
        assert_int_equal(report.refusals.v[0].error, EEXIST);
        assert_true(kernel_has("203.0.113.9 . tcp . 80 counter : 10.244.1.7 . 81"));
    }
    world_done(&w);
}

static void a_change_in_between_is_seen_before_anything_is_sent(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    /* Not even an audit was asked for. */
    shell("nft delete element inet portolan replymark4 '{ 203.0.113.9 }'");
    replace(&w, 1, mapping("portmap/a/tcp", L4_TCP, 80, 80, "10.244.2.2"));
    apply(&w, false);
    assert_in_kernel(w.groups, w.n);
    shell("nft flush ruleset");
    replace(&w, 1, mapping("portmap/a/tcp", L4_TCP, 80, 80, "10.244.2.3"));
    apply(&w, false);
    assert_in_kernel(w.groups, w.n);
    world_done(&w);
}

/* What happens to one call, `at` says where in it or how often. */
static void no_room_to_send(unsigned at)
{
    fake_fail_send(port, at, ENOBUFS);
}
static void interrupted_sending(unsigned at)
{
    fake_fail_send(port, at, EINTR);
}
static void interrupted_receiving(unsigned at)
{
    fake_fail_recv(port, at, 1, EINTR);
}
static void dump_interrupted(unsigned at)
{
    fake_interrupt_dump(port, at);
}
static void answer_lost(unsigned at)
{
    if (!at) /* to the batch; a lost end of a dump takes a time-out */
        fake_fail_recv(port, 0, 1, ENOBUFS);
}
static void answer_truncated(unsigned at)
{
    if (!at)
        fake_fail_recv(port, 0, 1, EMSGSIZE);
}
static void kernel_busy(unsigned at)
{
    fake_refuse_type(port, NFNL_MSG_BATCH_BEGIN, 0, at, EBUSY, "");
}
static void changed_in_between(unsigned at)
{
    fake_refuse_type(port, NFNL_MSG_BATCH_BEGIN, 0, at, ERESTART, "");
}
static void not_there(unsigned at)
{
    fake_refuse_type(port, DELSETELEM, 0, at, ENOENT, "");
}

static void faults_of_the_socket_are_survived(void **state)
{
    (void)state;
    static void (*const faults[])(unsigned at) = {
        no_room_to_send,  interrupted_sending, interrupted_receiving, dump_interrupted, answer_lost,
        answer_truncated, kernel_busy,         changed_in_between,    not_there,
    };
    struct world w;
    world_init(&w);
    unsigned pod = 0;
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        for (unsigned at = 0; at < 6; at++) {
            char to[32];
            snprintf(to, sizeof(to), "10.244.3.%u", ++pod);
            replace(&w, 1, mapping("portmap/a/tcp", L4_TCP, 80, 80, to));
            faults[i](at);
            report_reset(&report);
            /* A fault may fail the call, never mislead the next one. */
            int r = nft_sync(w.nft, w.groups, w.n, at & 1, &report, &err);
            assert_true(!r || faults[i] == answer_truncated);
            assert_int_equal(report.refusals.n, 0);
            if (r)
                apply(&w, false);
            renew_port(); /* a fault not met yet would meet the witness */
            nft_free(w.nft);
            assert_in_kernel(w.groups, w.n);
            w.nft = nft_new(port, plan_ruleset());
            apply(&w, false);
            assert_int_equal(report.bytes, 0);
        }
    world_done(&w);
}

static void what_cannot_be_sent_is_an_error_and_the_next_call_mends(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    replace(&w, 1, mapping("portmap/a/tcp", L4_TCP, 80, 80, "10.244.2.2"));
    fake_fail_send(port, 1, EPERM);
    assert_int_equal(nft_sync(w.nft, w.groups, w.n, false, &report, &err), -EPERM);
    assert_non_null(strstr(err.text, "table inet portolan"));
    assert_true(nft_foreign_change(w.nft));
    apply(&w, false);
    assert_in_kernel(w.groups, w.n);
    /* A stranger who never rests. */
    replace(&w, 1, mapping("portmap/a/tcp", L4_TCP, 80, 80, "10.244.2.3"));
    fake_refuse_type(port, NFNL_MSG_BATCH_BEGIN, 0, 8, ERESTART, "");
    assert_int_equal(nft_sync(w.nft, w.groups, w.n, false, &report, &err), -EAGAIN);
    apply(&w, false);
    assert_in_kernel(w.groups, w.n);
    world_done(&w);
}

static void assert_flow(const struct flow_target *f, uint16_t first, uint16_t last,
                        const char *target, uint16_t target_port)
{
    char text[IP_TEXT_MAX];
    assert_string_equal(ip_format(&f->target, text), target);
    assert_int_equal(f->port, first);
    assert_int_equal(f->end, last);
    assert_int_equal(f->target_port, target_port);
}

static void conntrack_hears_where_udp_flows_lead_now(void **state)
{
    (void)state;
    const struct flow_target *f;
    struct world w;
    world_init(&w);
    /* The first call tells all: the refused in both families, and the range. */
    assert_int_equal(nft_udp_changes(w.nft, &f), 3);
    assert_flow(&f[0], 3000, 3000, "", 0);
    assert_flow(&f[1], 27015, 27115, "10.244.1.8", 0);
    assert_flow(&f[2], 3000, 3000, "", 0);
    assert_int_equal(f[2].dialled.family, IP_V6);
    apply(&w, false);
    assert_int_equal(nft_udp_changes(w.nft, &f), 0);

    replace(&w, 1, mapping("portmap/a/tcp", L4_TCP, 80, 80, "10.244.2.2"));
    replace(&w, 2, mapping("portmap/b/udp", L4_UDP, 27015, 27115, "10.244.2.8"));
    replace(&w, 3, mapping("portmap/c/none", L4_UDP, 3000, 3000, "10.244.2.3"));
    apply(&w, false);
    assert_int_equal(nft_udp_changes(w.nft, &f), 3);
    assert_flow(&f[0], 3000, 3000, "10.244.2.3", 3001);
    assert_flow(&f[1], 27015, 27115, "10.244.2.8", 0);
    assert_flow(&f[2], 3000, 3000, "", 0);

    nft_group_unref(w.groups[--w.n]);
    apply(&w, false);
    assert_int_equal(nft_udp_changes(w.nft, &f), 1);
    assert_flow(&f[0], 3000, 3000, "", 0);

    /* A foreign edit that is mended may have left entries behind. */
    shell("nft delete element inet portolan targetrange4 '{ 203.0.113.9 . udp . 27015-27115 }'");
    apply(&w, true);
    assert_int_equal(nft_udp_changes(w.nft, &f), 1);
    assert_flow(&f[0], 27015, 27115, "10.244.2.8", 0);

    /* When the answer is lost, so is what changed: everything is told. */
    nft_group_unref(w.groups[--w.n]);
    fake_fail_recv(port, 0, 1, ENOBUFS);
    apply(&w, false);
    assert_int_equal(nft_udp_changes(w.nft, &f), 1);
    assert_flow(&f[0], 27015, 27115, "", 0);
    world_done(&w);
}

static void the_difference_is_told_without_making_it(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    char *before = listing();
    replace(&w, 1, mapping("portmap/a/tcp", L4_TCP, 80, 80, "10.244.2.2"));
    struct buf out = { 0 };
    assert_int_equal(nft_diff(w.nft, w.groups, w.n, &out, &err), 0);
    assert_string_equal(
        buf_str(&out),
        "- element inet portolan target4 { 203.0.113.9 . tcp . 80 : 10.244.1.7 . 81 }\n"
        "+ element inet portolan target4 { 203.0.113.9 . tcp . 80 : 10.244.2.2 . 81 }\n");
    char *after = listing();
    assert_string_equal(before, after);
    shell("nft flush chain inet portolan refuse");
    buf_clear(&out);
    assert_int_equal(nft_diff(w.nft, NULL, 0, &out, &err), 0);
    assert_string_equal(buf_str(&out), "- table inet portolan: rules of chain refuse\n"
                                       "+ table inet portolan\n");
    shell("nft flush ruleset");
    buf_clear(&out);
    assert_int_equal(nft_diff(w.nft, NULL, 0, &out, &err), 0);
    assert_string_equal(buf_str(&out), "+ table inet portolan\n");
    free(before);
    free(after);
    buf_done(&out);
    world_done(&w);
}

static void cleanup_removes_the_table_once(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    bool existed = false;
    assert_int_equal(nft_cleanup(port, true, &existed, &err), 0);
    assert_true(existed);
    assert_true(kernel_has("chain arrive"));
    assert_int_equal(nft_cleanup(port, false, &existed, &err), 0);
    assert_true(existed);
    char *rest = run("nft list ruleset", 0);
    assert_string_equal(rest, "");
    free(rest);
    assert_int_equal(nft_cleanup(port, false, &existed, &err), 0);
    assert_false(existed);
    world_done(&w);
}

static int open_port(void **state)
{
    (void)state;
    if (unshare(CLONE_NEWNET)) {
        print_error("needs root: %s\n", strerror(errno));
        return -1;
    }
    renew_port();
    return 0;
}

static int close_port(void **state)
{
    (void)state;
    nl_close(port);
    report_done(&report);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_installed_lists_like_its_text),
        cmocka_unit_test(a_successor_finds_nothing_to_do),
        cmocka_unit_test(what_others_edit_is_put_back),
        cmocka_unit_test(the_element_for_all_other_keys_is_removed),
        cmocka_unit_test(tables_of_others_stay),
        cmocka_unit_test(a_moved_endpoint_is_one_change),
        cmocka_unit_test(a_key_may_change_its_owner),
        cmocka_unit_test(a_full_set_refuses_one_group_and_no_other),
        cmocka_unit_test(a_group_refused_while_it_changes_is_gone_whole),
        cmocka_unit_test(of_two_owners_of_a_key_the_first_has_it),
        cmocka_unit_test(a_change_in_between_is_seen_before_anything_is_sent),
        cmocka_unit_test(faults_of_the_socket_are_survived),
        cmocka_unit_test(what_cannot_be_sent_is_an_error_and_the_next_call_mends),
        cmocka_unit_test(conntrack_hears_where_udp_flows_lead_now),
        cmocka_unit_test(the_difference_is_told_without_making_it),
        cmocka_unit_test(cleanup_removes_the_table_once),
    };
    return cmocka_run_group_tests(tests, open_port, close_port);
}
