/* The events of one object of a YAML or JSON text, flat and in order, so that its kind and
 * name are known before anything of it is decoded.
 *
 * A front end (yaml.c, json.c) calls tokens_scalar(), tokens_start() and tokens_end() for
 * what it reads; whenever an object is complete it is handed out as a struct doc and its
 * tokens are forgotten: each root of the text, or, where a root has a list called `items`
 * (kind: List), each of these. So memory follows the largest object, not the file. An item
 * beyond the limits costs only itself where the handler takes that (`skipped`). */
#pragma once

#include "source/codec.h"

enum token_type { TOKEN_SCALAR, TOKEN_MAP, TOKEN_LIST, TOKEN_END };

struct token {
    uint32_t text, len; /* offset into tokens.text */
    uint32_t end;       /* index behind the value: past the matching TOKEN_END */
    uint32_t line, col; /* from 1 */
    uint8_t type;       /* enum token_type */
    bool plain;         /* an unquoted scalar: null, true, 8080 are no strings */
};

/* More than the largest object an API server takes (1.5 MiB) can need. */
#define TOKENS_MAX      400000u
#define TOKENS_TEXT_MAX (4u << 20)
#define DEPTH_MAX       64u

struct tokens {
    VEC(struct token) v;
    VEC(uint32_t) open; /* maps and lists not yet ended */
    struct buf text;
    struct place alias;         /* first alias of the object; line 0: none */
    size_t items;               /* depth of the root's `items`, 0: outside */
    uint32_t root_n, root_text; /* what belongs to the root while an item is read */
    bool listed;                /* the root had items */
    size_t skip;                /* depth within an item that is passed over, 0: none */
    char skip_ns[64], skip_name[254];
    const struct codec_handler *handler;
};

/* -E2BIG with a sentence when a limit is passed. */
int tokens_scalar(struct tokens *t, const char *s, size_t n, bool plain, struct place at,
                  struct err *err);
int tokens_start(struct tokens *t, enum token_type type, struct place at, struct err *err);
int tokens_end(struct tokens *t, struct place at, struct err *err);
void tokens_alias(struct tokens *t, struct place at);
void tokens_done(struct tokens *t);

/* The map at `at` as an object. */
struct doc tokens_doc(const struct tokens *t, uint32_t at);
const char *token_text(const struct tokens *t, uint32_t i); /* NUL-terminated */
bool token_is(const struct tokens *t, uint32_t i, const char *s);
/* The value of a key of the map at `map`; 0 when there is none. */
uint32_t token_find(const struct tokens *t, uint32_t map, const char *key);
/* The text of a key's value that is a string, else "". */
const char *token_string(const struct tokens *t, uint32_t map, const char *key);

/* What a scalar is by the YAML core schema (1.2.2, section 10.3.2). */
enum scalar_type { SCALAR_STRING, SCALAR_NULL, SCALAR_BOOL, SCALAR_INT, SCALAR_FLOAT };
enum scalar_type token_scalar_type(const char *s);

int json_parse(const char *text, size_t n, struct tokens *t, struct place *reterr_place,
               struct err *err);
int yaml_parse(const char *text, size_t n, struct tokens *t, struct place *reterr_place,
               struct err *err);
