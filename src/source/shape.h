/* How the model's structs look in YAML and JSON: one table per kind (shapes.c), by which
 * decode.c reads and encode.c writes. */
#pragma once

#include "source/codec.h"

enum field_type {
    FIELD_STRING,  /* const char * */
    FIELD_TIME,    /* int64_t */
    FIELD_BOOL,    /* bool */
    FIELD_INT,     /* an integer of any width */
    FIELD_ENUM,    /* an int-sized enum */
    FIELD_OBJECT,  /* fields of the same struct, at `offset` */
    FIELD_LIST,    /* pointer and uint32_t count of elements of `shape` */
    FIELD_MAP,     /* the same; the key is the element's first member, a string */
    FIELD_STRINGS, /* struct string_list */
    FIELD_INTS,    /* pointer and count of uint16_t */
    FIELD_PAIRS,   /* pointer and count of two strings: a map of strings */
    FIELD_POINTER, /* to a struct of `shape`, NULL when absent */
    FIELD_PRESENT, /* bool: it is there, with whatever text */
    FIELD_CUSTOM
};

enum field_flags {
    REQUIRED = 1,
    NONEMPTY = 2, /* at least one element, or character */
    ALWAYS = 4,   /* written even when zero or empty */
    STATUS = 8,   /* read only when the status is asked for */
    SORTED = 16,  /* by the element's first member, a string */
    ANYTEXT = 32, /* FIELD_PAIRS: a NUL in a value, which servers take, becomes U+FFFD */
};

struct name_value {
    const char *name; /* NULL ends the table */
    int value;
};

struct decoder;
struct writer;
struct field;

struct custom {
    const char *what; /* what would be right */
    int (*get)(struct decoder *d, uint32_t at, void *base);
    void (*put)(struct writer *w, const void *base);
    bool (*absent)(const void *base);
};

/* NULL when the string is right, else what would be right. */
typedef const char *string_check(const char *s);
string_check check_subdomain, check_label; /* as Kubernetes validates names: RFC 1123 */
string_check check_interface;
/* Of `ports` of a class: min is not above max. */
int check_ports(struct decoder *d, uint32_t at, const void *base);

struct field {
    const char *name;
    enum field_type type;
    uint8_t size; /* of an integer */
    uint8_t flags;
    uint16_t offset, count;
    uint16_t has; /* offset of a bool that says whether it was there; 0: none */
    int64_t min, max, initial;
    const char *text; /* FIELD_STRING: the default, NULL means "" */
    string_check *check;
    const struct name_value *names;
    const struct shape *shape;
    const struct custom *custom;
};

struct shape {
    const struct field *fields; /* ends with a NULL name */
    size_t size;                /* of the struct, for elements of lists and maps */
    /* After the fields; bit i of `seen`: field i was there. Or NULL. */
    void (*finish)(void *base, uint32_t seen);
    /* Of a manifest, last; 0 or refused. Or NULL. */
    int (*check)(struct decoder *d, uint32_t at, const void *base);
    bool open; /* unknown fields are ignored in manifests, too */
};

extern const struct shape *const shape_of_kind[KIND_COUNT];
extern const struct shape node_row_shape;
/* shapes_core.c */
extern const struct shape meta_shape, node_shape, namespace_shape, service_shape, slice_shape,
    service_cidr_shape;
/* shapes.c */
extern const struct shape condition_shape, requirement_shape;
/* shapes_traffic.c */
extern const struct shape traffic_class_shape, traffic_row_shape;

/* ---- for custom fields ---- */
#define RECENT_STRINGS 32

struct decoder {
    const struct tokens *tokens;
    struct arena *mem;
    /* Of this object, by hash: namespaces, nodes and kinds come again and again in a slice. */
    const char *recent[RECENT_STRINGS];
    bool with_status;
    bool strict; /* an object of our own kinds as someone wrote it: what is unknown is a mistake */
    const char *kind, *ns, *name; /* for sentences; ns "" when it has none */
    char path[256];
    size_t path_n;
    struct place *reterr_place;
    struct err *err;
};
/* "KIND NS/NAME: PATH is VALUE; WHAT is needed"; -EINVAL. What follows ": " in `what` explains. */
int decoder_refuse(struct decoder *d, uint32_t at, const char *what);
int decoder_refuse_field(struct decoder *d, uint32_t at, const struct field *f);
/* Of the map at `at`. */
int decoder_refuse_missing(struct decoder *d, uint32_t at, const struct field *f);
/* "KIND NS/NAME: PATH PROBLEM" */
int decoder_refuse_key(struct decoder *d, uint32_t at, const char *problem);
/* A key that the shape does not have. */
int decoder_refuse_unknown(struct decoder *d, uint32_t at, const struct shape *shape);
/* Is `name` what was meant by `given`, and nearer than *best, where SIZE_MAX begins? */
bool near_name(const char *given, const char *name, size_t *best);
/* Is it an object at all: a map with apiVersion and kind, without aliases? */
int decoder_check(struct decoder *d, const struct doc *doc);
int decode_shape(struct decoder *d, uint32_t at, void *base, const struct shape *shape);
/* A scalar that is a string without NUL, in the arena. */
int decode_string(struct decoder *d, uint32_t at, const char *what, const char **ret);
/* Elements of a list: *i = at + 1 first; the index of the next, 0 at the end. */
uint32_t token_next(const struct tokens *t, uint32_t *i);
/* Adds to the path of sentences; give the return value to decoder_pop(). */
size_t decoder_push_key(struct decoder *d, const char *key);
size_t decoder_push_index(struct decoder *d, uint32_t i);
void decoder_pop(struct decoder *d, size_t to);
