#include "base/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static enum log_level threshold = LOG_INFO;
static const char *const names[] = { "error", "warn", "info", "debug" };

void log_set_level(enum log_level level)
{
    threshold = level;
}

int log_level_parse(const char *name)
{
    for (int i = 0; i < 4; i++)
        if (!strcmp(name, names[i]))
            return i;
    return -1;
}

/* One write per line, so that lines of several processes do not mix. A full or closed stderr
 * must not stop the agent: a pipe that polls writable has room for a page, and no line is
 * longer; what has no room is dropped, and the next line that has says how many. */
static void put_line(const char *line, size_t n)
{
    static unsigned dropped;
    char head[64];
    struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
    if (poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT)) {
        dropped++;
        return;
    }
    ssize_t r;
    if (dropped) {
        int m = snprintf(head, sizeof(head), "level=warn event=log_dropped lines=%u\n", dropped);
        r = write(STDERR_FILENO, head, (size_t)m);
        dropped = 0;
        if (poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT)) {
            dropped = 1;
            return;
        }
    }
    r = write(STDERR_FILENO, line, n);
    (void)r;
}

void log_write(enum log_level level, const char *fmt, ...)
{
    if (level > threshold)
        return;
    char line[4096];
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    struct tm tm;
    gmtime_r(&ts.tv_sec, &tm);
    size_t n = strftime(line, sizeof(line), "time=%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(line + n, sizeof(line) - n, ".%03ldZ level=%s ", ts.tv_nsec / 1000000,
                          names[level]);
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
    va_end(ap);
    if (m > 0)
        n += (size_t)m < sizeof(line) - n - 1 ? (size_t)m : sizeof(line) - n - 2;
    line[n++] = '\n';
    put_line(line, n);
}

const char *log_quote(const char *s)
{
    static char bufs[8][1024];
    static unsigned next;
    char *out = bufs[next++ % 8], *p = out, *end = out + sizeof(bufs[0]) - 6;
    *p++ = '"';
    for (; s && *s && p < end; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            *p++ = '\\';
            *p++ = (char)c;
        } else if (c == '\n') {
            *p++ = '\\';
            *p++ = 'n';
        } else if (c < 0x20 || c == 0x7f) {
            p += snprintf(p, 5, "\\x%02x", c);
        } else {
            *p++ = (char)c;
        }
    }
    *p++ = '"';
    *p = 0;
    return out;
}
