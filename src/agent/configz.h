/* What kube-proxy's /configz shows: the configuration in force, as KubeProxyConfiguration of
 * kubeproxy.config.k8s.io/v1alpha1. Fields without a meaning here are left out. */
#pragma once

#include "agent/proxy.h"

void configz_put(const struct proxy_options *o, struct buf *out);
