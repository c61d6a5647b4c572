/* Our chains in iptables' tables of a real kernel, by iptables-nft and iptables-legacy alike; the
 * rules are those the planner writes. */
#include "test.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/kubeproxy.h"
#include "base/clock.h"
#include "kernel/ipset.h"
#include "kernel/iptables.h"
#include "kernel/iptables_child.h"
#include "kernel/iptables_restore.h"
#include "kernel/nft_kubeproxy.h"
#include "netns.h"
#include "plan/ipvs_rules.h"

struct kind {
    enum iptables_mode mode;
    const char *name; /* of the tools: iptables-NAME-save */
};
static struct kind kinds[] = { { IPTABLES_NFT, "nft" }, { IPTABLES_LEGACY, "legacy" } };

static const struct plan_options options = { .serviceproxy = true, .masquerade_bit = 14 };
static struct buf rules4, rules6;
static struct iptables *agent;
static struct report report;
static struct err err;

static void make_sets(void)
{
    struct nl_port *port = NULL;
    assert_int_equal(nl_open(NETLINK_NETFILTER, NULL, &port, &err), 0);
    for (int i = 0; i < 2 * KUBE_SET_COUNT; i++) {
        struct nl_buf b = { 0 };
        enum ipvs_set set = (enum ipvs_set)(i / 2);
        uint8_t family = i % 2 ? IP_V6 : IP_V4;
        ipset_put_create(&b, port, ipvs_set_name(set, family), set, family);
        assert_int_equal(nl_talk(port, (struct nlmsghdr *)(void *)b.p, &err), 0);
        nl_buf_done(&b);
    }
    nl_close(port);
}

static int setup(void **state)
{
    const struct kind *k = *state;
    close(netns_new());
    make_sets();
    ipvs_rules(&options, IP_V4, true, &rules4);
    ipvs_rules(&options, IP_V6, true, &rules6);
    agent = iptables_new(k->mode);
    return 0;
}

static char fakes[64]; /* a folder of tools that hide the real ones */
static char *real_path;

static void install(const char *folder, const char *program, const char *script)
{
    run("printf '#!/bin/sh\\n%s\\n' > %s/%s; chmod +x %s/%s", script, folder, program, folder,
        program);
}

/* A kind's tools that tell of every call, and fail. */
static void fake_tools(const struct kind *k)
{
    static const char *const tools[] = { "iptables", "ip6tables" };
    char name[64];
    for (size_t i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "%s-%s-%s", tools[i % 2], k->name, i / 2 ? "save" : "restore");
        install(fakes, name, "echo $0 >>${0%%/*}/calls; exit 1");
    }
}

static void hide_tools(void)
{
    char path[200];
    snprintf(fakes, sizeof(fakes), "/tmp/portolan-iptables-XXXXXX");
    assert_non_null(mkdtemp(fakes));
    for (size_t i = 0; i < 2; i++)
        fake_tools(&kinds[i]);
    real_path = strdup(getenv("PATH"));
    snprintf(path, sizeof(path), "%s:/usr/sbin:/usr/bin:/sbin:/bin", fakes);
    setenv("PATH", path, 1);
}

/* Those that were called. */
static const char *take_away(void)
{
    setenv("PATH", real_path, 1);
    free(real_path);
    real_path = NULL;
    return output("cat %s/calls 2>/dev/null; rm -r %s", fakes, fakes);
}

static int teardown(void **state)
{
    (void)state;
    if (real_path)
        take_away();
    iptables_free(agent);
    report_done(&report);
    buf_done(&rules4);
    buf_done(&rules6);
    return 0;
}

/* How many families had to be mended. */
static size_t sync_now(bool audit)
{
    const struct ipvs_want want = { .rules4 = buf_str(&rules4), .rules6 = buf_str(&rules6) };
    report_reset(&report);
    bool wrote = iptables_sync(agent, &want, audit, &report);
    if (report.refusals.n)
        fail_msg("%s", report.refusals.v[0].text);
    assert_int_equal(wrote, report.changes > 0);
    return report.changes;
}

static const char *saved(const struct kind *k)
{
    return output("iptables-%s-save 2>/dev/null | grep -v '^#' | sed 's/\\[.*//'; "
                  "ip6tables-%s-save 2>/dev/null | grep -v '^#' | sed 's/\\[.*//'",
                  k->name, k->name);
}

static void rules_are_made_once(void **state)
{
    const struct kind *k = *state;
    assert_int_equal(sync_now(true), 2);
    const char *made = saved(k);
    assert_non_null(strstr(made, "-A INPUT -m comment --comment \"kubernetes ipvs access filter\" "
                                 "-j KUBE-IPVS-FILTER\n-A INPUT -m comment --comment "
                                 "\"kube-proxy firewall rules\" -j KUBE-PROXY-FIREWALL\n"));
    assert_int_equal(sync_now(false), 0);
    assert_int_equal(sync_now(true), 0);
    /* Another agent finds them as it would write them. */
    iptables_free(agent);
    agent = iptables_new(IPTABLES_AUTO);
    assert_int_equal(sync_now(true), 0);
    assert_string_equal(saved(k), made);
}

static void what_is_not_looked_at_costs_no_program(void **state)
{
    (void)state;
    sync_now(true);
    hide_tools();
    size_t mended = sync_now(false);
    assert_string_equal(take_away(), "");
    assert_int_equal(mended, 0);
}

static void other_peoples_rules_stay(void **state)
{
    const struct kind *k = *state;
    run("iptables-%s -w -A INPUT -s 192.0.2.1 -j DROP; iptables-%s -w -P FORWARD DROP", k->name,
        k->name);
    run("iptables-%s -w -t nat -N CNI-1; iptables-%s -w -t nat -A POSTROUTING -j CNI-1", k->name,
        k->name);
    run("iptables-%s -w -t nat -A CNI-1 -j MASQUERADE; iptables-%s -w -N KUBE-MINE", k->name,
        k->name);
    sync_now(true);
    sync_now(true);
    const char *now = saved(k);
    assert_non_null(strstr(now, ":FORWARD DROP"));
    assert_non_null(strstr(now, ":KUBE-MINE -"));
    assert_non_null(strstr(now, "-j KUBE-NODE-PORT\n-A INPUT -s 192.0.2.1/32 -j DROP\n"));
    assert_non_null(strstr(now, "-j KUBE-POSTROUTING\n-A POSTROUTING -j CNI-1\n"));
    assert_non_null(strstr(now, "-A CNI-1 -j MASQUERADE\n"));
}

static void what_others_changed_is_put_back(void **state)
{
    const struct kind *k = *state;
    sync_now(true);
    char *before = strdup(saved(k));
    run("iptables-%s -w -t nat -F KUBE-SERVICES", k->name);
    assert_int_equal(sync_now(true), 1);
    assert_string_equal(saved(k), before);
    run("ip6tables-%s -w -I KUBE-FORWARD -j ACCEPT", k->name);
    assert_int_equal(sync_now(true), 1);
    assert_string_equal(saved(k), before);
    run("iptables-%s -w -D OUTPUT -m comment --comment 'kubernetes ipvs access filter' -j "
        "KUBE-IPVS-OUT-FILTER",
        k->name);
    assert_int_equal(sync_now(true), 1);
    assert_string_equal(saved(k), before);
    free(before);
}

static void other_rules_replace_them(void **state)
{
    const struct kind *k = *state;
    sync_now(true);
    buf_clear(&rules4);
    ipvs_rules(&options, IP_V4, false, &rules4);
    assert_non_null(strstr(saved(k), "! --match-set KUBE-POD-RANGE src -j KUBE-MARK-MASQ"));
    assert_int_equal(sync_now(false), 1);
    assert_null(strstr(saved(k), "! --match-set KUBE-POD-RANGE src -j KUBE-MARK-MASQ"));
}

static void refused_rules_are_told(void **state)
{
    const struct kind *k = *state;
    const struct ipvs_want want = { .rules4 = buf_str(&rules4) };
    run("ipset destroy KUBE-DROP");
    assert_false(iptables_sync(agent, &want, true, &report));
    assert_int_equal(report.refusals.n, 1);
    assert_string_equal(report.refusals.v[0].object, "rules of iptables");
    assert_non_null(strstr(report.refusals.v[0].text, k->name));
    assert_non_null(strstr(report.refusals.v[0].text, "KUBE-DROP"));
    run("ipset create KUBE-DROP hash:ip,port");
    assert_int_equal(sync_now(false), 2);
}

/* It neither ends nor says anything, and not even holds on to what it was given. */
static void a_program_that_hangs_is_not_waited_for(void **state)
{
    (void)state;
    char folder[] = "/tmp/portolan-iptables-XXXXXX", path[sizeof(folder) + 64];
    const struct ipvs_want want = { .rules4 = buf_str(&rules4), .rules6 = buf_str(&rules6) };
    assert_non_null(mkdtemp(folder));
    const char *const tools[] = { "iptables-nft-save", "ip6tables-nft-save" };
    for (size_t i = 0; i < 2; i++)
        install(folder, tools[i], "echo $$ >>${0%%/*}/pids; exec <&- >&- 2>&-; sleep 60");
    snprintf(path, sizeof(path), "%s:/usr/sbin:/usr/bin:/sbin:/bin", folder);
    char *before = strdup(getenv("PATH"));
    setenv("PATH", path, 1);
    int64_t begin = clock_mono_us();
    iptables_sync(agent, &want, true, &report);
    int64_t hung = clock_mono_us() - begin;
    size_t refused = report.refusals.n;
    report_reset(&report);
    begin = clock_mono_us();
    iptables_sync(agent, &want, true, &report);
    int64_t again = clock_mono_us() - begin;
    setenv("PATH", before, 1);
    free(before);
    const char *left =
        output("for p in $(cat %s/pids); do kill -0 -- -$p && echo $p; done 2>/dev/null;"
               "wc -l <%s/pids; rm -r %s",
               folder, folder, folder);
    assert_string_equal(left, "1\n");
    assert_in_range(hung, 1000000, 14000000);
    assert_in_range(again, 0, 500000);
    assert_int_equal(refused, 2);
    assert_int_equal(report.refusals.n, 2);
    assert_non_null(strstr(report.refusals.v[1].text, "iptables-nft-save did not end within"));
}

/* As a virtual machine does that is moved: nobody has had time to do anything. */
static void a_machine_that_stands_still_ends_no_program(void **state)
{
    (void)state;
    char folder[] = "/tmp/portolan-iptables-XXXXXX", path[sizeof(folder) + 64];
    assert_non_null(mkdtemp(folder));
    install(folder, "iptables-nft-save",
            "kill -STOP $PPID; sleep 11; kill -CONT $PPID; exec /usr/sbin/iptables-nft-save");
    snprintf(path, sizeof(path), "%s:/usr/sbin:/usr/bin:/sbin:/bin", folder);
    char *before = strdup(getenv("PATH"));
    setenv("PATH", path, 1);
    struct buf out = { 0 };
    static const char *const none[] = { NULL };
    int r = iptables_child("iptables-nft-save", none, "", &out, &err);
    setenv("PATH", before, 1);
    free(before);
    buf_done(&out);
    run("rm -r %s", folder);
    if (r)
        fail_msg("%s", err.text);
}

/* An ignored SIGCHLD is inherited, and would lose what a program ended with. */
static void a_failure_is_seen_by_whomever_we_were_started(void **state)
{
    (void)state;
    const struct ipvs_want want = { .rules4 = buf_str(&rules4) };
    run("ipset destroy KUBE-DROP");
    signal(SIGCHLD, SIG_IGN);
    iptables_sync(agent, &want, true, &report);
    signal(SIGCHLD, SIG_DFL);
    assert_int_equal(report.refusals.n, 1);
    assert_non_null(strstr(report.refusals.v[0].text, "KUBE-DROP"));
}

/* As a kernel does that was started with ipv6.disable=1. For good, so in a process of its own. */
static void switch_ipv6_off(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = { .len = sizeof(code) / sizeof(code[0]), .filter = code };
    assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void without_ipv6_nothing_of_it_is_undone(void **state)
{
    const struct kind *k = *state;
    int status;
    pid_t pid = fork();
    if (!pid) {
        const struct ipvs_want want = { .rules4 = buf_str(&rules4), .rules6 = buf_str(&rules6) };
        report_reset(&report);
        switch_ipv6_off();
        iptables_sync(agent, &want, true, &report);
        _exit(report.changes == 1 && !report.refusals.n ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_non_null(strstr(saved(k), "-A KUBE-SERVICES"));
    assert_null(strstr(saved(k), "KUBE-6-CLUSTER-IP"));
}

/* As an agent of a kind, or of none in particular, finds them that starts after another. */
static void start_agent(enum iptables_mode mode)
{
    iptables_free(agent);
    agent = iptables_new(mode);
}

/* What was said of the chains that went; NULL: not yet done. */
static const char *remove_other_kind(void)
{
    static char said[2000];
    struct buf out = { 0 };
    enum iptables_mode used;
    if (!iptables_stand(agent, &used))
        return NULL;
    if (kubeproxy_remove_other_kind(used, &out, &err))
        fail_msg("%s", err.text);
    snprintf(said, sizeof(said), "%s", buf_str(&out));
    buf_done(&out);
    return said;
}

static void chains_of_the_other_kind_go_once_the_new_ones_stand(void **state)
{
    const struct kind *k = *state, *other = &kinds[k == kinds];
    run("iptables-%s -w -A INPUT -s 192.0.2.1 -j DROP; iptables-%s -w -t nat -N KUBE-MINE",
        other->name, other->name);
    run("ip6tables-%s -w -t nat -N CNI; ip6tables-%s -w -N KUBE-FIREWALL", other->name,
        other->name);
    char *before = strdup(saved(other));
    start_agent(other->mode);
    sync_now(true);
    assert_string_equal(remove_other_kind(), "");
    char *made = strdup(saved(other));
    start_agent(k->mode);
    assert_null(remove_other_kind());
    assert_string_equal(saved(other), made);
    assert_int_equal(sync_now(true), 2);
    assert_string_equal(saved(other), made);
    char *ours = strdup(saved(k));
    hide_tools();
    char *said = strdup(remove_other_kind());
    bool again = *remove_other_kind();
    assert_string_equal(take_away(), "");
    assert_string_equal(saved(other), before);
    assert_string_equal(saved(k), ours);
    assert_non_null(strstr(said, "7 chains of Portolan, and 3 jumps to them\n"));
    assert_false(again);
    free(before);
    free(made);
    free(ours);
    free(said);
}

/* By a rule of somebody else's it decides for the other kind, which refuses one family's at first. */
static void chains_of_the_other_kind_stay_while_a_family_lacks_the_new_ones(void **state)
{
    (void)state;
    const struct ipvs_want half = { buf_str(&rules4), "*nat\n-A NOWHERE -j RETURN\nCOMMIT\n" };
    start_agent(IPTABLES_NFT);
    sync_now(true);
    run("iptables-legacy -w -A INPUT -s 192.0.2.1 -j DROP");
    start_agent(IPTABLES_AUTO);
    iptables_sync(agent, &half, true, &report);
    assert_int_equal(report.refusals.n, 1);
    assert_null(remove_other_kind());
    assert_non_null(strstr(saved(&kinds[0]), "-A KUBE-SERVICES"));
    assert_int_equal(sync_now(false), 1);
    assert_non_null(strstr(remove_other_kind(), "chains of Portolan"));
    assert_null(strstr(saved(&kinds[0]), "KUBE-"));
    assert_non_null(strstr(saved(&kinds[1]), "-A KUBE-SERVICES"));
}

static void cleaned_up_others_are_as_before(void **state)
{
    const struct kind *k = *state;
    struct nl_port *port = NULL;
    struct buf out = { 0 };
    run("iptables-%s -w -A INPUT -s 192.0.2.1 -j DROP; iptables-%s -w -t nat -N KUBE-MINE", k->name,
        k->name);
    run("ip6tables-%s -w -N KUBE-FIREWALL; ip6tables-%s -w -t nat -N CNI", k->name, k->name);
    char *before = strdup(saved(k));
    sync_now(true);
    assert_int_equal(nl_open(NETLINK_NETFILTER, NULL, &port, &err), 0);
    /* Beside kube-proxy's nothing of ours goes. */
    assert_int_equal(nft_kubeproxy_cleanup(port, KUBEPROXY_BESIDE, false, &out, &err), 0);
    assert_int_equal(iptables_kubeproxy_cleanup(KUBEPROXY_BESIDE, false, &out, &err), 0);
    assert_string_equal(buf_str(&out), "");
    assert_int_equal(sync_now(true), 0);
    assert_int_equal(nft_kubeproxy_cleanup(port, KUBEPROXY_OURS, false, &out, &err), 0);
    assert_int_equal(iptables_kubeproxy_cleanup(KUBEPROXY_OURS, false, &out, &err), 0);
    assert_string_equal(saved(k), before);
    assert_non_null(strstr(buf_str(&out), "7 chains of Portolan, and 3 jumps to them\n"));
    nl_close(port);
    buf_done(&out);
    free(before);
}

#define BOTH(test)                                          \
    { #test " (nft)", test, setup, teardown, &kinds[0] },   \
    {                                                       \
#test " (legacy)", test, setup, teardown, &kinds[1] \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(rules_are_made_once),
        BOTH(what_is_not_looked_at_costs_no_program),
        BOTH(other_peoples_rules_stay),
        BOTH(what_others_changed_is_put_back),
        BOTH(other_rules_replace_them),
        BOTH(refused_rules_are_told),
        BOTH(a_failure_is_seen_by_whomever_we_were_started),
        BOTH(without_ipv6_nothing_of_it_is_undone),
        { "a_machine_that_stands_still_ends_no_program",
          a_machine_that_stands_still_ends_no_program, setup, teardown, &kinds[0] },
        { "a_program_that_hangs_is_not_waited_for", a_program_that_hangs_is_not_waited_for, setup,
          teardown, &kinds[0] },
        BOTH(chains_of_the_other_kind_go_once_the_new_ones_stand),
        { "chains_of_the_other_kind_stay_while_a_family_lacks_the_new_ones",
          chains_of_the_other_kind_stay_while_a_family_lacks_the_new_ones, setup, teardown,
          &kinds[0] },
        BOTH(cleaned_up_others_are_as_before),
    };
    return cmocka_run_group_tests_name("iptables", tests, NULL, NULL);
}
