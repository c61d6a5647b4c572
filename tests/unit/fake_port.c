#include "fake_port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

#define DUMP_DATAGRAM 3 /* messages in one, so that a dump comes in several */

struct refusal {
    uint16_t type; /* 0: by seq */
    uint32_t seq;
    unsigned skip, times;
    int error;
    char text[160];
};
enum fault_kind { FAULT_ERROR, FAULT_CUT, FAULT_INTERRUPT, FAULT_LOSE };
struct fault {
    enum fault_kind kind;
    unsigned skip, times;
    int error;
    size_t len;
};
struct datagram {
    void *p;
    size_t n;
};
struct prepared {
    uint16_t type;
    void *p;
    size_t n;
};

struct fake {
    struct nl_port port;
    struct nl_port *real;
    unsigned fail_sends;
    int fail_send_error;
    VEC(struct refusal) refusals;
    VEC(struct fault) faults;
    VEC(struct prepared) dumps;
    VEC(struct datagram) due, sent;
};

static int fake_send(struct nl_port *p, const void *buf, size_t len);
static ssize_t fake_recv(struct nl_port *p, void *buf, size_t len, int timeout_ms);
static void fake_close(struct nl_port *p);

static const struct nl_port_ops fake_ops = {
    .send = fake_send,
    .recv = fake_recv,
    .close = fake_close,
};

static struct fake *fake(const struct nl_port *p)
{
    return (struct fake *)(uintptr_t)p;
}

static struct datagram copy(const void *p, size_t n)
{
    struct datagram d = { .p = xmalloc(n ? n : 1), .n = n };
    if (n)
        memcpy(d.p, p, n);
    return d;
}

struct nl_port *fake_port_new(struct nl_port *real)
{
    struct fake *f = xcalloc(1, sizeof(*f));
    f->port = (struct nl_port){ .ops = &fake_ops, .fd = real ? real->fd : -1 };
    f->port.portid = real ? real->portid : 4711;
    f->real = real;
    return &f->port;
}

void fake_refuse_seq(struct nl_port *p, uint32_t seq, int error, const char *text)
{
    struct refusal r = { .seq = seq, .times = 1, .error = error };
    strncpy(r.text, text, sizeof(r.text) - 1);
    vec_push(&fake(p)->refusals, r);
}

void fake_refuse_type(struct nl_port *p, uint16_t type, unsigned skip, unsigned times, int error,
                      const char *text)
{
    struct refusal r = { .type = type, .skip = skip, .times = times, .error = error };
    strncpy(r.text, text, sizeof(r.text) - 1);
    vec_push(&fake(p)->refusals, r);
}

void fake_fail_send(struct nl_port *p, unsigned times, int error)
{
    fake(p)->fail_sends = times;
    fake(p)->fail_send_error = error;
}

void fake_fail_recv(struct nl_port *p, unsigned skip, unsigned times, int error)
{
    struct fault f = { .kind = FAULT_ERROR, .skip = skip, .times = times, .error = error };
    vec_push(&fake(p)->faults, f);
}

void fake_cut_recv(struct nl_port *p, unsigned skip, size_t len)
{
    struct fault f = { .kind = FAULT_CUT, .skip = skip, .times = 1, .len = len };
    vec_push(&fake(p)->faults, f);
}

void fake_interrupt_dump(struct nl_port *p, unsigned skip)
{
    struct fault f = { .kind = FAULT_INTERRUPT, .skip = skip, .times = 1 };
    vec_push(&fake(p)->faults, f);
}

void fake_lose_rest(struct nl_port *p, unsigned skip)
{
    struct fault f = { .kind = FAULT_LOSE, .skip = skip, .times = 1 };
    vec_push(&fake(p)->faults, f);
}

void fake_dump(struct nl_port *p, uint16_t type, const void *messages, size_t len)
{
    struct fake *f = fake(p);
    struct datagram d = copy(messages, len);
    for (size_t i = 0; i < f->dumps.n; i++)
        if (f->dumps.v[i].type == type) {
            free(f->dumps.v[i].p);
            vec_remove(&f->dumps, i);
            break;
        }
    vec_push(&f->dumps, (struct prepared){ .type = type, .p = d.p, .n = d.n });
}

void fake_push(struct nl_port *p, const void *datagram, size_t len)
{
    *vec_insert(&fake(p)->due, 0) = copy(datagram, len);
}

size_t fake_sent(const struct nl_port *p, uint16_t type)
{
    size_t n = 0;
    while (fake_sent_message(p, type, n))
        n++;
    return n;
}

const struct nlmsghdr *fake_sent_message(const struct nl_port *p, uint16_t type, size_t i)
{
    const struct fake *f = fake(p);
    for (size_t j = 0; j < f->sent.n; j++) {
        int left = (int)f->sent.v[j].n;
        for (const struct nlmsghdr *m = f->sent.v[j].p; mnl_nlmsg_ok(m, left);
             m = mnl_nlmsg_next(m, &left))
            if ((!type || m->nlmsg_type == type) && i-- == 0)
                return m;
    }
    return NULL;
}

void fake_forget_sent(struct nl_port *p)
{
    struct fake *f = fake(p);
    while (f->sent.n)
        free(f->sent.v[--f->sent.n].p);
}

static const struct refusal *refused(struct fake *f, const struct nlmsghdr *m)
{
    for (size_t i = 0; i < f->refusals.n; i++) {
        struct refusal *r = &f->refusals.v[i];
        if (!r->times || (r->type ? r->type != m->nlmsg_type : r->seq != m->nlmsg_seq))
            continue;
        if (r->skip) {
            r->skip--;
            continue;
        }
        r->times--;
        return r;
    }
    return NULL;
}

static void answer(struct fake *f, const struct nlmsghdr *m, int error, const char *text)
{
    struct nl_buf b = { 0 };
    struct nlmsgerr e = { .error = -error, .msg = *m };
    struct nlmsghdr *a = nl_msg(&b, NLMSG_ERROR, NLM_F_CAPPED, m->nlmsg_seq, &e, sizeof(e));
    if (error && text[0]) {
        a->nlmsg_flags |= NLM_F_ACK_TLVS;
        mnl_attr_put_strz(a, NLMSGERR_ATTR_MSG, text);
    }
    vec_push(&f->due, copy(b.p, nl_end(&b)));
    nl_buf_done(&b);
}

static void answer_dump(struct fake *f, const struct nlmsghdr *request)
{
    const struct prepared *d = NULL;
    for (size_t i = 0; i < f->dumps.n; i++)
        if (f->dumps.v[i].type == request->nlmsg_type)
            d = &f->dumps.v[i];
    struct nl_buf b = { 0 };
    unsigned n = 0;
    int left = d ? (int)d->n : 0;
    for (const struct nlmsghdr *m = d ? d->p : NULL; m && mnl_nlmsg_ok(m, left);
         m = mnl_nlmsg_next(m, &left)) {
        nl_msg(&b, m->nlmsg_type, NLM_F_MULTI, request->nlmsg_seq, mnl_nlmsg_get_payload(m),
               mnl_nlmsg_get_payload_len(m));
        if (++n % DUMP_DATAGRAM == 0) {
            vec_push(&f->due, copy(b.p, nl_end(&b)));
            nl_buf_clear(&b);
        }
    }
    static const int32_t ok = 0;
    nl_msg(&b, NLMSG_DONE, NLM_F_MULTI, request->nlmsg_seq, &ok, sizeof(ok));
    vec_push(&f->due, copy(b.p, nl_end(&b)));
    nl_buf_done(&b);
}

static int fake_send(struct nl_port *p, const void *buf, size_t len)
{
    struct fake *f = fake(p);
    if (f->fail_sends) {
        f->fail_sends--;
        return -f->fail_send_error;
    }
    vec_push(&f->sent, copy(buf, len));
    VEC(const struct refusal *) verdict = { 0 };
    bool any = false;
    int left = (int)len;
    for (const struct nlmsghdr *m = buf; mnl_nlmsg_ok(m, left); m = mnl_nlmsg_next(m, &left)) {
        vec_push(&verdict, refused(f, m));
        any |= verdict.v[verdict.n - 1] != NULL;
    }
    int r = 0;
    if (f->real && !any) {
        r = f->real->ops->send(f->real, buf, len);
    } else {
        size_t i = 0;
        left = (int)len;
        for (const struct nlmsghdr *m = buf; mnl_nlmsg_ok(m, left);
             m = mnl_nlmsg_next(m, &left), i++) {
            if (verdict.v[i])
                answer(f, m, verdict.v[i]->error, verdict.v[i]->text);
            else if ((m->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP)
                answer_dump(f, m);
            else if (m->nlmsg_flags & NLM_F_ACK)
                answer(f, m, 0, "");
        }
    }
    vec_done(&verdict);
    return r;
}

static ssize_t take(struct fake *f, void *buf, size_t len, int timeout_ms)
{
    if (!f->due.n)
        return f->real ? f->real->ops->recv(f->real, buf, len, timeout_ms) : -EAGAIN;
    struct datagram d = f->due.v[0];
    vec_remove(&f->due, 0);
    ssize_t n = d.n > len ? -EMSGSIZE : (ssize_t)d.n;
    if (n > 0)
        memcpy(buf, d.p, d.n);
    free(d.p);
    return n;
}

static ssize_t inject(struct fake *f, const struct fault *x, void *buf, size_t len, int timeout_ms)
{
    if (x->kind == FAULT_ERROR && x->error != EMSGSIZE && x->error != ENOBUFS)
        return -x->error;
    ssize_t n = take(f, buf, len, timeout_ms);
    if (n < 0)
        return n;
    switch (x->kind) {
    case FAULT_ERROR:
        return -x->error;
    case FAULT_CUT:
        return (size_t)n < x->len ? n : (ssize_t)x->len;
    case FAULT_INTERRUPT:
        ((struct nlmsghdr *)buf)->nlmsg_flags |= NLM_F_DUMP_INTR;
        return n;
    case FAULT_LOSE:
        while (n >= 0)
            n = take(f, buf, len, 0);
        return -EAGAIN;
    }
    return n;
}

static ssize_t fake_recv(struct nl_port *p, void *buf, size_t len, int timeout_ms)
{
    struct fake *f = fake(p);
    for (size_t i = 0; i < f->faults.n; i++) {
        struct fault *x = &f->faults.v[i];
        if (!x->times)
            continue;
        if (x->skip) {
            x->skip--;
            continue;
        }
        x->times--;
        return inject(f, x, buf, len, timeout_ms);
    }
    return take(f, buf, len, timeout_ms);
}

static void fake_close(struct nl_port *p)
{
    struct fake *f = fake(p);
    fake_forget_sent(p);
    while (f->due.n)
        free(f->due.v[--f->due.n].p);
    while (f->dumps.n)
        free(f->dumps.v[--f->dumps.n].p);
    vec_done(&f->sent);
    vec_done(&f->due);
    vec_done(&f->dumps);
    vec_done(&f->refusals);
    vec_done(&f->faults);
    nl_close(f->real);
    free(f);
}
