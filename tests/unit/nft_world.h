/* A table of ours in a real kernel, for the tests of the nftables back end. The witness is the
 * nft tool. */
#pragma once

#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include "addr_help.h"
#include "kernel/nft.h"
#include "plan/plan.h"

/* Types of messages, for the fake port. */
#define NEWSETELEM (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWSETELEM)
#define DELSETELEM (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELSETELEM)
#define NEWCHAIN   (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWCHAIN)
#define DELCHAIN   (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELCHAIN)

extern struct nl_port *port; /* a fake one that stands before the kernel's */
extern struct report report;
extern struct err err;

/* A new port, rid of the faults that were prepared. */
void renew_port(void);
/* A namespace and a port, for the whole group of tests. */
int world_setup(void **state);
int world_teardown(void **state);

/* Both features. */
extern const struct plan_options world_options;
/* Their ruleset with a set of another size; the next call takes it. */
struct nft_table table_with_limit(enum nft_set set, uint32_t size);

struct world {
    struct nft_group *groups[8]; /* by owner */
    size_t n;
    struct nft *nft;
};
/* In an empty kernel: the node's group, a mapped TCP port, a UDP range, a refused UDP port. */
void world_init(struct world *w);
void world_done(struct world *w);
/* Another agent takes its place, on a new port; it has read nothing of the kernel yet. */
void restart(struct world *w);
void replace(struct world *w, size_t i, struct nft_group *g);
/* nft_sync(), which must succeed, into a fresh report. */
void apply(struct world *w, bool audit);

/* A mapping of 203.0.113.9 to a pod, whose port is one more; refused when the pod is NULL; a
 * range when end is above first. */
struct nft_group *mapping(const char *owner, enum l4proto proto, uint16_t first, uint16_t end,
                          const char *pod);

/* Elements as text, one to a line, each put into the group:
 *   service ADDR PROTO PORT CLASS | endpoint ADDR PROTO PORT INDEX IP PORT | stay ADDR PROTO PORT IP PORT
 *   affinity ADDR PROTO PORT ID | timeout ID SECONDS | sourcerange ADDR PROTO PORT CIDR
 *   clusterip ADDR | hairpin ADDR | podrange CIDR | servicerange CIDR */
struct nft_group *elements(const char *owner, const char *text);

/* The table as nft lists it, without counters. */
const char *listing(void);
bool kernel_has(const char *text);
/* nft loads that text into an emptied kernel, or what it lists itself. */
void load_text(struct nft_table table, struct nft_group *const *groups, size_t n);
void load_listing(void);
/* Another agent that reads the kernel finds it as wanted. */
void assert_in_kernel(struct nft_group *const *groups, size_t n);
/* And one that syncs sends nothing, and sees nobody else's hand. */
void assert_successor_idle(const struct world *w);
