/* What the files of this back end share. nft.c decides; nft_ops.c compares; nft_batch.c sends;
 * nft_layout.c, nft_rule.c and nft_expr.c know the constant part, nft_class.c the chains that
 * elements bring along, nft_elem.c the elements, nft_udp.c what conntrack must hear. */
#pragma once

#include "base/buf.h"
#include "kernel/nft.h"
#include "model/nft_rule.h"

struct nftnl_rule;

/* ---- nft_ops.c: the difference as elements to delete and to add ---- */

struct nft_op {
    const struct nft_elem *elem;
    const struct nft_group *group; /* whose it is; NULL: found in the kernel */
    uint32_t seq;                  /* of the message it went in */
};
struct nft_ops {
    struct nft_op *v;
    size_t n, cap;
};
struct nft_difference {
    struct nft_ops dels, adds; /* by key; a change is in both */
    struct nft_ops late;       /* to delete when no packet is on its way to them any more */
    size_t changes;
};

void nft_ops_put_group(struct nft_ops *ops, const struct nft_group *g);
/* The elements of all groups that differ. Both arrays are sorted by owner; skip[i]: wanted[i]
 * is not wanted. */
void nft_ops_put_changed(struct nft_group *const *known, size_t n_known,
                         struct nft_group *const *wanted, size_t n_wanted, const bool *skip,
                         struct nft_ops *have, struct nft_ops *want);
/* By key. */
void nft_ops_sort(struct nft_ops *ops);
/* The op that went in this message, or NULL. *ret_alone: it was the only one there. */
const struct nft_op *nft_ops_find(const struct nft_ops *ops, uint32_t seq, bool *ret_alone);
/* By key, each key once. Or returns an op that has the key of an earlier owner and other data. */
const struct nft_op *nft_ops_sort_wanted(struct nft_ops *ops);
/* Both sorted. */
void nft_ops_diff(const struct nft_ops *have, const struct nft_ops *want,
                  struct nft_difference *ret);

/* ---- nft_class.c: the chains that elements lead to ---- */

struct nft_class_ref {
    struct nft_class class;
    uint32_t number; /* the key of NFT_CLASSES that leads to the chain; 0: none */
    uint32_t refs;   /* elements that need the chain */
    bool exists;     /* in the kernel */
    bool numbered;   /* in the kernel, too: NFT_CLASSES has the number */
    bool wrong;      /* with other rules than the class's */
};
struct nft_classes {
    struct nft_class_ref *v; /* by class */
    size_t n, cap;
    uint32_t last; /* number given */
};
void nft_classes_found(struct nft_classes *c, const struct nft_class *class, bool wrong);
/* What is in the kernel is unknown. Numbers are kept: a table made anew is as it was before. */
void nft_classes_forget(struct nft_classes *c);
/* From all elements of NFT_CLASSES; false when they are not at most one for each class found. */
bool nft_classes_take_numbers(struct nft_classes *c, const struct nft_ops *ops);
/* Gives one to each class that is due and has none. Numbers do not come back: a packet may still be
 * on its way with one. */
void nft_classes_number(struct nft_classes *c);
/* 0: it has none. */
uint32_t nft_class_number(const struct nft_classes *c, const struct nft_class *class);
/* NULL: nobody has it. */
const struct nft_class *nft_class_of(const struct nft_classes *c, uint32_t number);
void nft_classes_copy(struct nft_classes *to, const struct nft_classes *from);
/* Adds `by`, 1 or -1, to the refs of each class that the ops' elements need. */
void nft_classes_count(struct nft_classes *c, const struct nft_ops *ops, int by);
bool nft_class_is_due(const struct nft_class_ref *r);  /* to be made or mended */
bool nft_class_is_left(const struct nft_class_ref *r); /* without an element */
bool nft_classes_any(const struct nft_classes *c, bool (*is)(const struct nft_class_ref *r));
/* The messages for those that are due, or left, and what is so after them. */
void nft_classes_put_due(struct nl_buf *b, struct nl_port *port, const struct nft_table *t,
                         const struct nft_classes *c);
void nft_classes_made(struct nft_classes *c);
/* Those that are due in `from` are there now. */
void nft_classes_learn(struct nft_classes *c, const struct nft_classes *from);
void nft_classes_put_left(struct nl_buf *b, struct nl_port *port, const struct nft_table *t,
                          const struct nft_classes *c);
void nft_classes_gone(struct nft_classes *c);

/* ---- nft_layout.c: the table without its elements ---- */

enum nft_layout { NFT_LAYOUT_ABSENT, NFT_LAYOUT_OTHER, NFT_LAYOUT_WANTED };

/* Messages that delete the table, if there is one, and create it anew. */
void nft_layout_put(struct nl_buf *b, struct nl_port *port, const struct nft_table *t);
/* `why` gets what is different when it is NFT_LAYOUT_OTHER; `classes` the chains of classes that
 * are there, without refs. */
int nft_layout_read(struct nl_port *port, const struct nft_table *t, enum nft_layout *ret,
                    struct nft_classes *classes, struct buf *why, struct err *err);

/* ---- nft_rule.c ---- */

struct nftnl_rule *nft_rule_build(const struct nft_table *t, const char *chain,
                                  const struct nft_rule *rule);
/* The rule's expressions as text, counters at zero: equal text, equal rule. */
void nft_rule_print(struct buf *b, struct nftnl_rule *r);

/* ---- nft_elem.c ---- */

/* Messages for all ops, which get their seq. `single`: one element to a message. */
void nft_elem_put(struct nl_buf *b, struct nl_port *port, const struct nft_table *t, uint16_t type,
                  const struct nft_classes *classes, struct nft_ops *ops, bool single);
/* The element of NFT_CLASSES. */
void nft_elem_put_class(struct nl_buf *b, struct nl_port *port, const struct nft_table *t,
                        uint16_t type, const struct nft_class_ref *r);
/* Every element of every set by key, allocated in `mem`; of dynamic sets and NFT_CLASSES none. */
int nft_elem_read(struct nl_port *port, const struct nft_table *t,
                  const struct nft_classes *classes, struct arena *mem, struct nft_ops *ret,
                  struct err *err);
/* Appends those of one set. */
int nft_elem_read_set(struct nl_port *port, const struct nft_table *t, enum nft_set set,
                      const struct nft_classes *classes, struct arena *mem, struct nft_ops *ret,
                      struct err *err);
/* One NFT_MSG_NEWSETELEM of a dump of the set. 0 or -EBADMSG. Of an interval set with one field
 * the kernel tells first and last + 1 apart, in any order: nft_elem_pair() makes elements of
 * those that came from index `start` on. */
int nft_elem_parse(const struct nlmsghdr *m, enum nft_set set, const struct nft_classes *classes,
                   struct arena *mem, struct nft_ops *ret);
void nft_elem_pair(enum nft_set set, struct arena *mem, struct nft_ops *ret, size_t start);

/* ---- nft_batch.c ---- */

struct nlmsghdr *nft_msg(struct nl_buf *b, struct nl_port *port, uint16_t type, uint16_t flags);
/* Empties the buffer. With a genid the batch fails with ERESTART when the ruleset is of
 * another generation. */
void nft_batch_begin(struct nl_buf *b, struct nl_port *port, uint32_t genid);
/* Arguments and result as those of nl_batch(). */
int nft_batch_send(struct nl_buf *b, struct nl_port *port, struct nl_error *errors, size_t max,
                   size_t *ret_n, struct err *err);
/* Deletes the table, whatever is in it; `dry_run` only looks. NFPROTO_INET, ..._IPV4, ..._IPV6. */
int nft_table_delete(struct nl_port *port, uint8_t family, const char *name, bool dry_run,
                     bool *ret_existed, struct err *err);
int nft_genid(struct nl_port *port, uint32_t *ret, struct err *err);

/* ---- nft_udp.c ---- */

struct nft_flows {
    struct flow_target *v; /* by dialled address, port and end */
    size_t n, cap;
    struct arena mem; /* their others */
};
/* Adds the UDP flows in the difference, each once, with where they lead after it; with `all` every
 * wanted one of a mapping. `want` has all elements of a service's flow that has one there. */
void nft_udp_collect(const struct nft_difference *d, const struct nft_ops *want, bool all,
                     struct nft_flows *ret);
void nft_flows_done(struct nft_flows *f);
