/* What is sent for a status write.
 *
 * Where the write was decided on one version of the object, a merge patch that names that
 * version: the server answers 409 when the object has changed since. What a node says of itself has
 * one writer and no such condition. In a Node that is a merge patch of two annotations; in a class,
 * a row by server-side apply, by which a list with keys is merged row by row, so that a
 * hundred agents land their rows without reading each other's. */
#include <stdlib.h>
#include <string.h>

#include "source/kube/kube.h"

/* API servers take managers' names up to 128 bytes. */
#define MANAGER_MAX 128

static void put_head(struct writer *w, const struct status_write *write)
{
    writer_map(w);
    writer_key(w, "metadata");
    writer_map(w);
    writer_key(w, "resourceVersion");
    writer_string(w, write->resource_version);
    writer_map_end(w);
    writer_key(w, "status");
    writer_map(w);
}

static void put_field(struct writer *w, const struct object *o, const char *name)
{
    writer_key(w, name);
    encode_status_field(w, o, name);
}

static void put_portmap(struct writer *w, const struct status_write *write)
{
    const struct portmap m = { .o.meta.kind = KIND_PORTMAP, .status = write->portmap };
    put_head(w, write);
    if (m.status.has_endpoint) {
        put_field(w, &m.o, "endpoint");
    } else {
        writer_key(w, "endpoint"); /* null takes it away */
        writer_null(w);
    }
    put_field(w, &m.o, "published");
    put_field(w, &m.o, "observedGeneration");
    put_field(w, &m.o, "conditions");
}

static void put_links(struct writer *w, const struct status_write *write)
{
    const struct portmap_class c = { .o.meta.kind = KIND_PORTMAPCLASS,
                                     .status = { .links = write->links,
                                                 .n_links = write->n_links } };
    put_head(w, write);
    put_field(w, &c.o, "links");
}

static bool dropped(const struct string_list *l, const char *name)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (!strcmp(l->v[i], name))
            return true;
    return false;
}

/* A merge patch replaces lists whole; the version it names makes sure that `now` has all rows. */
static void put_condition(struct writer *w, const struct status_write *write,
                          const struct portmap_class *now)
{
    const struct portmap_class c = { .o.meta.kind = KIND_PORTMAPCLASS,
                                     .status = { .conditions = write->conditions,
                                                 .observed_generation =
                                                     write->observed_generation } };
    put_head(w, write);
    put_field(w, &c.o, "conditions");
    put_field(w, &c.o, "observedGeneration");
    if (!write->drop_rows.n)
        return;
    writer_key(w, "nodes");
    writer_list(w);
    for (uint32_t i = 0; i < now->status.n_nodes; i++)
        if (!dropped(&write->drop_rows, now->status.nodes[i].name))
            encode_node_row(w, &now->status.nodes[i]);
    writer_list_end(w);
}

/* Up to the one row of status.nodes. */
static void put_row_head(struct writer *w, const struct status_write *write)
{
    const struct kind_info *info = &kind_info[status_write_target(write->kind)];
    writer_map(w);
    writer_key(w, "apiVersion");
    writer_string(w, info->api_version);
    writer_key(w, "kind");
    writer_string(w, info->kind);
    writer_key(w, "metadata");
    writer_map(w);
    writer_key(w, "name");
    writer_string(w, write->name);
    writer_map_end(w);
    writer_key(w, "status");
    writer_map(w);
    writer_key(w, "nodes");
    writer_list(w);
}

static void put_row(struct writer *w, const struct status_write *write)
{
    put_row_head(w, write);
    encode_node_row(w, &write->row);
    writer_list_end(w);
}

static void put_traffic_row(struct writer *w, const struct status_write *write)
{
    put_row_head(w, write);
    encode_traffic_row(w, &write->traffic_row);
    writer_list_end(w);
}

/* The rows are those of the version it names, less those that go. */
static void put_traffic(struct writer *w, const struct status_write *write)
{
    static const char *const fields[] = { "nodes", "nodesDesired",       "nodesReady",
                                          "ready", "observedGeneration", "conditions" };
    const struct traffic_class c = { .o.meta.kind = KIND_TRAFFICCLASS, .status = write->traffic };
    put_head(w, write);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        put_field(w, &c.o, fields[i]);
}

static void put_text_or_null(struct writer *w, const char *key, const char *text)
{
    writer_key(w, key);
    if (*text)
        writer_string(w, text);
    else
        writer_null(w);
}

/* Up to the end of metadata's annotations; a Node has those of others, too. */
static void put_annotations(struct writer *w, const struct status_write *write)
{
    writer_map(w);
    writer_key(w, "metadata");
    writer_map(w);
    writer_key(w, "annotations");
    writer_map(w);
    put_text_or_null(w, ANNOTATION_ADDRESSES, write->addresses);
    put_text_or_null(w, ANNOTATION_OVERLAY, write->overlay);
    writer_map_end(w);
}

static void put_ingress(struct writer *w, const struct status_write *write)
{
    put_head(w, write);
    writer_key(w, "loadBalancer");
    writer_map(w);
    writer_key(w, "ingress");
    if (*write->ingress) {
        writer_list(w);
        writer_map(w);
        writer_key(w, "ip");
        writer_string(w, write->ingress);
        writer_key(w, "ipMode");
        writer_string(w, "Proxy");
        writer_map_end(w);
        writer_list_end(w);
    } else {
        writer_null(w);
    }
    writer_map_end(w);
}

/* One manager for each node: what a manager applies replaces what it applied before. */
static void put_manager(struct buf *out, const char *node)
{
    if (strlen(node) <= MANAGER_MAX - strlen("portolan-"))
        buf_printf(out, "portolan-%s", node);
    else
        buf_printf(out, "portolan-%.80s-%016llx", node,
                   (unsigned long long)hash_bytes(node, strlen(node)));
}

void patch_build(const struct status_write *write, const struct portmap_class *now,
                 struct patch *ret)
{
    *ret = (struct patch){ .content_type = "application/merge-patch+json" };
    kube_path(&ret->path, status_write_target(write->kind), write->ns, write->name);
    if (write->kind == WRITE_CLASS_ROW || write->kind == WRITE_TRAFFIC_ROW) {
        ret->content_type = "application/apply-patch+yaml";
        buf_puts(&ret->path, "/status?force=true&fieldManager=");
        put_manager(&ret->path,
                    write->kind == WRITE_CLASS_ROW ? write->row.name : write->traffic_row.name);
    } else {
        buf_printf(&ret->path, "%s?fieldManager=portolan",
                   write->kind == WRITE_NODE_ANNOTATIONS ? "" : "/status");
    }
    struct writer *w = writer_json_new(&ret->body, false);
    switch (write->kind) {
    case WRITE_PORTMAP_STATUS:
        put_portmap(w, write);
        break;
    case WRITE_CLASS_ROW:
        put_row(w, write);
        break;
    case WRITE_CLASS_LINKS:
        put_links(w, write);
        break;
    case WRITE_CLASS_CONDITION:
        put_condition(w, write, now);
        break;
    case WRITE_TRAFFIC_ROW:
        put_traffic_row(w, write);
        break;
    case WRITE_TRAFFIC_STATUS:
        put_traffic(w, write);
        break;
    case WRITE_NODE_ANNOTATIONS:
        put_annotations(w, write);
        break;
    case WRITE_SERVICE_STATUS:
        put_ingress(w, write);
        break;
    }
    writer_map_end(w);
    writer_map_end(w);
    writer_free(w);
}

void patch_done(struct patch *p)
{
    buf_done(&p->path);
    buf_done(&p->body);
}
