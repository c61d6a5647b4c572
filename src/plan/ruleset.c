/* The constant table. docs/datapath.md walks packets through it and says why each chain is
 * where it is. Every rule counts. What an established packet meets is measured in nanoseconds
 * (docs/datapath.md): the rules of the base chains of type filter and route, and of `reply`. */
#include "plan/plan.h"

#include "model/names.h"
#include "model/nft_words.h"

#define CLAIM(proto, family, key, set) \
    RULE(L4PROTO(proto), IN(key, set), COUNTER, SNAT_SADDR(family))

static const struct nft_chain chains[] = {
    /* One chain for all that arrives, since entering a chain costs as much as its rules.
     *
     * A reply carries the mark of the way its connection came in, known from the address that
     * was dialled; replies of what is not translated are none of ours.
     *
     * A new connection to a mapped port is given a destination that host firewalls do not know,
     * or is refused. What the client dialled stays known to conntrack. */
    BASE_CHAIN("arrive", "filter", "prerouting", PRIO_STEER,
               RULE(CT_REPLY, CT_STATUS_DNAT, COUNTER, GOTO("reply")),
               RULE(CT_STATE_NEW, COUNTER, JUMP("admit"))),
    CHAIN("reply", RULE(MARK(NFT_DIALLED4, NFT_REPLYMARK4), COUNTER),
          RULE(MARK(NFT_DIALLED6, NFT_REPLYMARK6), COUNTER)),
    CHAIN("admit", RULE(IN(NFT_IIF_DIALLED4, NFT_IFADDR4), COUNTER, GOTO("admit4")),
          RULE(IN(NFT_IIF_DIALLED6, NFT_IFADDR6), COUNTER, GOTO("admit6"))),
    CHAIN("admit4", RULE(IN(NFT_FLOW4, NFT_OPEN4), COUNTER, SET_DADDR(IP_V4, STANDIN4), RETURN),
          RULE(IN(NFT_FLOW4, NFT_OPENRANGE4), COUNTER, SET_DADDR(IP_V4, STANDIN4), RETURN),
          RULE(IN(NFT_FLOW4, NFT_REFUSE4), COUNTER, GOTO("refuse")),
          RULE(IN(NFT_FLOW4, NFT_REFUSERANGE4), COUNTER, GOTO("refuse"))),
    CHAIN("admit6", RULE(IN(NFT_FLOW6, NFT_OPEN6), COUNTER, SET_DADDR(IP_V6, STANDIN6), RETURN),
          RULE(IN(NFT_FLOW6, NFT_OPENRANGE6), COUNTER, SET_DADDR(IP_V6, STANDIN6), RETURN),
          RULE(IN(NFT_FLOW6, NFT_REFUSE6), COUNTER, GOTO("refuse")),
          RULE(IN(NFT_FLOW6, NFT_REFUSERANGE6), COUNTER, GOTO("refuse"))),
    CHAIN("refuse", RULE(L4PROTO(L4_TCP), COUNTER, REJECT_RESET), RULE(COUNTER, REJECT_PORT)),

    BASE_CHAIN("translate", "nat", "prerouting", PRIO_DNAT,
               RULE(IN(NFT_IIF_DIALLED4, NFT_IFADDR4), COUNTER, GOTO("translate4")),
               RULE(IN(NFT_IIF_DIALLED6, NFT_IFADDR6), COUNTER, GOTO("translate6"))),
    CHAIN("translate4", RULE(COUNTER, DNAT(IP_V4, NFT_FLOW4, NFT_TARGET4)),
          RULE(COUNTER, DNAT(IP_V4, NFT_FLOW4, NFT_TARGETRANGE4))),
    CHAIN("translate6", RULE(COUNTER, DNAT(IP_V6, NFT_FLOW6, NFT_TARGET6)),
          RULE(COUNTER, DNAT(IP_V6, NFT_FLOW6, NFT_TARGETRANGE6))),

    /* Source NAT to the source itself: the first nat chain that decides wins, and the CNI's
     * masquerade would hide the client. One rule for each protocol, because nft takes
     * `ct original proto-dst` only where the protocol is known. */
    BASE_CHAIN("identity", "nat", "postrouting", PRIO_IDENTITY,
               RULE(CT_STATUS_DNAT, COUNTER, JUMP("claim"))),
    CHAIN("claim", CLAIM(L4_TCP, IP_V4, NFT_DIALLED_FLOW4, NFT_OPEN4),
          CLAIM(L4_UDP, IP_V4, NFT_DIALLED_FLOW4, NFT_OPEN4),
          CLAIM(L4_TCP, IP_V4, NFT_DIALLED_FLOW4, NFT_OPENRANGE4),
          CLAIM(L4_UDP, IP_V4, NFT_DIALLED_FLOW4, NFT_OPENRANGE4),
          CLAIM(L4_TCP, IP_V6, NFT_DIALLED_FLOW6, NFT_OPEN6),
          CLAIM(L4_UDP, IP_V6, NFT_DIALLED_FLOW6, NFT_OPEN6),
          CLAIM(L4_TCP, IP_V6, NFT_DIALLED_FLOW6, NFT_OPENRANGE6),
          CLAIM(L4_UDP, IP_V6, NFT_DIALLED_FLOW6, NFT_OPENRANGE6)),

    /* The replies of pods on the node's own network, and the answers of chain `refuse`, whose
     * connections conntrack never confirms. */
    BASE_CHAIN("leave", "route", "output", PRIO_MANGLE,
               RULE(CT_REPLY, CT_STATUS_DNAT, COUNTER, GOTO("reply")),
               RULE(CT_REPLY, CT_UNCONFIRMED, COUNTER, GOTO("reply"))),

    /* A connection that carries data is assured, and needs no second look. */
    BASE_CHAIN("mss", "filter", "forward", PRIO_MANGLE,
               RULE(CT_UNASSURED, TCP_SYN, IN(NFT_OIFNAME, NFT_LINKS), COUNTER, MSS_TO_MTU)),
};

static const struct nft_table table = {
    .name = PORTOLAN_NFT_TABLE,
    .comment = "kept by portolan: what is edited here is put back",
    .sets = nft_set_defs,
    .holds = (UINT64_C(1) << NFT_SERVICE4) - 1,
    .chains = chains,
    .n_chains = sizeof(chains) / sizeof(chains[0]),
};

const struct nft_table *plan_ruleset(const struct plan_options *options)
{
    (void)options;
    return &table;
}
