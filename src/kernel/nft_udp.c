#include <string.h>

#include "kernel/nft_impl.h"

/* The sets that decide where a flow's packets go. */
static const bool decides[NFT_SET_COUNT] = {
    [NFT_TARGET4] = true,      [NFT_TARGET6] = true,      [NFT_TARGETRANGE4] = true,
    [NFT_TARGETRANGE6] = true, [NFT_REFUSE4] = true,      [NFT_REFUSE6] = true,
    [NFT_REFUSERANGE4] = true, [NFT_REFUSERANGE6] = true,
};

static uint16_t port_at(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

/* Reads what nft_put_flow() and nft_put_target() wrote. */
static bool parse(const struct nft_elem *e, bool added, struct flow_target *ret)
{
    const struct nft_set_def *def = &nft_set_defs[e->set];
    uint8_t family = def->key[0] == NFT_FIELD_IP6 ? IP_V6 : IP_V4;
    size_t n = ip_len(family);
    if (!decides[e->set] || !e->klen || e->b[n] != L4_UDP)
        return false;
    const uint8_t *port = e->b + n + nft_field_size(NFT_FIELD_PROTO);
    const uint8_t *data = e->b + e->klen + e->elen;
    *ret = (struct flow_target){
        .dialled.family = family,
        .port = port_at(port),
        .end = port_at(e->elen ? port + e->klen : port),
    };
    memcpy(ret->dialled.bytes, e->b, n);
    if (added && e->dlen) {
        ret->target.family = family;
        memcpy(ret->target.bytes, data, n);
        ret->target_port = def->data[1] == NFT_FIELD_PORT ? port_at(data + n) : 0;
    }
    return true;
}

/* Of one flow, the entry that leads somewhere comes first. */
static int by_flow(const void *x, const void *y)
{
    const struct flow_target *a = x, *b = y;
    int c = ip_cmp(&a->dialled, &b->dialled);
    if (!c)
        c = a->port != b->port ? a->port - b->port : a->end - b->end;
    return c ? c : (b->target.family != IP_NONE) - (a->target.family != IP_NONE);
}

static void push(struct nft_flows *ret, const struct nft_ops *ops, bool added)
{
    struct flow_target f;
    for (size_t i = 0; i < ops->n; i++)
        if (parse(ops->v[i].elem, added, &f))
            vec_push(ret, f);
}

void nft_udp_collect(const struct nft_ops *dels, const struct nft_ops *adds, struct nft_flows *ret)
{
    push(ret, dels, false);
    push(ret, adds, true);
    if (ret->n > 1)
        qsort(ret->v, ret->n, sizeof(ret->v[0]), by_flow);
    size_t unique = 0;
    for (size_t i = 0; i < ret->n; i++) {
        const struct flow_target *last = unique ? &ret->v[unique - 1] : NULL;
        if (!last || ip_cmp(&last->dialled, &ret->v[i].dialled) || last->port != ret->v[i].port ||
            last->end != ret->v[i].end)
            ret->v[unique++] = ret->v[i];
    }
    ret->n = unique;
}
