#include <ctype.h>

#include "model/ipvs.h"

static void put_proto(struct buf *out, uint8_t proto)
{
    for (const char *s = l4proto_name(proto); *s; s++)
        buf_printf(out, "%c", tolower(*s));
}

static void put_place(struct buf *out, const struct ip *ip, uint16_t port)
{
    char text[IP_TEXT_MAX];
    bool v6 = ip->family == IP_V6;
    buf_printf(out, "%s%s%s:%u", v6 ? "[" : "", ip_format(ip, text), v6 ? "]" : "", port);
}

static void put_address_port(struct buf *out, const struct ipvs_key *k)
{
    char text[IP_TEXT_MAX];
    buf_printf(out, "%s,", ip_format(&k->ip, text));
    put_proto(out, k->proto);
    buf_printf(out, ":%u", k->port);
}

void ipvs_text_element(struct buf *out, const struct ipvs_key *k)
{
    char text[IP_TEXT_MAX];
    switch (ipvs_set_defs[k->set].type) {
    case IPSET_HASH_IP:
        buf_puts(out, ip_format(&k->ip, text));
        return;
    case IPSET_HASH_NET:
        buf_printf(out, "%s/%u", ip_format(&k->ip, text), k->prefix_len);
        return;
    case IPSET_HASH_IP_PORT:
        put_address_port(out, k);
        return;
    case IPSET_HASH_IP_PORT_IP:
        put_address_port(out, k);
        buf_printf(out, ",%s", ip_format(&k->other, text));
        return;
    case IPSET_HASH_IP_PORT_NET:
        put_address_port(out, k);
        buf_printf(out, ",%s/%u", ip_format(&k->other, text), k->prefix_len);
        return;
    case IPSET_BITMAP_PORT:
        buf_printf(out, "%u", k->port);
        return;
    }
}

void ipvs_text_entry(struct buf *out, const struct ipvs_entry *e)
{
    const struct ipvs_key *k = &e->key;
    char text[IP_TEXT_MAX];
    switch ((enum ipvs_kind)k->kind) {
    case IPVS_SET_ENTRY:
        buf_printf(out, "%s ", ipvs_set_name(k->set, k->family));
        ipvs_text_element(out, k);
        return;
    case IPVS_BOUND:
        buf_printf(out, IPVS_LINK " %s", ip_format(&k->ip, text));
        return;
    case IPVS_SERVER:
        buf_printf(out, "%s ", l4proto_name(k->proto));
        put_place(out, &k->ip, k->port);
        buf_printf(out, " %s", ipvs_scheduler_name(e->scheduler));
        if (e->timeout)
            buf_printf(out, " persistent %u", e->timeout);
        return;
    case IPVS_DEST:
        buf_printf(out, "%s ", l4proto_name(k->proto));
        put_place(out, &k->ip, k->port);
        buf_puts(out, " -> ");
        put_place(out, &k->other, k->dest_port);
        buf_printf(out, " weight %u", e->weight);
        return;
    }
}
