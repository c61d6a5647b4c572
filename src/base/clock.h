/* The two clocks. The planner reads neither: it gets `now`. */
#pragma once

#include <stdint.h>

/* Seconds since the Unix epoch. */
int64_t clock_wall(void);
/* The same in microseconds. */
int64_t clock_wall_us(void);
/* Microseconds that only grow. */
int64_t clock_mono_us(void);
