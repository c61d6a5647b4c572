/* Time, in two kinds, and its text form. The planner never reads a clock: it gets `now`. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define TIME_TEXT_MAX 32

/* Seconds since the Unix epoch. */
int64_t clock_wall(void);
/* Microseconds that only grow. */
int64_t clock_mono_us(void);

/* RFC 3339, "2026-01-02T03:04:05Z"; fractions are accepted and dropped, offsets applied. */
bool time_parse(const char *s, int64_t *ret);
const char *time_format(int64_t t, char out[static TIME_TEXT_MAX]);
