/* Any bytes are what a control socket says, or a node's name. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bird/render.h"
#include "bird/reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Letters, digits and _ only, whatever the node is called. */
static void name_a_session(const uint8_t *data, size_t n)
{
    char name[BIRD_SYMBOL_MAX], *node = strndup((const char *)data, n);
    bird_session_name(UINT32_MAX, node, IP_V6, name);
    if (strlen(name) >= BIRD_SYMBOL_MAX - 1 ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") !=
            strlen(name))
        abort();
    free(node);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bird_reply r = { 0 };
    bool last = false;
    name_a_session(data, n);
    while (n) {
        const uint8_t *end = memchr(data, '\n', n);
        size_t len = end ? (size_t)(end - data) : n, lines = r.lines.n;
        if (last)
            bird_reply_reset(&r);
        enum bird_taken taken = bird_reply_take(&r, (const char *)data, len);
        last = taken == BIRD_LAST;
        if (taken == BIRD_ODD && r.lines.n != lines && r.lines.n)
            abort(); /* what is odd adds nothing */
        if (last &&
            (!r.lines.n || bird_reply_code(&r) > 9999 || !bird_reply_find(&r, bird_reply_code(&r))))
            abort();
        if (r.lines.n)
            bird_reply_established(&r, r.lines.v[0].text);
        data += len + (end != NULL);
        n -= len + (end != NULL);
    }
    bird_reply_done(&r);
    return 0;
}
