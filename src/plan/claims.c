/* Who has what only one Service can have. The oldest has it, and whoever asked too gets it when that
 * one goes. Every Service that asks is in the key's list, so that the order of arrival makes no
 * difference. */
#include "plan/services.h"

static bool memo_older(const struct service_memo *a, const struct service_memo *b)
{
    if (a->creation != b->creation)
        return a->creation < b->creation;
    return strcmp(a->owner, b->owner) < 0;
}

static bool before(const struct claim *a, const struct claim *b)
{
    if (a->memo != b->memo)
        return memo_older(a->memo, b->memo);
    return a->port != b->port ? a->port < b->port : a->role < b->role;
}

static void renew_ids(struct planner *p, struct service_memo *m)
{
    if (m->renew_ids)
        return;
    m->renew_ids = true;
    vec_push(&p->services->renew, m);
}

/* Another holds the key: those who ask for it have to know. */
static void tell(struct planner *p, const struct claim *c)
{
    for (; c; c = c->next) {
        if (c->key.kind == CLAIM_AFFINITY)
            renew_ids(p, c->memo);
        else
            service_due(p, c->memo);
    }
}

static void hold(struct planner *p, struct claim *c)
{
    c->holds = true;
    map_put(&p->services->claims, &c->key, sizeof(c->key), c);
}

static void add(struct planner *p, struct claim *c)
{
    struct claim *at = map_get(&p->services->claims, &c->key, sizeof(c->key));
    if (!at) {
        hold(p, c);
    } else if (before(c, at)) {
        map_del(&p->services->claims, &at->key, sizeof(at->key));
        at->holds = false;
        c->next = at;
        hold(p, c);
        tell(p, at);
    } else {
        while (at->next && !before(c, at->next))
            at = at->next;
        c->next = at->next;
        at->next = c;
    }
}

static void del(struct planner *p, struct claim *c)
{
    if (!c->holds) {
        struct claim *at = map_get(&p->services->claims, &c->key, sizeof(c->key));
        while (at->next != c)
            at = at->next;
        at->next = c->next;
        return;
    }
    map_del(&p->services->claims, &c->key, sizeof(c->key));
    if (c->next) {
        hold(p, c->next);
        tell(p, c->next);
    }
}

const struct claim *claims_holder(const struct planner *p, const struct claim *c)
{
    return map_get(&p->services->claims, &c->key, sizeof(c->key));
}

/* ---- what a Service asks for ---- */

struct claim_vec {
    struct claim *v;
    size_t n, cap;
    bool families[F_COUNT]; /* the Service has a cluster IP of it */
};

/* A family in which a Service has no cluster IP is none of its, for the service proxy. */
static void ask_flow(struct claim_vec *out, const struct service_port *port, uint16_t index,
                     enum flow_role role, const struct ip *ip)
{
    if (role != ROLE_HELD && !out->families[ip->family == IP_V6 ? F6 : F4])
        return;
    uint16_t number = role == ROLE_NODE_PORT ? port->node_port : port->port;
    const struct claim_key key = {
        .kind = CLAIM_FLOW, .proto = (uint8_t)port->protocol, .port = number, .ip = *ip
    };
    vec_push(out, (struct claim){ .key = key, .port = index, .role = (uint8_t)role });
}

static void ask_text(struct claim_vec *out, const struct service_port *port, uint16_t index,
                     enum flow_role role, const char *text)
{
    struct ip ip;
    if (!address_parse(text, &ip))
        ask_flow(out, port, index, role, &ip);
}

static void ask_port(const struct planner *p, const struct service *s, uint16_t index,
                     struct claim_vec *out)
{
    const struct service_port *port = &s->ports[index];
    const struct service_node *node = &p->services->node;
    for (uint32_t i = 0; i < s->cluster_ips.n; i++)
        ask_text(out, port, index, ROLE_CLUSTER, s->cluster_ips.v[i]);
    for (uint32_t i = 0; i < s->n_ingress && s->type == SERVICE_LOADBALANCER; i++)
        if (s->ingress[i].mode == IP_MODE_VIP && *s->ingress[i].ip)
            ask_text(out, port, index, ROLE_LOAD_BALANCER, s->ingress[i].ip);
    for (uint32_t i = 0; i < s->external_ips.n; i++)
        ask_text(out, port, index, ROLE_EXTERNAL, s->external_ips.v[i]);
    for (size_t i = 0; i < node->n_node_ports && service_node_port(s, index); i++)
        ask_flow(out, port, index, ROLE_NODE_PORT, &node->node_ports[i].ip);
}

static void ask_all(const struct planner *p, const struct service_memo *m, struct claim_vec *out)
{
    const struct service *s = m->obj;
    bool proxied = service_is_proxied(p, s);
    struct claim_key cluster_ip = { .kind = CLAIM_CLUSTER_IP };
    for (uint32_t i = 0; i < s->cluster_ips.n; i++)
        if (!address_parse(s->cluster_ips.v[i], &cluster_ip.ip))
            out->families[cluster_ip.ip.family == IP_V6 ? F6 : F4] = true;
    for (uint32_t i = 0; i < s->n_ports && i <= UINT16_MAX; i++) {
        if (m->held_here)
            ask_flow(out, &s->ports[i], (uint16_t)i, ROLE_HELD, &m->held_ip);
        if (proxied)
            ask_port(p, s, (uint16_t)i, out);
    }
    if (!proxied)
        return;
    for (uint32_t i = 0; i < s->cluster_ips.n; i++)
        if (!address_parse(s->cluster_ips.v[i], &cluster_ip.ip))
            vec_push(out, (struct claim){ .key = cluster_ip });
    if (service_health_port(s)) {
        const struct claim_key key = { .kind = CLAIM_HEALTH, .port = service_health_port(s) };
        vec_push(out, (struct claim){ .key = key });
    }
}

/* ---- affinity ids ---- */

/* FNV-1a of "NS/NAME/PORT/PROTOCOL": the same after a restart, which is what keeps clients where
 * they are. */
static uint32_t wanted_id(const struct service_memo *m, uint16_t port)
{
    const struct service_port *sp = &m->obj->ports[port];
    const char *const parts[] = { service_key(m), "/", sp->name, "/", l4proto_name(sp->protocol) };
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        for (const char *s = parts[i]; *s; s++)
            h = (h ^ (uint8_t)*s) * 16777619u;
    return h;
}

static void drop_ids(struct planner *p, struct service_memo *m)
{
    for (size_t i = 0; i < m->ids.n; i++) {
        del(p, m->ids.v[i]);
        free(m->ids.v[i]);
    }
    vec_done(&m->ids);
}

static void take_ids(struct planner *p, struct service_memo *m)
{
    for (uint32_t i = 0; i < m->obj->n_ports && m->obj->affinity_timeout; i++) {
        uint32_t id = wanted_id(m, (uint16_t)i);
        bool holds = false;
        while (!holds) {
            struct claim *c = xcalloc(1, sizeof(*c));
            id += !id; /* 0 is what meta priority holds anyway */
            c->key = (struct claim_key){ .kind = CLAIM_AFFINITY, .id = id++ };
            c->port = (uint16_t)i;
            c->memo = m;
            add(p, c);
            vec_push(&m->ids, c);
            holds = c->holds;
        }
    }
}

uint32_t claims_id(const struct service_memo *m, uint16_t port)
{
    size_t i = m->ids.n;
    while (i && m->ids.v[i - 1]->port != port)
        i--;
    return i ? m->ids.v[i - 1]->key.id : 0;
}

/* It ends: who gives up or gets an id is news to younger ones only. */
void claims_settle(struct planner *p)
{
    while (p->services->renew.n) {
        struct service_memo *m = p->services->renew.v[--p->services->renew.n];
        if (!m->gone) {
            drop_ids(p, m);
            take_ids(p, m);
            service_due(p, m);
        }
        m->renew_ids = false; /* not before: its own ports are no news to it */
    }
}

/* ---- all of a Service ---- */

void claims_drop(struct planner *p, struct service_memo *m)
{
    for (size_t i = 0; i < m->n_claims; i++)
        del(p, &m->claims[i]);
    free(m->claims);
    m->claims = NULL;
    m->n_claims = 0;
    drop_ids(p, m);
}

void claims_take(struct planner *p, struct service_memo *m)
{
    struct claim_vec fresh = { 0 };
    claims_drop(p, m);
    m->creation = m->obj->o.meta.creation;
    ask_all(p, m, &fresh);
    m->n_claims = fresh.n;
    m->claims = xmalloc(fresh.n * sizeof(m->claims[0]));
    if (fresh.n)
        memcpy(m->claims, fresh.v, fresh.n * sizeof(m->claims[0]));
    vec_done(&fresh);
    for (size_t i = 0; i < m->n_claims; i++) {
        m->claims[i].memo = m;
        add(p, &m->claims[i]);
    }
    if (m->obj->affinity_timeout)
        renew_ids(p, m);
}
