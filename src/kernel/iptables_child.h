/* One program of iptables as a child process: the only one the agent ever starts, since what
 * iptables-restore reads is the interface of netfilter's rules that stays the same. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* Runs `program` (looked for in PATH, and where administrators' programs are) with `args`, NULL at
 * the end, its own name left out. `input` goes to its standard input, what it prints to `out`. 0 when
 * it ended with status 0; -ENOENT when there is no such program; -ETIMEDOUT when it was ended, with all
 * it had started, after ten seconds; -EIO when its status was another, with what it said about it; or -errno. */
int iptables_child(const char *program, const char *const *args, const char *input, struct buf *out,
                   struct err *err);
