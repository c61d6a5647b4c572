/* The newest version of every object, kept in the order a snapshot needs, and the list of
 * what changed since the last snapshot was taken. Owns its objects. */
#pragma once

#include "model/snapshot.h"

struct store;

struct store *store_new(void);
void store_free(struct store *s);

/* Takes ownership. False when an equal object was there already (the new one is freed). */
bool store_upsert(struct store *s, struct object *obj);
/* False when there was none. */
bool store_remove(struct store *s, enum object_kind kind, const char *ns, const char *name);
const struct object *store_get(const struct store *s, enum object_kind kind, const char *ns,
                               const char *name);
size_t store_count(const struct store *s, enum object_kind kind);

/* Fills the object arrays and changes of `snap` (node, now and host are the caller's). The
 * view, and every object that was replaced or removed since the commit before, stays valid
 * until store_commit(); no object may be put or removed in between. */
void store_snapshot(struct store *s, struct snapshot *snap);
/* The pass over the last snapshot is done: frees what was replaced and starts a new list of
 * changes. */
void store_commit(struct store *s);
