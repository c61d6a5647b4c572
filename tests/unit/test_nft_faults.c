/* The nftables back end when the kernel refuses, others interfere or the socket fails. */
#include "test.h"

#include <errno.h>
#include <string.h>

#include "fake_port.h"
#include "netns.h"
#include "nft_world.h"

static void a_full_set_refuses_one_group_and_no_other(void **state)
{
    (void)state;
    run("nft flush ruleset");
    struct world w = { .n = 4, .nft = nft_new(port, table_with_limit(NFT_TARGET4, 2)) };
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
    run("nft delete element inet portolan replymark4 '{ 203.0.113.9 }'");
    replace(&w, 1, mapping("portmap/a/tcp", L4_TCP, 80, 80, "10.244.2.2"));
    apply(&w, false);
    assert_in_kernel(w.groups, w.n);
    run("nft flush ruleset");
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
            restart(&w); /* a fault not met yet would meet the witness */
            assert_in_kernel(w.groups, w.n);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_set_refuses_one_group_and_no_other),
        cmocka_unit_test(a_group_refused_while_it_changes_is_gone_whole),
        cmocka_unit_test(of_two_owners_of_a_key_the_first_has_it),
        cmocka_unit_test(a_change_in_between_is_seen_before_anything_is_sent),
        cmocka_unit_test(faults_of_the_socket_are_survived),
        cmocka_unit_test(what_cannot_be_sent_is_an_error_and_the_next_call_mends),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
