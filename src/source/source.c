#include "source/source.h"

#include <errno.h>
#include <string.h>

#include "source/dir/open.h"
#include "source/kube/open.h"

#define BIT(kind) (1u << (kind))

/* No Services for portmap: a mapping names one, but all the planner asks of it (endpoints, port
 * numbers by name) stands in its EndpointSlices. */
static const struct {
    const char *feature;
    unsigned kinds;
} needs[] = {
    { "portmap", BIT(KIND_NODE) | BIT(KIND_NAMESPACE) | BIT(KIND_ENDPOINTSLICE) |
                     BIT(KIND_PORTMAP) | BIT(KIND_PORTMAPCLASS) },
    { "serviceproxy",
      BIT(KIND_NODE) | BIT(KIND_SERVICE) | BIT(KIND_ENDPOINTSLICE) | BIT(KIND_SERVICECIDR) },
    { "loadbalancer", BIT(KIND_NODE) | BIT(KIND_SERVICE) | BIT(KIND_ENDPOINTSLICE) },
    { "trafficclass", BIT(KIND_NODE) | BIT(KIND_SERVICECIDR) | BIT(KIND_TRAFFICCLASS) },
};

unsigned source_kinds(const char *features)
{
    unsigned kinds = 0;
    while (*features) {
        size_t n = strcspn(features, ",");
        for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++)
            if (strlen(needs[i].feature) == n && !strncmp(needs[i].feature, features, n))
                kinds |= needs[i].kinds;
        features += n + (features[n] == ',');
    }
    return kinds;
}

int source_open(const struct source_options *opt, const struct source_sink *sink,
                struct source **ret, struct err *err)
{
    bool kube = !strcmp(opt->spec, "kube:");
    if (!kube && ((opt->kubeconfig && *opt->kubeconfig) || (opt->context && *opt->context)))
        return err_set(err, EINVAL, "source \"%s\": --kubeconfig and --context go with kube: only",
                       opt->spec);
    if (kube)
        return kube_open(opt, sink, ret, err);
    if (strncmp(opt->spec, "dir:", 4) || !opt->spec[4])
        return err_set(err, EINVAL,
                       "source \"%s\": give dir:DIR, a folder of manifests, or kube:, the API "
                       "server",
                       opt->spec);
    *ret = dir_open(opt->spec + 4, sink);
    return 0;
}
