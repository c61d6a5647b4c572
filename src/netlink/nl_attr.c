#include "netlink/nl_attr.h"

#include <errno.h>
#include <linux/if_link.h>
#include <string.h>

static int parse(const void *p, size_t len, const struct nl_policy *policy, size_t n,
                 const struct nlattr **tb);

int nl_parse(const struct nlmsghdr *m, size_t header, const struct nl_policy *policy, size_t n,
             const struct nlattr **tb)
{
    if (m->nlmsg_len < NLMSG_HDRLEN + header)
        return -EBADMSG;
    size_t len = m->nlmsg_len - NLMSG_HDRLEN, skip = NLMSG_ALIGN(header);
    return parse((const char *)m + NLMSG_HDRLEN + skip, len > skip ? len - skip : 0, policy, n, tb);
}

int nl_parse_nested(const struct nlattr *nest, const struct nl_policy *policy, size_t n,
                    const struct nlattr **tb)
{
    return parse(mnl_attr_get_payload(nest), mnl_attr_get_payload_len(nest), policy, n, tb);
}

bool nl_get_ip(const struct nlattr *a, struct ip *ret)
{
    size_t len = a ? mnl_attr_get_payload_len(a) : 0;
    if (len != 4 && len != 16)
        return false;
    *ret = (struct ip){ .family = len == 4 ? IP_V4 : IP_V6 };
    memcpy(ret->bytes, mnl_attr_get_payload(a), len);
    return true;
}

void nl_put_ip(struct nlmsghdr *m, uint16_t type, const struct ip *ip)
{
    mnl_attr_put(m, type, ip_len(ip->family), ip->bytes);
}

const char *nl_get_link_kind(const struct nlattr *info)
{
    static const struct nl_policy policy[] = { [IFLA_INFO_KIND] = NL_STRING };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    if (!info || nl_parse_nested(info, policy, NL_POLICY_COUNT(policy), tb) || !tb[IFLA_INFO_KIND])
        return "";
    return mnl_attr_get_str(tb[IFLA_INFO_KIND]);
}

static int parse(const void *p, size_t len, const struct nl_policy *policy, size_t n,
                 const struct nlattr **tb)
{
    memset(tb, 0, n * sizeof(tb[0]));
    const char *at = p;
    while (len >= sizeof(struct nlattr)) {
        const struct nlattr *a = (const void *)at;
        if (a->nla_len < sizeof(*a) || a->nla_len > len)
            return -EBADMSG;
        uint16_t type = mnl_attr_get_type(a), size = mnl_attr_get_payload_len(a);
        if (type < n && policy[type].max) {
            const char *payload = mnl_attr_get_payload(a);
            if (size < policy[type].min || size > policy[type].max ||
                (policy[type].string && payload[size - 1] != '\0'))
                return -EBADMSG;
            tb[type] = a;
        }
        size_t step = MNL_ALIGN(a->nla_len);
        if (step >= len)
            break;
        at += step;
        len -= step;
    }
    return 0;
}
