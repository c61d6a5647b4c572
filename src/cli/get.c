#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cli/source.h"
#include "cli/table.h"
#include "cli/world.h"
#include "source/codec.h"

struct query {
    const struct cli_command *cmd;
    enum object_kind kind;
    const char *ns;   /* "" for every namespace */
    const char *name; /* "" for every object */
    bool wide;
};

/* Of Services, those whose address a node holds. */
static bool wanted(const struct query *q, const struct object *o)
{
    if (q->kind == KIND_SERVICE && !service_is_held((const struct service *)o))
        return false;
    return (!*q->ns || !strcmp(q->ns, o->meta.ns)) && (!*q->name || !strcmp(q->name, o->meta.name));
}

/* "True", or "False (Reason)", or "" before anybody wrote it. */
static const char *condition_text(struct arena *a, const struct condition_list *l, const char *type)
{
    const struct condition *c = condition_find(l, type);
    if (!c)
        return "";
    if (c->status == TRI_TRUE)
        return "True";
    return arena_printf(a, "%s (%s)", c->status == TRI_FALSE ? "False" : "Unknown", c->reason);
}

/* As kubectl: the largest unit that says at least two of it. */
static const char *age_text(struct arena *a, int64_t creation)
{
    if (!creation)
        return "<unknown>";
    int64_t s = clock_wall() - creation;
    if (s < 0)
        s = 0;
    if (s < 120)
        return arena_printf(a, "%llds", (long long)s);
    if (s < 7200)
        return arena_printf(a, "%lldm", (long long)s / 60);
    if (s < 48 * 3600)
        return arena_printf(a, "%lldh", (long long)s / 3600);
    return arena_printf(a, "%lldd", (long long)s / 86400);
}

static const char *published_text(struct arena *a, const struct portmap_status *s)
{
    struct buf b = { 0 };
    for (uint32_t i = 0; i < s->n_published; i++) {
        const struct published *p = &s->published[i];
        buf_printf(&b, "%s%s/%s=%s", i ? "," : "", p->node, p->interface,
                   *p->address ? p->address : "<pending>");
    }
    const char *text = arena_strdup(a, b.n ? b.p : "<none>");
    buf_done(&b);
    return text;
}

/* Why it does not answer: the first condition that does not hold says it. */
static const char *message_text(const struct condition_list *l, const char *const *types, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct condition *c = condition_find(l, types[i]);
        if (c && c->status != TRI_TRUE)
            return c->message;
    }
    return "";
}

static void portmap_row(struct text_table *t, const struct query *q, const struct portmap *pm)
{
    struct arena *a = &t->mem;
    const char *ports = pm->has_end_port ? arena_printf(a, "%u-%u", pm->port, pm->end_port)
                                         : arena_printf(a, "%u", pm->port);
    const char *cells[TABLE_COLUMNS_MAX];
    size_t n = 0;
    if (!*q->ns)
        cells[n++] = pm->o.meta.ns;
    cells[n++] = pm->o.meta.name;
    cells[n++] = pm->class_name;
    cells[n++] = l4proto_name(pm->protocol);
    cells[n++] = ports;
    cells[n++] = condition_text(a, &pm->status.conditions, "Accepted");
    cells[n++] = condition_text(a, &pm->status.conditions, "Programmed");
    cells[n++] = age_text(a, pm->o.meta.creation);
    if (q->wide) {
        cells[n++] = published_text(a, &pm->status);
        cells[n++] = pm->status.has_endpoint ? pm->status.endpoint_address : "<none>";
        cells[n++] = pm->status.has_endpoint ? pm->status.endpoint_node : "<none>";
        cells[n++] = message_text(&pm->status.conditions,
                                  (const char *const[]){ "Accepted", "Programmed" }, 2);
    }
    table_row(t, cells, n);
}

static void portmap_header(struct text_table *t, const struct query *q)
{
    static const char *const names[] = { "NAMESPACE", "NAME",     "CLASS",      "PROTOCOL",
                                         "PORT",      "ACCEPTED", "PROGRAMMED", "AGE",
                                         "PUBLISHED", "ENDPOINT", "NODE",       "MESSAGE" };
    size_t skip = *q->ns ? 1 : 0;
    table_row(t, names + skip, sizeof(names) / sizeof(names[0]) - skip - (q->wide ? 0 : 4));
}

static const char *class_message(struct arena *a, const struct portmap_class *c)
{
    const char *said = message_text(&c->status.conditions, (const char *const[]){ "Ready" }, 1);
    for (uint32_t i = 0; !*said && i < c->status.n_nodes; i++)
        if (!c->status.nodes[i].ready)
            said = arena_printf(a, "%s: %s", c->status.nodes[i].name, c->status.nodes[i].message);
    return said;
}

static void class_row(struct text_table *t, const struct query *q, const struct portmap_class *c)
{
    struct arena *a = &t->mem;
    uint32_t ready = 0;
    for (uint32_t i = 0; i < c->status.n_nodes; i++)
        ready += c->status.nodes[i].ready;
    const char *cells[TABLE_COLUMNS_MAX];
    size_t n = 0;
    cells[n++] = c->o.meta.name;
    cells[n++] = c->serving_mode == SERVING_MULTI ? "Multi" : "Single";
    cells[n++] = arena_printf(a, "%u-%u", c->port_min, c->port_max);
    cells[n++] = c->return_mode == RETURN_NONE ? "None" : "Vxlan";
    cells[n++] = arena_printf(a, "%u/%u", ready, c->n_nodes);
    cells[n++] = condition_text(a, &c->status.conditions, "Ready");
    cells[n++] = age_text(a, c->o.meta.creation);
    if (q->wide) {
        cells[n++] = arena_printf(a, "%u", c->vni);
        cells[n++] = c->subnet;
        cells[n++] = arena_printf(a, "%u", c->status.n_links);
        cells[n++] = class_message(a, c);
    }
    table_row(t, cells, n);
}

static void class_header(struct text_table *t, const struct query *q)
{
    static const char *const names[] = { "NAME", "MODE", "PORTS",  "RETURN", "NODES",  "READY",
                                         "AGE",  "VNI",  "SUBNET", "LINKS",  "MESSAGE" };
    table_row(t, names, sizeof(names) / sizeof(names[0]) - (q->wide ? 0 : 4));
}

static void traffic_row(struct text_table *t, const struct query *q, const struct traffic_class *c)
{
    static const char *const types[] = { "Accepted", "GatewayValid", "MeshReady", "Programmed" };
    struct arena *a = &t->mem;
    const struct traffic_routes *r = c->routes;
    const struct condition *conflict = condition_find(&c->status.conditions, "Conflict");
    const char *cells[TABLE_COLUMNS_MAX];
    size_t n = 0;
    cells[n++] = c->o.meta.name;
    cells[n++] = arena_printf(a, "%u", c->table);
    cells[n++] = r && r->gateway ? r->gateway->link : "<none>";
    cells[n++] = r && r->mesh ? r->mesh->link : "<none>";
    cells[n++] = c->status.ready;
    cells[n++] = condition_text(a, &c->status.conditions, "Accepted");
    cells[n++] = age_text(a, c->o.meta.creation);
    if (q->wide) {
        const char *message =
            message_text(&c->status.conditions, types, sizeof(types) / sizeof(types[0]));
        bool clash = conflict && conflict->status == TRI_TRUE;
        cells[n++] = clash && !*message ? conflict->message : message;
    }
    table_row(t, cells, n);
}

static void traffic_header(struct text_table *t, const struct query *q)
{
    static const char *const names[] = { "NAME",  "TABLE",    "LINK", "MESH",
                                         "READY", "ACCEPTED", "AGE",  "MESSAGE" };
    table_row(t, names, sizeof(names) / sizeof(names[0]) - (q->wide ? 0 : 1));
}

/* A node whose annotation is wrong in one place holds nothing. */
static bool holds(const struct node *n, const struct ip *ip)
{
    const char *text = label_value(&n->o.meta.annotations, ANNOTATION_ADDRESSES);
    bool found = false;
    while (*text) {
        size_t len = strcspn(text, ","), blank = strspn(text, " ");
        char one[IP_TEXT_MAX];
        struct ip held;
        snprintf(one, sizeof(one), "%.*s", (int)(len > blank ? len - blank : 0), text + blank);
        one[strcspn(one, " ")] = 0;
        if (!ip_parse(one, &held))
            return false;
        found = found || ip_equal(&held, ip);
        text += len + (text[len] == ',');
    }
    return found;
}

/* The nodes that have the address: it is served if there is one. */
static const char *holders_text(struct arena *a, const struct snapshot *s, const char *address)
{
    struct ip ip;
    const char *text = "";
    for (size_t i = 0; ip_parse(address, &ip) && i < s->n_nodes; i++)
        if (holds(s->nodes[i], &ip))
            text = arena_printf(a, "%s%s%s", text, *text ? "," : "", s->nodes[i]->o.meta.name);
    return *text ? text : "<none>";
}

static const char *ports_text(struct arena *a, const struct service *s)
{
    const char *text = "";
    for (uint32_t i = 0; i < s->n_ports; i++)
        text = arena_printf(a, "%s%s%u/%s", text, i ? "," : "", s->ports[i].port,
                            l4proto_name(s->ports[i].protocol));
    return text;
}

static void service_row(struct text_table *t, const struct query *q, const struct snapshot *snap,
                        const struct service *s)
{
    struct arena *a = &t->mem;
    const char *cells[TABLE_COLUMNS_MAX];
    size_t n = 0;
    if (!*q->ns)
        cells[n++] = s->o.meta.ns;
    cells[n++] = s->o.meta.name;
    cells[n++] = *s->load_balancer_ip ? s->load_balancer_ip : "<none>";
    cells[n++] = holders_text(a, snap, s->load_balancer_ip);
    cells[n++] = s->n_ingress && *s->ingress[0].ip ? s->ingress[0].ip : "<none>";
    cells[n++] = ports_text(a, s);
    cells[n++] = age_text(a, s->o.meta.creation);
    table_row(t, cells, n);
}

static void service_header(struct text_table *t, const struct query *q)
{
    static const char *const names[] = { "NAMESPACE", "NAME",  "ADDRESS", "HOLDER",
                                         "STATUS",    "PORTS", "AGE" };
    size_t skip = *q->ns ? 1 : 0;
    table_row(t, names + skip, sizeof(names) / sizeof(names[0]) - skip);
}

/* The objects of a kind that can be asked for. */
static const struct object *const *all_of(const struct snapshot *s, enum object_kind kind,
                                          size_t *ret_n)
{
    const void *v = kind == KIND_PORTMAP        ? (const void *)s->portmaps
                    : kind == KIND_PORTMAPCLASS ? (const void *)s->classes
                    : kind == KIND_SERVICE      ? (const void *)s->services
                                                : (const void *)s->traffic_classes;
    *ret_n = kind == KIND_PORTMAP        ? s->n_portmaps
             : kind == KIND_PORTMAPCLASS ? s->n_classes
             : kind == KIND_SERVICE      ? s->n_services
                                         : s->n_traffic_classes;
    return v;
}

/* Calls `visit` (may be NULL) for every object asked for; how many there are. */
static size_t each(const struct snapshot *s, const struct query *q,
                   void (*visit)(const struct object *o, void *user), void *user)
{
    size_t n = 0, all;
    const struct object *const *v = all_of(s, q->kind, &all);
    for (size_t i = 0; i < all; i++) {
        if (!wanted(q, v[i]))
            continue;
        n++;
        if (visit)
            visit(v[i], user);
    }
    return n;
}

/* ---- output ---- */

struct rows {
    struct text_table table;
    const struct query *q;
    const struct snapshot *snap;
};

static void add_row(const struct object *o, void *user)
{
    struct rows *r = user;
    if (r->q->kind == KIND_PORTMAP)
        portmap_row(&r->table, r->q, (const struct portmap *)o);
    else if (r->q->kind == KIND_TRAFFICCLASS)
        traffic_row(&r->table, r->q, (const struct traffic_class *)o);
    else if (r->q->kind == KIND_SERVICE)
        service_row(&r->table, r->q, r->snap, (const struct service *)o);
    else
        class_row(&r->table, r->q, (const struct portmap_class *)o);
}

static void print_rows(const struct snapshot *s, const struct query *q)
{
    struct rows r = { .q = q, .snap = s };
    if (q->kind == KIND_PORTMAP)
        portmap_header(&r.table, q);
    else if (q->kind == KIND_TRAFFICCLASS)
        traffic_header(&r.table, q);
    else if (q->kind == KIND_SERVICE)
        service_header(&r.table, q);
    else
        class_header(&r.table, q);
    each(s, q, add_row, &r);
    table_print(&r.table);
    table_done(&r.table);
}

static void add_document(const struct object *o, void *user)
{
    encode_object(user, o);
}

/* One object by itself when it was asked for by name, else a List, as kubectl does. */
static void print_documents(const struct snapshot *s, const struct query *q, bool json)
{
    struct buf out = { 0 };
    struct writer *w = json ? writer_json_new(&out, true) : writer_yaml_new(&out);
    if (*q->name) {
        each(s, q, add_document, w);
    } else {
        writer_map(w);
        writer_key(w, "apiVersion");
        writer_string(w, "v1");
        writer_key(w, "kind");
        writer_string(w, "List");
        writer_key(w, "items");
        writer_list(w);
        each(s, q, add_document, w);
        writer_list_end(w);
        writer_map_end(w);
    }
    writer_free(w);
    fputs(buf_str(&out), stdout);
    if (out.n && out.p[out.n - 1] != '\n')
        putchar('\n');
    buf_done(&out);
}

/* ---- the command ---- */

static bool kind_of(const char *word, enum object_kind *ret)
{
    static const struct {
        const char *word;
        enum object_kind kind;
    } words[] = { { "portmaps", KIND_PORTMAP },
                  { "portmap", KIND_PORTMAP },
                  { "pm", KIND_PORTMAP },
                  { "portmapclasses", KIND_PORTMAPCLASS },
                  { "portmapclass", KIND_PORTMAPCLASS },
                  { "pmc", KIND_PORTMAPCLASS },
                  { "trafficclasses", KIND_TRAFFICCLASS },
                  { "trafficclass", KIND_TRAFFICCLASS },
                  { "tclass", KIND_TRAFFICCLASS },
                  { "services", KIND_SERVICE },
                  { "service", KIND_SERVICE },
                  { "svc", KIND_SERVICE } };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!strcasecmp(words[i].word, word)) {
            *ret = words[i].kind;
            return true;
        }
    return false;
}

static int parse(const struct cli_command *cmd, char **args, size_t n_args, struct query *q)
{
    const char *format = cli_value(cmd, "output");
    *q = (struct query){ .cmd = cmd, .name = n_args > 1 ? args[1] : "" };
    if (!kind_of(args[0], &q->kind))
        return cli_usage(cmd,
                         "kind '%s' is unknown; known: portmaps (pm), portmapclasses (pmc), "
                         "trafficclasses (tclass), services (svc)",
                         args[0]);
    if (strcmp(format, "table") && strcmp(format, "wide") && strcmp(format, "yaml") &&
        strcmp(format, "json"))
        return cli_usage(cmd, "--output %s: one of table, wide, yaml, json is needed", format);
    if (q->kind == KIND_SERVICE && strcmp(format, "table") && strcmp(format, "wide"))
        return cli_usage(
            cmd, "--output %s: Services, of which not all is read, are printed as a table", format);
    if (q->kind != KIND_PORTMAP && q->kind != KIND_SERVICE)
        q->ns = "";
    else
        q->ns = cli_given(cmd, "all-namespaces") ? "" : cli_value(cmd, "namespace");
    q->wide = !strcmp(format, "wide");
    return CLI_DONE;
}

static int not_found(const struct query *q)
{
    char text[700];
    const char *what = q->kind == KIND_SERVICE ? "services of class " NODE_ADDRESS_CLASS
                                               : kind_info[q->kind].plural;
    if (*q->name)
        snprintf(text, sizeof(text), "%s %s%s%s: not found", kind_info[q->kind].kind, q->ns,
                 *q->ns ? "/" : "", q->name);
    else
        snprintf(text, sizeof(text), "no %s%s%s in %s%s", what, *q->ns ? " of namespace " : "",
                 q->ns, cli_value(q->cmd, "source"), *q->ns ? "; -A shows all namespaces" : "");
    return cli_fail(text);
}

static int run(const struct cli_command *cmd, char **args, size_t n_args)
{
    struct query q;
    struct source_options source;
    if (cli_source(cmd, &source) || parse(cmd, args, n_args, &q))
        return CLI_USAGE;
    source.kinds = 1u << q.kind | (q.kind == KIND_SERVICE ? 1u << KIND_NODE : 0);
    const char *format = cli_value(cmd, "output");
    bool json = !strcmp(format, "json"), documents = json || !strcmp(format, "yaml");
    struct world w = { 0 };
    struct err err = { 0 };
    int r = CLI_DONE;
    if (world_load(&w, &source, &err)) {
        r = cli_fail(err.text);
    } else {
        struct snapshot snap = { 0 };
        store_snapshot(w.store, &snap);
        /* An empty list is an answer to a program; a person wants to be told. */
        if (!each(&snap, &q, NULL, NULL) && (*q.name || !documents))
            r = not_found(&q);
        else if (documents)
            print_documents(&snap, &q, json);
        else
            print_rows(&snap, &q);
        r = r || w.errors ? CLI_FAILED : CLI_DONE;
    }
    world_done(&w);
    return r;
}

const struct cli_command cmd_get = {
    .name = "get",
    .args = "KIND [NAME]",
    .summary =
        "Prints portmaps (pm), portmapclasses (pmc), trafficclasses (tclass) or services (svc).",
    .options =
        (struct cli_option[]){
            CLI_SOURCE_OPTIONS,
            { 'n', "namespace", "NAMESPACE", "objects of this namespace", "default", false },
            { 'A', "all-namespaces", NULL, "objects of every namespace", NULL, false },
            { 'o', "output", "FORMAT", "table, wide, yaml or json", "table", false },
            { 0 },
        },
    .min_args = 1,
    .max_args = 2,
    .run = run,
};
