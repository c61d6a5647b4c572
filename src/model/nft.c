#include "model/nft.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "model/nft_rule.h"

#define FLOW4                                          \
    {                                                  \
        NFT_FIELD_IP4, NFT_FIELD_PROTO, NFT_FIELD_PORT \
    }
#define FLOW6                                          \
    {                                                  \
        NFT_FIELD_IP6, NFT_FIELD_PROTO, NFT_FIELD_PORT \
    }
/* The flow sets have no size: the kernel then takes the hash that grows with its elements. With
 * a size it allocates buckets for that many at once (4 MB a set for 262,144), and neither
 * adding an element nor finding one is faster for it (Linux 6.18, tests/bench/bench_nft.c). */
#define FLOWS 0
#define FEW   4096

const struct nft_set_def nft_set_defs[NFT_SET_COUNT] = {
    [NFT_LINKS] = { "links", { NFT_FIELD_IFNAME }, { 0 }, FEW, false, false },
    [NFT_IFADDR4] = { "ifaddr4", { NFT_FIELD_IFNAME, NFT_FIELD_IP4 }, { 0 }, FEW, false, false },
    [NFT_IFADDR6] = { "ifaddr6", { NFT_FIELD_IFNAME, NFT_FIELD_IP6 }, { 0 }, FEW, false, false },
    [NFT_OPEN4] = { "open4", FLOW4, { 0 }, FLOWS, false, false },
    [NFT_OPEN6] = { "open6", FLOW6, { 0 }, FLOWS, false, false },
    [NFT_OPENRANGE4] = { "openrange4", FLOW4, { 0 }, FEW, true, false },
    [NFT_OPENRANGE6] = { "openrange6", FLOW6, { 0 }, FEW, true, false },
    [NFT_REFUSE4] = { "refuse4", FLOW4, { 0 }, FLOWS, false, false },
    [NFT_REFUSE6] = { "refuse6", FLOW6, { 0 }, FLOWS, false, false },
    [NFT_REFUSERANGE4] = { "refuserange4", FLOW4, { 0 }, FEW, true, false },
    [NFT_REFUSERANGE6] = { "refuserange6", FLOW6, { 0 }, FEW, true, false },
    [NFT_TARGET4] = { "target4", FLOW4, { NFT_FIELD_IP4, NFT_FIELD_PORT }, FLOWS, false, true },
    [NFT_TARGET6] = { "target6", FLOW6, { NFT_FIELD_IP6, NFT_FIELD_PORT }, FLOWS, false, true },
    [NFT_TARGETRANGE4] = { "targetrange4", FLOW4, { NFT_FIELD_IP4 }, FEW, true, true },
    [NFT_TARGETRANGE6] = { "targetrange6", FLOW6, { NFT_FIELD_IP6 }, FEW, true, true },
    [NFT_REPLYMARK4] = { "replymark4", { NFT_FIELD_IP4 }, { NFT_FIELD_MARK }, FEW, false, false },
    [NFT_REPLYMARK6] = { "replymark6", { NFT_FIELD_IP6 }, { NFT_FIELD_MARK }, FEW, false, false },
};

const enum nft_expr nft_keys[NFT_KEY_COUNT][3] = {
    [NFT_OIFNAME] = { NFT_EXPR_OIFNAME },
    [NFT_DIALLED4] = { NFT_EXPR_DIALLED4 },
    [NFT_DIALLED6] = { NFT_EXPR_DIALLED6 },
    [NFT_IIF_DIALLED4] = { NFT_EXPR_IIFNAME, NFT_EXPR_DIALLED4 },
    [NFT_IIF_DIALLED6] = { NFT_EXPR_IIFNAME, NFT_EXPR_DIALLED6 },
    [NFT_FLOW4] = { NFT_EXPR_DIALLED4, NFT_EXPR_L4PROTO, NFT_EXPR_DPORT },
    [NFT_FLOW6] = { NFT_EXPR_DIALLED6, NFT_EXPR_L4PROTO, NFT_EXPR_DPORT },
    [NFT_DIALLED_FLOW4] = { NFT_EXPR_DIALLED4, NFT_EXPR_L4PROTO, NFT_EXPR_DIALLED_PORT },
    [NFT_DIALLED_FLOW6] = { NFT_EXPR_DIALLED6, NFT_EXPR_L4PROTO, NFT_EXPR_DIALLED_PORT },
};

size_t nft_field_size(enum nft_field field)
{
    switch (field) {
    case NFT_FIELD_NONE:
        return 0;
    case NFT_FIELD_IFNAME:
    case NFT_FIELD_IP6:
        return 16;
    case NFT_FIELD_IP4:
    case NFT_FIELD_PROTO:
    case NFT_FIELD_PORT:
    case NFT_FIELD_MARK:
        return 4;
    }
    return 0;
}

size_t nft_set_klen(enum nft_set set)
{
    const enum nft_field *f = nft_set_defs[set].key;
    return nft_field_size(f[0]) + nft_field_size(f[1]) + nft_field_size(f[2]);
}

size_t nft_set_dlen(enum nft_set set)
{
    const enum nft_field *f = nft_set_defs[set].data;
    return nft_field_size(f[0]) + nft_field_size(f[1]);
}

int nft_elem_cmp_key(const struct nft_elem *a, const struct nft_elem *b)
{
    if (a->set != b->set)
        return a->set < b->set ? -1 : 1;
    size_t an = (size_t)a->klen + a->elen, bn = (size_t)b->klen + b->elen;
    int c = memcmp(a->b, b->b, an < bn ? an : bn);
    return c ? c : (an > bn) - (an < bn);
}

bool nft_elem_equal(const struct nft_elem *a, const struct nft_elem *b)
{
    return nft_elem_size(a) == nft_elem_size(b) && !memcmp(a, b, nft_elem_size(a));
}

size_t nft_elem_size(const struct nft_elem *e)
{
    return sizeof(*e) + e->klen + e->elen + e->dlen;
}

/* A group is built in a scratch vector and packed into one allocation of exact size. */
struct nft_group_builder {
    VEC(uint8_t) bytes;
    VEC(size_t) offsets;
    char *owner;
};

struct nft_group_builder *nft_group_begin(const char *owner)
{
    struct nft_group_builder *b = xcalloc(1, sizeof(*b));
    b->owner = xstrdup(owner);
    return b;
}

static int by_key(const void *x, const void *y)
{
    const struct nft_elem *a = *(const struct nft_elem *const *)x;
    const struct nft_elem *b = *(const struct nft_elem *const *)y;
    int c = nft_elem_cmp_key(a, b);
    return c ? c : (a > b) - (a < b); /* equal keys: the first put stays first */
}

struct nft_group *nft_group_end(struct nft_group_builder *b)
{
    size_t n = b->offsets.n;
    const struct nft_elem **order = xmalloc(n * sizeof(*order));
    for (size_t i = 0; i < n; i++)
        order[i] = (const struct nft_elem *)(const void *)(b->bytes.v + b->offsets.v[i]);
    if (n > 1)
        qsort(order, n, sizeof(*order), by_key);
    size_t unique = 0, bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (unique && !nft_elem_cmp_key(order[unique - 1], order[i]))
            continue;
        order[unique++] = order[i];
        bytes += nft_elem_size(order[i]);
    }
    size_t owner_len = strlen(b->owner) + 1;
    struct nft_group *g = xmalloc(sizeof(*g) + unique * sizeof(g->elems[0]) + bytes + owner_len);
    const struct nft_elem **elems = (const struct nft_elem **)(g + 1);
    uint8_t *p = (uint8_t *)(elems + unique);
    for (size_t i = 0; i < unique; i++) {
        elems[i] = memcpy(p, order[i], nft_elem_size(order[i]));
        p += nft_elem_size(order[i]);
    }
    memcpy(p, b->owner, owner_len);
    *g = (struct nft_group){ .refs = 1, .n = (uint32_t)unique, .elems = elems, .owner = (char *)p };
    free(order);
    vec_done(&b->bytes);
    vec_done(&b->offsets);
    free(b->owner);
    free(b);
    return g;
}

struct nft_group *nft_group_ref(struct nft_group *g)
{
    g->refs++;
    return g;
}

void nft_group_unref(struct nft_group *g)
{
    if (g && !--g->refs)
        free(g);
}

bool nft_group_equal(const struct nft_group *a, const struct nft_group *b)
{
    if (a == b)
        return true;
    if (a->n != b->n || strcmp(a->owner, b->owner))
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (!nft_elem_equal(a->elems[i], b->elems[i]))
            return false;
    return true;
}

/* ---- one element: begin, fields, end ---- */

struct elem_at {
    struct nft_group_builder *b;
    size_t offset;
};

static struct elem_at begin(struct nft_group_builder *b, enum nft_set set)
{
    struct elem_at at = { b, b->bytes.n };
    vec_push(&b->offsets, at.offset);
    vec_reserve(&b->bytes, b->bytes.n + sizeof(struct nft_elem) + 96);
    memset(b->bytes.v + at.offset, 0, sizeof(struct nft_elem));
    b->bytes.v[at.offset] = (uint8_t)set;
    b->bytes.n += sizeof(struct nft_elem);
    return at;
}

static void put(struct nft_group_builder *b, const void *p, size_t n)
{
    memcpy(b->bytes.v + b->bytes.n, p, n);
    b->bytes.n += n;
}

static void put_ifname(struct nft_group_builder *b, const char *ifname)
{
    char name[16] = { 0 };
    strncpy(name, ifname, sizeof(name) - 1);
    put(b, name, sizeof(name));
}

static void put_port(struct nft_group_builder *b, uint16_t port)
{
    put(b, (uint8_t[4]){ (uint8_t)(port >> 8), (uint8_t)port }, 4);
}

static void put_flow(struct nft_group_builder *b, const struct ip *ip, enum l4proto proto,
                     uint16_t port)
{
    put(b, ip->bytes, ip_len(ip->family));
    put(b, (uint8_t[4]){ (uint8_t)proto }, 4);
    put_port(b, port);
}

static struct nft_elem *elem_of(struct elem_at at)
{
    return (struct nft_elem *)(void *)(at.b->bytes.v + at.offset);
}

static uint8_t length_since(struct elem_at at, size_t before)
{
    return (uint8_t)(at.b->bytes.n - at.offset - sizeof(struct nft_elem) - before);
}

static enum nft_set twin(enum nft_set set, const struct ip *ip)
{
    return ip->family == IP_V6 ? set + 1 : set;
}

void nft_put_ifname(struct nft_group_builder *b, enum nft_set set, const char *ifname)
{
    struct elem_at at = begin(b, set);
    put_ifname(b, ifname);
    elem_of(at)->klen = length_since(at, 0);
}

void nft_put_ifaddr(struct nft_group_builder *b, const char *ifname, const struct ip *ip)
{
    struct elem_at at = begin(b, twin(NFT_IFADDR4, ip));
    put_ifname(b, ifname);
    put(b, ip->bytes, ip_len(ip->family));
    elem_of(at)->klen = length_since(at, 0);
}

static struct elem_at begin_flow(struct nft_group_builder *b, enum nft_set set,
                                 const struct ip *dialled, enum l4proto proto, uint16_t port,
                                 uint16_t end)
{
    struct elem_at at = begin(b, twin(set, dialled));
    put_flow(b, dialled, proto, port);
    elem_of(at)->klen = length_since(at, 0);
    if (nft_set_defs[set].interval) {
        put_flow(b, dialled, proto, end);
        elem_of(at)->elen = elem_of(at)->klen;
    }
    return at;
}

void nft_put_flow(struct nft_group_builder *b, enum nft_set set, const struct ip *dialled,
                  enum l4proto proto, uint16_t port, uint16_t end)
{
    begin_flow(b, set, dialled, proto, port, end);
}

void nft_put_target(struct nft_group_builder *b, enum nft_set set, const struct ip *dialled,
                    enum l4proto proto, uint16_t port, uint16_t end, const struct ip *target,
                    uint16_t target_port)
{
    struct elem_at at = begin_flow(b, set, dialled, proto, port, end);
    put(b, target->bytes, ip_len(target->family));
    if (nft_set_defs[set].data[1] == NFT_FIELD_PORT)
        put_port(b, target_port);
    struct nft_elem *e = elem_of(at);
    e->dlen = length_since(at, (size_t)e->klen + e->elen);
}

void nft_put_mark(struct nft_group_builder *b, enum nft_set set, const struct ip *dialled,
                  uint32_t mark)
{
    struct elem_at at = begin(b, twin(set, dialled));
    put(b, dialled->bytes, ip_len(dialled->family));
    elem_of(at)->klen = length_since(at, 0);
    put(b, &mark, sizeof(mark));
    elem_of(at)->dlen = sizeof(mark);
}
