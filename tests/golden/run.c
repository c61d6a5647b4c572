/* Plans each case for each node and compares with expected.NODE.txt.
 *
 *   golden DIR [--update] [CASE...]     DIR is tests/golden
 *
 * A case is a folder with cluster.yaml, and hosts.yaml unless the one beside the cases will do.
 * What is not planned with the default options has a file `options`: one a line, by the names and
 * values of the command line (features, cluster-cidr, ...).
 * A node is planned for when it has a document in hosts.yaml, and what is planned is taken to
 * have been acknowledged by the kernel. --update writes what is printed now. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "bird/render.h"
#include "plan/plan_text.h"
#include "source/codec.h"
#include "store/store.h"

#define NOW         1767355200 /* 2026-01-02T12:00:00Z */
#define CNI_PORT    8472
#define IF_NAME_MAX 16

struct run {
    bool update;
    unsigned tests, failed;
};

struct load {
    struct store *store;
    bool bad;
};

static void upsert(void *user, struct object *obj)
{
    store_upsert(((struct load *)user)->store, obj);
}

static void note(void *user, bool is_error, const char *where, const char *text)
{
    ((struct load *)user)->bad |= is_error;
    printf("# %s: %s\n", where, text);
}

/* ---- options ---- */

struct options {
    struct plan_options plan;
    struct ip_prefix cluster_cidrs[4], nodeport_addresses[4];
    struct ip node_addresses[4];
    char overlay[IF_NAME_MAX], exclude[4][64];
    const char *excludes[4];
};

/* Not of the command line: the plan's text ends with the rules for iptables. */
static bool show_rules;

static size_t read_prefixes(const char *text, struct ip_prefix ret[static 4])
{
    size_t n = 0;
    char one[64];
    while (n < 4 && sscanf(text, "%63[^,]", one) == 1 && ip_prefix_parse(one, &ret[n])) {
        n++;
        text += strlen(one) + (text[strlen(one)] == ',');
    }
    return *text ? 0 : n;
}

static bool read_ipvs_option(struct options *o, const char *name, const char *value)
{
    struct ipvs_options *ipvs = &o->plan.ipvs;
    if (!strcmp(name, "proxy-mode")) {
        o->plan.proxy_mode = PROXY_IPVS;
        return !strcmp(value, "ipvs");
    }
    if (!strcmp(name, "scheduling-method"))
        return ipvs_scheduler_parse(value, &ipvs->scheduler);
    if (!strcmp(name, "weight"))
        return (ipvs->weight = (uint32_t)atoi(value));
    if (!strcmp(name, "node-address"))
        return ipvs->n_node_addresses < 4 &&
               ip_parse(value, &o->node_addresses[ipvs->n_node_addresses++]);
    if (!strcmp(name, "strict-arp"))
        return (ipvs->strict_arp = true);
    if (!strcmp(name, "masquerade-bit"))
        return (o->plan.masquerade_bit = (uint8_t)atoi(value));
    return !strcmp(name, "show-rules") && (show_rules = true);
}

static bool read_option(struct options *o, const char *name, const char *value)
{
    if (!strcmp(name, "features")) {
        o->plan.portmap = strstr(value, "portmap");
        o->plan.serviceproxy = strstr(value, "serviceproxy");
        o->plan.trafficclass = strstr(value, "trafficclass");
        o->plan.loadbalancer = strstr(value, "loadbalancer");
    } else if (!strcmp(name, "overlay")) {
        snprintf(o->overlay, sizeof(o->overlay), "%s", value);
        o->plan.overlay = o->overlay;
        return ip_prefix_parse(OVERLAY_SUBNET, &o->plan.overlay_subnet);
    } else if (!strcmp(name, "overlay-subnet")) {
        return ip_prefix_parse(value, &o->plan.overlay_subnet);
    } else if (!strcmp(name, "address-exclude")) {
        size_t *n = &o->plan.n_address_exclude;
        if (*n == 4)
            return false;
        snprintf(o->exclude[*n], sizeof(o->exclude[*n]), "%s", value);
        o->excludes[*n] = o->exclude[*n];
        ++*n;
    } else if (!strcmp(name, "cluster-cidr")) {
        o->plan.n_cluster_cidrs = read_prefixes(value, o->cluster_cidrs);
        return o->plan.n_cluster_cidrs;
    } else if (!strcmp(name, "nodeport-addresses")) {
        o->plan.n_nodeport_addresses = read_prefixes(value, o->nodeport_addresses);
        return o->plan.n_nodeport_addresses;
    } else if (!strcmp(name, "detect-local-mode")) {
        o->plan.node_cidr = !strcmp(value, "NodeCIDR");
        return o->plan.node_cidr;
    } else if (!strcmp(name, "masquerade-all")) {
        o->plan.masquerade_all = true;
    } else {
        return read_ipvs_option(o, name, value);
    }
    return true;
}

/* False when the file says what nobody understands. */
static bool read_options(const char *path, struct options *ret)
{
    char name[64], value[200], line[300];
    bool good = true;
    *ret = (struct options){ .plan = plan_options_default };
    ret->plan.cluster_cidrs = ret->cluster_cidrs;
    ret->plan.address_exclude = ret->excludes;
    ret->plan.nodeport_addresses = ret->nodeport_addresses;
    ret->plan.ipvs.node_addresses = ret->node_addresses;
    ret->plan.ipvs.weight = 1;
    show_rules = false;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f)) {
        *value = 0;
        good =
            sscanf(line, "%63s %199s", name, value) >= 1 && read_option(ret, name, value) && good;
    }
    if (f)
        fclose(f);
    return good;
}

/* ---- cases ---- */

static struct buf plan_node(const struct plan_options *options, const struct snapshot *base,
                            const char *node, const struct host *host)
{
    struct snapshot snap = *base;
    snap.node = node;
    snap.host = host;
    struct buf out = { 0 };
    struct planner *p = planner_new(options);
    const struct plan *plan = plan_build(p, &snap);
    struct status_writes writes =
        plan_statuses(p, &snap, &(struct applied){ .acknowledged = true });
    plan_text(plan, &writes, &out);
    if (plan->desired.ipvs_node && show_rules)
        buf_printf(&out, "%s%s", plan->desired.ipvs_node->rules4, plan->desired.ipvs_node->rules6);
    if (plan->desired.bird)
        bird_render(plan->desired.bird, &out);
    planner_free(p);
    return out;
}

static void show_difference(const char *path)
{
    printf("# %s differs; what is printed now is in %s.new\n", path, path);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f))
        printf("Bail out! %s: %s\n", path, strerror(errno));
}

static void compare(struct run *run, const char *dir, const char *node, const char *text)
{
    char path[600], fresh[620];
    char *want = NULL;
    size_t n;
    snprintf(path, sizeof(path), "%s/expected.%s.txt", dir, node);
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    if (run->update)
        write_file(path, text);
    bool same = !codec_read_file(path, &want, &n, NULL) && !strcmp(want, text);
    free(want);
    unlink(fresh);
    if (!same) {
        write_file(fresh, text);
        show_difference(path);
        run->failed++;
    }
    printf("%sok %u - %s %s\n", same ? "" : "not ", ++run->tests, strrchr(dir, '/') + 1, node);
}

static void run_nodes(struct run *run, const struct plan_options *options,
                      const struct snapshot *snap, const char *dir, const char *hosts)
{
    for (size_t i = 0; i < snap->n_nodes; i++) {
        struct arena mem = { 0 };
        struct host host;
        struct err err;
        const char *node = snap->nodes[i]->o.meta.name;
        int r = host_decode_file(hosts, node, &mem, &host, &err);
        if (r && r != -ENOENT) {
            printf("not ok %u - %s %s: %s\n", ++run->tests, dir, node, err.text);
            run->failed++;
        }
        if (!r) {
            struct buf out = plan_node(options, snap, node, &host);
            compare(run, dir, node, buf_str(&out));
            buf_done(&out);
        }
        arena_done(&mem);
    }
}

static void run_case(struct run *run, const char *root, const char *name)
{
    char dir[500], cluster[520], hosts[520], given[520];
    struct options options;
    snprintf(dir, sizeof(dir), "%s/%s", root, name);
    snprintf(cluster, sizeof(cluster), "%s/cluster.yaml", dir);
    snprintf(hosts, sizeof(hosts), "%s/hosts.yaml", dir);
    snprintf(given, sizeof(given), "%s/options", dir);
    if (access(hosts, F_OK))
        snprintf(hosts, sizeof(hosts), "%s/hosts.yaml", root);
    struct load load = { store_new(), false };
    struct source_sink sink = { .user = &load, .upsert = upsert, .note = note };
    struct err err = { "bad objects or options" };
    if (!read_options(given, &options) || codec_load_file(cluster, &sink, &err) || load.bad) {
        printf("not ok %u - %s: %s\n", ++run->tests, name, err.text);
        run->failed++;
    } else {
        struct snapshot snap = { .now = NOW, .cni_vxlan_port = CNI_PORT };
        store_snapshot(load.store, &snap);
        run_nodes(run, &options.plan, &snap, dir, hosts);
    }
    store_free(load.store);
}

static int is_case(const struct dirent *e)
{
    return e->d_type == DT_DIR && e->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    struct run run = { 0 };
    if (argc < 2) {
        fprintf(stderr, "usage: golden DIR [--update] [CASE...]\n");
        return 2;
    }
    int i = 2;
    if (i < argc && !strcmp(argv[i], "--update")) {
        run.update = true;
        i++;
    }
    for (int j = i; j < argc; j++)
        run_case(&run, argv[1], argv[j]);
    struct dirent **list = NULL;
    int n = i == argc ? scandir(argv[1], &list, is_case, alphasort) : 0;
    for (int j = 0; j < n; j++) {
        run_case(&run, argv[1], list[j]->d_name);
        free(list[j]);
    }
    free(list);
    printf("1..%u\n", run.tests);
    return run.failed || !run.tests;
}
