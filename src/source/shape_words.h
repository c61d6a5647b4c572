/* Words for the tables of shapes.c and shapes_core.c. Include it last, and in no header. */
#pragma once

#include "source/shape.h"

#define AT(type, member)  .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)
#define N(type, member)   .count = offsetof(type, member)
#define HAS(type, member) .has = offsetof(type, member)
#define PORT              .type = FIELD_INT, .min = 1, .max = 65535
#define END          \
    {                \
        .name = NULL \
    }

#define METADATA METADATA_OF(meta_shape)
#define METADATA_OF(name_of_shape)                                                    \
    {                                                                                 \
        "metadata", FIELD_OBJECT, .offset = offsetof(struct object, meta),            \
                                  .flags = REQUIRED | ALWAYS, .shape = &name_of_shape \
    }
