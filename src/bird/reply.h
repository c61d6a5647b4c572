/* What BIRD answers on its control socket, line by line:
 *
 *     CODE-text   a line, and more come      (space)text   one more of the same code
 *     CODE text   the last line              +text         not for us: an echo of its log
 *
 * CODE has four digits: 0xxx done, 1xxx a row, 2xxx a heading, 8xxx refused, 9xxx not understood.
 * Facts: BIRD's doc/reply_codes and nest/cli.c. BIRD 2 and 3 order rows differently: look rows up
 * by name. */
#pragma once

#include <stdbool.h>

#include "base/vec.h"

struct bird_line {
    unsigned code;
    const char *text;
};

struct bird_reply {
    struct arena mem; /* owns the texts */
    VEC(struct bird_line) lines;
    size_t bytes; /* which they take, about */
};

enum bird_taken {
    BIRD_MORE, /* the reply goes on */
    BIRD_LAST, /* that was its last line */
    BIRD_ODD,  /* no BIRD says such a thing, or so much */
};
/* A line without its end. */
enum bird_taken bird_reply_take(struct bird_reply *r, const char *line, size_t n);
/* The code of its last line, 0 when it has none. */
unsigned bird_reply_code(const struct bird_reply *r);
/* The first line of the code, or NULL. */
const char *bird_reply_find(const struct bird_reply *r, unsigned code);
/* The first line that says what is wrong, or NULL. */
const char *bird_reply_error(const struct bird_reply *r);
void bird_reply_reset(struct bird_reply *r);
void bird_reply_done(struct bird_reply *r);

enum {
    BIRD_WELCOME = 1,      /* what it says first */
    BIRD_RECONFIGURED = 3, /* of `configure` */
    BIRD_RECONFIGURING = 4,
    BIRD_STATUS = 13,     /* "Daemon is up and running", of `show status` */
    BIRD_CHECKED = 20,    /* of `configure check` */
    BIRD_PROTOCOLS = 1002 /* a row of `show protocols` */
};

/* Of a reply to `show protocols`: is the session of this name established? */
bool bird_reply_established(const struct bird_reply *r, const char *session);
