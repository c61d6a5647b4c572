#include "rtnl_world.h"

#include "test.h"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "fake_port.h"
#include "netns.h"

struct world world_new(const char *links)
{
    struct world w = { .ns = netns_new() };
    struct err err;
    run("%s", links);
    assert_int_equal(nl_open(NETLINK_ROUTE, NULL, &w.port, &err), 0);
    w.port = fake_port_new(w.port);
    w.rtnl = rtnl_new(w.port);
    return w;
}

void world_done(struct world *w)
{
    rtnl_free(w->rtnl);
    nl_close(w->port);
    report_done(&w->report);
    want_done(&w->want);
    close(w->ns);
}

void restart(struct world *w)
{
    rtnl_free(w->rtnl);
    w->rtnl = rtnl_new(w->port);
}

size_t sync_with(struct world *w, const struct desired *d, bool audit)
{
    struct err err = { 0 };
    report_reset(&w->report);
    if (rtnl_add(w->rtnl, d, audit, &w->report, &err))
        fail_msg("%s", err.text);
    rtnl_remove(w->rtnl, d, &w->report);
    return w->report.adds + w->report.changes + w->report.deletes;
}

size_t sync_fully(struct world *w, const struct desired *d, bool audit)
{
    size_t n = sync_with(w, d, audit);
    assert_no_refusals(w);
    return n;
}

void assert_no_refusals(const struct world *w)
{
    for (size_t i = 0; i < w->report.refusals.n; i++)
        fail_msg("%s: %s", w->report.refusals.v[i].object, w->report.refusals.v[i].text);
}

const char *difference(struct world *w, const struct desired *d)
{
    static struct buf text;
    struct err err = { 0 };
    buf_clear(&text);
    if (rtnl_diff(w->rtnl, d, &text, &err))
        fail_msg("%s", err.text);
    return buf_str(&text);
}

void assert_no_difference(struct world *w, const struct desired *d)
{
    assert_string_equal(difference(w, d), "");
}

bool echo(int from_ns, const struct ip *from, int to_ns, const struct ip *to)
{
    int family = to->family == IP_V6 ? AF_INET6 : AF_INET;
    struct sockaddr_storage addr[2] = { 0 }, peer;
    const struct ip *ips[] = { from, to };
    int fds[2], ns[] = { from_ns, to_ns };
    socklen_t len = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    for (int i = 0; i < 2; i++) {
        netns_enter(ns[i]);
        addr[i].ss_family = (sa_family_t)family;
        ((struct sockaddr_in *)&addr[i])->sin_port = htons(5000); /* the same place in both */
        void *place = family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)&addr[i])->sin6_addr
                                         : (void *)&((struct sockaddr_in *)&addr[i])->sin_addr;
        memcpy(place, ips[i]->bytes, ip_len(ips[i]->family));
        fds[i] = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_int_equal(bind(fds[i], (struct sockaddr *)&addr[i], len), 0);
    }
    char text[8];
    bool ok = sendto(fds[0], "ping", 4, 0, (struct sockaddr *)&addr[1], len) == 4;
    socklen_t peer_len = sizeof(peer);
    ok = ok && within_ms(3000, recvfrom(fds[1], text, sizeof(text), 0, (struct sockaddr *)&peer,
                                        &peer_len) == 4);
    ok = ok && sendto(fds[1], "pong", 4, 0, (struct sockaddr *)&peer, peer_len) == 4;
    ok = ok && within_ms(3000, recv(fds[0], text, sizeof(text), 0) == 4);
    close(fds[0]);
    close(fds[1]);
    return ok;
}
