/* Sysctls below /proc/sys, and the memory of what they were before us. */
#pragma once

#include "base/err.h"
#include "kernel/kernel.h"

/* Sets what differs, the forwarding switches last; refusals go into the report. The old value
 * of a `restore` sysctl is kept in STATE_DIR/sysctls (written before the change), and so are
 * other settings that switching forwarding resets. The directory is made when needed; its parent
 * must exist. */
void sysctl_sync(const struct desired *d, const char *state_dir, struct report *report);
struct buf;
/* "+ sysctl net/ipv4/ip_forward 0 -> 1" */
void sysctl_diff(const struct desired *d, struct buf *out);
/* Puts the remembered values back and removes the file; lists them into `out`. */
int sysctl_cleanup(const char *state_dir, bool dry_run, struct buf *out, struct err *err);
