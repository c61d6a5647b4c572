/* The table and its elements as nft reads and a person understands them: for `plan`, `diff`,
 * error messages and goldens. Same input, same bytes. nft 1.0.6 loads the whole output of
 * nft_text_table() followed by nft_text_elements(). */
#pragma once

#include "base/buf.h"
#include "model/nft_rule.h"

/* "1.2.3.4 . tcp . 80 : 10.0.0.1 . 8080" */
void nft_text_elem(struct buf *b, const struct nft_elem *e);
/* "element inet portolan target4 { 1.2.3.4 . tcp . 80 : 10.0.0.1 . 8080 }", to go after add or
 * delete; a class is named by its chain. */
void nft_text_element(struct buf *b, const struct nft_table *t, const struct nft_elem *e);
/* Sets, chains and rules, without elements. */
void nft_text_table(struct buf *b, const struct nft_table *t);
/* The chains of classes, then one "add element" a line, by set and key across all groups. A class is
 * a number here, as in the kernel. */
void nft_text_elements(struct buf *b, const struct nft_table *t, struct nft_group *const *groups,
                       size_t n_groups);
