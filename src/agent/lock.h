/* One agent per node, and no cleanup beside a running one. A node's kernel state is that of a
 * network namespace, so the lock is an abstract socket name, which every network namespace has
 * of its own and the kernel frees with the process, however it ends. */
#pragma once

#include "base/err.h"

/* *ret_fd is to be closed. -EBUSY names the pid that holds it where the kernel tells. */
int lock_take(int *ret_fd, struct err *err);
