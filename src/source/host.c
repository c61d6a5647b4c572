/* Host facts from a file, by the same decoder as the objects. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "source/shape.h"
#include "source/tokens.h"

static int get_addresses(struct decoder *d, uint32_t at, void *base)
{
    static const char what[] = "an address with prefix length, such as 203.0.113.9/24";
    struct host_iface *iface = base;
    const struct tokens *t = d->tokens;
    if (t->v.v[at].type != TOKEN_LIST)
        return decoder_refuse(d, at, "a list");
    uint32_t e, n = 0, i = at + 1;
    while (token_next(t, &i))
        n++;
    iface->addresses = arena_new_array(d->mem, n, struct host_address);
    for (i = at + 1; (e = token_next(t, &i));) {
        size_t path = decoder_push_index(d, iface->n_addresses);
        struct host_address *a = &iface->addresses[iface->n_addresses++];
        struct ip_prefix p;
        const char *s;
        int r = decode_string(d, e, what, &s);
        if (r)
            return r;
        if (!ip_prefix_parse(s, &p))
            return decoder_refuse(d, e, what);
        *a = (struct host_address){ .ip = p.ip, .prefix_len = p.len };
        decoder_pop(d, path);
    }
    return 0;
}

static const struct custom addresses = { "a list", get_addresses, NULL, NULL };

static int get_mac(struct decoder *d, uint32_t at, void *base)
{
    static const char what[] = "a hardware address such as 9e:1c:3f:00:a2:07";
    struct host_iface *iface = base;
    const char *s;
    char rest;
    uint8_t *m = iface->mac;
    int r = decode_string(d, at, what, &s);
    if (r)
        return r;
    return sscanf(s, "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx%c", &m[0], &m[1], &m[2], &m[3], &m[4],
                  &m[5], &rest) == 6
               ? 0
               : decoder_refuse(d, at, what);
}

static const struct custom mac = { "a string", get_mac, NULL, NULL };

#define AT(type, member) .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)
static const struct field iface_fields[] = {
    { "name", FIELD_STRING, AT(struct host_iface, name), .flags = REQUIRED },
    { "mtu", FIELD_INT, AT(struct host_iface, mtu), .min = 68, .max = 65536, .initial = 1500 },
    { "up", FIELD_BOOL, AT(struct host_iface, up), .initial = true },
    { "default4", FIELD_BOOL, AT(struct host_iface, default4) },
    { "default6", FIELD_BOOL, AT(struct host_iface, default6) },
    { "acceptRA", FIELD_INT, AT(struct host_iface, accept_ra), .max = 2 },
    { "rpFilter", FIELD_INT, AT(struct host_iface, rp_filter), .max = 2 },
    { "addresses", FIELD_CUSTOM, .custom = &addresses },
    { "mac", FIELD_CUSTOM, .custom = &mac },
    { "bridge", FIELD_BOOL, AT(struct host_iface, bridge) },
    { .name = NULL },
};
static const struct shape iface_shape = { .fields = iface_fields,
                                          .size = sizeof(struct host_iface) };

static int get_prefix(struct decoder *d, uint32_t at, struct ip_prefix *ret)
{
    static const char what[] = "a prefix such as 10.0.0.0/8";
    const char *s;
    int r = decode_string(d, at, what, &s);
    return r ? r : ip_prefix_parse(s, ret) ? 0 : decoder_refuse(d, at, what);
}

static int get_from(struct decoder *d, uint32_t at, void *base)
{
    struct host_rule *r = base;
    r->has_src = true;
    return get_prefix(d, at, &r->src);
}

static int get_to(struct decoder *d, uint32_t at, void *base)
{
    struct host_rule *r = base;
    r->has_dst = true;
    return get_prefix(d, at, &r->dst);
}

static const struct name_value families[] = { { "IPv4", IP_V4 }, { "IPv6", IP_V6 }, { NULL, 0 } };
static const struct custom from = { "a prefix", get_from, NULL, NULL };
static const struct custom to = { "a prefix", get_to, NULL, NULL };
static const struct field rule_fields[] = {
    { "family", FIELD_ENUM, AT(struct host_rule, family), .flags = REQUIRED, .names = families },
    { "priority", FIELD_INT, AT(struct host_rule, priority), .max = UINT32_MAX },
    { "from", FIELD_CUSTOM, .custom = &from },
    { "to", FIELD_CUSTOM, .custom = &to },
    { "selective", FIELD_BOOL, AT(struct host_rule, selective) },
    { "text", FIELD_STRING, AT(struct host_rule, text) },
    { .name = NULL },
};
static const struct shape rule_shape = { .fields = rule_fields, .size = sizeof(struct host_rule) };
static const struct field table_fields[] = {
    { "table", FIELD_INT, AT(struct host_table, table), .flags = REQUIRED, .max = UINT32_MAX },
    { "protocol", FIELD_INT, AT(struct host_table, protocol), .max = 255 },
    { .name = NULL },
};
static const struct shape table_shape = { .fields = table_fields,
                                          .size = sizeof(struct host_table) };
static const struct field host_fields[] = {
    { "forwarding4", FIELD_BOOL, AT(struct host, forwarding4), .initial = true },
    { "forwarding6", FIELD_BOOL, AT(struct host, forwarding6), .initial = true },
    { "forwarding4Error", FIELD_STRING, AT(struct host, forwarding4_error) },
    { "forwarding6Error", FIELD_STRING, AT(struct host, forwarding6_error) },
    { "ipv6", FIELD_BOOL, AT(struct host, ipv6), .initial = true },
    { "bridgeNfCallIptables", FIELD_INT, AT(struct host, bridge_nf_call_iptables), .min = -1,
      .max = 1, .initial = -1 },
    { "interfaces", FIELD_LIST, AT(struct host, ifaces), .count = offsetof(struct host, n_ifaces),
      .flags = SORTED, .shape = &iface_shape },
    { "rules", FIELD_LIST, AT(struct host, rules), .count = offsetof(struct host, n_rules),
      .shape = &rule_shape },
    { "foreignTables", FIELD_LIST, AT(struct host, foreign_tables),
      .count = offsetof(struct host, n_foreign_tables), .shape = &table_shape },
    { .name = NULL },
};
static const struct shape host_shape = { .fields = host_fields, .size = sizeof(struct host) };

struct search {
    const char *node;
    struct arena *mem;
    struct host host;
    bool found;
    int error; /* of the document found */
    struct place place;
    struct err *err;
};

static void look_at(void *user, const struct doc *doc)
{
    struct search *s = user;
    if (s->found || strcmp(doc->kind_name, "PortolanHost") ||
        strcmp(doc->api_version, "portolan/v1") || strcmp(doc->name, s->node))
        return;
    struct decoder d = { .tokens = doc->tokens,
                         .mem = s->mem,
                         .kind = doc->kind_name,
                         .ns = "",
                         .name = doc->name,
                         .reterr_place = &s->place,
                         .err = s->err };
    s->found = true;
    s->error = decoder_check(&d, doc);
    if (!s->error)
        s->error = decode_shape(&d, doc->root, &s->host, &host_shape);
}

int host_decode_file(const char *path, const char *node, struct arena *arena, struct host *ret,
                     struct err *err)
{
    struct search search = { .node = node, .mem = arena, .err = err };
    const struct codec_handler handler = { .user = &search, .object = look_at };
    int r = codec_parse_file(path, &handler, err);
    if (r)
        return r;
    if (!search.found)
        return err_set(err, ENOENT,
                       "%s has no document of apiVersion portolan/v1 and kind PortolanHost whose "
                       "metadata.name is %s: add one",
                       path, node);
    if (search.error)
        err_prefix(err, "%s:%u:%u", path, search.place.line, search.place.column);
    else
        *ret = search.host;
    return search.error;
}
