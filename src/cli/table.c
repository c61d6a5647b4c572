#include "cli/table.h"

#include <stdio.h>

void table_row(struct text_table *t, const char *const *cells, size_t n)
{
    struct text_row row = { 0 };
    if (!t->columns)
        t->columns = n;
    for (size_t i = 0; i < t->columns && i < TABLE_COLUMNS_MAX; i++)
        row.cells[i] = i < n && cells[i] ? arena_strdup(&t->mem, cells[i]) : "";
    vec_push(&t->rows, row);
}

void table_print(const struct text_table *t)
{
    size_t width[TABLE_COLUMNS_MAX] = { 0 };
    for (size_t r = 0; r < t->rows.n; r++)
        for (size_t c = 0; c < t->columns; c++) {
            size_t n = strlen(t->rows.v[r].cells[c]);
            if (n > width[c])
                width[c] = n;
        }
    for (size_t r = 0; r < t->rows.n; r++) {
        for (size_t c = 0; c + 1 < t->columns; c++)
            printf("%-*s", (int)width[c] + 3, t->rows.v[r].cells[c]);
        puts(t->rows.v[r].cells[t->columns - 1]);
    }
}

void table_done(struct text_table *t)
{
    vec_done(&t->rows);
    arena_done(&t->mem);
    t->columns = 0;
}
