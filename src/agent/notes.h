/* Says a thing once: a fact is logged when it appears and when it is gone, not on every pass. */
#pragma once

#include "base/log.h"
#include "base/map.h"

struct notes {
    struct map seen; /* text -> round it was last seen in */
    uintptr_t round;
};

void notes_begin(struct notes *n);
/* Logs "event=EVENT TEXT" unless it was there in the round before. */
void notes_say(struct notes *n, enum log_level level, const char *event, const char *text);
/* Logs "event=cleared TEXT" for what was not said again. */
void notes_end(struct notes *n);
void notes_done(struct notes *n);
