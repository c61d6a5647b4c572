#include "base/ip.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ip_parse(const char *s, struct ip *ret)
{
    struct ip ip = { 0 };
    if (strchr(s, ':')) {
        if (strchr(s, '%') || inet_pton(AF_INET6, s, ip.bytes) != 1)
            return false;
        ip.family = IP_V6;
    } else {
        if (inet_pton(AF_INET, s, ip.bytes) != 1)
            return false;
        ip.family = IP_V4;
    }
    *ret = ip;
    return true;
}

bool ip_prefix_parse(const char *s, struct ip_prefix *ret)
{
    const char *slash = strchr(s, '/');
    char addr[IP_TEXT_MAX];
    if (!slash || (size_t)(slash - s) >= sizeof(addr))
        return false;
    memcpy(addr, s, (size_t)(slash - s));
    addr[slash - s] = 0;
    struct ip_prefix p = { 0 };
    if (!ip_parse(addr, &p.ip))
        return false;
    size_t digits = strspn(slash + 1, "0123456789");
    if (!digits || digits > 3 || slash[1 + digits] || (slash[1] == '0' && digits > 1))
        return false;
    int len = atoi(slash + 1);
    if (len > ip_bits(p.ip.family))
        return false;
    p.len = (uint8_t)len;
    *ret = p;
    return true;
}

const char *ip_format(const struct ip *ip, char out[static IP_TEXT_MAX])
{
    out[0] = 0;
    if (ip->family == IP_V4)
        inet_ntop(AF_INET, ip->bytes, out, IP_TEXT_MAX);
    else if (ip->family == IP_V6)
        inet_ntop(AF_INET6, ip->bytes, out, IP_TEXT_MAX);
    return out;
}

const char *ip_prefix_format(const struct ip_prefix *p, char out[static IP_PREFIX_TEXT_MAX])
{
    char addr[IP_TEXT_MAX];
    snprintf(out, IP_PREFIX_TEXT_MAX, "%s/%u", ip_format(&p->ip, addr), p->len);
    return out;
}

int ip_cmp(const struct ip *a, const struct ip *b)
{
    if (a->family != b->family)
        return a->family < b->family ? -1 : 1;
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes));
}

bool ip_equal(const struct ip *a, const struct ip *b)
{
    return ip_cmp(a, b) == 0;
}

size_t ip_len(uint8_t family)
{
    return family == IP_V4 ? 4 : family == IP_V6 ? 16 : 0;
}

uint8_t ip_bits(uint8_t family)
{
    return (uint8_t)(ip_len(family) * 8);
}

struct ip ip_v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
    return (struct ip){ .family = IP_V4, .bytes = { a, b, c, d } };
}

static void mask_bits(struct ip *ip, unsigned len)
{
    for (unsigned i = 0; i < sizeof(ip->bytes); i++) {
        unsigned keep = len > i * 8 ? len - i * 8 : 0;
        if (keep < 8)
            ip->bytes[i] &= (uint8_t)(0xff00u >> keep);
    }
}

struct ip_prefix ip_prefix_masked(const struct ip_prefix *p)
{
    struct ip_prefix m = *p;
    mask_bits(&m.ip, p->len);
    return m;
}

bool ip_prefix_contains(const struct ip_prefix *p, const struct ip *ip)
{
    struct ip a = p->ip, b = *ip;
    mask_bits(&a, p->len);
    mask_bits(&b, p->len);
    return ip_equal(&a, &b);
}

bool ip_prefix_overlaps(const struct ip_prefix *a, const struct ip_prefix *b)
{
    return a->len <= b->len ? ip_prefix_contains(a, &b->ip) : ip_prefix_contains(b, &a->ip);
}

bool ip_add(const struct ip *ip, uint64_t n, struct ip *ret)
{
    struct ip sum = *ip;
    for (size_t i = ip_len(ip->family); i-- > 0 && n;) {
        n += sum.bytes[i];
        sum.bytes[i] = (uint8_t)n;
        n >>= 8;
    }
    if (n)
        return false;
    *ret = sum;
    return true;
}

bool ip_is_global_unicast(const struct ip *ip)
{
    const uint8_t *b = ip->bytes;
    static const uint8_t zero[16];
    if (ip->family == IP_V4)
        return b[0] != 0 && b[0] != 127 && b[0] < 224;
    if (ip->family != IP_V6)
        return false;
    if (!memcmp(b, zero, 15) && b[15] <= 1)
        return false;
    return b[0] != 0xff && !(b[0] == 0xfe && (b[1] & 0xc0) == 0x80);
}

static const char *special4(const uint8_t *b)
{
    if (!b[0])
        return "an unspecified address";
    if (b[0] == 127)
        return "a loopback address";
    if (b[0] >= 224)
        return b[0] < 240 ? "a multicast address" : "a reserved address";
    return b[0] == 169 && b[1] == 254 ? "a link-local address" : NULL;
}

const char *ip_special(const struct ip *ip)
{
    static const uint8_t zero[16], mapped[12] = { [10] = 0xff, [11] = 0xff };
    const uint8_t *b = ip->bytes;
    if (ip->family == IP_V4)
        return special4(b);
    if (!memcmp(b, zero, sizeof(zero)))
        return "an unspecified address";
    if (!memcmp(b, zero, 15) && b[15] == 1)
        return "a loopback address";
    if (b[0] == 0xff)
        return "a multicast address";
    if (b[0] == 0xfe && (b[1] & 0xc0) == 0x80)
        return "a link-local address";
    return memcmp(b, mapped, sizeof(mapped)) ? NULL : "an IPv4-mapped address";
}
