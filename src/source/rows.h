/* What this node says of itself and nobody else should write: its row in the status of a class, its
 * Node's annotations.
 *
 * One that is to be written again as it was written last has been changed by somebody: most likely
 * an agent on another machine that was given this node's name. Each would undo the other as fast as
 * the source takes it, so that from the first time on each waits longer. */
#pragma once

#include <stdint.h>

#include "base/buf.h"

struct rows;
struct rows *rows_new(const char *node);
void rows_free(struct rows *rows); /* accepts NULL */
/* The source took this. `name` is anything that is the row's own. */
void rows_landed(struct rows *rows, const char *name, const char *body);
/* How long to wait before this is sent: 0 unless somebody undid just that. Each call is one more time;
 * when they are too many, *ret_tell gets a sentence. */
uint64_t rows_wait_ms(struct rows *rows, const char *name, const char *body, struct buf *ret_tell);
/* The same for who asks again until it is due: what is left to wait. */
uint64_t rows_hold_ms(struct rows *rows, const char *name, const char *body, struct buf *ret_tell);
/* One line while somebody does so again and again. */
void rows_unready(const struct rows *rows, struct buf *out);
void rows_forget(struct rows *rows, const char *name);
