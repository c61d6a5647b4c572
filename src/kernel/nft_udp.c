#include <linux/netfilter/nf_conntrack_common.h>
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
        .nat = IPS_DST_NAT,
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

static void make_unique(struct nft_flows *ret)
{
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

/* ---- services ---- */

/* The flow of an element of NFT_SERVICE4 or NFT_ENDPOINT4. */
static bool parse_service(const struct nft_elem *e, struct flow_target *ret)
{
    static const bool of_services[NFT_SET_COUNT] = {
        [NFT_SERVICE4] = true,
        [NFT_SERVICE6] = true,
        [NFT_ENDPOINT4] = true,
        [NFT_ENDPOINT6] = true,
    };
    uint8_t family = nft_set_defs[e->set].key[0] == NFT_FIELD_IP6 ? IP_V6 : IP_V4;
    size_t n = ip_len(family);
    if (!of_services[e->set] || !e->klen || e->b[n] != L4_UDP)
        return false;
    *ret = (struct flow_target){ .dialled.family = family, .nat = IPS_DST_NAT };
    memcpy(ret->dialled.bytes, e->b, n);
    ret->port = ret->end = port_at(e->b + n + nft_field_size(NFT_FIELD_PROTO));
    return true;
}

static void push_services(struct nft_flows *flows, const struct nft_ops *ops)
{
    struct flow_target f;
    for (size_t i = 0; i < ops->n; i++)
        if (parse_service(ops->v[i].elem, &f))
            vec_push(flows, f);
}

static struct flow_end end_of(const struct nft_elem *e, uint8_t family)
{
    struct flow_end end = { .ip.family = family };
    const uint8_t *data = e->b + e->klen;
    memcpy(end.ip.bytes, data, ip_len(family));
    end.port = port_at(data + ip_len(family));
    return end;
}

/* The endpoints of a flow stand together in `want`: the n elements from here on. */
static void set_ends(struct flow_target *f, const struct nft_op *ops, size_t n, struct arena *mem)
{
    struct flow_end *ends = arena_new_array(mem, n, struct flow_end);
    for (size_t i = 0; i < n; i++)
        ends[i] = end_of(ops[i].elem, f->dialled.family);
    qsort(ends, n, sizeof(*ends), flow_end_cmp);
    f->target = ends[0].ip;
    f->target_port = ends[0].port;
    f->others = ends;
    f->n_others = n;
}

static void collect_services(const struct nft_difference *d, const struct nft_ops *want,
                             struct nft_flows *ret)
{
    struct nft_flows changed = { 0 };
    struct flow_target f, next;
    push_services(&changed, &d->dels);
    push_services(&changed, &d->adds);
    push_services(&changed, &d->late);
    make_unique(&changed);
    for (size_t i = 0, n; changed.n && i < want->n; i += n) {
        n = 1;
        if ((want->v[i].elem->set != NFT_ENDPOINT4 && want->v[i].elem->set != NFT_ENDPOINT6) ||
            !parse_service(want->v[i].elem, &f))
            continue;
        while (i + n < want->n && want->v[i + n].elem->set == want->v[i].elem->set &&
               parse_service(want->v[i + n].elem, &next) && !by_flow(&f, &next))
            n++;
        struct flow_target *known = bsearch(&f, changed.v, changed.n, sizeof(f), by_flow);
        if (known)
            set_ends(known, want->v + i, n, &ret->mem);
    }
    for (size_t i = 0; i < changed.n; i++)
        vec_push(ret, changed.v[i]);
    vec_done(&changed);
}

void nft_udp_collect(const struct nft_difference *d, const struct nft_ops *want, bool all,
                     struct nft_flows *ret)
{
    push(ret, &d->dels, false);
    push(ret, all ? want : &d->adds, true);
    collect_services(d, want, ret);
    make_unique(ret);
}

void nft_flows_done(struct nft_flows *f)
{
    arena_done(&f->mem);
    vec_done(f); /* zeroes all of it */
}
