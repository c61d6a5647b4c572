/* Any bytes are a kubeconfig or are refused with a sentence. */
#include <stdint.h>
#include <stdlib.h>

#include "source/kube/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct kube_config c;
    struct err err = { "" };
    if (!kube_config_parse((const char *)data, n, "kubeconfig", NULL, &c, &err)) {
        if (!*c.server || (c.ca.p && !c.ca.n))
            abort();
        kube_config_done(&c);
    } else if (!*err.text) {
        abort();
    }
    return 0;
}
