/* What was probably meant by a name that is unknown. */
#include <ctype.h>
#include <strings.h>

#include "source/shape.h"

#define NAME_MAX_NEAR 64

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Letters to insert, delete or change (Levenshtein), case apart. */
static size_t distance(const char *a, const char *b, size_t n)
{
    size_t row[NAME_MAX_NEAR + 1];
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; *a; i++, a++) {
        size_t before = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            bool same = tolower((unsigned char)*a) == tolower((unsigned char)b[j - 1]);
            size_t changed = before + !same;
            before = row[j];
            row[j] = least(changed, least(row[j], row[j - 1]) + 1);
        }
    }
    return row[n];
}

bool near_name(const char *given, const char *name, size_t *best)
{
    size_t m = strlen(given), n = strlen(name);
    if (m > NAME_MAX_NEAR || n > NAME_MAX_NEAR)
        return false;
    size_t far = distance(given, name, n);
    if (far * 3 > (m > n ? m : n) || far >= *best)
        return false;
    *best = far;
    return true;
}

static bool same_group(const char *a, const char *b)
{
    const char *end_a = strchr(a, '/'), *end_b = strchr(b, '/');
    size_t n = end_a ? (size_t)(end_a - a) : 0, m = end_b ? (size_t)(end_b - b) : 0;
    return n == m && !strncasecmp(a, b, n);
}

enum object_kind doc_meant(const struct doc *doc)
{
    enum object_kind meant = doc->kind;
    size_t best = SIZE_MAX;
    for (enum object_kind k = 0; k < KIND_COUNT && doc->kind == KIND_COUNT; k++) {
        const struct kind_info *info = &kind_info[k];
        bool own = k == KIND_PORTMAP || k == KIND_PORTMAPCLASS || k == KIND_TRAFFICCLASS;
        bool group = same_group(doc->api_version, info->api_version);
        /* Names near those of Kubernetes' kinds are other kinds of Kubernetes. */
        if (own && group ? near_name(doc->kind_name, info->kind, &best)
                         : (own || group) && !strcasecmp(doc->kind_name, info->kind))
            meant = k;
    }
    return meant;
}
