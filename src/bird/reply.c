#include "bird/reply.h"

#include <string.h>

#define CODE_DIGITS 4
#define ERRORS      8000        /* and above */
#define REPLY_BYTES (16u << 20) /* ten times what BIRD says of ten thousand sessions */

static void add(struct bird_reply *r, unsigned code, const char *text, size_t n)
{
    vec_push(&r->lines, (struct bird_line){ code, arena_strndup(&r->mem, text, n) });
    r->bytes += n + sizeof(struct bird_line);
}

enum bird_taken bird_reply_take(struct bird_reply *r, const char *line, size_t n)
{
    if (r->bytes > REPLY_BYTES)
        return BIRD_ODD;
    if (n && line[0] == '+')
        return BIRD_MORE;
    if (n && line[0] == ' ') {
        if (!r->lines.n)
            return BIRD_ODD;
        add(r, bird_reply_code(r), line + 1, n - 1);
        return BIRD_MORE;
    }
    unsigned code = 0;
    if (n < CODE_DIGITS)
        return BIRD_ODD;
    for (size_t i = 0; i < CODE_DIGITS; i++) {
        if (line[i] < '0' || line[i] > '9')
            return BIRD_ODD;
        code = code * 10 + (unsigned)(line[i] - '0');
    }
    if (n > CODE_DIGITS && line[CODE_DIGITS] != ' ' && line[CODE_DIGITS] != '-')
        return BIRD_ODD;
    size_t at = n > CODE_DIGITS ? CODE_DIGITS + 1 : n;
    add(r, code, line + at, n - at);
    return n > CODE_DIGITS && line[CODE_DIGITS] == '-' ? BIRD_MORE : BIRD_LAST;
}

unsigned bird_reply_code(const struct bird_reply *r)
{
    return r->lines.n ? r->lines.v[r->lines.n - 1].code : 0;
}

const char *bird_reply_find(const struct bird_reply *r, unsigned code)
{
    for (size_t i = 0; i < r->lines.n; i++)
        if (r->lines.v[i].code == code)
            return r->lines.v[i].text;
    return NULL;
}

const char *bird_reply_error(const struct bird_reply *r)
{
    for (size_t i = 0; i < r->lines.n; i++)
        if (r->lines.v[i].code >= ERRORS)
            return r->lines.v[i].text;
    return NULL;
}

void bird_reply_reset(struct bird_reply *r)
{
    arena_reset(&r->mem);
    r->lines.n = 0;
    r->bytes = 0;
}

void bird_reply_done(struct bird_reply *r)
{
    arena_done(&r->mem);
    vec_done(&r->lines);
}

/* "NAME BGP TABLE up SINCE Established": the last word says it, whatever SINCE is made of. */
bool bird_reply_established(const struct bird_reply *r, const char *session)
{
    static const char word[] = "Established";
    size_t len = strlen(session);
    for (size_t i = 0; i < r->lines.n; i++) {
        const char *text = r->lines.v[i].text, *end = text + strlen(text);
        if (r->lines.v[i].code != BIRD_PROTOCOLS || strncmp(text, session, len) || text[len] != ' ')
            continue;
        while (end > text && end[-1] == ' ')
            end--;
        size_t n = (size_t)(end - text);
        return n > sizeof(word) && !strncmp(end - strlen(word), word, strlen(word)) &&
               end[-(ptrdiff_t)strlen(word) - 1] == ' ';
    }
    return false;
}
