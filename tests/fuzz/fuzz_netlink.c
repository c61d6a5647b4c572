/* What a dump may hold: any bytes as the kernel's answer to each dump request. Decoding it,
 * listing it, deleting what it seems to hold and observing the host with it must end. */
#include <errno.h>
#include <linux/netlink.h>
#include <string.h>

#include "base/buf.h"
#include "kernel/conntrack.h"
#include "kernel/host.h"
#include "kernel/ipset.h"
#include "kernel/ipvs_genl.h"
#include "kernel/rtnl.h"

struct canned {
    struct nl_port port;
    const uint8_t *data;
    size_t n;
    struct nlmsghdr request; /* to be answered; type 0: none */
    bool told;               /* the data of a dump: its end is due */
};

static int canned_send(struct nl_port *p, const void *buf, size_t len)
{
    struct canned *c = (struct canned *)p;
    /* Of a batch, the message that wants an answer. */
    const struct nlmsghdr *m = NULL;
    while ((m = nl_walk(buf, len, m)))
        c->request = *m;
    c->told = false;
    return 0;
}

static ssize_t put_end(struct canned *c, uint16_t type, void *buf)
{
    static const struct nlmsgerr ok;
    struct nlmsghdr *m = mnl_nlmsg_put_header(buf);
    m->nlmsg_type = type;
    m->nlmsg_seq = c->request.nlmsg_seq;
    memcpy(mnl_nlmsg_put_extra_header(m, sizeof(ok)), &ok, sizeof(ok));
    c->request.nlmsg_type = 0;
    return (ssize_t)m->nlmsg_len;
}

static ssize_t canned_recv(struct nl_port *p, void *buf, size_t len, int timeout_ms)
{
    struct canned *c = (struct canned *)p;
    (void)timeout_ms;
    if (!c->request.nlmsg_type)
        return -EAGAIN;
    bool dump = (c->request.nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
    if (!dump || c->told || c->n > len)
        return put_end(c, dump ? NLMSG_DONE : NLMSG_ERROR, buf);
    c->told = true;
    memcpy(buf, c->data, c->n);
    /* Or it would be an answer to something else, or the same again and again. */
    struct nlmsghdr *m = NULL;
    while ((m = nl_walk(buf, c->n, m))) {
        m->nlmsg_seq = c->request.nlmsg_seq;
        m->nlmsg_flags &= (uint16_t)~NLM_F_DUMP_INTR;
    }
    return (ssize_t)c->n;
}

static void canned_close(struct nl_port *p)
{
    (void)p;
}

static void with_rtnl(struct canned *c)
{
    struct rtnl *r = rtnl_new(&c->port);
    struct buf out = { 0 };
    rtnl_cleanup(r, false, &out, NULL);
    buf_done(&out);
    rtnl_free(r);
}

static void with_host(struct canned *c)
{
    struct arena mem = { 0 };
    struct host h;
    if (!host_observe(&c->port, &mem, &h, NULL))
        for (uint32_t i = 0; i < h.n_ifaces; i++)
            host_iface_find(&h, h.ifaces[i].name);
    arena_done(&mem);
}

static void with_conntrack(struct canned *c)
{
    struct flow_target keys[] = { { .dialled = ip_v4(192, 0, 2, 1), .port = 1, .end = 65535 },
                                  { .dialled = ip_v4(192, 0, 2, 1), .port = 80, .end = 80 } };
    conntrack_flush_udp(&c->port, keys, 2, NULL);
}

static void on_element(void *user, const struct ipvs_key *k)
{
    struct buf text = { 0 };
    ipvs_text_element(&text, k);
    *(size_t *)user += text.n;
    buf_done(&text);
}

static void on_restart(void *user)
{
    *(size_t *)user = 0;
}

static void with_ipvs(struct canned *c)
{
    size_t told = 0;
    const struct ipset_reader reader = { &told, on_element, on_restart };
    const char *option;
    for (int i = 0; i < 2 * KUBE_SET_COUNT; i++)
        ipset_read(&c->port, (enum ipvs_set)(i / 2), i % 2 ? IP_V6 : IP_V4, &reader, &option, NULL);
    struct ipvs_service s;
    struct ipvs_dest d;
    const struct nlmsghdr *m = NULL;
    while ((m = nl_walk(c->data, c->n, m))) {
        ipvs_genl_service(m, &s);
        ipvs_genl_dest(m, &d);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct nl_port_ops ops = {
        .send = canned_send,
        .recv = canned_recv,
        .close = canned_close,
    };
    struct canned c = { .port = { .ops = &ops, .fd = -1 }, .data = data, .n = n };
    with_rtnl(&c);
    with_host(&c);
    with_conntrack(&c);
    with_ipvs(&c);
    return 0;
}
