/* Small files that are there whole or not at all. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Whether the file is this text, or begins with it; false also when it cannot be read. */
bool file_says(const char *path, const char *text, bool begins);

/* Makes or empties the file and writes all of it, down to the disk. 0 or -errno; what is there then
 * may be a part. */
int file_write(const char *path, const void *text, size_t n);

/* DIR/NAME has the old text or the new one, whenever the machine stops: the new one is written to
 * DIR/NAME.new. DIR is made when it is not there; its parent must be. 0 or -errno. */
int file_replace(const char *dir, const char *name, const void *text, size_t n, struct err *err);
/* Removes both, and DIR if nothing else is in it. 0, also when they are not there, or -errno. */
int file_remove(const char *dir, const char *name, struct err *err);
