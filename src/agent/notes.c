#include "agent/notes.h"

#include <string.h>

#include "base/buf.h"

void notes_begin(struct notes *n)
{
    n->round++;
}

void notes_say(struct notes *n, enum log_level level, const char *event, const char *text)
{
    struct buf line = { 0 };
    buf_printf(&line, "event=%s %s", event, text);
    /* The map's values must not be NULL: rounds count from 1. */
    if (!map_put(&n->seen, line.p, line.n + 1, (void *)n->round))
        log_write(level, "%s", line.p);
    buf_done(&line);
}

void notes_end(struct notes *n)
{
    const void *key;
    size_t len, i = 0;
    void *round;
    while (map_next(&n->seen, &i, &key, &len, &round)) {
        if ((uintptr_t)round == n->round)
            continue;
        log_info("event=cleared was=%s", log_quote(key));
        map_del(&n->seen, key, len);
    }
}

void notes_done(struct notes *n)
{
    map_done(&n->seen);
}
