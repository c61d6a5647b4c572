/* A Kubernetes API server as a source. Next: kube.h. */
#pragma once

#include "source/source.h"

/* In a pod: the pod's own service account. With opt->kubeconfig: what that file says. */
int kube_open(const struct source_options *opt, const struct source_sink *sink, struct source **ret,
              struct err *err);
