/* Addresses and prefixes of literals, which must parse. */
#pragma once

#include "test.h"

#include "base/ip.h"

static inline struct ip ip_of(const char *text)
{
    struct ip ip = { 0 };
    assert_true(ip_parse(text, &ip));
    return ip;
}

static inline struct ip_prefix prefix_of(const char *text)
{
    struct ip_prefix prefix = { 0 };
    assert_true(ip_prefix_parse(text, &prefix));
    return prefix;
}
