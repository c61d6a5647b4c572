/* Sends status writes through the source they belong to. */
#pragma once

#include "source/source.h"

struct status_outcome {
    size_t written, conflicts, failed;
    size_t sent;    /* the source tells later what became of it: source_sink.settled */
    size_t waiting; /* not tried: run another pass soon, it decides on them again */
};

/* Classes and Nodes first. When one of them was written or sent mappings and Services wait, because what
 * they say quotes it; and they wait after a twentieth of a second, so that ten thousand of them do
 * not hold up a change. A conflict (-EAGAIN) is no fault: the newer object is on its way and the next pass
 * decides again. Nor is it one that an optional write is not allowed (-EPERM). `failed` is told of every
 * other error. */
struct status_outcome status_send(struct source *source, const struct status_writes *writes,
                                  void (*failed)(const struct status_write *w, const char *text,
                                                 void *user),
                                  void *user);
