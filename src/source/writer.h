/* What a format gives writer.c. Strings are clean UTF-8 here. */
#pragma once

#include "source/codec.h"

struct writer_ops {
    void (*map)(struct writer *w);
    void (*map_end)(struct writer *w);
    void (*list)(struct writer *w);
    void (*list_end)(struct writer *w);
    void (*string)(struct writer *w, const char *s, size_t n); /* keys too */
    void (*integer)(struct writer *w, int64_t n);
    void (*boolean)(struct writer *w, bool b);
    void (*null)(struct writer *w);
    void (*free)(struct writer *w);
};

struct writer {
    const struct writer_ops *ops;
    struct buf clean; /* a string's copy while it is made valid */
};
