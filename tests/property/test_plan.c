/* What must hold for every cluster. PORTOLAN_SEED runs one seed and prints what it did. */
#include "../unit/test.h"

#include "plan/internal.h"
#include "plan/plan_text.h"
#include "served.h"
#include "served_ipvs.h"
#include "world.h"

#define HISTORIES 80
#define STEPS     40

static uint64_t seed_now; /* of the history that is running, for the one that fails */

static int say_seed(void **state)
{
    (void)state;
    print_message("# last seed: %llu\n", (unsigned long long)seed_now);
    return 0;
}

/* The check on worlds of HISTORIES seeds, or of the one that PORTOLAN_SEED names; how many. */
static unsigned each_seed(enum gen_manner manner, void (*check)(struct world *w, uint64_t seed))
{
    const char *one = getenv("PORTOLAN_SEED");
    uint64_t first = one ? strtoull(one, NULL, 0) : 1;
    unsigned n = one ? 1 : HISTORIES;
    for (unsigned i = 0; i < n; i++) {
        seed_now = first + i;
        struct world *w = world_new(seed_now, manner, 160);
        check(w, seed_now);
        world_free(w);
    }
    return n;
}

static struct buf text_of(struct planner *p, const struct snapshot *s,
                          const struct applied *applied, struct status_writes *ret_writes)
{
    struct buf b = { 0 };
    const struct plan *plan = plan_build(p, s);
    *ret_writes = plan_statuses(p, s, applied);
    plan_text(plan, ret_writes, &b);
    return b;
}

static void assert_same(const struct buf *a, const struct buf *b, uint64_t seed, unsigned step,
                        const char *node)
{
    if (!strcmp(buf_str(a), buf_str(b)))
        return;
    size_t i = 0;
    const char *x = buf_str(a), *y = buf_str(b);
    while (x[i] == y[i])
        i++;
    while (i && x[i - 1] != '\n')
        i--;
    fail_msg("seed %llu step %u node %s:\n- %.*s\n+ %.*s", (unsigned long long)seed, step, node,
             (int)strcspn(x + i, "\n"), x + i, (int)strcspn(y + i, "\n"), y + i);
}

/* What the histories met: a property of things that never happen proves nothing. */
static struct {
    unsigned programmed, holders, lanes, landed, clashes, v6, some;
} met;
static struct served served;
static struct served_ipvs served_ipvs;

static void count_met(const struct planner *p)
{
    met.some += !p->full;
    for (size_t i = 0; i < p->memos.n; i++) {
        met.programmed += p->memos.v[i]->group != NULL;
        met.holders += p->memos.v[i]->holder != NULL;
        met.lanes += p->memos.v[i]->lane != NULL;
    }
    for (size_t i = 0; i < p->pairs.n; i++) {
        met.landed += p->pairs.v[i]->state.landed;
        met.v6 += p->pairs.v[i]->state.v6;
        met.clashes += strstr(p->pairs.v[i]->state.trouble, "has the same") != NULL;
    }
}

/* ---- incremental gives what full gives ---- */

/* A translation to what was dialled is none: see NFT_OPEN4. Of an interval only the address counts,
 * since ports are kept. The register form of key and data is the same. */
static void assert_translates(const struct desired *d, uint64_t seed)
{
    for (size_t i = 0; i < d->n_groups; i++) {
        for (const struct nft_elem *e = NULL; (e = nft_group_next(d->groups[i], e));) {
            size_t ip = nft_field_size(nft_set_defs[e->set].key[0]);
            bool exact = e->set == NFT_TARGET4 || e->set == NFT_TARGET6;
            if (!exact && e->set != NFT_TARGETRANGE4 && e->set != NFT_TARGETRANGE6)
                continue;
            const uint8_t *data = e->b + e->klen + e->elen;
            bool same =
                !memcmp(e->b, data, ip) && (!exact || !memcmp(e->b + e->klen - 4, data + ip, 4));
            if (same)
                fail_msg("seed %llu: %s leads to itself", (unsigned long long)seed,
                         d->groups[i]->owner);
        }
    }
}

static void step_node(struct world *w, unsigned i, uint64_t seed, unsigned step, bool write)
{
    struct snapshot s = world_view(w, i);
    struct planner *fresh = planner_new(&world_options[i]);
    struct status_writes writes, fresh_writes;
    const struct plan *plan = plan_build(w->planners[i], &s);
    world_refuse(w, plan);
    assert_translates(&plan->desired, seed);
    served_check(plan, seed, &served);
    served_ipvs_check(plan, &s, seed, &served_ipvs);
    count_met(w->planners[i]);
    writes = plan_statuses(w->planners[i], &s, &w->applied);
    struct buf got = { 0 };
    s.changes_known = true; /* a second pass over one snapshot changes nothing */
    s.host_changed = false;
    s.n_changes = 0;
    plan_text(plan_build(w->planners[i], &s), &writes, &got);
    s.changes_known = false;
    struct buf want = text_of(fresh, &s, &w->applied, &fresh_writes);
    assert_same(&want, &got, seed, step, gen_nodes[i]);
    writes = plan_statuses(w->planners[i], &s, &w->applied);
    for (size_t j = 0; write && j < writes.n; j++)
        if (!rng_one_in(&w->rng, 3))
            world_write(w, &writes.v[j]);
    buf_done(&got);
    buf_done(&want);
    planner_free(fresh);
}

static void run_history(struct world *w, uint64_t seed)
{
    for (unsigned step = 0; step < STEPS; step++) {
        for (uint32_t n = rng_below(&w->rng, 4); n; n--)
            world_mutate(w);
        world_snapshot(w);
        /* One writes at a time, and what it writes is seen in the next step. */
        unsigned writer = rng_below(&w->rng, GEN_NODES + 1);
        for (unsigned k = 0; k < GEN_NODES; k++) {
            unsigned i = (writer + 1 + k) % GEN_NODES;
            step_node(w, i, seed, step, false);
        }
        store_commit(w->store);
        memset(w->host_changed, 0, sizeof(w->host_changed));
        if (writer == GEN_NODES)
            continue;
        world_snapshot(w);
        step_node(w, writer, seed, step, true);
    }
}

static void incremental_gives_what_full_gives(void **state)
{
    (void)state;
    unsigned n = each_seed(GEN_SOUND, run_history);
    print_message("# met: %u incremental passes, %u programmed, %u holders, %u lanes, %u landed, "
                  "%u clashes, %u over IPv6\n",
                  met.some, met.programmed, met.holders, met.lanes, met.landed, met.clashes,
                  met.v6);
    assert_true(n == 1 || (met.some && met.programmed && met.holders && met.lanes && met.landed &&
                           met.clashes && met.v6));
    print_message("# of services: %u pick, %u reject, %u drop, %u all, %u ranged, %u affinity, "
                  "%u hairpins, %u probed, %u conflicts, %u mapped, %u health checks\n",
                  served.pick, served.reject, served.drop, served.all, served.ranged,
                  served.affinity, served.hairpins, served.probed, served.conflicts, served.mapped,
                  served.health);
    assert_true(n == 1 || (served.pick && served.reject && served.drop && served.all &&
                           served.ranged && served.affinity && served.hairpins && served.probed &&
                           served.conflicts && served.mapped && served.health));
    const struct served_ipvs *x = &served_ipvs;
    print_message(
        "# by IPVS: %u destinations, %u empty, %u persistent, %u dropped, %u dropped from "
        "outside, %u ranged, %u local, %u loop back, %u shared, %u bound, %u unbound, "
        "%u health checks\n",
        x->dests, x->empty, x->persistent, x->dropped, x->outside, x->ranged, x->local,
        x->loop_back, x->shared, x->bound, x->unbound, x->health);
    assert_true(n == 1 ||
                (x->dests && x->empty && x->persistent && x->dropped && x->outside && x->ranged &&
                 x->local && x->loop_back && x->shared && x->bound && x->unbound && x->health));
}

static void no_object_can_crash_it(void **state)
{
    (void)state;
    each_seed(GEN_WILD, run_history);
}

/* ---- order of arrival ---- */

static void check_order(struct world *w, uint64_t seed)
{
    world_snapshot(w);
    struct store *other = world_shuffled(w);
    for (unsigned i = 0; i < GEN_NODES; i++) {
        struct snapshot a = world_view(w, i), b = a;
        store_snapshot(other, &b);
        struct planner *p = planner_new(&world_options[i]);
        struct status_writes writes;
        struct buf x = text_of(w->planners[i], &a, &w->applied, &writes);
        struct buf y = text_of(p, &b, &w->applied, &writes);
        assert_same(&x, &y, seed, 0, gen_nodes[i]);
        buf_done(&x);
        buf_done(&y);
        planner_free(p);
    }
    store_free(other);
}

static void order_of_arrival_makes_no_difference(void **state)
{
    (void)state;
    each_seed(GEN_SOUND, check_order);
}

/* ---- nodes agree ---- */

static const char *text(const char *s)
{
    return s ? s : "(none)";
}

static void assert_agree(const struct planner *a, const struct planner *b)
{
    assert_int_equal(a->memos.n, b->memos.n);
    for (size_t i = 0; i < a->memos.n; i++) {
        const struct memo *m = a->memos.v[i], *o = b->memos.v[i];
        assert_string_equal(m->owner, o->owner);
        assert_string_equal(text(m->choice.node), text(o->choice.node));
        assert_string_equal(text(m->choice.pod), text(o->choice.pod));
        assert_string_equal(text(m->choice.address), text(o->choice.address));
        assert_int_equal(m->serving, o->serving);
        assert_int_equal(m->merits, o->merits);
        assert_string_equal(m->holder ? m->holder->owner : "", o->holder ? o->holder->owner : "");
        assert_string_equal(m->lane ? m->lane->owner : "", o->lane ? o->lane->owner : "");
        assert_string_equal(text(status_writer(a, m)), text(status_writer(b, o)));
    }
    assert_int_equal(a->pairs.n, b->pairs.n);
    for (size_t i = 0; i < a->pairs.n; i++) {
        const struct pair *x = a->pairs.v[i], *y = b->pairs.v[i];
        assert_string_equal(x->key, y->key);
        assert_int_equal(x->state.landed, y->state.landed);
        assert_int_equal(x->state.slot, y->state.slot);
        assert_memory_equal(x->uses, y->uses, sizeof(x->uses));
    }
}

static void check_agreement(struct world *w, uint64_t seed)
{
    (void)seed;
    world_snapshot(w);
    struct snapshot s[GEN_NODES];
    for (unsigned i = 0; i < GEN_NODES; i++) {
        s[i] = world_view(w, i);
        plan_build(w->planners[i], &s[i]);
        assert_agree(w->planners[0], w->planners[i]);
    }
}

static void nodes_agree_on_endpoint_serving_node_and_slot(void **state)
{
    (void)state;
    each_seed(GEN_SOUND, check_agreement);
}

/* ---- it comes to rest, and then both ends of a link fit ---- */

static unsigned write_all(struct world *w, const struct plan *plans[GEN_NODES])
{
    unsigned n = 0;
    world_snapshot(w);
    struct snapshot s[GEN_NODES];
    struct status_writes writes[GEN_NODES];
    for (unsigned i = 0; i < GEN_NODES; i++) {
        s[i] = world_view(w, i);
        plans[i] = plan_build(w->planners[i], &s[i]);
        writes[i] = plan_statuses(w->planners[i], &s[i], &w->applied);
    }
    store_commit(w->store);
    for (unsigned i = 0; i < GEN_NODES; i++) {
        n += (unsigned)writes[i].n;
        for (size_t j = 0; j < writes[i].n; j++)
            world_write(w, &writes[i].v[j]);
    }
    w->now++;
    return n;
}

static const struct desired_link *other_end(const struct plan *plans[GEN_NODES],
                                            const struct desired_link *l)
{
    for (unsigned i = 0; i < GEN_NODES; i++)
        for (size_t j = 0; j < plans[i]->desired.n_links; j++) {
            const struct desired_link *o = &plans[i]->desired.links[j];
            if (o->vni == l->vni && o->port == l->port && ip_equal(&o->local, &l->remote) &&
                ip_equal(&o->remote, &l->local))
                return o;
        }
    return NULL;
}

#define ASSERT_SORTED(v, n, cmp)     \
    for (size_t i = 1; i < (n); i++) \
    assert_true(cmp(&(v)[i - 1], &(v)[i]) < 0)

static void assert_fits(const struct plan *plans[GEN_NODES], uint64_t seed)
{
    for (unsigned k = 0; k < GEN_NODES; k++) {
        const struct desired *d = &plans[k]->desired;
        served_check(plans[k], seed, &served);
        ASSERT_SORTED(d->links, d->n_links, desired_link_cmp);
        ASSERT_SORTED(d->addrs, d->n_addrs, desired_addr_cmp);
        ASSERT_SORTED(d->routes, d->n_routes, desired_route_cmp);
        ASSERT_SORTED(d->rules, d->n_rules, desired_rule_cmp);
        ASSERT_SORTED(d->sysctls, d->n_sysctls, desired_sysctl_cmp);
        for (size_t i = 0; i < d->n_links; i++) {
            const struct desired_link *o = other_end(plans, &d->links[i]);
            assert_true(strlen(d->links[i].name) <= 15);
            if (!o)
                continue; /* that end has a trouble of its own, which it reports */
            assert_string_equal(o->name, d->links[i].name);
            assert_string_equal(o->alias, d->links[i].alias);
            assert_int_equal(memcmp(o->mac, d->links[i].mac, 5), 0);
            assert_int_not_equal(o->mac[5], d->links[i].mac[5]);
        }
    }
}

static void check_rest(struct world *w, uint64_t seed)
{
    const struct plan *plans[GEN_NODES];
    unsigned rounds = 0, left;
    while ((left = write_all(w, plans)) && rounds < 40)
        rounds++;
    if (left)
        fail_msg("seed %llu: still %u writes after %u rounds", (unsigned long long)seed, left,
                 rounds);
    assert_fits(plans, seed);
}

static void it_comes_to_rest_and_links_fit(void **state)
{
    (void)state;
    each_seed(GEN_SOUND, check_rest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(incremental_gives_what_full_gives, say_seed),
        cmocka_unit_test_teardown(no_object_can_crash_it, say_seed),
        cmocka_unit_test_teardown(order_of_arrival_makes_no_difference, say_seed),
        cmocka_unit_test_teardown(nodes_agree_on_endpoint_serving_node_and_slot, say_seed),
        cmocka_unit_test_teardown(it_comes_to_rest_and_links_fit, say_seed),
    };
    return cmocka_run_group_tests_name("plan properties", tests, NULL, NULL);
}
