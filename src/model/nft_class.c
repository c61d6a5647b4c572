#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/names.h"
#include "model/nft.h"

static const char *const kind_word[] = {
    [NFT_CLASS_PICK] = "pick",         [NFT_CLASS_REJECT] = "reject", [NFT_CLASS_DROP] = "drop",
    [NFT_CLASS_REMEMBER] = "remember", [NFT_CLASS_HOLDER] = "holder", [NFT_CLASS_REPLY] = "reply",
};
static const char *const masquerade_word[] = {
    [NFT_MASQUERADE_NEVER] = "",
    [NFT_MASQUERADE_OUTSIDE] = "-outside",
    [NFT_MASQUERADE_ALWAYS] = "-always",
};

const char *nft_class_name(const struct nft_class *c, char out[static NFT_CLASS_NAME_MAX])
{
    size_t n = 0;
#define PUT(...) (n += (size_t)snprintf(out + n, NFT_CLASS_NAME_MAX - n, __VA_ARGS__))
    PUT("%s", kind_word[c->kind]);
    if (c->family)
        PUT("%u", c->family);
    if (c->n || c->kind == NFT_CLASS_PICK)
        PUT("-%u", c->n);
    PUT("%s%s%s", c->offset ? "-offset" : "", c->ranged ? "-ranged" : "",
        masquerade_word[c->masquerade]);
    if (c->n_all)
        PUT("-all%u", c->n_all);
    if (c->timeout)
        PUT("-%s%" PRIu32, c->kind == NFT_CLASS_REMEMBER ? "" : "affinity", c->timeout);
#undef PUT
    return out;
}

static bool take(const char **s, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*s, word, n))
        return false;
    *s += n;
    return true;
}

/* No number: 0, which the comparison with the canonical name then refuses where it must. */
static unsigned long take_number(const char **s)
{
    char *end;
    unsigned long n = **s >= '0' && **s <= '9' ? strtoul(*s, &end, 10) : 0;
    if (**s >= '0' && **s <= '9')
        *s = end;
    return n;
}

bool nft_class_parse(const char *name, struct nft_class *ret)
{
    struct nft_class c;
    memset(&c, 0, sizeof(c)); /* compared as bytes */
    const char *s = name;
    int kind = NFT_CLASS_REPLY;
    while (kind >= 0 && !take(&s, kind_word[kind]))
        kind--;
    if (kind < 0)
        return false;
    c.kind = (uint8_t)kind;
    if (kind == NFT_CLASS_REMEMBER) {
        take(&s, "-");
        c.timeout = (uint32_t)take_number(&s);
    } else if (kind > NFT_CLASS_REMEMBER) {
        take(&s, "-");
        c.n = (uint16_t)take_number(&s);
    } else {
        c.family = take(&s, "4") ? IP_V4 : take(&s, "6") ? IP_V6 : IP_NONE;
        if (kind == NFT_CLASS_PICK && take(&s, "-"))
            c.n = (uint16_t)take_number(&s);
        c.offset = take(&s, "-offset");
        c.ranged = take(&s, "-ranged");
        c.masquerade = take(&s, "-outside")  ? NFT_MASQUERADE_OUTSIDE
                       : take(&s, "-always") ? NFT_MASQUERADE_ALWAYS
                                             : NFT_MASQUERADE_NEVER;
        c.n_all = take(&s, "-all") ? (uint16_t)take_number(&s) : 0;
        c.timeout = take(&s, "-affinity") ? (uint32_t)take_number(&s) : 0;
    }
    char canonical[NFT_CLASS_NAME_MAX];
    bool picks = kind == NFT_CLASS_PICK;
    bool sane = kind == NFT_CLASS_REMEMBER ? c.timeout
                : kind > NFT_CLASS_REMEMBER
                    ? c.n && c.n <= HOLDER_MARK_MAX
                    : c.family && (picks || !(c.offset || c.masquerade || c.n_all || c.timeout)) &&
                          !(c.ranged && kind == NFT_CLASS_DROP) && !(c.offset && (c.n_all || !c.n));
    if (!sane || strcmp(nft_class_name(&c, canonical), name))
        return false;
    *ret = c;
    return true;
}

bool nft_class_is_numbered(const struct nft_class *c)
{
    return c->kind < NFT_CLASS_REMEMBER;
}

size_t nft_class_next(const struct nft_class *c, struct nft_class ret[static 2])
{
    if (!c->n_all)
        return 0;
    for (int i = 0; i < 2; i++) {
        memset(&ret[i], 0, sizeof(ret[i]));
        ret[i].family = c->family;
        ret[i].kind = NFT_CLASS_PICK;
        ret[i].masquerade = i ? NFT_MASQUERADE_ALWAYS : NFT_MASQUERADE_NEVER;
        ret[i].offset = true;
        ret[i].n = c->n_all;
        ret[i].timeout = c->timeout;
    }
    return 2;
}
