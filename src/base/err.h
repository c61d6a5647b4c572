/* An error with a sentence for a person.
 *
 * Functions that can fail return 0 or -errno and take a `struct err *` last. Only the
 * function that first knows what went wrong writes the sentence; callers pass it on
 * or put context before it with err_prefix(). The edge (agent, cli) logs it once.
 * A NULL err is allowed: the sentence is then dropped. */
#pragma once

struct err {
    char text[512];
};

/* Writes the sentence and returns -code, so that `return err_set(err, EINVAL, ...)` reads well.
 * `code` is a positive errno value. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the sentence already there. */
void err_prefix(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
