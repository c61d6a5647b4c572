/* Points in time, in seconds since the Unix epoch, and their text form. Reads no clock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define TIME_TEXT_MAX 32

/* RFC 3339, "2026-01-02T03:04:05Z"; fractions are accepted and dropped, offsets applied. */
bool time_parse(const char *s, int64_t *ret);
const char *time_format(int64_t t, char out[static TIME_TEXT_MAX]);
