#include <string.h>

#include "source/shape.h"
#include "source/tokens.h"

static bool is_dns(const char *s, size_t max, bool dots)
{
    size_t n = strlen(s);
    if (!n || n > max)
        return false;
    char before = '.';
    for (size_t i = 0; i <= n; i++) {
        char c = s[i];
        bool alnum = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        bool boundary = !c || (c == '.' && dots);
        if (!alnum && !boundary && c != '-')
            return false;
        /* Labels neither begin nor end with '-', nor are they empty. */
        if ((boundary && (before == '.' || before == '-')) || (c == '-' && before == '.'))
            return false;
        before = boundary ? '.' : c;
    }
    return true;
}

const char *check_subdomain(const char *s)
{
    return is_dns(s, 253, true) ? NULL
                                : "a DNS name: a-z, 0-9, '-' and '.', at most 253 characters";
}

const char *check_label(const char *s)
{
    return is_dns(s, 63, false) ? NULL : "a DNS label: a-z, 0-9 and '-', at most 63 characters";
}

/* As the kernel's dev_valid_name(). */
const char *check_interface(const char *s)
{
    size_t n = strlen(s);
    bool good = n >= 1 && n <= 15 && strcmp(s, ".") && strcmp(s, "..");
    for (size_t i = 0; i < n; i++)
        good = good && (unsigned char)s[i] > ' ' && s[i] != '/' && s[i] != ':' && s[i] != 0x7f;
    return good ? NULL : "an interface name: 1 to 15 bytes without '/', ':' and white space";
}

int check_ports(struct decoder *d, uint32_t at, const void *base)
{
    const struct portmap_class *c = base;
    char problem[96];
    if (c->port_min <= c->port_max)
        return 0;
    snprintf(problem, sizeof(problem), "is %u, above max, which is %u: lower min or raise max",
             c->port_min, c->port_max);
    decoder_push_key(d, "min");
    return decoder_refuse_key(d, token_find(d->tokens, at, "min"), problem);
}
