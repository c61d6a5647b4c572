#include "bird/render.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NODE_CHARS 24

struct rendering {
    struct buf *out;
    const struct bird_table *table;
    int family; /* index into families */
};

static int version(const struct rendering *r)
{
    return r->family ? 6 : 4;
}

static bool of_family(const struct rendering *r, const struct ip *ip)
{
    return ip->family == (r->family ? IP_V6 : IP_V4);
}

/* FNV-1a, 64 bit. Another hash would end all sessions once, on the upgrade that brings it. */
static uint64_t name_hash(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return h;
}

const char *bird_session_name(uint32_t table, const char *node, uint8_t family,
                              char out[static BIRD_SYMBOL_MAX])
{
    char word[NODE_CHARS + 1] = "";
    for (size_t i = 0; i < NODE_CHARS && node[i]; i++) {
        bool good = (node[i] >= 'a' && node[i] <= 'z') || (node[i] >= 'A' && node[i] <= 'Z') ||
                    (node[i] >= '0' && node[i] <= '9');
        word[i] = good ? node[i] : '_';
    }
    snprintf(out, BIRD_SYMBOL_MAX, "tc%" PRIu32 "_%s_%016" PRIx64 "_%u", table, word,
             name_hash(node), family);
    return out;
}

/* The decoder lets no other link's name in. */
static void put_link(struct buf *out, const char *name)
{
    assert(*name && !strpbrk(name, "\"\n"));
    buf_printf(out, "\"%s\"", name);
}

static void put_ip(struct buf *out, const struct ip *ip)
{
    char text[IP_TEXT_MAX];
    buf_puts(out, ip_format(ip, text));
}

static void put_prefix(struct buf *out, const struct ip_prefix *p)
{
    char text[IP_PREFIX_TEXT_MAX];
    buf_puts(out, ip_prefix_format(p, text));
}

/* "protocol TYPE tc47_NAME_4 {" and its channel, open for what the caller has to say of it. */
static void begin(const struct rendering *r, const char *type, const char *name)
{
    buf_printf(r->out, "protocol %s tc%" PRIu32 "_%s_%d {\n", type, r->table->number, name,
               version(r));
}

static void put_channel(const struct rendering *r)
{
    buf_printf(r->out, "\tipv%d { table tc%" PRIu32 "_%d; };\n", version(r), r->table->number,
               version(r));
}

/* ---- routes BIRD has of itself ---- */

static void put_attached(const struct rendering *r)
{
    if (!r->table->n_attached)
        return;
    begin(r, "direct", "attached");
    put_channel(r);
    buf_puts(r->out, "\tinterface ");
    for (uint32_t i = 0; i < r->table->n_attached; i++) {
        buf_puts(r->out, i ? ", " : "");
        put_link(r->out, r->table->attached[i]);
    }
    buf_puts(r->out, ";\n}\n");
}

static bool has_own(const struct rendering *r)
{
    for (uint32_t i = 0; i < r->table->n_own_cidrs; i++)
        if (of_family(r, &r->table->own_cidrs[i].ip))
            return true;
    return false;
}

/* Originated, not read back from the kernel: there BIRD would depend on the shape of the CNI's
 * route, and refuses the one whose next hop is within what it describes. */
static void put_own(const struct rendering *r)
{
    const struct bird_table *t = r->table;
    if (!has_own(r))
        return;
    begin(r, "static", "own");
    put_channel(r);
    for (uint32_t i = 0; i < t->n_own_cidrs; i++) {
        if (!of_family(r, &t->own_cidrs[i].ip))
            continue;
        buf_puts(r->out, "\troute ");
        put_prefix(r->out, &t->own_cidrs[i]);
        if (*t->pod_device) {
            buf_puts(r->out, " via ");
            put_link(r->out, t->pod_device);
        } else {
            buf_puts(r->out, " unreachable");
        }
        buf_puts(r->out, ";\n");
    }
    buf_puts(r->out, "}\n");
}

/* Pinned to the link: an address of another one gives no route then, instead of a wrong one. */
static void put_gateway(const struct rendering *r)
{
    const struct ip *gateway = &r->table->gateway[r->family];
    if (!*r->table->gateway_link || !gateway->family)
        return;
    assert(bird_symbol_ok(r->table->gateway_link));
    begin(r, "static", "gateway");
    put_channel(r);
    buf_puts(r->out, r->family ? "\troute ::/0 via " : "\troute 0.0.0.0/0 via ");
    put_ip(r->out, gateway);
    buf_printf(r->out, "%%'%s';\n}\n", r->table->gateway_link);
}

/* ---- the kernel ---- */

static void put_kernel(const struct rendering *r)
{
    const struct bird_table *t = r->table;
    begin(r, "kernel", "kernel");
    buf_printf(r->out, "\tkernel table %" PRIu32 ";\n\tscan time 10;\n", t->number);
    if (t->mesh && t->mesh->graceful_restart)
        buf_puts(r->out, "\tgraceful restart;\n");
    buf_printf(r->out, "\tipv%d { table tc%" PRIu32 "_%d; import none; export ", version(r),
               t->number, version(r));
    if (has_own(r) && !*t->pod_device)
        buf_printf(r->out, "where proto != \"tc%" PRIu32 "_own_%d\"", t->number, version(r));
    else
        buf_puts(r->out, "all");
    buf_puts(r->out, "; };\n}\n");
}

/* ---- the mesh ---- */

/* Keepalives three times in the hold time; short waits, since neighbours are few and near. */
static void put_template(struct buf *out, const struct bird_table *t)
{
    const struct bird_mesh *m = t->mesh;
    buf_printf(out,
               "template bgp tc%" PRIu32 "_mesh {\n"
               "\thold time %" PRIu32 ";\n\tkeepalive time %" PRIu32 ";\n"
               "\tconnect delay time 1;\n\tconnect retry time 2;\n\terror wait time 1, 5;\n"
               "\tdirect;\n\tstrict bind;\n\tttl security;\n",
               t->number, m->hold_time, m->hold_time / 3);
    buf_puts(out, m->graceful_restart ? "\tgraceful restart;\n\tgraceful restart time 30;\n"
                                      : "\tgraceful restart off;\n");
    if (m->bfd)
        buf_puts(out, "\tbfd;\n");
    buf_puts(out, "}\n");
}

static void put_peer(const struct rendering *r, const struct bird_peer *peer)
{
    const struct bird_table *t = r->table;
    char name[BIRD_SYMBOL_MAX];
    if (!of_family(r, &peer->remote))
        return;
    buf_printf(r->out, "protocol bgp %s from tc%" PRIu32 "_mesh {\n\tlocal ",
               bird_session_name(t->number, peer->node, peer->remote.family, name), t->number);
    put_ip(r->out, &peer->local);
    buf_printf(r->out, " as %" PRIu32 ";\n\tneighbor ", t->mesh->asn);
    put_ip(r->out, &peer->remote);
    buf_printf(r->out, " as %" PRIu32 ";\n\tipv%d {\n\t\ttable tc%" PRIu32 "_%d;\n\t\timport ",
               t->mesh->asn, version(r), t->number, version(r));
    for (uint32_t i = 0; i < peer->n_cidrs; i++) {
        buf_puts(r->out, i ? ", " : "where net ~ [ ");
        put_prefix(r->out, &peer->cidrs[i]);
    }
    buf_puts(r->out, peer->n_cidrs ? " ];\n" : "none;\n");
    buf_printf(r->out,
               "\t\texport where proto = \"tc%" PRIu32 "_own_%d\";\n\t\tnext hop self;\n\t};\n}\n",
               t->number, version(r));
}

static void put_bfd(const struct bird_config *c, struct buf *out)
{
    bool any = false;
    for (size_t i = 0; i < c->n_tables; i++) {
        const struct bird_mesh *m = c->tables[i].mesh;
        if (!m || !m->bfd)
            continue;
        buf_puts(out, any ? "" : "protocol bfd {\n\taccept direct;\n");
        any = true;
        buf_puts(out, "\tinterface ");
        put_link(out, m->link);
        buf_puts(out, " { interval 200 ms; multiplier 3; };\n");
    }
    buf_puts(out, any ? "}\n" : "");
}

/* ---- all of it ---- */

static void put_table(const struct bird_table *t, struct buf *out)
{
    buf_printf(out, "\n# %s\n", t->owner);
    if (t->mesh)
        put_template(out, t);
    for (int f = 0; f < 2; f++) {
        const struct rendering r = { out, t, f };
        if (!t->families[f])
            continue;
        buf_printf(out, "ipv%d table tc%" PRIu32 "_%d;\n", version(&r), t->number, version(&r));
        put_attached(&r);
        put_own(&r);
        put_gateway(&r);
        put_kernel(&r);
        for (size_t i = 0; t->mesh && i < t->mesh->n_peers; i++)
            put_peer(&r, &t->mesh->peers[i]);
    }
}

void bird_render(const struct bird_config *c, struct buf *out)
{
    bool graceful = false;
    for (size_t i = 0; i < c->n_tables; i++)
        graceful |= c->tables[i].mesh && c->tables[i].mesh->graceful_restart;
    buf_puts(out, BIRD_CONF_HEAD "log stderr all;\nrouter id ");
    put_ip(out, &c->router_id);
    buf_puts(out, ";\ntimeformat protocol iso long ms;\n");
    if (graceful)
        buf_puts(out, "graceful restart wait 20;\n");
    buf_puts(out, "protocol device { scan time 10; }\n");
    put_bfd(c, out);
    for (size_t i = 0; i < c->n_tables; i++)
        put_table(&c->tables[i], out);
}
