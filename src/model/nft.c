#include "model/nft.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "model/names.h"

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

bool nft_elem_class(const struct nft_elem *e, struct nft_class *ret)
{
    enum nft_field data = nft_set_defs[e->set].data[0];
    if ((data != NFT_FIELD_VERDICT && data != NFT_FIELD_CLASS) || e->dlen != sizeof(*ret))
        return false;
    memcpy(ret, e->b + e->klen + e->elen, sizeof(*ret));
    return true;
}

const struct nft_elem *nft_group_next(const struct nft_group *g, const struct nft_elem *e)
{
    const uint8_t *p = e ? (const uint8_t *)e + nft_elem_size(e) : g->elements;
    return p < g->elements + g->size ? (const struct nft_elem *)p : NULL;
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

/* Every field of b's interval within a's. */
static bool inside(const struct nft_elem *a, const struct nft_elem *b)
{
    if (!a->elen || a->set != b->set)
        return false;
    const enum nft_field *f = nft_set_defs[a->set].key;
    for (size_t i = 0, at = 0; i < NFT_FIELDS_MAX; at += nft_field_size(f[i++])) {
        size_t n = nft_field_size(f[i]);
        if (memcmp(a->b + at, b->b + at, n) > 0 ||
            memcmp(a->b + a->klen + at, b->b + b->klen + at, n) < 0)
            return false;
    }
    return true;
}

/* Drops what the builder's contract says, and returns how many are left. */
static size_t unique(const struct nft_elem **v, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (kept && (!nft_elem_cmp_key(v[kept - 1], v[i]) || inside(v[kept - 1], v[i])))
            continue;
        while (kept && inside(v[i], v[kept - 1]))
            kept--;
        v[kept++] = v[i];
    }
    return kept;
}

struct nft_group *nft_group_end(struct nft_group_builder *b)
{
    size_t n = b->offsets.n;
    const struct nft_elem **order = xmalloc(n * sizeof(*order));
    for (size_t i = 0; i < n; i++)
        order[i] = (const struct nft_elem *)(const void *)(b->bytes.v + b->offsets.v[i]);
    if (n > 1)
        qsort(order, n, sizeof(*order), by_key);
    n = unique(order, n);
    size_t size = 0, owner_len = strlen(b->owner) + 1;
    for (size_t i = 0; i < n; i++)
        size += nft_elem_size(order[i]);
    struct nft_group *g = xmalloc(sizeof(*g) + size + owner_len);
    uint8_t *p = g->elements;
    for (size_t i = 0; i < n; i++) {
        memcpy(p, order[i], nft_elem_size(order[i]));
        p += nft_elem_size(order[i]);
    }
    memcpy(p, b->owner, owner_len);
    *g = (struct nft_group){ 1, (uint32_t)n, (uint32_t)size, (const char *)p };
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
    return a->size == b->size && !memcmp(a->elements, b->elements, a->size) &&
           !strcmp(a->owner, b->owner);
}

/* ---- one element: begin, fields, end ---- */

#define ELEM_MAX 128 /* key, key end and data */

struct elem_at {
    struct nft_group_builder *b;
    size_t offset;
};

static struct elem_at begin(struct nft_group_builder *b, enum nft_set set)
{
    struct elem_at at = { b, b->bytes.n };
    vec_push(&b->offsets, at.offset);
    vec_reserve(&b->bytes, b->bytes.n + sizeof(struct nft_elem) + ELEM_MAX);
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

/* ---- services ---- */

static void put_ip(struct nft_group_builder *b, const struct ip *ip)
{
    put(b, ip->bytes, ip_len(ip->family));
}

/* The data is all that was put after the key. */
static void end_data(struct elem_at at)
{
    struct nft_elem *e = elem_of(at);
    e->dlen = length_since(at, (size_t)e->klen + e->elen);
}

/* What says nothing in a class is zero: equal classes are equal bytes. */
static void put_class(struct nft_group_builder *b, const struct nft_class *c)
{
    struct nft_class x;
    bool picks = c->kind == NFT_CLASS_PICK;
    memset(&x, 0, sizeof(x));
    x.family = c->family;
    x.kind = c->kind;
    x.ranged = c->ranged && c->kind != NFT_CLASS_DROP;
    x.masquerade = picks ? c->masquerade : NFT_MASQUERADE_NEVER;
    x.offset = picks && c->offset;
    x.n = picks || c->kind == NFT_CLASS_HOLDER || c->kind == NFT_CLASS_REPLY ? c->n : 0;
    x.n_all = picks ? c->n_all : 0;
    x.timeout = picks || c->kind == NFT_CLASS_REMEMBER ? c->timeout : 0;
    put(b, &x, sizeof(x));
}

void nft_put_service(struct nft_group_builder *b, const struct ip *daddr, enum l4proto proto,
                     uint16_t port, const struct nft_class *c)
{
    struct elem_at at = begin_flow(b, NFT_SERVICE4, daddr, proto, port, port);
    put_class(b, c);
    end_data(at);
}

void nft_put_endpoint(struct nft_group_builder *b, const struct ip *daddr, enum l4proto proto,
                      uint16_t port, uint16_t index, const struct ip *ep, uint16_t ep_port)
{
    struct elem_at at = begin_flow(b, NFT_ENDPOINT4, daddr, proto, port, port);
    put(b, &(uint32_t){ index }, sizeof(uint32_t));
    elem_of(at)->klen = length_since(at, 0);
    put_ip(b, ep);
    put_port(b, ep_port);
    end_data(at);
}

void nft_put_affinity(struct nft_group_builder *b, const struct ip *daddr, enum l4proto proto,
                      uint16_t port, uint32_t id)
{
    struct elem_at at = begin_flow(b, NFT_AFFINITYID4, daddr, proto, port, port);
    put(b, &id, sizeof(id));
    end_data(at);
}

void nft_put_affinity_timeout(struct nft_group_builder *b, uint32_t id, uint32_t seconds)
{
    struct elem_at at = begin(b, NFT_AFFINITYTIMEOUT);
    put(b, &id, sizeof(id));
    elem_of(at)->klen = sizeof(id);
    put_class(b, &(struct nft_class){ .kind = NFT_CLASS_REMEMBER, .timeout = seconds });
    end_data(at);
}

void nft_put_affinity_endpoint(struct nft_group_builder *b, enum nft_set set,
                               const struct ip *daddr, enum l4proto proto, uint16_t port,
                               const struct ip *ep, uint16_t ep_port)
{
    struct elem_at at = begin_flow(b, set, daddr, proto, port, port);
    put_ip(b, ep);
    elem_of(at)->klen = length_since(at, 0);
    put_ip(b, ep);
    put_port(b, ep_port);
    end_data(at);
}

void nft_put_address(struct nft_group_builder *b, enum nft_set set, const struct ip *ip)
{
    struct elem_at at = begin(b, twin(set, ip));
    put_ip(b, ip);
    elem_of(at)->klen = length_since(at, 0);
}

void nft_put_pair(struct nft_group_builder *b, enum nft_set set, const struct ip *client,
                  const struct ip *ep)
{
    struct elem_at at = begin(b, twin(set, ep));
    put_ip(b, client);
    put_ip(b, ep);
    elem_of(at)->klen = length_since(at, 0);
}

static struct ip last_of(const struct ip_prefix *p)
{
    struct ip last = ip_prefix_masked(p).ip;
    for (uint8_t bit = p->len; bit < ip_bits(last.family); bit++)
        last.bytes[bit / 8] |= (uint8_t)(0x80 >> bit % 8);
    return last;
}

void nft_put_prefix(struct nft_group_builder *b, enum nft_set set, const struct ip_prefix *prefix)
{
    struct ip first = ip_prefix_masked(prefix).ip, last = last_of(prefix);
    struct elem_at at = begin(b, twin(set, &first));
    put_ip(b, &first);
    put_ip(b, &last);
    elem_of(at)->klen = elem_of(at)->elen = (uint8_t)ip_len(first.family);
}

void nft_put_source_range(struct nft_group_builder *b, const struct ip *daddr, enum l4proto proto,
                          uint16_t port, const struct ip_prefix *prefix)
{
    struct ip first = ip_prefix_masked(prefix).ip, last = last_of(prefix);
    struct elem_at at = begin(b, twin(NFT_SOURCERANGE4, daddr));
    put_flow(b, daddr, proto, port);
    put_ip(b, &first);
    elem_of(at)->klen = elem_of(at)->elen = length_since(at, 0);
    put_flow(b, daddr, proto, port);
    put_ip(b, &last);
}

/* ---- held addresses ---- */

void nft_put_near(struct nft_group_builder *b, const struct ip_prefix *clients, const struct ip *ep)
{
    struct ip first = ip_prefix_masked(clients).ip, last = last_of(clients);
    struct elem_at at = begin(b, NFT_HELDNEAR4);
    put_ip(b, &first);
    put_ip(b, ep);
    elem_of(at)->klen = elem_of(at)->elen = length_since(at, 0);
    put_ip(b, &last);
    put_ip(b, ep);
}

void nft_put_holder(struct nft_group_builder *b, const uint8_t mac[static 6], uint8_t mark)
{
    uint32_t top = HOLDER_MARK(mark);
    struct elem_at at = begin(b, NFT_HOLDERS);
    put(b, mac, 6);
    elem_of(at)->klen = 6;
    put_class(b, &(struct nft_class){ .kind = NFT_CLASS_HOLDER, .n = mark });
    end_data(at);
    at = begin(b, NFT_HOLDERMARKS);
    put(b, &top, sizeof(top));
    elem_of(at)->klen = sizeof(top);
    put_class(b, &(struct nft_class){ .kind = NFT_CLASS_REPLY, .n = mark });
    end_data(at);
    at = begin(b, NFT_HOLDERCLAIMS);
    put(b, &top, sizeof(top));
    elem_of(at)->klen = sizeof(top);
}
