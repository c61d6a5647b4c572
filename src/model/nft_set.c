#include "model/nft.h"

/* clang-format off */
#define FLOW4 { NFT_FIELD_IP4, NFT_FIELD_PROTO, NFT_FIELD_PORT }
#define FLOW6 { NFT_FIELD_IP6, NFT_FIELD_PROTO, NFT_FIELD_PORT }
#define FLOW4_AND(field) { NFT_FIELD_IP4, NFT_FIELD_PROTO, NFT_FIELD_PORT, (field) }
#define FLOW6_AND(field) { NFT_FIELD_IP6, NFT_FIELD_PROTO, NFT_FIELD_PORT, (field) }
#define TO4 { NFT_FIELD_IP4, NFT_FIELD_PORT }
#define TO6 { NFT_FIELD_IP6, NFT_FIELD_PORT }
/* clang-format on */
/* The flow sets have no size: the kernel then takes the hash that grows with its elements. With
 * a size it allocates buckets for that many at once (4 MB a set for 262,144), and neither
 * adding an element nor finding one is faster for it (Linux 6.18, tests/bench/bench_nft.c). */
#define FLOWS 0
#define FEW   4096
#define MANY  65536

const struct nft_set_def nft_set_defs[NFT_SET_COUNT] = {
    [NFT_LINKS] = { "links", { NFT_FIELD_IFNAME }, .size = FEW },
    [NFT_IFADDR4] = { "ifaddr4", { NFT_FIELD_IFNAME, NFT_FIELD_IP4 }, .size = FEW },
    [NFT_IFADDR6] = { "ifaddr6", { NFT_FIELD_IFNAME, NFT_FIELD_IP6 }, .size = FEW },
    [NFT_OPEN4] = { "open4", FLOW4, .size = FLOWS },
    [NFT_OPEN6] = { "open6", FLOW6, .size = FLOWS },
    [NFT_OPENRANGE4] = { "openrange4", FLOW4, .size = FEW, .interval = true },
    [NFT_OPENRANGE6] = { "openrange6", FLOW6, .size = FEW, .interval = true },
    [NFT_REFUSE4] = { "refuse4", FLOW4, .size = FLOWS },
    [NFT_REFUSE6] = { "refuse6", FLOW6, .size = FLOWS },
    [NFT_REFUSERANGE4] = { "refuserange4", FLOW4, .size = FEW, .interval = true },
    [NFT_REFUSERANGE6] = { "refuserange6", FLOW6, .size = FEW, .interval = true },
    [NFT_TARGET4] = { "target4", FLOW4, TO4, .size = FLOWS, .counter = true },
    [NFT_TARGET6] = { "target6", FLOW6, TO6, .size = FLOWS, .counter = true },
    [NFT_TARGETRANGE4] = { "targetrange4",
                           FLOW4,
                           { NFT_FIELD_IP4 },
                           .size = FEW,
                           .interval = true,
                           .counter = true },
    [NFT_TARGETRANGE6] = { "targetrange6",
                           FLOW6,
                           { NFT_FIELD_IP6 },
                           .size = FEW,
                           .interval = true,
                           .counter = true },
    [NFT_REPLYMARK4] = { "replymark4", { NFT_FIELD_IP4 }, { NFT_FIELD_MARK }, .size = FEW },
    [NFT_REPLYMARK6] = { "replymark6", { NFT_FIELD_IP6 }, { NFT_FIELD_MARK }, .size = FEW },

    [NFT_SERVICE4] = { "service4", FLOW4, { NFT_FIELD_CLASS }, .size = FLOWS },
    [NFT_SERVICE6] = { "service6", FLOW6, { NFT_FIELD_CLASS }, .size = FLOWS },
    [NFT_ENDPOINT4] = { "endpoint4", FLOW4_AND(NFT_FIELD_PRIORITY), TO4, .size = FLOWS },
    [NFT_ENDPOINT6] = { "endpoint6", FLOW6_AND(NFT_FIELD_PRIORITY), TO6, .size = FLOWS },
    [NFT_CLUSTERIP4] = { "clusterip4", { NFT_FIELD_IP4 }, .size = FLOWS },
    [NFT_CLUSTERIP6] = { "clusterip6", { NFT_FIELD_IP6 }, .size = FLOWS },
    [NFT_SERVICERANGE4] = { "servicerange4", { NFT_FIELD_IP4 }, .size = FEW, .interval = true },
    [NFT_SERVICERANGE6] = { "servicerange6", { NFT_FIELD_IP6 }, .size = FEW, .interval = true },
    [NFT_PODRANGE4] = { "podrange4", { NFT_FIELD_IP4 }, .size = FEW, .interval = true },
    [NFT_PODRANGE6] = { "podrange6", { NFT_FIELD_IP6 }, .size = FEW, .interval = true },
    [NFT_SOURCERANGE4] = { "sourcerange4", FLOW4_AND(NFT_FIELD_IP4), .size = MANY,
                           .interval = true },
    [NFT_SOURCERANGE6] = { "sourcerange6", FLOW6_AND(NFT_FIELD_IP6), .size = MANY,
                           .interval = true },
    [NFT_HAIRPIN4] = { "hairpin4", { NFT_FIELD_IP4, NFT_FIELD_IP4 }, .size = FLOWS },
    [NFT_HAIRPIN6] = { "hairpin6", { NFT_FIELD_IP6, NFT_FIELD_IP6 }, .size = FLOWS },
    [NFT_AFFINITYID4] = { "affinityid4", FLOW4, { NFT_FIELD_PRIORITY }, .size = FLOWS },
    [NFT_AFFINITYID6] = { "affinityid6", FLOW6, { NFT_FIELD_PRIORITY }, .size = FLOWS },
    [NFT_AFFINITYENDPOINT4] = { "affinityendpoint4", FLOW4_AND(NFT_FIELD_IP4), TO4, .size = FLOWS },
    [NFT_AFFINITYENDPOINT6] = { "affinityendpoint6", FLOW6_AND(NFT_FIELD_IP6), TO6, .size = FLOWS },
    [NFT_AFFINITYALL4] = { "affinityall4", FLOW4_AND(NFT_FIELD_IP4), TO4, .size = FLOWS },
    [NFT_AFFINITYALL6] = { "affinityall6", FLOW6_AND(NFT_FIELD_IP6), TO6, .size = FLOWS },
    [NFT_AFFINITY4] = { "affinity4",
                        { NFT_FIELD_IP4, NFT_FIELD_PRIORITY },
                        { NFT_FIELD_IP4 },
                        .size = MANY,
                        .dynamic = true },
    [NFT_AFFINITY6] = { "affinity6",
                        { NFT_FIELD_IP6, NFT_FIELD_PRIORITY },
                        { NFT_FIELD_IP6 },
                        .size = MANY,
                        .dynamic = true },
    [NFT_AFFINITYTIMEOUT] = { "affinitytimeout",
                              { NFT_FIELD_PRIORITY },
                              { NFT_FIELD_VERDICT },
                              .size = FLOWS },
    [NFT_CLASSES] = { "classes", { NFT_FIELD_PRIORITY }, { NFT_FIELD_VERDICT }, .size = FLOWS },

    [NFT_HELD4] = { "held4", FLOW4, .size = FLOWS },
    [NFT_HELDROUTE4] = { "heldroute4", FLOW4, .size = FLOWS },
    [NFT_HELDNEAR4] = { "heldnear4",
                        { NFT_FIELD_IP4, NFT_FIELD_IP4 },
                        .size = MANY,
                        .interval = true },
    [NFT_HOLDERS] = { "holders", { NFT_FIELD_ETHER }, { NFT_FIELD_VERDICT }, .size = FEW },
    [NFT_HOLDERMARKS] = { "holdermarks", { NFT_FIELD_MARK }, { NFT_FIELD_VERDICT }, .size = FEW },
    [NFT_HOLDERCLAIMS] = { "holderclaims", { NFT_FIELD_MARK }, .size = FEW },
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
    case NFT_FIELD_PRIORITY:
    case NFT_FIELD_CLASS:
        return 4;
    case NFT_FIELD_ETHER:
        return 6;
    case NFT_FIELD_VERDICT:
        return sizeof(struct nft_class);
    }
    return 0;
}

size_t nft_set_klen(enum nft_set set)
{
    const enum nft_field *f = nft_set_defs[set].key;
    size_t n = 0;
    for (int i = 0; i < NFT_FIELDS_MAX; i++)
        n += nft_field_size(f[i]);
    return n;
}

size_t nft_set_dlen(enum nft_set set)
{
    const enum nft_field *f = nft_set_defs[set].data;
    return nft_field_size(f[0]) + nft_field_size(f[1]);
}
