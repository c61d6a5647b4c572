#include "kernel/ipvs.h"

#include <errno.h>
#include <linux/netfilter/ipset/ip_set.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/ipset.h"
#include "kernel/ipvs_genl.h"
#include "kernel/ipvs_impl.h"

struct ipvs *ipvs_new(const struct ipvs_ports *ports, const struct ipvs_settings *settings)
{
    struct ipvs *v = xcalloc(1, sizeof(*v));
    v->ports = *ports;
    v->settings = *settings;
    v->iptables = iptables_new(settings->iptables);
    return v;
}

void ipvs_free(struct ipvs *v)
{
    if (!v)
        return;
    for (size_t i = 0; i < v->n_groups; i++)
        ipvs_group_unref(v->groups[i]);
    free(v->groups);
    iptables_free(v->iptables);
    ipvs_device_done(&v->device);
    ipvs_store_done(&v->store);
    vec_done(&v->drains);
    vec_done(&v->refused);
    vec_done(&v->udp);
    vec_done(&v->lacking);
    vec_done(&v->flows);
    arena_done(&v->flow_mem);
    nl_buf_done(&v->buf);
    free(v);
}

static int find_family(const struct ipvs_ports *ports, uint16_t *ret, struct err *err)
{
    int r = ipvs_genl_family(ports->generic, ret, err);
    if (!r && !*ret)
        return err_set(err, EOPNOTSUPP, "this kernel has no IPVS; load its module ip_vs");
    return r;
}

int ipvs_check(const struct ipvs_ports *ports, enum ipvs_scheduler scheduler, struct err *err)
{
    const char *name = ipvs_scheduler_name(scheduler);
    uint16_t family;
    int r = find_family(ports, &family, err);
    if (!r && (r = ipvs_genl_probe(ports->generic, family, name, err)) == -ENOENT)
        err_set(err, ENOENT, "this kernel's IPVS has no scheduler %s; load its module ip_vs_%s",
                name, name);
    return r;
}

size_t ipvs_draining(const struct ipvs *v)
{
    return v->drains.n;
}

uint32_t ipvs_device_index(const struct ipvs *v)
{
    return v->device.index;
}

/* ---- what is wanted ---- */

static void want_group(struct ipvs *v, const struct ipvs_group *g)
{
    for (uint32_t i = 0; i < g->n; i++)
        ipvs_store_want(&v->store, &g->entries[i]);
}

static void unwant_group(struct ipvs *v, struct ipvs_group *g)
{
    for (uint32_t i = 0; i < g->n; i++)
        ipvs_store_unwant(&v->store, &g->entries[i]);
    ipvs_group_unref(g);
}

/* Groups that stay are not looked into. */
static void count_groups(struct ipvs *v, struct ipvs_group *const *groups, size_t n)
{
    struct ipvs_group **now = xmalloc((n + 1) * sizeof(struct ipvs_group *));
    size_t i = 0;
    for (size_t j = 0; j < n; j++) {
        while (i < v->n_groups && v->groups[i] != groups[j] &&
               strcmp(v->groups[i]->owner, groups[j]->owner) <= 0)
            unwant_group(v, v->groups[i++]);
        if (i < v->n_groups && v->groups[i] == groups[j]) {
            now[j] = v->groups[i++];
        } else {
            now[j] = ipvs_group_ref(groups[j]);
            want_group(v, now[j]);
        }
    }
    while (i < v->n_groups)
        unwant_group(v, v->groups[i++]);
    free(v->groups);
    v->groups = now;
    v->n_groups = n;
}

/* ---- what must be there for any of it ---- */

static int make_device(struct ipvs *v, struct report *report, struct err *err)
{
    bool made = v->device.index && v->device.up && v->device.ours;
    int r = ipvs_device_make(v->ports.route, &v->device, err);
    report->adds += !made && !r;
    return r;
}

/* The device first: its alias tells that all the rest is ours. */
static int prepare(struct ipvs *v, struct report *report, struct err *err)
{
    int r = find_family(&v->ports, &v->genl, err);
    if (!r)
        r = ipvs_read(v, err);
    if (!r)
        r = make_device(v, report, err);
    if (!r)
        ipvs_sets_make(v, report);
    return r;
}

/* ---- the calls ---- */

static void touch(struct ipvs *v, const struct ipvs_list *records)
{
    for (size_t i = 0; i < records->n; i++)
        ipvs_store_touch(&v->store, records->v[i]);
}

/* What drains goes with its server. */
static void touch_orphans(struct ipvs *v)
{
    for (size_t i = 0; i < v->drains.n; i++) {
        struct ipvs_key k = ipvs_server_of(&v->store.records.v[v->drains.v[i]].entry.key);
        uint32_t server = ipvs_store_find(&v->store, &k);
        if (server == IPVS_NONE || !v->store.records.v[server].wanted)
            ipvs_store_touch(&v->store, v->drains.v[i]);
    }
}

int ipvs_make_device(struct ipvs *v, struct report *report, struct err *err)
{
    int r = ipvs_device_read(v->ports.route, &v->device, err);
    return r ? r : make_device(v, report, err);
}

static void sync_rules(struct ipvs *v, const struct ipvs_want *want, bool audit,
                       struct report *report)
{
    struct buf scratch4 = { 0 }, scratch6 = { 0 };
    const struct ipvs_want with = { ipvs_sets_rules(v, IP_V4, want->rules4, &scratch4),
                                    ipvs_sets_rules(v, IP_V6, want->rules6, &scratch6) };
    if (iptables_sync(v->iptables, &with, audit, report)) {
        v->unmasqueraded = true;
        v->told = false;
    }
    buf_done(&scratch4);
    buf_done(&scratch6);
}

static int diff_rules(struct ipvs *v, const struct ipvs_want *want, struct buf *out,
                      struct err *err)
{
    struct buf scratch4 = { 0 }, scratch6 = { 0 };
    const struct ipvs_want with = { ipvs_sets_rules(v, IP_V4, want->rules4, &scratch4),
                                    ipvs_sets_rules(v, IP_V6, want->rules6, &scratch6) };
    int r = iptables_diff(v->iptables, &with, out, err);
    buf_done(&scratch4);
    buf_done(&scratch6);
    return r;
}

int ipvs_sync(struct ipvs *v, const struct desired *d, unsigned look, struct report *report,
              struct err *err)
{
    struct ipvs_ops ops = { 0 };
    bool audit = look & IPVS_LOOK_AUDIT || !v->is_known;
    count_groups(v, d->ipvs, d->n_ipvs);
    if (look & IPVS_LOOK_DRAINING)
        touch(v, &v->drains);
    touch_orphans(v);
    touch(v, &v->refused);
    v->refused.n = 0;
    v->is_known = true;
    int r = audit ? prepare(v, report, err) : 0;
    if (!r)
        ipvs_difference(v, &ops);
    if (!r)
        r = ipvs_apply_elements(v, &ops, report, err);
    if (!r)
        sync_rules(v, d->ipvs_node, look & IPVS_LOOK_AUDIT, report);
    if (!r)
        r = ipvs_apply(v, &ops, report, err);
    v->is_known &= !r && !v->lacking.n;
    if (r) /* their records may go now; reading finds those that still drain */
        v->drains.n = 0;
    ipvs_store_settle(&v->store);
    ipvs_ops_done(&ops);
    if (audit)
        nl_buf_done(&v->buf);
    return r;
}

bool ipvs_rules_stand(const struct ipvs *v, enum iptables_mode *ret)
{
    return iptables_stand(v->iptables, ret);
}

static void list(struct ipvs *v, const struct ipvs_list *records, const char *sign, struct buf *out)
{
    for (size_t i = 0; i < records->n; i++) {
        buf_puts(out, sign);
        ipvs_text_entry(out, &v->store.records.v[records->v[i]].entry);
        buf_puts(out, "\n");
    }
}

int ipvs_diff(struct ipvs *v, const struct desired *d, struct buf *out, struct err *err)
{
    struct ipvs_ops ops = { 0 };
    count_groups(v, d->ipvs, d->n_ipvs);
    int r = find_family(&v->ports, &v->genl, err);
    if (!r)
        r = ipvs_read(v, err);
    if (!r && !v->device.index)
        buf_puts(out, "+ link " IPVS_LINK "\n");
    for (int i = 0; i < 2 * KUBE_SET_COUNT && !r; i++)
        if (v->missing[i % 2][i / 2])
            buf_printf(out, "+ ipset %s\n",
                       ipvs_set_name((enum ipvs_set)(i / 2), i % 2 ? IP_V6 : IP_V4));
    for (int i = 0; i < 2 * KUBE_SET_COUNT && !r; i++)
        if (v->option[i % 2][i / 2]) {
            const char *name = ipvs_set_name((enum ipvs_set)(i / 2), i % 2 ? IP_V6 : IP_V4);
            buf_printf(out, "- ipset %s (another %s)\n+ ipset %s\n", name, v->option[i % 2][i / 2],
                       name);
        }
    for (size_t i = 0; i < v->lacking.n && !r; i++)
        buf_printf(out, "! %s\n", v->lacking.v[i].err.text);
    if (!r)
        ipvs_difference(v, &ops);
    for (int k = 0; k < IPVS_KINDS; k++) {
        list(v, &ops.of[IPVS_ADD][k], "+ ", out);
        list(v, &ops.of[IPVS_CHANGE][k], "+ ", out);
    }
    for (int k = IPVS_KINDS; k > 0; k--)
        list(v, &ops.of[IPVS_DELETE][k - 1], "- ", out);
    if (!r)
        r = diff_rules(v, d->ipvs_node, out, err);
    ipvs_ops_done(&ops);
    return r;
}
