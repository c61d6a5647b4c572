/* Several processes on one folder: nothing is lost, nothing is there twice. */
#include "test.h"

#include <errno.h>
#include <sys/file.h>
#include <sys/wait.h>

#include "dir_class.h"

#define PROCESSES 8
#define ROUNDS    25

/* Runs `work` in each of the processes, all at the same time; true when all returned 0. */
static bool at_once(int (*work)(struct world *w, int me), struct world *w)
{
    int gate[2];
    pid_t pids[PROCESSES];
    if (pipe2(gate, O_CLOEXEC))
        abort();
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i])
            continue;
        char c;
        close(gate[1]);
        while (read(gate[0], &c, 1) < 0) /* ends when the parent closes its end */
            ;
        _exit(work(w, i));
    }
    close(gate[0]);
    close(gate[1]);
    bool good = true;
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        good = waitpid(pids[i], &status, 0) == pids[i] && status == 0 && good;
    }
    return good;
}

static int start_and_tell(struct world *w, int me)
{
    struct agent a;
    char name[16];
    agent_open(&a, w);
    if (uv_loop_init(&w->loop) || a.source->ops->start(a.source, &w->loop, NULL))
        return 1;
    while (!agent_synced(&a)) /* another one has the lock */
        uv_run(&w->loop, UV_RUN_ONCE);
    snprintf(name, sizeof(name), "uid%d", me);
    world_put(w, name, class(&a)->o.meta.uid);
    agent_close(&a);
    return 0;
}

static void one_of_many_admits(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    world_put(&w, "c.yaml", CLASS);
    assert_true(at_once(start_and_tell, &w));
    char *first = world_get(&w, "uid0");
    assert_int_equal(strlen(first), 36);
    for (int i = 1; i < PROCESSES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "uid%d", i);
        char *other = world_get(&w, name);
        assert_string_equal(first, other);
        free(other);
    }
    free(first);
    world_close(&w);
}

static int write_row(struct world *w, int me)
{
    struct agent a;
    char node[8];
    agent_load(&a, w);
    snprintf(node, sizeof(node), "n%d", me);
    for (uint32_t i = 1; i <= ROUNDS;) {
        int r = agent_write(&a, row_write(node, i));
        if (r && r != -EAGAIN)
            return 1;
        i += !r;
    }
    agent_close(&a);
    return 0;
}

/* Reads, adds one claim, writes; again when another was faster. */
static int claim(struct world *w, int me)
{
    for (uint32_t i = 0; i < ROUNDS;) {
        struct agent a;
        agent_load(&a, w);
        const struct portmap_class *c = class(&a);
        uint32_t n = c->status.n_links;
        struct link_claim *links = xcalloc(n + 1, sizeof(*links));
        char key[16];
        snprintf(key, sizeof(key), "%d/%u", me, i);
        if (n)
            memcpy(links, c->status.links, n * sizeof(*links));
        links[n] = (struct link_claim){ .key = key, .peer = { "a", "b" }, .subnet = "" };
        int r = agent_write(&a, links_write(c->o.meta.resource_version, links, n + 1));
        free(links);
        agent_close(&a);
        if (r && r != -EAGAIN)
            return 1;
        i += !r;
    }
    return 0;
}

static int write_both(struct world *w, int me)
{
    return me & 1 ? claim(w, me) : write_row(w, me);
}

static void no_write_is_lost(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "c.yaml", CLASS);
    agent_close(&a);
    assert_true(at_once(write_row, &w));
    assert_true(at_once(write_both, &w));
    agent_load(&a, &w);
    assert_int_equal(class(&a)->status.n_nodes, PROCESSES);
    for (int i = 0; i < PROCESSES; i++)
        assert_int_equal(class(&a)->status.nodes[i].underlay_mtu, ROUNDS);
    assert_int_equal(class(&a)->status.n_links, PROCESSES / 2 * ROUNDS);
    /* One version for each write, the first for the creation. */
    assert_int_equal(atoi(class(&a)->o.meta.resource_version), 1 + 2 * PROCESSES * ROUNDS);
    world_end(&w, &a, NULL);
}

/* As when an agent is stopped while it holds the lock: the others' loops go on. */
static void a_held_lock_stops_no_loop(void **state)
{
    (void)state;
    struct world w;
    struct agent a;
    world_begin(&w, &a, NULL, "c.yaml", CLASS);
    agent_close(&a);
    int lock = open(world_path(&w, ".status/.lock"), O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    agent_begin(&a, &w);
    assert_false(agent_synced(&a));
    world_until(&w, a.notes.n);
    assert_int_equal(agent_noted(&a, "another agent holds "), 1);
    assert_false(agent_synced(&a));
    assert_non_null(strstr(agent_unready(&a), "another agent holds "));
    assert_int_equal(flock(lock, LOCK_UN), 0);
    world_until(&w, agent_synced(&a) && class(&a));
    assert_int_equal(agent_noted(&a, "can be used again"), 1);
    /* A write is for later, and a snapshot to decide it by comes. */
    assert_int_equal(flock(lock, LOCK_EX), 0);
    unsigned before = a.changed;
    assert_int_equal(agent_write(&a, row_write("n", 0)), -EAGAIN);
    uv_run(&w.loop, UV_RUN_ONCE);
    assert_int_equal(a.changed, before);
    assert_int_equal(flock(lock, LOCK_UN), 0);
    world_until(&w, a.changed > before);
    assert_int_equal(agent_write(&a, row_write("n", 0)), 0);
    world_until(&w, class(&a)->status.n_nodes == 1);
    close(lock);
    world_end(&w, &a, NULL);
}

/* ---- following against reading anew ---- */

static unsigned seed = 1;

static unsigned below(unsigned n)
{
    seed = seed * 1103515245u + 12345u;
    return (seed >> 12) % n;
}

/* A file with a few of a few objects: files often claim the same. */
static void random_file(struct buf *b)
{
    for (unsigned i = below(4); i; i--)
        if (below(2))
            buf_printf(b,
                       "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: n%u, labels: {l: "
                       "v%u}}\n",
                       below(3), below(3));
        else
            buf_printf(b,
                       "---\napiVersion: kuport.wlz.li/v1alpha1\nkind: PortMap\nmetadata: {name: "
                       "m%u}\nspec: {className: c, protocol: TCP, port: 80, interfaces: [i%u], "
                       "serviceRef: {name: s, port: p}}\n",
                       below(3), below(3));
}

static void random_step(const struct world *w)
{
    static const char *const names[] = { "a.yaml", "b.yaml", "sub/c.yaml", "sub/d.yaml", "e.off" };
    const char *one = world_path(w, names[below(5)]), *two = world_path(w, names[below(5)]);
    struct buf b = { 0 };
    switch (below(6)) {
    case 0:
        unlink(one);
        break;
    case 1:
        rename(one, two);
        break;
    case 2:
        rename(world_path(w, "sub"), world_path(w, ".away"));
        break;
    case 3:
        rename(world_path(w, ".away"), world_path(w, "sub"));
        break;
    default: {
        random_file(&b);
        FILE *f = fopen(one, "we");
        if (f)
            fputs(buf_str(&b), f);
        if (f)
            fclose(f);
    }
    }
    buf_done(&b);
}

static bool same(const struct agent *a, const struct agent *b)
{
    if (a->objects.n != b->objects.n)
        return false;
    for (size_t i = 0; i < a->objects.n; i++) {
        const struct object *o = a->objects.v[i];
        const struct object *p = agent_get(b, o->meta.kind, o->meta.ns, o->meta.name);
        if (!p || !object_equal(o, p))
            return false;
    }
    return true;
}

/* What who followed has is what who reads now gets. */
static bool up_to_date(const struct agent *a, const struct agent *b, const struct world *w)
{
    struct agent now;
    agent_load(&now, w);
    bool good = same(a, &now) && same(b, &now);
    agent_close(&now);
    return good;
}

static void following_is_as_good_as_reading_anew(void **state)
{
    (void)state;
    struct world w;
    struct agent a, b;
    world_open(&w);
    mkdir(world_path(&w, "sub"), 0755);
    agent_start(&a, &w);
    agent_start(&b, &w);
    for (int round = 0; round < 150; round++) {
        for (unsigned n = 1 + below(5); n; n--) {
            random_step(&w);
            if (!below(3))
                uv_run(&w.loop, UV_RUN_NOWAIT);
        }
        world_until(&w, up_to_date(&a, &b, &w));
    }
    agent_close(&a);
    agent_close(&b);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_many_admits),
        cmocka_unit_test(no_write_is_lost),
        cmocka_unit_test(a_held_lock_stops_no_loop),
        cmocka_unit_test(following_is_as_good_as_reading_anew),
    };
    return cmocka_run_group_tests_name("source dir race", tests, NULL, NULL);
}
