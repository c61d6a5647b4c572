/* Decoding netlink attributes through a table.
 *
 *     static const struct nl_policy policy[] = {
 *         [IFA_ADDRESS] = NL_IP, [IFA_FLAGS] = NL_U32,
 *     };
 *     const struct nlattr *tb[NL_POLICY_COUNT(policy)];
 *     if (nl_parse(m, sizeof(struct ifaddrmsg), policy, NL_POLICY_COUNT(policy), tb)) ...
 *
 * What passes is safe to read with libmnl's getters. Types outside the table are ignored:
 * a newer kernel may say more. */
#pragma once

#include <libmnl/libmnl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ip.h"

struct nl_policy {
    uint16_t min, max; /* bytes of the payload; max 0: not wanted */
    bool string;       /* must end in NUL */
};

#define NL_U8       \
    {               \
        1, 1, false \
    }
#define NL_U16      \
    {               \
        2, 2, false \
    }
#define NL_U32      \
    {               \
        4, 4, false \
    }
#define NL_U64      \
    {               \
        8, 8, false \
    }
#define NL_IP        \
    {                \
        4, 16, false \
    }
#define NL_STRING           \
    {                       \
        1, UINT16_MAX, true \
    }
#define NL_NEST              \
    {                        \
        0, UINT16_MAX, false \
    }
#define NL_BYTES(n)     \
    {                   \
        (n), (n), false \
    }

#define NL_POLICY_COUNT(policy) (sizeof(policy) / sizeof((policy)[0]))

/* Attributes after a family header of `header` bytes; tb[type] is NULL when absent, the last
 * one of a type wins. 0, or -EBADMSG when the message is too short, an attribute runs over
 * the end or has a size the policy refuses. */
int nl_parse(const struct nlmsghdr *m, size_t header, const struct nl_policy *policy, size_t n,
             const struct nlattr **tb);
int nl_parse_nested(const struct nlattr *nest, const struct nl_policy *policy, size_t n,
                    const struct nlattr **tb);

/* An address of 4 or 16 bytes; false for any other size or NULL. */
bool nl_get_ip(const struct nlattr *a, struct ip *ret);
/* What a link's IFLA_LINKINFO says it is; "" for NULL and for hardware. */
const char *nl_get_link_kind(const struct nlattr *info);
void nl_put_ip(struct nlmsghdr *m, uint16_t type, const struct ip *ip);
