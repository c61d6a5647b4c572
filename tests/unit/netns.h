/* Network namespaces for tests of real kernels: made by the test process for itself, so that
 * nothing needs cleaning up. Needs root. */
#pragma once

#include <stdbool.h>

/* A new namespace with lo up becomes the process's; its fd. */
int netns_new(void);
/* Goes into the namespace of an fd. */
void netns_enter(int fd);
/* Runs a shell command and demands success. */
void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Its output, in one of four static buffers in turn. */
const char *output(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Everything rtnetlink has, as `ip` shows it. */
const char *witness(void);
/* Writes a file below /proc/sys. */
void sysctl_put(const char *path, const char *value);
/* Its value without the newline, in one of four static buffers in turn. */
const char *sysctl_get(const char *path);
/* True as soon as the condition is; false after `ms`. */
#define within_ms(ms, condition)                               \
    ({                                                         \
        int64_t end_ = clock_mono_us() + (ms)*INT64_C(1000);   \
        bool ok_;                                              \
        while (!(ok_ = (condition)) && clock_mono_us() < end_) \
            netns_pause();                                     \
        ok_;                                                   \
    })
/* One millisecond, between two looks at a condition. */
void netns_pause(void);
