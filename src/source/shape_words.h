/* Words for the tables of shapes*.c. Include it last, and in no header. */
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

/* The fields of a metav1.LabelSelector that is `member` of `type`. */
#define SELECTOR(type, member)                                         \
    { "matchLabels", FIELD_PAIRS, AT(type, member.match_labels.v),     \
      N(type, member.match_labels.n) },                                \
    {                                                                  \
        "matchExpressions", FIELD_LIST, AT(type, member.expressions),  \
            N(type, member.n_expressions), .shape = &requirement_shape \
    }

#define METADATA METADATA_OF(meta_shape)
#define METADATA_OF(name_of_shape)                                                    \
    {                                                                                 \
        "metadata", FIELD_OBJECT, .offset = offsetof(struct object, meta),            \
                                  .flags = REQUIRED | ALWAYS, .shape = &name_of_shape \
    }
