/* IP addresses and prefixes of both families, as values.
 *
 * `bytes` are in network order (an address is a byte string, not a number); ports
 * elsewhere in the model are plain uint16_t in host order. Unused bytes are zero, so
 * memcmp of two struct ip is a total order: family first, then address. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ip_family { IP_NONE = 0, IP_V4 = 4, IP_V6 = 6 };

struct ip {
    uint8_t family; /* enum ip_family; IP_NONE for "no address" */
    uint8_t bytes[16];
};

struct ip_prefix {
    struct ip ip; /* as written: host bits may be set */
    uint8_t len;
};

#define IP_TEXT_MAX        46
#define IP_PREFIX_TEXT_MAX 50

/* Strict: dotted quad without leading zeros, RFC 4291 text without zone, or false. */
bool ip_parse(const char *s, struct ip *ret);
/* "address/len" with len within the family, or false. */
bool ip_prefix_parse(const char *s, struct ip_prefix *ret);
/* Writes the canonical text (RFC 5952 for IPv6), "" for IP_NONE, and returns `out`. */
const char *ip_format(const struct ip *ip, char out[static IP_TEXT_MAX]);
const char *ip_prefix_format(const struct ip_prefix *p, char out[static IP_PREFIX_TEXT_MAX]);

int ip_cmp(const struct ip *a, const struct ip *b);
bool ip_equal(const struct ip *a, const struct ip *b);
/* Bytes of an address of the family: 4, 16, or 0. */
size_t ip_len(uint8_t family);
uint8_t ip_bits(uint8_t family);
struct ip ip_v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d);
/* The prefix with its host bits cleared. */
struct ip_prefix ip_prefix_masked(const struct ip_prefix *p);
bool ip_prefix_contains(const struct ip_prefix *p, const struct ip *ip);
bool ip_prefix_overlaps(const struct ip_prefix *a, const struct ip_prefix *b);
/* ip + n, false when it leaves the address space. */
bool ip_add(const struct ip *ip, uint64_t n, struct ip *ret);
/* Not unspecified, loopback, multicast, IPv4 broadcast or IPv6 link-local. */
bool ip_is_global_unicast(const struct ip *ip);
/* NULL, or what the address is instead of one machine's own: "a loopback address". */
const char *ip_special(const struct ip *ip);
