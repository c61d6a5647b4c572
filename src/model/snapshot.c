#include "model/snapshot.h"

#include <string.h>

/* Binary search over sorted object pointers by (ns, name). */
static const struct object *find(const void *array, size_t n, const char *ns, const char *name)
{
    const struct object *const *v = array;
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(v[mid]->meta.ns, ns);
        if (!c)
            c = strcmp(v[mid]->meta.name, name);
        if (!c)
            return v[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

const struct node *snapshot_node(const struct snapshot *s, const char *name)
{
    return (const struct node *)find(s->nodes, s->n_nodes, "", name);
}

const struct namespace *snapshot_namespace(const struct snapshot *s, const char *name)
{
    return (const struct namespace *)find(s->namespaces, s->n_namespaces, "", name);
}

const struct service *snapshot_service(const struct snapshot *s, const char *ns, const char *name)
{
    return (const struct service *)find(s->services, s->n_services, ns, name);
}

const struct portmap *snapshot_portmap(const struct snapshot *s, const char *ns, const char *name)
{
    return (const struct portmap *)find(s->portmaps, s->n_portmaps, ns, name);
}

static int service_cmp(const struct endpoint_slice *slice, const char *ns, const char *service)
{
    int c = strcmp(slice->o.meta.ns, ns);
    return c ? c : strcmp(slice->service, service);
}

const struct endpoint_slice *const *snapshot_slices(const struct snapshot *s, const char *ns,
                                                    const char *service, size_t *ret_n)
{
    size_t lo = 0, hi = s->n_slices;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (service_cmp(s->slices[mid], ns, service) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    size_t n = 0;
    while (lo + n < s->n_slices && !service_cmp(s->slices[lo + n], ns, service))
        n++;
    *ret_n = n;
    return n ? s->slices + lo : NULL;
}
