#include "agent/kubeproxy.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "kernel/ipset.h"
#include "kernel/iptables.h"
#include "kernel/ipvs.h"
#include "kernel/nft_kubeproxy.h"

#define NAME         "kube-proxy"
#define METRICS_PORT 10249

/* ---- one that runs ---- */

static bool read_file(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return false;
    text[n] = 0;
    return true;
}

static bool is_kube_proxy(const char *pid, const struct stat *netns)
{
    char path[300], comm[64];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%s/comm", pid);
    if (!read_file(path, comm, sizeof(comm)) || strcmp(comm, NAME "\n"))
        return false;
    snprintf(path, sizeof(path), "/proc/%s/ns/net", pid);
    return !stat(path, &st) && st.st_ino == netns->st_ino && st.st_dev == netns->st_dev;
}

static void find_process(struct buf *out)
{
    struct stat netns;
    DIR *proc = stat("/proc/self/ns/net", &netns) ? NULL : opendir("/proc");
    const struct dirent *e;
    while (proc && (e = readdir(proc)))
        if (strspn(e->d_name, "0123456789") == strlen(e->d_name) &&
            is_kube_proxy(e->d_name, &netns))
            buf_printf(out, "%sprocess %s is called " NAME, out->n ? ", and " : "", e->d_name);
    if (proc)
        closedir(proc);
}

/* The answer to a GET of /proxyMode, header and all; "" when there is none. */
static void ask_mode(char *text, size_t size)
{
    static const char request[] = "GET /proxyMode HTTP/1.0\r\nHost: localhost\r\n\r\n";
    const struct timeval second = { .tv_sec = 1 };
    struct sockaddr_in sa = { .sin_family = AF_INET,
                              .sin_port = htons(METRICS_PORT),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    size_t n = 0;
    ssize_t got = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second));
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof(second)); /* connect, too */
        if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) ||
            send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) < 0)
            got = 0;
        while (got > 0 && n < size - 1)
            if ((got = recv(fd, text + n, size - 1 - n, 0)) > 0)
                n += (size_t)got;
        close(fd);
    }
    text[n] = 0;
}

static void find_answer(struct buf *out)
{
    static const char *const modes[] = { "iptables", "ipvs", "nftables", "userspace" };
    char answer[2000];
    ask_mode(answer, sizeof(answer));
    const char *body = strstr(answer, "\r\n\r\n");
    /* An agent of ours says the same, and who it is. */
    if (!body || strncmp(answer, "HTTP/1.", 7) || !strstr(answer, " 200 ") ||
        strcasestr(answer, "\r\nServer: portolan"))
        return;
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
        if (!strcmp(body + 4, modes[i]))
            buf_printf(out, "%s127.0.0.1:%d/proxyMode says %s", out->n ? ", and " : "",
                       METRICS_PORT, modes[i]);
}

bool kubeproxy_runs(struct buf *out)
{
    find_process(out);
    find_answer(out);
    return out->n;
}

/* ---- what one left, and what is ours ---- */

static int open_ports(struct ipvs_ports *ret, struct err *err)
{
    *ret = (struct ipvs_ports){ 0 };
    int r = nl_open(NETLINK_NETFILTER, NULL, &ret->netfilter, err);
    if (!r)
        r = nl_open(NETLINK_ROUTE, NULL, &ret->route, err);
    return r ? r : nl_open(NETLINK_GENERIC, NULL, &ret->generic, err);
}

static void close_ports(struct ipvs_ports *p)
{
    nl_close(p->netfilter);
    nl_close(p->route);
    nl_close(p->generic);
}

/* The rules come first: they use the sets. */
static int clean_chains(const struct ipvs_ports *p, enum kubeproxy_whose whose, bool dry_run,
                        struct buf *out, struct err *err)
{
    int r = nft_kubeproxy_cleanup(p->netfilter, whose, dry_run, out, err);
    return r ? r : iptables_kubeproxy_cleanup(whose, dry_run, out, err);
}

int kubeproxy_cleanup(bool dry_run, struct buf *out, struct err *err)
{
    struct ipvs_ports p;
    bool ours = false;
    int r = open_ports(&p, err);
    if (!r)
        r = ipvs_is_ours(p.route, &ours, err);
    enum kubeproxy_whose whose = ours ? KUBEPROXY_BESIDE : KUBEPROXY_ITS;
    if (!r)
        r = clean_chains(&p, whose, dry_run, out, err);
    if (!r)
        r = ipset_cleanup(p.netfilter, whose, dry_run, out, err);
    if (!r && !ours)
        r = ipvs_kubeproxy_cleanup(p.route, p.generic, dry_run, out, err);
    close_ports(&p);
    return r;
}

int kubeproxy_remove_ours(bool dry_run, struct buf *out, struct err *err)
{
    struct ipvs_ports p;
    bool ours = false;
    int r = open_ports(&p, err);
    if (!r)
        r = ipvs_is_ours(p.route, &ours, err);
    if (!r && ours)
        r = clean_chains(&p, KUBEPROXY_OURS, dry_run, out, err);
    if (!r && ours)
        r = ipvs_cleanup(&p, dry_run, out, err);
    close_ports(&p);
    return r;
}

static int remove_nft(struct buf *out, struct err *err)
{
    struct nl_port *port = NULL;
    int r = nl_open(NETLINK_NETFILTER, NULL, &port, err);
    if (!r)
        r = nft_kubeproxy_cleanup(port, KUBEPROXY_OURS, false, out, err);
    nl_close(port);
    return r;
}

int kubeproxy_remove_other_kind(enum iptables_mode used, struct buf *out, struct err *err)
{
    switch (used) {
    case IPTABLES_NFT:
        return iptables_kubeproxy_cleanup(KUBEPROXY_OURS, false, out, err);
    case IPTABLES_LEGACY:
        return remove_nft(out, err);
    case IPTABLES_AUTO:
        break;
    }
    return 0;
}
