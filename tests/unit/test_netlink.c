#include "test.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <string.h>

#include "base/vec.h"
#include "fake_port.h"
#include "netlink/nl_attr.h"

struct seen {
    VEC(uint32_t) v;
    unsigned restarts;
    int fail;
};

static int see(const struct nlmsghdr *m, void *user)
{
    struct seen *s = user;
    if (s->fail)
        return -s->fail;
    uint32_t x;
    if (mnl_nlmsg_get_payload_len(m) < sizeof(x))
        return -EBADMSG;
    memcpy(&x, mnl_nlmsg_get_payload(m), sizeof(x));
    vec_push(&s->v, x);
    return 0;
}

static void forget(void *user)
{
    struct seen *s = user;
    s->v.n = 0;
    s->restarts++;
}

/* A port whose dump of type 18 holds 0..n-1. */
static struct nl_port *port_with_dump(uint32_t n)
{
    struct nl_port *p = fake_port_new(NULL);
    struct nl_buf b = { 0 };
    for (uint32_t i = 0; i < n; i++)
        nl_msg(&b, RTM_NEWLINK, 0, 0, &i, sizeof(i));
    fake_dump(p, RTM_GETLINK, b.p, nl_end(&b));
    nl_buf_done(&b);
    return p;
}

static int dump(struct nl_port *p, struct seen *s, struct err *err)
{
    struct nl_buf b = { 0 };
    int r = nl_dump(p, nl_msg(&b, RTM_GETLINK, 0, 0, NULL, 0), see, forget, s, err);
    nl_buf_done(&b);
    return r;
}

static int talk(struct nl_port *p, struct err *err)
{
    struct nl_buf b = { 0 };
    int r = nl_talk(p, nl_msg(&b, RTM_NEWLINK, 0, 0, "abcd", 4), err);
    nl_buf_done(&b);
    return r;
}

static void assert_whole(const struct seen *s, size_t n)
{
    assert_int_equal(s->v.n, n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(s->v.v[i], i);
}

static void talk_gives_the_kernels_words(void **state)
{
    (void)state;
    struct nl_port *p = fake_port_new(NULL);
    struct err err;
    assert_int_equal(talk(p, &err), 0);
    fake_refuse_type(p, RTM_NEWLINK, 0, 1, EBUSY, "Device is busy");
    assert_int_equal(talk(p, &err), -EBUSY);
    assert_string_equal(err.text, "Device or resource busy: Device is busy");
    fake_refuse_type(p, RTM_NEWLINK, 0, 1, EPERM, "");
    assert_int_equal(talk(p, &err), -EPERM);
    assert_string_equal(err.text, "Operation not permitted");
    assert_int_equal(fake_sent(p, RTM_NEWLINK), 3);
    nl_close(p);
}

static void talk_tries_again_what_is_worth_it(void **state)
{
    (void)state;
    static const int passing[] = { EINTR, EAGAIN, ENOBUFS };
    struct nl_port *p = fake_port_new(NULL);
    struct err err;
    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++) {
        fake_refuse_type(p, RTM_NEWLINK, 0, 2, passing[i], "");
        assert_int_equal(talk(p, &err), 0);
        fake_fail_send(p, 3, passing[i]);
        assert_int_equal(talk(p, &err), 0);
    }
    fake_fail_recv(p, 0, 2, EINTR);
    assert_int_equal(talk(p, &err), 0);
    fake_fail_recv(p, 0, 1, ENOBUFS);
    assert_int_equal(talk(p, &err), 0);
    /* It gives up at some point. */
    fake_refuse_type(p, RTM_NEWLINK, 0, 1000, ENOBUFS, "");
    fake_forget_sent(p);
    assert_int_equal(talk(p, &err), -ENOBUFS);
    assert_in_range(fake_sent(p, 0), 2, 20);
    nl_close(p);
}

static void talk_ignores_answers_to_something_else(void **state)
{
    (void)state;
    struct nl_port *p = fake_port_new(NULL);
    struct nl_buf b = { 0 };
    struct nlmsgerr e = { .error = -EPERM };
    nl_msg(&b, NLMSG_ERROR, 0, 9999, &e, sizeof(e));
    fake_push(p, b.p, nl_end(&b));
    struct err err;
    assert_int_equal(talk(p, &err), 0);
    nl_buf_done(&b);
    nl_close(p);
}

static void talk_refuses_a_cut_answer(void **state)
{
    (void)state;
    for (size_t len = 0; len < 36; len += 4) {
        struct nl_port *p = fake_port_new(NULL);
        struct err err;
        fake_cut_recv(p, 0, len);
        int r = talk(p, &err);
        assert_true(r == -ETIMEDOUT || r == -EBADMSG);
        nl_close(p);
    }
}

static void dump_gives_every_message(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 12; n++) {
        struct nl_port *p = port_with_dump(n);
        struct seen s = { 0 };
        struct err err;
        assert_int_equal(dump(p, &s, &err), 0);
        assert_whole(&s, n);
        vec_done(&s.v);
        nl_close(p);
    }
}

static void dump_starts_again_when_disturbed(void **state)
{
    (void)state;
    for (unsigned at = 0; at < 4; at++)
        for (int kind = 0; kind < 4; kind++) {
            struct nl_port *p = port_with_dump(10);
            struct seen s = { 0 };
            struct err err;
            if (kind == 0)
                fake_interrupt_dump(p, at);
            if (kind == 1)
                fake_fail_recv(p, at, 1, at == 3 ? EINTR : ENOBUFS);
            if (kind == 2)
                fake_fail_recv(p, at == 3 ? 2 : at, 1, EMSGSIZE);
            if (kind == 3)
                fake_refuse_type(p, RTM_GETLINK, 0, at + 1, at % 2 ? EBUSY : EINTR, "");
            assert_int_equal(dump(p, &s, &err), 0);
            assert_whole(&s, 10);
            bool repeated = !(kind == 1 && at == 3);
            assert_int_equal(s.restarts > 0, repeated);
            vec_done(&s.v);
            nl_close(p);
        }
}

static void dump_that_is_always_disturbed_is_an_error(void **state)
{
    (void)state;
    struct nl_port *p = port_with_dump(1);
    struct seen s = { 0 };
    struct err err;
    fake_refuse_type(p, RTM_GETLINK, 0, 100000, EBUSY, "");
    assert_int_equal(dump(p, &s, &err), -EAGAIN);
    assert_int_equal(s.v.n, 0);
    nl_close(p);
    p = port_with_dump(1);
    memset(&err, 0, sizeof(err));
    fake_fail_recv(p, 0, 100000, ENOBUFS);
    assert_int_equal(dump(p, &s, &err), -EAGAIN);
    assert_string_equal(err.text,
                        "other changes interrupted every attempt to read the kernel's tables");
    nl_close(p);
}

static void dump_without_an_end_is_an_error(void **state)
{
    (void)state;
    struct nl_port *p = port_with_dump(10);
    struct seen s = { 0 };
    struct err err;
    fake_lose_rest(p, 2);
    assert_int_equal(dump(p, &s, &err), -ETIMEDOUT);
    vec_done(&s.v);
    nl_close(p);
}

static void dump_ends_with_the_callers_error(void **state)
{
    (void)state;
    struct nl_port *p = port_with_dump(10);
    struct seen s = { .fail = EBADMSG };
    struct err err;
    assert_int_equal(dump(p, &s, &err), -EBADMSG);
    /* The rest was drained: the next dump works. */
    s.fail = 0;
    assert_int_equal(dump(p, &s, &err), 0);
    assert_whole(&s, 10);
    vec_done(&s.v);
    nl_close(p);
}

static uint32_t batch_of(struct nl_port *p, struct nl_buf *b, unsigned n)
{
    uint32_t seq = 0;
    nl_buf_clear(b);
    for (unsigned i = 0; i < n; i++)
        nl_msg(b, RTM_NEWROUTE, (uint16_t)(NLM_F_REQUEST | (i == n - 1 ? NLM_F_ACK : 0)),
               seq = nl_seq(p), "abcd", 4);
    nl_end(b);
    return seq;
}

static void batch_names_what_was_refused(void **state)
{
    (void)state;
    struct nl_port *p = fake_port_new(NULL);
    struct nl_buf b = { 0 };
    struct nl_error errors[2];
    struct err err;
    size_t n = 9;
    uint32_t last = batch_of(p, &b, 10);
    assert_int_equal(nl_batch(p, b.p, b.n, last, errors, 2, &n, &err), 0);
    assert_int_equal(n, 0);
    last = batch_of(p, &b, 10);
    fake_refuse_seq(p, last - 7, EEXIST, "Already there");
    fake_refuse_seq(p, last - 3, ENOENT, "");
    fake_refuse_seq(p, last, EBUSY, "");
    assert_int_equal(nl_batch(p, b.p, b.n, last, errors, 2, &n, &err), -EEXIST);
    assert_string_equal(err.text, "File exists: Already there");
    assert_int_equal(n, 3);
    assert_int_equal(errors[0].seq, last - 7);
    assert_int_equal(errors[0].error, EEXIST);
    assert_string_equal(errors[0].text, "Already there");
    assert_int_equal(errors[1].seq, last - 3);
    assert_int_equal(errors[1].error, ENOENT);
    nl_buf_done(&b);
    nl_close(p);
}

static void batch_without_an_answer_is_not_acknowledged(void **state)
{
    (void)state;
    struct nl_port *p = fake_port_new(NULL);
    struct nl_buf b = { 0 };
    struct nl_error errors[2];
    struct err err;
    size_t n;
    uint32_t last = batch_of(p, &b, 3);
    fake_fail_recv(p, 0, 1, ENOBUFS);
    assert_int_equal(nl_batch(p, b.p, b.n, last, errors, 2, &n, &err), -ENOBUFS);
    assert_int_equal(n, 0);
    last = batch_of(p, &b, 3);
    fake_lose_rest(p, 0);
    assert_int_equal(nl_batch(p, b.p, b.n, last, errors, 2, &n, &err), -ENOBUFS);
    last = batch_of(p, &b, 3);
    fake_fail_send(p, 100, ENOBUFS);
    assert_int_equal(nl_batch(p, b.p, b.n, last, errors, 2, &n, &err), -ENOBUFS);
    fake_fail_send(p, 0, 0);
    last = batch_of(p, &b, 3);
    fake_fail_recv(p, 0, 3, EINTR);
    assert_int_equal(nl_batch(p, b.p, b.n, last, errors, 2, &n, &err), 0);
    nl_buf_done(&b);
    nl_close(p);
}

static void attributes_pass_only_in_shape(void **state)
{
    (void)state;
    static const struct nl_policy policy[] = {
        [1] = NL_U32,
        [2] = NL_STRING,
        [3] = NL_IP,
        [4] = NL_NEST,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    struct nl_buf b = { 0 };
    struct ip ip = ip_v4(192, 0, 2, 1), got;
    uint32_t head = 7;
    struct nlmsghdr *m = nl_msg(&b, 16, 0, 1, &head, sizeof(head));
    mnl_attr_put_u32(m, 1, 5);
    mnl_attr_put_strz(m, 2, "eth0");
    nl_put_ip(m, 3, &ip);
    struct nlattr *nest = mnl_attr_nest_start(m, 4);
    mnl_attr_put_u32(m, 1, 6);
    mnl_attr_nest_end(m, nest);
    mnl_attr_put_u8(m, 99, 1);
    assert_int_equal(nl_parse(m, sizeof(head), policy, NL_POLICY_COUNT(policy), tb), 0);
    assert_int_equal(mnl_attr_get_u32(tb[1]), 5);
    assert_string_equal(mnl_attr_get_str(tb[2]), "eth0");
    assert_true(nl_get_ip(tb[3], &got));
    assert_true(ip_equal(&got, &ip));
    assert_int_equal(nl_parse_nested(tb[4], policy, NL_POLICY_COUNT(policy), tb), 0);
    assert_int_equal(mnl_attr_get_u32(tb[1]), 6);
    assert_null(tb[2]);

    m = nl_msg(&b, 16, 0, 1, &head, sizeof(head));
    mnl_attr_put_u16(m, 1, 5);
    assert_int_equal(nl_parse(m, sizeof(head), policy, NL_POLICY_COUNT(policy), tb), -EBADMSG);
    m = nl_msg(&b, 16, 0, 1, &head, sizeof(head));
    mnl_attr_put(m, 2, 4, "eth0");
    assert_int_equal(nl_parse(m, sizeof(head), policy, NL_POLICY_COUNT(policy), tb), -EBADMSG);
    m = nl_msg(&b, 16, 0, 1, &head, sizeof(head));
    mnl_attr_put_u32(m, 1, 5);
    m->nlmsg_len -= 2;
    assert_int_equal(nl_parse(m, sizeof(head), policy, NL_POLICY_COUNT(policy), tb), -EBADMSG);
    m->nlmsg_len = NLMSG_HDRLEN + 2;
    assert_int_equal(nl_parse(m, sizeof(head), policy, NL_POLICY_COUNT(policy), tb), -EBADMSG);
    nl_buf_done(&b);
}

static void a_real_port_dumps_links(void **state)
{
    (void)state;
    struct nl_port *p;
    struct err err;
    assert_int_equal(nl_open(NETLINK_ROUTE, NULL, &p, &err), 0);
    p = fake_port_new(p);
    struct nl_buf b = { 0 };
    struct ifinfomsg ifi = { .ifi_family = AF_UNSPEC };
    struct seen s = { 0 };
    fake_interrupt_dump(p, 0);
    assert_int_equal(
        nl_dump(p, nl_msg(&b, RTM_GETLINK, 0, 0, &ifi, sizeof(ifi)), see, forget, &s, &err), 0);
    assert_true(s.v.n > 0); /* there is always lo */
    assert_int_equal(s.restarts, 1);
    ifi.ifi_index = 0x7fffffff;
    assert_int_equal(nl_talk(p, nl_msg(&b, RTM_DELLINK, 0, 0, &ifi, sizeof(ifi)), &err), -ENODEV);
    assert_string_equal(err.text, "No such device");
    nl_buf_done(&b);
    vec_done(&s.v);
    nl_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(talk_gives_the_kernels_words),
        cmocka_unit_test(talk_tries_again_what_is_worth_it),
        cmocka_unit_test(talk_ignores_answers_to_something_else),
        cmocka_unit_test(talk_refuses_a_cut_answer),
        cmocka_unit_test(dump_gives_every_message),
        cmocka_unit_test(dump_starts_again_when_disturbed),
        cmocka_unit_test(dump_that_is_always_disturbed_is_an_error),
        cmocka_unit_test(dump_without_an_end_is_an_error),
        cmocka_unit_test(dump_ends_with_the_callers_error),
        cmocka_unit_test(batch_names_what_was_refused),
        cmocka_unit_test(batch_without_an_answer_is_not_acknowledged),
        cmocka_unit_test(attributes_pass_only_in_shape),
        cmocka_unit_test(a_real_port_dumps_links),
    };
    return cmocka_run_group_tests_name("netlink", tests, NULL, NULL);
}
