#include "kernel/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/names.h"

bool link_name_parse(const char *name, uint32_t *ret_vni, uint16_t *ret_port)
{
    size_t prefix = strlen(LINK_PREFIX);
    if (!strcmp(name, OVERLAY_LINK)) {
        *ret_vni = OVERLAY_VNI;
        *ret_port = OVERLAY_PORT;
        return true;
    }
    if (strncmp(name, LINK_PREFIX, prefix) || name[prefix] < '0' || name[prefix] > '9')
        return false;
    char *end;
    unsigned long vni = strtoul(name + prefix, &end, 10), port = LINK_DEFAULT_PORT;
    if (*end == 'p' && end[1] && strspn(end + 1, "0123456789abcdef") == strlen(end + 1))
        port = strtoul(end + 1, &end, 16);
    if (*end || vni > 0xffffff || port > 0xffff)
        return false;
    *ret_vni = (uint32_t)vni;
    *ret_port = (uint16_t)port;
    return true;
}

bool link_is_ours(const char *name, const char *kind, const char *alias)
{
    uint32_t vni;
    uint16_t port;
    return !strcmp(kind, "vxlan") && link_name_parse(name, &vni, &port) &&
           !strncmp(alias, LINK_ALIAS_PREFIX, strlen(LINK_ALIAS_PREFIX));
}

int flow_end_cmp(const void *x, const void *y)
{
    const struct flow_end *a = x, *b = y;
    int c = ip_cmp(&a->ip, &b->ip);
    return c ? c : a->port - b->port;
}

void report_refuse(struct report *r, const char *owner, int error, const char *text,
                   const char *object_fmt, ...)
{
    va_list ap;
    va_start(ap, object_fmt);
    char object[512];
    vsnprintf(object, sizeof(object), object_fmt, ap);
    va_end(ap);
    vec_push(&r->refusals, (struct refusal){
                               .owner = arena_strdup(&r->mem, owner),
                               .object = arena_strdup(&r->mem, object),
                               .error = error,
                               .text = arena_strdup(&r->mem, text),
                           });
}

void report_reset(struct report *r)
{
    arena_reset(&r->mem);
    r->refusals.n = 0;
    r->adds = r->changes = r->deletes = r->bytes = 0;
}

void report_done(struct report *r)
{
    arena_done(&r->mem);
    vec_done(&r->refusals);
}
