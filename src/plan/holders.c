/* What Nodes tell each other: which addresses they hold, and where on the overlay they are. */
#include <fnmatch.h>
#include <stdlib.h>

#include "plan/loadbalancer.h"

#define IPVS_DUMMY "kube-ipvs0" /* holds the addresses of all services */

/* ---- annotations ---- */

/* As the policy's authors read one: IPv4, or IPv4 in IPv6's notation. */
bool lb_ip4_parse(const char *text, struct ip *ret)
{
    static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
    struct ip ip;
    if (!ip_parse(text, &ip))
        return false;
    if (ip.family == IP_V6 && memcmp(ip.bytes, mapped, sizeof(mapped)) != 0)
        return false;
    *ret = ip.family == IP_V4 ? ip : ip_v4(ip.bytes[12], ip.bytes[13], ip.bytes[14], ip.bytes[15]);
    return true;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Pairs of digits between colons or hyphens. */
static bool mac_parse(const char *s, uint8_t ret[static 6])
{
    if (strlen(s) != 17 || (s[2] != ':' && s[2] != '-'))
        return false;
    for (int i = 0; i < 6; i++) {
        int high = hex(s[3 * i]), low = hex(s[3 * i + 1]);
        if (high < 0 || low < 0 || (i < 5 && s[3 * i + 2] != s[2]))
            return false;
        ret[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool is_of_one_station(const uint8_t mac[static 6])
{
    static const uint8_t none[6];
    return !(mac[0] & 1) && memcmp(mac, none, sizeof(none)) != 0;
}

static int by_ip(const void *a, const void *b)
{
    return ip_cmp(a, b);
}

static void bad(struct lb_node *n, const char *annotation, const char *value, const char *message)
{
    n->bad_annotation = annotation;
    n->bad_value = value;
    n->bad_message = message;
}

static const char *trim(struct arena *a, const char *s, size_t n)
{
    while (n && strchr(" \t\r\n\v\f", *s)) {
        s++;
        n--;
    }
    while (n && strchr(" \t\r\n\v\f", s[n - 1]))
        n--;
    return arena_strndup(a, s, n);
}

static void read_addresses(struct arena *a, const char *text, struct lb_node *n)
{
    VEC(struct ip) v = { 0 };
    for (const char *s = text, *end; *text && s; s = *end ? end + 1 : NULL) {
        struct ip ip;
        end = s + strcspn(s, ",");
        const char *one = trim(a, s, (size_t)(end - s));
        if (!lb_ip4_parse(one, &ip)) {
            bad(n, ANNOTATION_ADDRESSES, text,
                arena_printf(a, "\"%.60s\" is no IPv4 address", one));
            break;
        }
        vec_push(&v, ip);
    }
    if (v.n > 1)
        qsort(v.v, v.n, sizeof(v.v[0]), by_ip);
    n->addresses = arena_new_array(a, v.n, struct ip);
    for (size_t i = 0; i < v.n && !n->bad_annotation; i++)
        if (!i || !ip_equal(&v.v[i - 1], &v.v[i]))
            n->addresses[n->n_addresses++] = v.v[i];
    vec_done(&v);
}

static bool overlay_parse(struct arena *a, const char *text, struct ip *ret, uint8_t mac[static 6])
{
    const char *comma = strchr(text, ',');
    return comma && lb_ip4_parse(arena_strndup(a, text, (size_t)(comma - text)), ret) &&
           mac_parse(comma + 1, mac) && is_of_one_station(mac);
}

static void read_overlay(struct arena *a, const char *text, struct lb_node *n)
{
    if (!*text || n->bad_annotation || overlay_parse(a, text, &n->overlay, n->mac))
        return;
    n->overlay = (struct ip){ 0 };
    n->n_addresses = 0;
    bad(n, ANNOTATION_OVERLAY, text,
        "an address and a hardware address are needed, such as 10.32.0.1,9e:1c:3f:00:a2:07");
}

/* ---- one Node ---- */

static void add_near(struct lb_node *n, const struct ip *ip, uint8_t len)
{
    if (ip->family != IP_V4)
        return;
    const struct ip_prefix prefix = { *ip, len };
    n->near[n->n_near++] = ip_prefix_masked(&prefix);
}

static void read_near(struct arena *a, const struct node *node, struct lb_node *n)
{
    n->near = arena_new_array(a, n->n_addresses + node->n_internal_ips + node->pod_cidrs.n + 1ul,
                              struct ip_prefix);
    for (uint32_t i = 0; i < n->n_addresses; i++)
        add_near(n, &n->addresses[i], 32);
    for (uint32_t i = 0; i < node->n_internal_ips; i++)
        add_near(n, &node->internal_ips[i], 32);
    add_near(n, &n->overlay, 32);
    for (uint32_t i = 0; i < node->pod_cidrs.n; i++) {
        struct ip_prefix pods;
        if (ip_prefix_parse(node->pod_cidrs.v[i], &pods))
            add_near(n, &pods.ip, pods.len);
    }
}

static void read_node(const struct planner *p, struct arena *a, const struct node *node,
                      struct lb_node *n)
{
    const struct label_list *l = &node->o.meta.annotations;
    n->name = arena_strdup(a, node->o.meta.name);
    read_addresses(a, arena_strdup(a, label_value(l, ANNOTATION_ADDRESSES)), n);
    read_overlay(a, arena_strdup(a, label_value(l, ANNOTATION_OVERLAY)), n);
    n->internal = node_internal_ip(p->snap, node->o.meta.name);
    if (n->internal.family && node_ip_trouble(p, &n->internal))
        n->internal = (struct ip){ 0 };
    read_near(a, node, n);
}

/* ---- this node's addresses ---- */

static bool is_published(const struct plan_options *o, const struct host_iface *iface)
{
    bool hidden =
        !strcmp(iface->name, IPVS_DUMMY) || (o->overlay && !strcmp(iface->name, o->overlay));
    for (size_t i = 0; i < o->n_address_exclude && !hidden; i++)
        hidden = !fnmatch(o->address_exclude[i], iface->name, 0);
    return !hidden;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char *addresses_text(const struct planner *p, struct arena *a)
{
    const struct host *h = p->snap->host;
    VEC(const char *) v = { 0 };
    struct buf text = { 0 };
    for (uint32_t i = 0; i < h->n_ifaces; i++) {
        const struct host_iface *iface = &h->ifaces[i];
        for (uint32_t j = 0; j < iface->n_addresses && is_published(p->options, iface); j++) {
            const struct ip *ip = &iface->addresses[j].ip;
            if (ip->family == IP_V4 && !ip_special(ip))
                vec_push(&v, ip_format(ip, arena_alloc(a, IP_TEXT_MAX)));
        }
    }
    if (v.n > 1)
        qsort(v.v, v.n, sizeof(v.v[0]), by_text);
    for (size_t i = 0; i < v.n; i++)
        if (!i || strcmp(v.v[i - 1], v.v[i]) != 0)
            buf_printf(&text, "%s%s", i ? "," : "", v.v[i]);
    const char *ret = arena_strdup(a, buf_str(&text));
    vec_done(&v);
    buf_done(&text);
    return ret;
}

/* ---- this node's overlay ---- */

static const char *overlay_text(struct arena *a, const struct ip *ip, const uint8_t *mac)
{
    char text[IP_TEXT_MAX];
    return arena_printf(a, "%s,%02x:%02x:%02x:%02x:%02x:%02x", ip_format(ip, text), mac[0], mac[1],
                        mac[2], mac[3], mac[4], mac[5]);
}

static bool has_address(const struct host_iface *iface, const struct ip *ip)
{
    for (uint32_t i = 0; ip->family && i < iface->n_addresses; i++)
        if (ip_equal(&iface->addresses[i].ip, ip))
            return true;
    return false;
}

static void read_bridge(const struct planner *p, struct arena *a, const struct lb_node *self,
                        struct lb_overlay *o)
{
    static const uint8_t none[6];
    const struct host_iface *iface = host_iface_find(p->snap->host, p->options->overlay);
    o->trouble_value = p->options->overlay;
    o->trouble = !iface ? "there is no such interface" : "it has no IPv4 address";
    if (iface && !memcmp(iface->mac, none, sizeof(none)))
        o->trouble = "it has no hardware address";
    else if (self && iface && !iface->bridge && has_address(iface, &self->internal))
        o->trouble =
            "it is no bridge but the interface with the Node's InternalIP, whose addresses "
            "are to be published: --overlay takes the bridge that pods are on (weave), or vxlan";
    else if (iface)
        o->nets = arena_new_array(a, iface->n_addresses, struct ip_prefix);
    for (uint32_t i = 0; o->nets && i < iface->n_addresses; i++) {
        const struct host_address *x = &iface->addresses[i];
        if (x->ip.family != IP_V4)
            continue;
        if (!o->n_nets)
            o->ip = x->ip;
        const struct ip_prefix net = { x->ip, x->prefix_len };
        o->nets[o->n_nets++] = ip_prefix_masked(&net);
    }
    if (!o->n_nets)
        return;
    o->trouble = NULL;
    memcpy(o->mac, iface->mac, sizeof(o->mac));
    o->device = arena_strdup(a, iface->name);
    o->bridge = iface->bridge;
    o->annotation = overlay_text(a, &o->ip, o->mac);
}

/* The address stays as long as no node before this one by name has it, too. */
static bool claim_stands(const struct lb_facts *f, const struct ip_prefix *subnet, uint32_t hosts)
{
    const struct ip *ip = &f->self->overlay;
    struct ip first, last;
    if (!ip->family || !ip_add(&subnet->ip, 1, &first) || !ip_add(&subnet->ip, hosts, &last) ||
        ip_cmp(ip, &first) < 0 || ip_cmp(ip, &last) > 0)
        return false;
    for (const struct lb_node *n = f->nodes; n < f->self; n++)
        if (ip_equal(&n->overlay, ip))
            return false;
    return true;
}

static bool is_taken(const struct lb_facts *f, const struct ip *ip)
{
    for (uint32_t i = 0; i < f->n_nodes; i++)
        if (ip_equal(&f->nodes[i].overlay, ip))
            return true;
    return false;
}

uint32_t lb_name_hash(const char *name)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return h;
}

static bool claim(const struct lb_facts *f, const struct ip_prefix *subnet, struct ip *ret)
{
    uint32_t hosts = subnet->len < 31 ? (UINT32_C(1) << (32 - subnet->len)) - 2 : 0;
    if (hosts && claim_stands(f, subnet, hosts)) {
        *ret = f->self->overlay;
        return true;
    }
    uint32_t start = hosts ? lb_name_hash(f->self->name) % hosts : 0;
    for (uint32_t i = 0; i < hosts && i <= f->n_nodes; i++)
        if (ip_add(&subnet->ip, 1 + (start + i) % hosts, ret) && !is_taken(f, ret))
            return true;
    return false;
}

static const char *vxlan_trouble(const struct planner *p, const struct lb_facts *f)
{
    if (!f->self->internal.family)
        return "the Node has no IPv4 InternalIP of its own for the tunnel to end at";
    if (!p->underlay_mtu)
        return "no interface holds the Node's InternalIP";
    if (p->underlay_mtu < 576 + VXLAN_OVERHEAD)
        return "the interface that holds the Node's InternalIP leaves no room for packets of 576 bytes";
    return NULL;
}

/* Nothing hangs on an address before its claim is read back. */
static void read_vxlan(const struct planner *p, struct arena *a, const struct node *node,
                       struct lb_facts *f)
{
    struct lb_overlay *o = &f->overlay;
    o->vxlan = true;
    o->trouble_value = OVERLAY_VXLAN;
    o->nets = arena_new(a, struct ip_prefix);
    *o->nets = ip_prefix_masked(&p->options->overlay_subnet);
    o->n_nets = 1;
    if (!f->self)
        return;
    if (!claim(f, o->nets, &o->ip)) {
        char text[IP_PREFIX_TEXT_MAX];
        o->trouble_value = arena_strdup(a, ip_prefix_format(o->nets, text));
        o->trouble = "the overlay's subnet has no address left: a larger one is needed";
        return;
    }
    memcpy(o->mac, (uint8_t[2]){ 0x02, 0x6b }, 2);
    memcpy(o->mac + 2, o->ip.bytes, 4);
    o->annotation = overlay_text(a, &o->ip, o->mac);
    o->trouble = vxlan_trouble(p, f);
    if (!o->trouble &&
        !strcmp(o->annotation, label_value(&node->o.meta.annotations, ANNOTATION_OVERLAY)))
        o->device = OVERLAY_LINK;
}

/* Neither the network's own address nor its broadcast address. */
static bool is_host_of(const struct ip_prefix *net, const struct ip *ip)
{
    struct ip after;
    return ip_prefix_contains(net, ip) &&
           (net->len >= 31 ||
            (!ip_equal(&net->ip, ip) && ip_add(ip, 1, &after) && ip_prefix_contains(net, &after)));
}

bool lb_overlay_reaches(const struct lb_overlay *o, const struct lb_node *n)
{
    bool inside = false;
    for (size_t i = 0; i < o->n_nets && !inside; i++)
        inside = is_host_of(&o->nets[i], &n->overlay);
    return inside && o->device && !n->rival && !ip_equal(&o->ip, &n->overlay) &&
           memcmp(o->mac, n->mac, sizeof(o->mac)) != 0;
}

/* ---- all of it ---- */

static int by_overlay(const void *x, const void *y)
{
    const struct lb_node *a = *(struct lb_node *const *)x, *b = *(struct lb_node *const *)y;
    int c = ip_cmp(&a->overlay, &b->overlay);
    return c ? c : (a > b) - (a < b);
}

static int by_mac(const void *x, const void *y)
{
    const struct lb_node *a = *(struct lb_node *const *)x, *b = *(struct lb_node *const *)y;
    int c = memcmp(a->mac, b->mac, sizeof(a->mac));
    return c ? c : (a > b) - (a < b);
}

/* Of nodes at the same place of the overlay the first by name is believed. */
static void find_rivals(struct lb_facts *f)
{
    VEC(struct lb_node *) v = { 0 };
    for (uint32_t i = 0; i < f->n_nodes; i++)
        if (f->nodes[i].overlay.family)
            vec_push(&v, &f->nodes[i]);
    if (v.n > 1)
        qsort(v.v, v.n, sizeof(v.v[0]), by_overlay);
    for (size_t i = 1; i < v.n; i++)
        if (ip_equal(&v.v[i - 1]->overlay, &v.v[i]->overlay))
            v.v[i]->rival = v.v[i - 1]->name;
    if (v.n > 1)
        qsort(v.v, v.n, sizeof(v.v[0]), by_mac);
    for (size_t i = 1; i < v.n; i++)
        if (!memcmp(v.v[i - 1]->mac, v.v[i]->mac, sizeof(v.v[i]->mac)))
            v.v[i]->rival = v.v[i - 1]->name;
    vec_done(&v);
}

static int by_address_and_node(const void *x, const void *y)
{
    const struct held_address *a = x, *b = y;
    int c = ip_cmp(&a->ip, &b->ip);
    return c ? c : (a->node > b->node) - (a->node < b->node);
}

static void index_addresses(struct lb_facts *f)
{
    size_t n = 0;
    for (uint32_t i = 0; i < f->n_nodes; i++)
        n += f->nodes[i].n_addresses;
    f->held = arena_new_array(&f->mem, n, struct held_address);
    for (uint32_t i = 0; i < f->n_nodes; i++)
        for (uint32_t j = 0; j < f->nodes[i].n_addresses; j++)
            f->held[f->n_held++] = (struct held_address){ f->nodes[i].addresses[j], i };
    if (n > 1)
        qsort(f->held, n, sizeof(f->held[0]), by_address_and_node);
}

/* Names end with their NUL, lists with a zeroed member: no two worlds give the same bytes. */
static void put_bytes(struct lb_facts *f)
{
    static const struct ip_prefix none;
    const struct lb_overlay *o = &f->overlay;
    for (uint32_t i = 0; i < f->n_nodes; i++) {
        const struct lb_node *n = &f->nodes[i];
        buf_put(&f->bytes, n->name, strlen(n->name) + 1);
        buf_put(&f->bytes, n->addresses, n->n_addresses * sizeof(n->addresses[0]));
        buf_put(&f->bytes, &none, sizeof(none));
        buf_put(&f->bytes, &n->overlay, sizeof(n->overlay));
        buf_put(&f->bytes, n->mac, sizeof(n->mac));
        buf_put(&f->bytes, &n->internal, sizeof(n->internal));
        buf_put(&f->bytes, n->near, n->n_near * sizeof(n->near[0]));
        buf_put(&f->bytes, &none, sizeof(none));
    }
    buf_printf(&f->bytes, "%s %s %s ", f->addresses, o->device ? o->device : "", o->annotation);
    buf_put(&f->bytes, o->nets, o->n_nets * sizeof(o->nets[0]));
}

void lb_facts_read(const struct planner *p, struct lb_facts *ret)
{
    const struct snapshot *s = p->snap;
    *ret = (struct lb_facts){ .overlay.annotation = "" };
    ret->nodes = arena_new_array(&ret->mem, s->n_nodes, struct lb_node);
    for (; ret->n_nodes < s->n_nodes; ret->n_nodes++)
        read_node(p, &ret->mem, s->nodes[ret->n_nodes], &ret->nodes[ret->n_nodes]);
    ret->self = lb_node_find(ret, s->node);
    index_addresses(ret);
    find_rivals(ret);
    if (p->options->overlay && !strcmp(p->options->overlay, OVERLAY_VXLAN))
        read_vxlan(p, &ret->mem, snapshot_node(s, s->node), ret);
    else if (p->options->overlay)
        read_bridge(p, &ret->mem, ret->self, &ret->overlay);
    ret->addresses = addresses_text(p, &ret->mem);
    put_bytes(ret);
}

void lb_facts_done(struct lb_facts *f)
{
    arena_done(&f->mem);
    buf_done(&f->bytes);
}

struct lb_node *lb_node_find(const struct lb_facts *f, const char *name)
{
    size_t lo = 0, hi = f->n_nodes;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(f->nodes[mid].name, name);
        if (!c)
            return &f->nodes[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}
