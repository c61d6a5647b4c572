/* Everything a one-shot command needs: the objects of a source, read once. */
#pragma once

#include "source/source.h"
#include "store/store.h"

struct world {
    struct source *source;
    struct store *store;
    size_t errors; /* files or objects that could not be read, already told on stderr */
};

/* -errno when the source cannot be read at all. Writes nothing. */
int world_load(struct world *w, const struct source_options *source, struct err *err);
void world_done(struct world *w);
