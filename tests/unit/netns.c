#include "netns.h"

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX (256 * 1024)

static char *next_text(void)
{
    static char texts[4][TEXT_MAX];
    static unsigned i;
    return texts[i++ % 4];
}

int netns_new(void)
{
    if (unshare(CLONE_NEWNET))
        fail_msg("unshare: %s (these tests need root)", strerror(errno));
    int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    run("ip link set lo up");
    return fd;
}

void netns_enter(int fd)
{
    if (setns(fd, CLONE_NEWNET))
        fail_msg("setns: %s", strerror(errno));
}

static const char *capture(const char *command, int *ret_status)
{
    char *text = next_text();
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, TEXT_MAX - 1, f);
    text[n] = '\0';
    *ret_status = pclose(f);
    return text;
}

void run(const char *fmt, ...)
{
    char command[4096] = "set -e; exec 2>&1; ";
    size_t at = strlen(command);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(command + at, sizeof(command) - at, fmt, ap);
    va_end(ap);
    assert_in_range(n, 1, sizeof(command) - at - 1);
    int status;
    const char *text = capture(command, &status);
    if (status)
        fail_msg("%s: %s", command, text);
}

const char *output(const char *fmt, ...)
{
    char command[2048];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(command, sizeof(command), fmt, ap);
    va_end(ap);
    assert_in_range(n, 1, sizeof(command) - 1);
    int status;
    return capture(command, &status);
}

const char *witness(void)
{
    return output("ip -d link; ip addr; ip rule; ip -6 rule; ip route show table all;"
                  "ip -6 route show table all");
}

void sysctl_put(const char *path, const char *value)
{
    char full[512];
    snprintf(full, sizeof(full), "/proc/sys/%s", path);
    int fd = open(full, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, value, strlen(value)) != (ssize_t)strlen(value))
        fail_msg("%s: %s", full, strerror(errno));
    close(fd);
}

const char *sysctl_get(const char *path)
{
    char full[512], *text = next_text();
    snprintf(full, sizeof(full), "/proc/sys/%s", path);
    int fd = open(full, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail_msg("%s: %s", full, strerror(errno));
    ssize_t n = read(fd, text, TEXT_MAX - 1);
    assert_true(n >= 0);
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    close(fd);
    return text;
}

void netns_pause(void)
{
    poll(NULL, 0, 1);
}
