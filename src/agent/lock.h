/* One agent per state directory, and no cleanup beside a running one. */
#pragma once

#include "base/err.h"

/* Creates the directory when needed and takes STATE_DIR/lock, which the kernel frees with the
 * process, however it ends. *ret_fd is to be closed. -EBUSY names the pid that holds it. */
int lock_take(const char *state_dir, int *ret_fd, struct err *err);
/* Removes the lock file and, when it is empty, the directory: for cleanup, at its end. */
void lock_remove(const char *state_dir);
