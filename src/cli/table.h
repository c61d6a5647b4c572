/* Text tables as kubectl prints them: columns as wide as their widest cell, three spaces. */
#pragma once

#include "base/arena.h"
#include "base/vec.h"

#define TABLE_COLUMNS_MAX 16

struct text_row {
    const char *cells[TABLE_COLUMNS_MAX];
};

struct text_table {
    struct arena mem;
    size_t columns;
    VEC(struct text_row) rows; /* the first one is the header */
};

/* Copies `n` cells; the first call sets the number of columns. */
void table_row(struct text_table *t, const char *const *cells, size_t n);
/* To stdout. */
void table_print(const struct text_table *t);
void table_done(struct text_table *t);
