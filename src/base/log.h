/* One line per event, key=value, to stderr. Libraries below agent and cli never log.
 *
 *     log_info("event=applied elements=%zu took_us=%lld", n, us);
 *
 * Values that may hold spaces or quotes go through log_quote(). */
#pragma once

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level);
/* "error", "warn", "info", "debug"; -1 when unknown. */
int log_level_parse(const char *name);

void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)

/* The value in double quotes with ", \ and control bytes escaped, cut at the buffer's end.
 * Uses one of eight static buffers in turn; for use inside one log call. */
const char *log_quote(const char *s);
