/* The table `inet portolan`: created or adopted whole, then kept by element differences.
 *
 * First call (or audit, or after a fault): dumps the table. When its sets, chains and
 * rules are the wanted ones, only elements are corrected; otherwise the whole table is
 * replaced, with all elements, in one batch: established connections survive that. Then
 * every call sends one batch with the elements of the groups that changed. The chains of
 * classes (model/nft.h) go with the elements that lead to them; one with other rules is mended
 * alone. A packet may be between two lookups: chains are made in a batch before that of the
 * elements, and what nothing leads to any more is deleted in one after it.
 *
 * BATCH_BEGIN carries the generation id: when a stranger changed the ruleset in between
 * (ERESTART) the table is dumped again before anything is sent. */
#pragma once

#include "kernel/kernel.h"
#include "model/nft_rule.h"
#include "netlink/nl.h"

struct nft;

struct nft *nft_new(struct nl_port *port, struct nft_table table);
void nft_free(struct nft *n); /* accepts NULL */

/* Makes the kernel match; `groups` are sorted by owner, and a key belongs to one of them (of two,
 * the first owner has it and the other is refused). 0 when the kernel was reached, -errno when
 * nothing could be done at all; the next call then reads the kernel first. A group with an
 * element the kernel refuses is in the report and whole out of the kernel, its former version
 * too: half a mapping could lead to a pod that is gone. Every call tries it again. */
int nft_sync(struct nft *n, struct nft_group *const *groups, size_t n_groups, bool audit,
             struct report *report, struct err *err);
/* The UDP flow keys the last sync added, changed or deleted, with where they lead now: for
 * conntrack. The first sync, and one whose answer was lost, tell every wanted flow of a mapping:
 * what a predecessor left undone is unknown. Valid until the next sync. */
size_t nft_udp_changes(const struct nft *n, const struct flow_target **ret);

/* True when the kernel's ruleset generation moved since our last own commit: somebody
 * else changed some table. Cheap (5 us). */
bool nft_foreign_change(struct nft *n);
/* Whoever moved the generation left our table alone: what is known holds at the present one. */
void nft_accept_generation(struct nft *n);

/* Differences without applying, as text lines "+ element ..." / "- element ...". */
struct buf;
int nft_diff(struct nft *n, struct nft_group *const *groups, size_t n_groups, struct buf *out,
             struct err *err);
/* Whether there is a table with other sets, chains or rules than these: one of other features or of
 * another release. */
int nft_is_another(struct nl_port *port, const struct nft_table *table, bool *ret, struct err *err);
/* Deletes the table. 0 also when there is none; *ret_existed tells. `dry_run` only looks. */
int nft_cleanup(struct nl_port *port, bool dry_run, bool *ret_existed, struct err *err);
