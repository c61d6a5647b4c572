#include "kernel/kernel.h"

#include <stdio.h>

void report_refuse(struct report *r, const char *owner, int error, const char *text,
                   const char *object_fmt, ...)
{
    va_list ap;
    va_start(ap, object_fmt);
    char object[512];
    vsnprintf(object, sizeof(object), object_fmt, ap);
    va_end(ap);
    vec_push(&r->refusals, (struct refusal){
                               .owner = arena_strdup(&r->mem, owner),
                               .object = arena_strdup(&r->mem, object),
                               .error = error,
                               .text = arena_strdup(&r->mem, text),
                           });
}

void report_reset(struct report *r)
{
    arena_reset(&r->mem);
    r->refusals.n = 0;
    r->adds = r->changes = r->deletes = r->bytes = 0;
}

void report_done(struct report *r)
{
    arena_done(&r->mem);
    vec_done(&r->refusals);
}
