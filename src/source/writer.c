#include "source/writer.h"

#include <stdlib.h>

/* Bytes of the UTF-8 sequence at s, 0 when there is none (RFC 3629, table 3-7 of Unicode). */
static size_t utf8_len(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    size_t n = s[0] >= 0xc2 && s[0] <= 0xdf   ? 2
               : s[0] >= 0xe0 && s[0] <= 0xef ? 3
               : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4
                                              : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

static void put_clean(struct writer *w, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t good = 0, n;
    while (s[good] && (n = utf8_len(s + good)))
        good += n;
    if (!s[good]) {
        w->ops->string(w, text, good);
        return;
    }
    buf_clear(&w->clean);
    while (*s) {
        n = utf8_len(s);
        if (n)
            buf_put(&w->clean, s, n);
        else
            buf_puts(&w->clean, "\xef\xbf\xbd");
        s += n ? n : 1;
    }
    w->ops->string(w, w->clean.p, w->clean.n);
}

void writer_free(struct writer *w)
{
    if (!w)
        return;
    buf_done(&w->clean);
    w->ops->free(w);
}

void writer_map(struct writer *w)
{
    w->ops->map(w);
}

void writer_map_end(struct writer *w)
{
    w->ops->map_end(w);
}

void writer_list(struct writer *w)
{
    w->ops->list(w);
}

void writer_list_end(struct writer *w)
{
    w->ops->list_end(w);
}

void writer_key(struct writer *w, const char *key)
{
    put_clean(w, key);
}

void writer_string(struct writer *w, const char *s)
{
    put_clean(w, s);
}

void writer_int(struct writer *w, int64_t n)
{
    w->ops->integer(w, n);
}

void writer_bool(struct writer *w, bool b)
{
    w->ops->boolean(w, b);
}

void writer_null(struct writer *w)
{
    w->ops->null(w);
}
