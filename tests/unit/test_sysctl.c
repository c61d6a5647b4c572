#include "test.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "kernel/sysctl.h"
#include "netns.h"

static char dir[64];
static struct report report;

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/portolan-sysctl.XXXXXX");
    close(netns_new());
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    run("rm -rf %s", dir);
    report_done(&report);
    memset(&report, 0, sizeof(report));
    return 0;
}

static struct desired_sysctl want(const char *path, const char *value, bool restore)
{
    return (
        struct desired_sysctl){ .owner = "node", .path = path, .value = value, .restore = restore };
}

static size_t sync_with(const struct desired_sysctl *v, size_t n)
{
    struct desired d = { .sysctls = v, .n_sysctls = n };
    report_reset(&report);
    sysctl_sync(&d, dir, &report);
    return report.changes;
}

/* All of the namespace's settings. */
static char *everything(void)
{
    return strdup(output("cd /proc/sys/net; grep -rs . ipv4 ipv6 | "
                         "grep -v 'fastopen_key\\|/stable_secret\\|route/' | sort"));
}

static void cleanup_brings_back_every_byte(void **state)
{
    (void)state;
    run("ip link add eth0 type veth peer name b.c; ip link set eth0 up; ip link set b.c up");
    /* Settings that flipping a switch back would lose. */
    sysctl_put("net/ipv4/conf/all/accept_redirects", "0");
    sysctl_put("net/ipv4/conf/eth0/forwarding", "1");
    sysctl_put("net/ipv6/conf/b.c/forwarding", "1");
    sysctl_put("net/ipv6/conf/default/forwarding", "1");
    char *before = everything();
    const struct desired_sysctl v[] = {
        want("net/ipv4/conf/b.c/rp_filter", "2", false),
        want("net/ipv4/ip_forward", "1", true),
        want("net/ipv6/conf/all/forwarding", "1", true),
        want("net/ipv6/conf/b.c/accept_ra", "2", true),
    };
    assert_int_equal(sync_with(v, 4), 4);
    assert_int_equal(report.refusals.n, 0);
    assert_int_equal(sync_with(v, 4), 0);
    assert_string_equal(sysctl_get("net/ipv4/conf/b.c/rp_filter"), "2");
    assert_string_equal(sysctl_get("net/ipv4/ip_forward"), "1");
    assert_string_equal(sysctl_get("net/ipv6/conf/all/forwarding"), "1");
    assert_string_equal(sysctl_get("net/ipv6/conf/b.c/accept_ra"), "2");
    /* Somebody puts one back; it is set again, and what it was before us is not forgotten. */
    sysctl_put("net/ipv6/conf/b.c/accept_ra", "0");
    assert_int_equal(sync_with(v, 4), 1);

    struct buf out = { 0 };
    struct err err;
    assert_int_equal(sysctl_cleanup(dir, true, &out, &err), 0);
    assert_non_null(strstr(buf_str(&out), "- sysctl net/ipv4/ip_forward 1 -> 0\n"));
    assert_non_null(strstr(buf_str(&out), "- sysctl net/ipv6/conf/b.c/accept_ra 2 -> 1\n"));
    assert_int_equal(sync_with(v, 4), 0); /* a dry run changes nothing */
    assert_int_equal(sysctl_cleanup(dir, false, &out, &err), 0);
    sysctl_put("net/ipv4/conf/b.c/rp_filter", "0"); /* not ours to restore: goes with its device */
    char *after = everything();
    assert_string_equal(after, before);
    buf_clear(&out);
    assert_int_equal(sysctl_cleanup(dir, false, &out, &err), 0);
    assert_string_equal(buf_str(&out), "");
    assert_string_equal(output("ls -A %s", dir), "");
    buf_done(&out);
    free(before);
    free(after);
}

static void what_is_right_already_is_not_ours(void **state)
{
    (void)state;
    sysctl_put("net/ipv4/ip_forward", "1");
    const struct desired_sysctl v[] = { want("net/ipv4/ip_forward", "1", true) };
    assert_int_equal(sync_with(v, 1), 0);
    struct buf out = { 0 };
    struct err err;
    assert_int_equal(sysctl_cleanup(dir, false, &out, &err), 0);
    assert_string_equal(buf_str(&out), "");
    assert_string_equal(sysctl_get("net/ipv4/ip_forward"), "1");
    buf_done(&out);
}

static void an_interface_that_went_is_no_error(void **state)
{
    (void)state;
    run("ip link add eth7 type veth peer name eth8");
    const struct desired_sysctl v[] = { want("net/ipv6/conf/eth7/accept_ra", "2", true) };
    assert_int_equal(sync_with(v, 1), 1);
    run("ip link del eth7");
    struct buf out = { 0 };
    struct err err;
    assert_int_equal(sysctl_cleanup(dir, false, &out, &err), 0);
    assert_string_equal(buf_str(&out), "");
    buf_done(&out);
}

static void differences_are_listed(void **state)
{
    (void)state;
    const struct desired_sysctl v[] = {
        want("net/ipv4/conf/none/rp_filter", "2", false),
        want("net/ipv4/ip_forward", "1", true),
        want("net/ipv4/ip_nonlocal_bind", "0", true),
    };
    struct desired d = { .sysctls = v, .n_sysctls = 3 };
    struct buf out = { 0 };
    sysctl_diff(&d, &out);
    assert_string_equal(buf_str(&out),
                        "+ sysctl net/ipv4/conf/none/rp_filter 2 (No such file or directory)\n"
                        "+ sysctl net/ipv4/ip_forward 0 -> 1\n");
    buf_done(&out);
}

static void assert_refused(size_t i, const char *object, int error, const char *text)
{
    assert_true(i < report.refusals.n);
    assert_string_equal(report.refusals.v[i].owner, "node");
    assert_string_equal(report.refusals.v[i].object, object);
    assert_int_equal(report.refusals.v[i].error, error);
    assert_string_equal(report.refusals.v[i].text, text);
}

static void what_cannot_be_set_is_refused_with_a_reason(void **state)
{
    (void)state;
    const struct desired_sysctl v[] = {
        want("net/ipv4/../ipv4/ip_forward", "1", true),
        want("net/ipv4/conf/lo/rp_filter", "nonsense", false),
        want("net/ipv4/conf/none/rp_filter", "2", false),
        want("net/ipv4/ip_forward", "1", true),
    };
    assert_int_equal(sync_with(v, 4), 1);
    assert_int_equal(report.refusals.n, 3);
    assert_refused(0, "sysctl net/ipv4/../ipv4/ip_forward", EINVAL,
                   "cannot be set to 1: Invalid argument");
    assert_refused(1, "sysctl net/ipv4/conf/lo/rp_filter", EINVAL,
                   "cannot be set to nonsense: Invalid argument");
    assert_refused(2, "sysctl net/ipv4/conf/none/rp_filter", ENOENT,
                   "cannot be set to 2: No such file or directory; this kernel, or this interface, "
                   "does not have it");
}

static void without_a_memory_nothing_is_changed(void **state)
{
    (void)state;
    run("rmdir %s; touch %s", dir, dir);
    const struct desired_sysctl v[] = { want("net/ipv4/ip_forward", "1", true) };
    assert_int_equal(sync_with(v, 1), 0);
    assert_int_equal(report.refusals.n, 1);
    assert_int_equal(report.refusals.v[0].error, ENOTDIR);
    assert_string_equal(sysctl_get("net/ipv4/ip_forward"), "0");
}

static void a_memory_that_is_damaged_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = { "net/ipv4/ip_forward", "net/ipv4/ip_forward 0", "\\n" };
    const struct desired_sysctl v[] = { want("net/ipv4/ip_forward", "1", true) };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct buf out = { 0 };
        struct err err;
        run("printf 'net/ipv4/conf/lo/rp_filter 0\n%s' >%s/sysctls", wrong[i], dir);
        assert_int_equal(sysctl_cleanup(dir, false, &out, &err), -EINVAL);
        assert_non_null(strstr(err.text, "/sysctls: line 2 is not SYSCTL VALUE: remove the file"));
        assert_int_equal(sync_with(v, 1), 0);
        assert_int_equal(report.refusals.n, 1);
        assert_string_equal(sysctl_get("net/ipv4/ip_forward"), "0");
        buf_done(&out);
    }
}

static void a_read_only_proc_is_refused(void **state)
{
    (void)state;
    assert_int_equal(unshare(CLONE_NEWNS), 0);
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    assert_int_equal(mount("/proc/sys", "/proc/sys", NULL, MS_BIND, NULL), 0);
    assert_int_equal(mount(NULL, "/proc/sys", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
    const struct desired_sysctl v[] = { want("net/ipv4/ip_forward", "1", true) };
    assert_int_equal(sync_with(v, 1), 0);
    assert_refused(0, "sysctl net/ipv4/ip_forward", EROFS,
                   "cannot be set to 1: Read-only file system; /proc/sys is read-only here: set it "
                   "on the host, or mount the host's /proc/sys/net at /host/proc/sys/net");
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(cleanup_brings_back_every_byte),
        CASE(what_is_right_already_is_not_ours),
        CASE(an_interface_that_went_is_no_error),
        CASE(differences_are_listed),
        CASE(what_cannot_be_set_is_refused_with_a_reason),
        CASE(without_a_memory_nothing_is_changed),
        CASE(a_memory_that_is_damaged_is_refused),
        CASE(a_read_only_proc_is_refused),
    };
    return cmocka_run_group_tests_name("sysctl", tests, NULL, NULL);
}
