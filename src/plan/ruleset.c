/* The constant table. docs/datapath.md walks packets through it and says why each chain is
 * where it is. Every rule counts. What an established packet meets is measured in nanoseconds
 * (docs/datapath.md): the rules of the base chains of type filter and route, and of `reply`. */
#include "plan/plan.h"

#include <string.h>

#include "model/names.h"
#include "model/nft_words.h"

#define CLAIM(proto, family, key, set) \
    RULE(L4PROTO(proto), IN(key, set), COUNTER, SNAT_SADDR(family))

#define REMEMBER(proto, key, set) \
    RULE(L4PROTO(proto), PRIORITY(key, set), COUNTER, GOTO("remembered"))

#define HELD_CLAIM(proto) \
    RULE(L4PROTO(proto), IN(NFT_DIALLED_FLOW4, NFT_HELD4), COUNTER, GOTO("heldsource"))

/* Rules that several chains have. */
#define ARRIVE_REPLY  RULE(CT_REPLY, CT_STATUS_DNAT, COUNTER, GOTO("reply"))
#define ARRIVE_NEW    RULE(CT_STATE_NEW, COUNTER, JUMP("admit"))
#define ADMIT_IPV6    RULE(IN(NFT_IIF_DIALLED6, NFT_IFADDR6), COUNTER, GOTO("admit6"))
#define IDENTITY      RULE(CT_STATUS_DNAT, COUNTER, JUMP("claim"))
#define LEAVE_REPLY   ARRIVE_REPLY
#define ANSWER        RULE(CT_REPLY, GOTO("answer"))
#define HELD_ROUTE    RULE(CT_TOP_IS(HELD_TOP), COUNTER, MARK_TOP(HELD_TOP))
#define LEAVE_REFUSAL RULE(CT_REPLY, CT_UNCONFIRMED, COUNTER, GOTO("reply"))
#define PROXY         RULE(COUNTER, JUMP("services"))
#define LEARN         RULE(CT_STATE_NEW, CT_STATUS_DNAT, COUNTER, JUMP("remember"))
#define CLAIMS                                                   \
    CLAIM(L4_TCP, IP_V4, NFT_DIALLED_FLOW4, NFT_OPEN4),          \
        CLAIM(L4_UDP, IP_V4, NFT_DIALLED_FLOW4, NFT_OPEN4),      \
        CLAIM(L4_TCP, IP_V4, NFT_DIALLED_FLOW4, NFT_OPENRANGE4), \
        CLAIM(L4_UDP, IP_V4, NFT_DIALLED_FLOW4, NFT_OPENRANGE4), \
        CLAIM(L4_TCP, IP_V6, NFT_DIALLED_FLOW6, NFT_OPEN6),      \
        CLAIM(L4_UDP, IP_V6, NFT_DIALLED_FLOW6, NFT_OPEN6),      \
        CLAIM(L4_TCP, IP_V6, NFT_DIALLED_FLOW6, NFT_OPENRANGE6), \
        CLAIM(L4_UDP, IP_V6, NFT_DIALLED_FLOW6, NFT_OPENRANGE6)

/* Those of the PortMaps come first. */
#define N_PORTMAP 13

static const struct nft_chain chains[] = {
    /* One chain for all that arrives, since entering a chain costs as much as its rules.
     *
     * A reply carries the mark of the way its connection came in, known from the address that
     * was dialled; replies of what is not translated are none of ours.
     *
     * A new connection to a mapped port is given a destination that host firewalls do not know,
     * or is refused. What the client dialled stays known to conntrack. */
    BASE_CHAIN("arrive", "filter", "prerouting", PRIO_STEER, ARRIVE_REPLY, ARRIVE_NEW),
    CHAIN("reply", RULE(MARK(NFT_DIALLED4, NFT_REPLYMARK4), COUNTER),
          RULE(MARK(NFT_DIALLED6, NFT_REPLYMARK6), COUNTER)),
    CHAIN("admit", RULE(IN(NFT_IIF_DIALLED4, NFT_IFADDR4), COUNTER, GOTO("admit4")), ADMIT_IPV6),
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
    BASE_CHAIN("identity", "nat", "postrouting", PRIO_IDENTITY, IDENTITY),
    CHAIN("claim", CLAIMS),

    /* The replies of pods on the node's own network, and the answers of chain `refuse`, whose
     * connections conntrack never confirms. */
    BASE_CHAIN("leave", "route", "output", PRIO_MANGLE, LEAVE_REPLY, LEAVE_REFUSAL),

    /* A connection that carries data is assured, and needs no second look. */
    BASE_CHAIN("mss", "filter", "forward", PRIO_MANGLE,
               RULE(CT_UNASSURED, TCP_SYN, IN(NFT_OIFNAME, NFT_LINKS), COUNTER, MSS_TO_MTU)),

    /* A new connection to a service goes to the chain of the service's class. What is dialled at a
     * cluster IP that lives but does not serve the port is refused; one that does not live must not
     * leave by the default route. Neither may shut the node's own addresses, when one is taken for
     * a cluster IP or a range lies over the node's network. */
    [N_PORTMAP] = BASE_CHAIN("proxy", "nat", "prerouting", PRIO_SERVICE, PROXY),
    BASE_CHAIN("proxyout", "nat", "output", PRIO_SERVICE, PROXY),
    CHAIN("services", RULE(PRIORITY(NFT_SERVICE_KEY4, NFT_SERVICE4), COUNTER, GOTO("serve")),
          RULE(PRIORITY(NFT_SERVICE_KEY6, NFT_SERVICE6), COUNTER, GOTO("serve")),
          RULE(DADDR_LOCAL, COUNTER, RETURN),
          RULE(IN(NFT_DADDR4, NFT_CLUSTERIP4), COUNTER, GOTO("unserved")),
          RULE(IN(NFT_DADDR6, NFT_CLUSTERIP6), COUNTER, GOTO("unserved")),
          RULE(IN(NFT_DADDR4, NFT_SERVICERANGE4), COUNTER, DROP),
          RULE(IN(NFT_DADDR6, NFT_SERVICERANGE6), COUNTER, DROP)),
    /* A class may be gone since its number was read: the first packet is sent again. */
    CHAIN("serve", RULE(COUNTER, VMAP(NFT_PRIORITY, NFT_CLASSES)), RULE(COUNTER, DROP)),
    /* On its own: nft reads `reject` otherwise in a rule that names IPv4. */
    CHAIN("unserved", RULE(L4PROTO(L4_TCP), COUNTER, REJECT_RESET), RULE(COUNTER, REJECT_PORT)),

    /* Where a client with affinity went is kept once it is known, which is after the translation:
     * the destination is then the endpoint. */
    BASE_CHAIN("learn", "filter", "prerouting", PRIO_LEARN, LEARN),
    BASE_CHAIN("learnout", "filter", "output", PRIO_LEARN, LEARN),
    CHAIN("remember", REMEMBER(L4_TCP, NFT_DIALLED_FLOW4, NFT_AFFINITYID4),
          REMEMBER(L4_UDP, NFT_DIALLED_FLOW4, NFT_AFFINITYID4),
          REMEMBER(L4_SCTP, NFT_DIALLED_FLOW4, NFT_AFFINITYID4),
          REMEMBER(L4_TCP, NFT_DIALLED_FLOW6, NFT_AFFINITYID6),
          REMEMBER(L4_UDP, NFT_DIALLED_FLOW6, NFT_AFFINITYID6),
          REMEMBER(L4_SCTP, NFT_DIALLED_FLOW6, NFT_AFFINITYID6)),
    CHAIN("remembered", RULE(COUNTER, VMAP(NFT_PRIORITY, NFT_AFFINITYTIMEOUT))),

    /* The replies of what was marked must come back here, and those of a pod that dialled itself
     * have to leave it. */
    BASE_CHAIN("masquerading", "nat", "postrouting", PRIO_MASQUERADE,
               RULE(IS_MARKED, COUNTER, MARK_FLIP, MASQUERADE),
               RULE(CT_STATUS_DNAT, IN(NFT_SADDR_DADDR4, NFT_HAIRPIN4), COUNTER, MASQUERADE),
               RULE(CT_STATUS_DNAT, IN(NFT_SADDR_DADDR6, NFT_HAIRPIN6), COUNTER, MASQUERADE)),
};
#define N_CHAINS (sizeof(chains) / sizeof(chains[0]))

/* With held addresses, which are services: chains in the place of those of the same name, and
 * three more. What every packet meets is not counted, the chains it leads to are. */
static const struct nft_chain held[] = {
    /* A packet that a holder forwarded here tells its holder by its hardware address: every one,
     * so that a mark that is another one by now is mended. The mark stays with the connection, and
     * replies carry it. So do, with HELD_TOP, connections to an endpoint behind the overlay. */
    BASE_CHAIN("arrive", "filter", "prerouting", PRIO_STEER, ANSWER,
               RULE(FROM_OVERLAY, VMAP(NFT_ETHER_SADDR, NFT_HOLDERS)), ARRIVE_NEW, HELD_ROUTE),
    BASE_CHAIN("leave", "route", "output", PRIO_MANGLE, LEAVE_REFUSAL, ANSWER,
               RULE(CT_STATE_NEW, IN(NFT_FLOW4, NFT_HELDROUTE4), COUNTER, CT_MARK_TOP(HELD_TOP)),
               HELD_ROUTE),
    CHAIN("answer", RULE(CT_STATUS_DNAT, COUNTER, GOTO("reply")),
          RULE(CT_TOP_SET, VMAP(NFT_CT_MARK_TOP, NFT_HOLDERMARKS))),

    /* Whatever interface it is dialled on, once no PortMap has the port. */
    CHAIN("admit", RULE(IN(NFT_IIF_DIALLED4, NFT_IFADDR4), COUNTER, JUMP("admit4")), ADMIT_IPV6,
          RULE(IN(NFT_FLOW4, NFT_HELD4), COUNTER, GOTO("hold"))),
    /* A connection whose endpoint is the very address that was dialled is not translated, and
     * when it is confirmed nothing gives its packets the destination back. */
    CHAIN("hold", RULE(IN(NFT_FLOW4, NFT_HELDROUTE4), COUNTER, CT_MARK_TOP(HELD_TOP)),
          RULE(CT_UNCONFIRMED, COUNTER, SET_DADDR(IP_V4, STANDIN4), RETURN),
          RULE(CT_STATUS_DNAT, COUNTER, SET_DADDR(IP_V4, STANDIN4))),
    BASE_CHAIN("proxy", "nat", "prerouting", PRIO_SERVICE,
               RULE(IN(NFT_FLOW4, NFT_HELD4), COUNTER, SET_DADDR_DIALLED(IP_V4)), PROXY),

    /* Whom the endpoint would answer past this node is masqueraded. What came off the overlay is
     * answered over it; a bridged packet does not tell later on where it came from. */
    BASE_CHAIN("learn", "filter", "prerouting", PRIO_LEARN,
               RULE(CT_STATE_NEW, CT_STATUS_DNAT, NOT_FROM_OVERLAY,
                    IN(NFT_SADDR_DADDR4, NFT_HELDNEAR4), COUNTER, MARK_SET),
               LEARN),
    /* All other clients keep their addresses, here and where a holder forwards to. */
    BASE_CHAIN("identity", "nat", "postrouting", PRIO_IDENTITY, IDENTITY,
               RULE(IN(NFT_CT_MARK_TOP, NFT_HOLDERCLAIMS), COUNTER, SNAT_SADDR(IP_V4))),
    CHAIN("claim", CLAIMS, HELD_CLAIM(L4_TCP), HELD_CLAIM(L4_UDP), HELD_CLAIM(L4_SCTP)),
    CHAIN("heldsource", RULE(IN(NFT_SADDR_DADDR4, NFT_HAIRPIN4), COUNTER, MASQUERADE),
          RULE(IS_MARKED, COUNTER, MARK_FLIP, MASQUERADE), RULE(COUNTER, SNAT_SADDR(IP_V4))),
};
#define N_HELD (sizeof(held) / sizeof(held[0]))

_Static_assert(N_CHAINS + N_HELD <= NFT_CHAINS_MAX, "all in one table");

#define PORTMAP_SETS ((UINT64_C(1) << NFT_SERVICE4) - 1)
#define PROXY_SETS   (((UINT64_C(1) << NFT_HELD4) - 1) & ~PORTMAP_SETS)
#define ALL_SETS     ((UINT64_C(1) << NFT_SET_COUNT) - 1)

static void put_chains(struct nft_table *t, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        t->chains[t->n_chains++] = &chains[i];
}

static void put_held(struct nft_table *t)
{
    for (size_t i = 0; i < N_HELD; i++) {
        size_t at = 0;
        while (at < N_CHAINS && strcmp(chains[at].name, held[i].name))
            at++;
        t->chains[at < N_CHAINS ? at : t->n_chains++] = &held[i];
    }
}

static bool proxies_by_nft(const struct plan_options *options)
{
    return options->serviceproxy && options->proxy_mode == PROXY_NFT;
}

bool plan_needs_nft(const struct plan_options *options)
{
    return options->portmap || options->loadbalancer || proxies_by_nft(options);
}

bool plan_needs_rules(const struct plan_options *options)
{
    return options->trafficclass || options->loadbalancer;
}

static const char *overlay_device(const struct plan_options *o)
{
    return o->overlay && strcmp(o->overlay, "vxlan") ? o->overlay : OVERLAY_LINK;
}

struct nft_table plan_ruleset(const struct plan_options *options)
{
    struct nft_table t = {
        .name = PORTOLAN_NFT_TABLE,
        .comment = "kept by portolan: what is edited here is put back",
        .sets = nft_set_defs,
        .masquerade_mark = UINT32_C(1) << options->masquerade_bit % 32,
        .overlay = overlay_device(options),
    };
    if (options->loadbalancer) {
        t.holds = ALL_SETS;
        put_chains(&t, 0, N_CHAINS);
        put_held(&t);
    } else if (!proxies_by_nft(options)) {
        t.holds = PORTMAP_SETS;
        put_chains(&t, 0, N_PORTMAP);
    } else {
        t.holds = options->portmap ? PORTMAP_SETS | PROXY_SETS : PROXY_SETS;
        put_chains(&t, options->portmap ? 0 : N_PORTMAP, N_CHAINS);
    }
    return t;
}
