#include "served_ipvs.h"

#include "../unit/test.h"

#include <string.h>

#include "base/map.h"

struct index {
    struct map keys; /* struct ipvs_key -> struct ipvs_entry */
    const struct snapshot *snap;
    uint64_t seed;
    struct served_ipvs *met;
};

static void fail_at(const struct index *x, const char *what, const struct ipvs_entry *e)
{
    struct buf text = { 0 };
    ipvs_text_entry(&text, e);
    fail_msg("seed %llu: %s: %s", (unsigned long long)x->seed, what, buf_str(&text));
}

static bool has(const struct index *x, const struct ipvs_key *k)
{
    return map_get(&x->keys, k, sizeof(*k));
}

/* What the set has of the same address and port. */
static bool in_set(const struct index *x, enum ipvs_set set, const struct ipvs_key *of)
{
    struct ipvs_key k = ipvs_server_of(of);
    k.kind = IPVS_SET_ENTRY;
    k.set = (uint8_t)set;
    if (ipvs_set_defs[set].type == IPSET_BITMAP_PORT) {
        k.proto = 0;
        k.ip = (struct ip){ 0 };
    }
    if (ipvs_set_defs[set].type == IPSET_HASH_IP)
        k.proto = 0, k.port = 0;
    return has(x, &k);
}

static void read_all(struct index *x, const struct desired *d)
{
    for (size_t i = 0; i < d->n_ipvs; i++) {
        const struct ipvs_group *g = d->ipvs[i];
        if (i && strcmp(d->ipvs[i - 1]->owner, g->owner) >= 0)
            fail_msg("seed %llu: groups are not in order", (unsigned long long)x->seed);
        for (uint32_t j = 0; j < g->n; j++) {
            const struct ipvs_entry *e = &g->entries[j];
            if (j && ipvs_key_cmp(&g->entries[j - 1].key, &e->key) >= 0)
                fail_at(x, "not in order, or twice in a Service", e);
            const struct ipvs_entry *old = map_get(&x->keys, &e->key, sizeof(e->key));
            if (old && !ipvs_entry_equal(old, e))
                fail_at(x, "two Services want it otherwise", e);
            if (old && (e->key.kind == IPVS_SERVER || e->key.kind == IPVS_DEST))
                fail_at(x, "two Services have it", e);
            x->met->shared += old != NULL;
            if (!old)
                map_put(&x->keys, &e->key, sizeof(e->key), (void *)e);
        }
    }
}

static bool is_a_machines(const struct snapshot *s, const struct ip *ip)
{
    for (size_t i = 0; i < s->n_nodes; i++)
        for (uint32_t j = 0; j < s->nodes[i]->n_internal_ips; j++)
            if (ip_equal(&s->nodes[i]->internal_ips[j], ip))
                return true;
    return host_address_owner(s->host, ip);
}

/* ---- each kind ---- */

static void check_server(struct index *x, const struct ipvs_entry *e, bool empty)
{
    static const enum ipvs_set says[] = {
        KUBE_CLUSTER_IP,    KUBE_EXTERNAL_IP,   KUBE_LOAD_BALANCER,
        KUBE_NODE_PORT_TCP, KUBE_NODE_PORT_UDP, KUBE_NODE_PORT_SCTP,
    };
    unsigned n = 0;
    for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++)
        n += in_set(x, says[i], &e->key);
    if (!n)
        fail_at(x, "no set has the server", e);
    if (in_set(x, KUBE_DROP, &e->key))
        fail_at(x, "a server of what is dropped", e);
    if (in_set(x, KUBE_REJECT, &e->key) != empty)
        fail_at(x, "refused or not", e);
    if (in_set(x, KUBE_DROP_OUTSIDE, &e->key) && empty)
        fail_at(x, "nobody at all is served", e);
    if (!e->key.port)
        fail_at(x, "port 0", e);
    x->met->empty += empty;
    x->met->persistent += e->timeout > 0;
}

static void check_dest(struct index *x, const struct ipvs_entry *e)
{
    const struct ipvs_key server = ipvs_server_of(&e->key);
    if (!has(x, &server))
        fail_at(x, "a destination without a server", e);
    if (e->key.other.family != e->key.family || !e->key.dest_port || !e->weight)
        fail_at(x, "a destination nobody reaches", e);
    x->met->dests++;
}

static void check_bound(struct index *x, const struct ipvs_entry *e)
{
    if (is_a_machines(x->snap, &e->key.ip))
        fail_at(x, "a machine's address", e);
    if (!in_set(x, KUBE_IPVS_IPS, &e->key))
        fail_at(x, "bound, but not refused", e);
    x->met->bound++;
}

/* The set has what `more` has. */
static void check_subset(const struct index *x, const struct ipvs_entry *e, enum ipvs_set more,
                         enum ipvs_set set)
{
    if (e->key.set == more && !in_set(x, set, &e->key))
        fail_at(x, "only in the narrower set", e);
}

static void check_set_entry(struct index *x, const struct ipvs_entry *e)
{
    static const enum ipvs_set subsets[][2] = {
        { KUBE_EXTERNAL_IP_LOCAL, KUBE_EXTERNAL_IP },
        { KUBE_LOAD_BALANCER_LOCAL, KUBE_LOAD_BALANCER },
        { KUBE_LOAD_BALANCER_FW, KUBE_LOAD_BALANCER },
        { KUBE_LOAD_BALANCER_SRC_CIDR, KUBE_LOAD_BALANCER_FW },
        { KUBE_LOAD_BALANCER_SOURCE_IP, KUBE_LOAD_BALANCER_FW },
    };
    const struct ipvs_key *k = &e->key;
    const struct ipvs_key server = ipvs_server_of(k);
    const struct ipvs_key bound = { .kind = IPVS_BOUND, .family = k->family, .ip = k->ip };
    bool net = ipvs_set_defs[k->set].type == IPSET_HASH_NET ||
               ipvs_set_defs[k->set].type == IPSET_HASH_IP_PORT_NET;
    if (net != (k->prefix_len > 0))
        fail_at(x, "a net of another set, or without length", e);
    if (ipvs_set_defs[k->set].type == IPSET_BITMAP_PORT ? k->ip.family || !k->port
                                                        : k->ip.family != k->family)
        fail_at(x, "of another family", e);
    for (size_t i = 0; i < sizeof(subsets) / sizeof(subsets[0]); i++)
        check_subset(x, e, subsets[i][0], subsets[i][1]);
    if (k->set == KUBE_IPVS_IPS && !has(x, &bound))
        fail_at(x, "refused, but not bound", e);
    if ((k->set == KUBE_DROP_OUTSIDE || k->set == KUBE_REJECT) && !has(x, &server))
        fail_at(x, "nobody at all is served", e);
    if (k->set == KUBE_CLUSTER_IP || k->set == KUBE_EXTERNAL_IP || k->set == KUBE_LOAD_BALANCER) {
        if (!has(x, &bound) != is_a_machines(x->snap, &k->ip))
            fail_at(x, "bound or not", e);
        if (!has(x, &server))
            fail_at(x, "without a server", e);
        x->met->unbound += !has(x, &bound);
    }
    x->met->dropped += k->set == KUBE_DROP;
    x->met->outside += k->set == KUBE_DROP_OUTSIDE;
    x->met->ranged += k->set == KUBE_LOAD_BALANCER_FW;
    x->met->local += k->set == KUBE_LOAD_BALANCER_LOCAL;
    x->met->loop_back += k->set == KUBE_LOOP_BACK;
    x->met->health += k->set == KUBE_HEALTH_CHECK_NODE_PORT;
}

/* ---- all ---- */

/* Destinations come after all servers, in their order. */
static bool is_empty(const struct ipvs_group *g, const struct ipvs_entry *server)
{
    for (uint32_t i = 0; i < g->n; i++) {
        const struct ipvs_key k = ipvs_server_of(&g->entries[i].key);
        if (g->entries[i].key.kind == IPVS_DEST && !ipvs_key_cmp(&k, &server->key))
            return false;
    }
    return true;
}

void served_ipvs_check(const struct plan *plan, const struct snapshot *s, uint64_t seed,
                       struct served_ipvs *met)
{
    struct index x = { .snap = s, .seed = seed, .met = met };
    read_all(&x, &plan->desired);
    for (size_t i = 0; i < plan->desired.n_ipvs; i++) {
        const struct ipvs_group *g = plan->desired.ipvs[i];
        for (uint32_t j = 0; j < g->n; j++) {
            const struct ipvs_entry *e = &g->entries[j];
            switch ((enum ipvs_kind)e->key.kind) {
            case IPVS_SET_ENTRY:
                check_set_entry(&x, e);
                break;
            case IPVS_BOUND:
                check_bound(&x, e);
                break;
            case IPVS_SERVER:
                check_server(&x, e, is_empty(g, e));
                break;
            case IPVS_DEST:
                check_dest(&x, e);
                break;
            }
        }
    }
    map_done(&x.keys);
}
