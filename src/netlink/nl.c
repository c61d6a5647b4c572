#include "netlink/nl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "netlink/nl_attr.h"

#define TRIES      8
#define DUMP_TRIES 16
#define TIMEOUT_MS 5000
#define DRAIN_MS   20
#define RECV_MIN   (64u * 1024)
#define RECV_MAX   (4u * 1024 * 1024)

/* Where a datagram is received. */
struct inbox {
    char *p;
    size_t cap;
};

static int transfer(struct nl_port *p, struct nlmsghdr *msg,
                    int (*cb)(const struct nlmsghdr *m, void *user), void *user, struct err *err);
static int dump_once(struct nl_port *p, struct inbox *in, struct nlmsghdr *msg,
                     int (*cb)(const struct nlmsghdr *m, void *user), void *user, struct err *err);
static int send_bytes(struct nl_port *p, const void *buf, size_t len, struct err *err);
static void read_error(const struct nlmsghdr *m, struct nl_error *ret);
static int say(const struct nl_error *e, struct err *err);
static ssize_t receive(struct nl_port *p, struct inbox *in, int timeout_ms);

uint32_t nl_seq(struct nl_port *p)
{
    if (++p->seq == 0)
        p->seq = 1; /* 0 marks notifications */
    return p->seq;
}

void nl_close(struct nl_port *p)
{
    if (p)
        p->ops->close(p);
}

int nl_talk(struct nl_port *p, struct nlmsghdr *msg, struct err *err)
{
    return nl_get(p, msg, NULL, NULL, err);
}

int nl_get(struct nl_port *p, struct nlmsghdr *msg, int (*cb)(const struct nlmsghdr *m, void *user),
           void *user, struct err *err)
{
    int r = 0;
    for (int i = 0; i < TRIES; i++) {
        r = transfer(p, msg, cb, user, err);
        if (r != -EINTR && r != -EAGAIN && r != -ENOBUFS)
            break;
    }
    return r;
}

int nl_dump(struct nl_port *p, struct nlmsghdr *msg,
            int (*cb)(const struct nlmsghdr *m, void *user), void (*restart)(void *user),
            void *user, struct err *err)
{
    struct inbox in = { .p = xmalloc(RECV_MIN), .cap = RECV_MIN };
    int r = -EAGAIN;
    for (int i = 0; i < DUMP_TRIES && r == -EAGAIN; i++) {
        if (i) {
            if (restart)
                restart(user);
            /* Whoever changes the tables right now gets a moment to finish. */
            nanosleep(&(struct timespec){ .tv_nsec = 100000L << (i < 8 ? i : 8) }, NULL);
        }
        r = dump_once(p, &in, msg, cb, user, err);
    }
    free(in.p);
    return r;
}

int nl_batch(struct nl_port *p, const void *buf, size_t len, uint32_t last_seq,
             struct nl_error *errors, size_t max, size_t *ret_n, struct err *err)
{
    struct inbox in = { .p = xmalloc(RECV_MIN), .cap = RECV_MIN };
    uint32_t first_seq = ((const struct nlmsghdr *)buf)->nlmsg_seq;
    bool whole = false;
    int first = 0;
    *ret_n = 0;
    int64_t start = clock_mono_us();
    int r = send_bytes(p, buf, len, err);
    p->batch_us += clock_mono_us() - start;
    while (!r && !whole) {
        /* The kernel works a request off inside sendmsg: what there is to answer is there. */
        ssize_t n = receive(p, &in, 0);
        if (n == -EAGAIN)
            break;
        if (n < 0) {
            r = err_set(err, (int)-n, "answers of the kernel were lost: %s", strerror((int)-n));
            break;
        }
        const struct nlmsghdr *m = NULL;
        while ((m = nl_walk(in.p, (size_t)n, m))) {
            if (m->nlmsg_type != NLMSG_ERROR)
                continue;
            struct nl_error e;
            read_error(m, &e);
            if ((int32_t)(e.seq - first_seq) < 0)
                continue; /* of a batch whose answers were lost */
            if (e.error) {
                if (!first)
                    first = say(&e, err);
                if (*ret_n < max)
                    errors[*ret_n] = e;
                (*ret_n)++;
            }
            whole |= e.seq == last_seq;
        }
    }
    free(in.p);
    if (first || r)
        return first ? first : r;
    return whole ? 0 : err_set(err, ENOBUFS, "the kernel did not answer the batch");
}

struct nlmsghdr *nl_walk(const void *p, size_t n, const struct nlmsghdr *before)
{
    size_t at = 0;
    if (before)
        at = (size_t)((const char *)before - (const char *)p) +
             (NLMSG_ALIGN((size_t)before->nlmsg_len));
    if (at > n || n - at < sizeof(struct nlmsghdr))
        return NULL;
    struct nlmsghdr *m = (void *)((uintptr_t)p + at);
    return m->nlmsg_len >= sizeof(*m) && m->nlmsg_len <= n - at ? m : NULL;
}

struct nlmsghdr *nl_msg(struct nl_buf *b, uint16_t type, uint16_t flags, uint32_t seq,
                        const void *extra, size_t extra_len)
{
    nl_end(b);
    size_t need = b->n + NLMSG_HDRLEN + NLMSG_ALIGN(extra_len) + NL_MSG_ROOM;
    if (need > b->cap) {
        b->cap = need > 2 * b->cap ? need : 2 * b->cap;
        b->p = xrealloc(b->p, b->cap);
    }
    b->last = b->n;
    b->open = true;
    struct nlmsghdr *m = mnl_nlmsg_put_header(b->p + b->last);
    m->nlmsg_type = type;
    m->nlmsg_flags = flags;
    m->nlmsg_seq = seq;
    if (extra_len)
        memcpy(mnl_nlmsg_put_extra_header(m, extra_len), extra, extra_len);
    return m;
}

size_t nl_end(struct nl_buf *b)
{
    if (b->open)
        b->n = b->last + NLMSG_ALIGN(((struct nlmsghdr *)(void *)(b->p + b->last))->nlmsg_len);
    b->open = false;
    return b->n;
}

void nl_buf_clear(struct nl_buf *b)
{
    b->n = b->last = 0;
    b->open = false;
}

void nl_buf_done(struct nl_buf *b)
{
    free(b->p);
    memset(b, 0, sizeof(*b));
}

static int send_bytes(struct nl_port *p, const void *buf, size_t len, struct err *err)
{
    int r = 0;
    for (int i = 0; i < TRIES; i++) {
        r = p->ops->send(p, buf, len);
        if (r != -EINTR && r != -EAGAIN && r != -ENOBUFS)
            break;
    }
    return r ? err_set(err, -r, "cannot send %zu bytes to the kernel: %s", len, strerror(-r)) : 0;
}

static ssize_t receive(struct nl_port *p, struct inbox *in, int timeout_ms)
{
    ssize_t n = -EINTR;
    for (int i = 0; i < TRIES && n == -EINTR; i++)
        n = p->ops->recv(p, in->p, in->cap, timeout_ms);
    return n;
}

/* One exchange: data messages go to cb, the acknowledgement ends it. */
static int transfer(struct nl_port *p, struct nlmsghdr *msg,
                    int (*cb)(const struct nlmsghdr *m, void *user), void *user, struct err *err)
{
    char space[32 * 1024] __attribute__((aligned(NLMSG_ALIGNTO)));
    struct inbox in = { .p = space, .cap = sizeof(space) };
    int refused = 0;
    msg->nlmsg_flags = (uint16_t)(msg->nlmsg_flags | NLM_F_REQUEST | NLM_F_ACK);
    msg->nlmsg_seq = nl_seq(p);
    int r = send_bytes(p, msg, msg->nlmsg_len, err);
    while (!r) {
        ssize_t n = receive(p, &in, TIMEOUT_MS);
        if (n == -EAGAIN)
            return err_set(err, ETIMEDOUT, "the kernel did not answer within %d s",
                           TIMEOUT_MS / 1000);
        if (n < 0)
            return err_set(err, (int)-n, "cannot receive from the kernel: %s", strerror((int)-n));
        const struct nlmsghdr *m = NULL;
        while ((m = nl_walk(in.p, (size_t)n, m))) {
            if (m->nlmsg_seq != msg->nlmsg_seq)
                continue; /* the answer to a try given up */
            if (m->nlmsg_type == NLMSG_ERROR) {
                struct nl_error e;
                read_error(m, &e);
                return e.error ? say(&e, err) : refused;
            }
            if (cb && !refused && (refused = cb(m, user)) < 0)
                err_set(err, -refused, "cannot understand the kernel's answer: %s",
                        strerror(-refused));
        }
    }
    return r;
}

/* The state of one run of a dump. */
struct dump {
    uint32_t seq;
    bool done, again;
    int r;
};

static void dump_message(struct dump *d, const struct nlmsghdr *m,
                         int (*cb)(const struct nlmsghdr *m, void *user), void *user,
                         struct err *err)
{
    if (m->nlmsg_seq != d->seq)
        return;
    if (m->nlmsg_flags & NLM_F_DUMP_INTR)
        d->again = true;
    if (m->nlmsg_type == NLMSG_ERROR || m->nlmsg_type == NLMSG_DONE) {
        struct nl_error e;
        read_error(m, &e);
        d->done = true;
        if (e.error == EINTR || e.error == EAGAIN || e.error == ENOBUFS || e.error == EBUSY)
            d->again = true;
        if (e.error && !d->r)
            d->r = say(&e, err);
        return;
    }
    /* After an interruption nothing that comes counts, but it must be drained: the socket
     * takes no new dump before. */
    if (d->again || d->r)
        return;
    d->r = cb(m, user);
    if (d->r < 0)
        err_set(err, -d->r, "cannot understand the kernel's answer: %s", strerror(-d->r));
}

/* -EAGAIN: start again. */
static int dump_once(struct nl_port *p, struct inbox *in, struct nlmsghdr *msg,
                     int (*cb)(const struct nlmsghdr *m, void *user), void *user, struct err *err)
{
    msg->nlmsg_flags = (uint16_t)(msg->nlmsg_flags | NLM_F_REQUEST | NLM_F_DUMP);
    msg->nlmsg_seq = nl_seq(p);
    struct dump d = { .seq = msg->nlmsg_seq };
    int r = send_bytes(p, msg, msg->nlmsg_len, err);
    if (r)
        return r;
    while (!d.done) {
        /* The kernel makes the next part inside recvmsg; after a loss the end may be lost too. */
        ssize_t n = receive(p, in, d.again ? DRAIN_MS : TIMEOUT_MS);
        if (n == -EAGAIN && d.again)
            break;
        if (n == -EAGAIN)
            return err_set(err, ETIMEDOUT, "the kernel did not end a dump within %d s",
                           TIMEOUT_MS / 1000);
        if (n == -ENOBUFS || n == -EMSGSIZE) {
            d.again = true;
            if (n == -EMSGSIZE && in->cap < RECV_MAX) {
                in->cap *= 4;
                in->p = xrealloc(in->p, in->cap);
            }
            continue;
        }
        if (n < 0)
            return err_set(err, (int)-n, "cannot receive from the kernel: %s", strerror((int)-n));
        const struct nlmsghdr *m = NULL;
        while (!d.done && (m = nl_walk(in->p, (size_t)n, m)))
            dump_message(&d, m, cb, user, err);
    }
    if (d.again)
        return err_set(err, EAGAIN,
                       "other changes interrupted every attempt to read the kernel's tables");
    return d.r;
}

/* Of NLMSG_ERROR, or of NLMSG_DONE, which carries only the number. */
static void read_error(const struct nlmsghdr *m, struct nl_error *ret)
{
    static const struct nl_policy policy[] = {
        [NLMSGERR_ATTR_MSG] = NL_STRING,
    };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    *ret = (struct nl_error){ .seq = m->nlmsg_seq };
    int32_t code = 0;
    if (mnl_nlmsg_get_payload_len(m) >= sizeof(code))
        memcpy(&code, mnl_nlmsg_get_payload(m), sizeof(code));
    else if (m->nlmsg_type == NLMSG_ERROR)
        code = -EBADMSG;
    /* A subsystem may have numbers of its own behind errno's: ipset's begin at 4096. */
    ret->error = code < 0 && code > -8192 ? -code : code ? EBADMSG : 0;
    if (!(m->nlmsg_flags & NLM_F_ACK_TLVS))
        return;
    size_t head = sizeof(code);
    if (m->nlmsg_type == NLMSG_ERROR) {
        const struct nlmsgerr *e = mnl_nlmsg_get_payload(m);
        head = sizeof(*e);
        if (mnl_nlmsg_get_payload_len(m) >= head && !(m->nlmsg_flags & NLM_F_CAPPED) &&
            e->msg.nlmsg_len >= NLMSG_HDRLEN)
            head += e->msg.nlmsg_len - NLMSG_HDRLEN;
    }
    if (!nl_parse(m, head, policy, NL_POLICY_COUNT(policy), tb) && tb[NLMSGERR_ATTR_MSG])
        snprintf(ret->text, sizeof(ret->text), "%s", mnl_attr_get_str(tb[NLMSGERR_ATTR_MSG]));
}

static int say(const struct nl_error *e, struct err *err)
{
    return err_set(err, e->error, "%s%s%s", strerror(e->error), e->text[0] ? ": " : "", e->text);
}
