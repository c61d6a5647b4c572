/* A class in a manifest folder, and what agents write of it. */
#pragma once

#include "dir_help.h"

#define CLASS                                                                            \
    "apiVersion: kuport.wlz.li/v1alpha1\nkind: PortMapClass\nmetadata: {name: public}\n" \
    "spec: {nodes: {edge-a: {interfaces: [eth0]}}, returnPath: {mode: Vxlan}}\n"
#define CLASS_RECORD ".status/portmapclasses/public.json"

static inline const struct portmap_class *class(const struct agent *a)
{
    return agent_get(a, KIND_PORTMAPCLASS, "", "public");
}

static inline struct status_write row_write(const char *node, uint32_t mtu)
{
    return (struct status_write){ .kind = WRITE_CLASS_ROW,
                                  .ns = "",
                                  .name = "public",
                                  .resource_version = "",
                                  .row = { .name = node, .message = "", .underlay_mtu = mtu } };
}

/* `links` is used in place. */
static inline struct status_write links_write(const char *version, struct link_claim *links,
                                              uint32_t n)
{
    return (struct status_write){ .kind = WRITE_CLASS_LINKS,
                                  .ns = "",
                                  .name = "public",
                                  .resource_version = version,
                                  .links = links,
                                  .n_links = n };
}
