/* A thousand agents lose their API server and get it back: the real source, in virtual time. The
 * client, libuv's timers and the clock are this file's own; the server is a function. */
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "source/kube/kube.h"
#include "source/kube/open.h"

#define AGENTS   1000
#define MAPPINGS 4 /* of each agent, whose statuses change in the absence */
#define KINDS                                                                        \
    (KIND_BIT(KIND_NODE) | KIND_BIT(KIND_NAMESPACE) | KIND_BIT(KIND_ENDPOINTSLICE) | \
     KIND_BIT(KIND_PORTMAP) | KIND_BIT(KIND_PORTMAPCLASS))
#define N_KINDS   5
#define SECONDS   120
#define ANSWER_US 5000

/* ---- virtual time: a heap of what is due ---- */

struct due {
    int64_t us;
    uint64_t id; /* that of the timer or request when it was set; another by now: void */
    uv_timer_t *timer;
    struct client_request *request;
};

static int64_t now_us;
static uint64_t last_id;
static VEC(struct due) heap;

int64_t clock_mono_us(void)
{
    return now_us;
}

int64_t clock_wall(void)
{
    return 1800000000 + now_us / 1000000;
}

static void swap(size_t a, size_t b)
{
    struct due d = heap.v[a];
    heap.v[a] = heap.v[b];
    heap.v[b] = d;
}

static void push(struct due d)
{
    vec_push(&heap, d);
    for (size_t i = heap.n - 1; i && heap.v[i].us < heap.v[(i - 1) / 2].us; i = (i - 1) / 2)
        swap(i, (i - 1) / 2);
}

static struct due pop(void)
{
    struct due first = heap.v[0];
    swap(0, heap.n - 1);
    heap.n--;
    for (size_t i = 0, c; (c = 2 * i + 1) < heap.n; i = c) {
        c += c + 1 < heap.n && heap.v[c + 1].us < heap.v[c].us;
        if (heap.v[i].us <= heap.v[c].us)
            break;
        swap(i, c);
    }
    return first;
}

/* ---- libuv's timers ---- */

int uv_timer_init(uv_loop_t *loop, uv_timer_t *t)
{
    (void)loop;
    t->start_id = 0;
    return 0;
}

int uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t ms, uint64_t repeat)
{
    assert_int_equal(repeat, 0);
    t->timer_cb = cb;
    t->start_id = ++last_id;
    t->timeout = (uint64_t)now_us / 1000 + ms;
    push((struct due){ now_us + (int64_t)ms * 1000, last_id, .timer = t });
    return 0;
}

int uv_timer_stop(uv_timer_t *t)
{
    t->start_id = 0;
    return 0;
}

uint64_t uv_timer_get_due_in(const uv_timer_t *t)
{
    uint64_t now = (uint64_t)now_us / 1000;
    return t->start_id && t->timeout > now ? t->timeout - now : 0;
}

int uv_is_active(const uv_handle_t *h)
{
    return ((const uv_timer_t *)h)->start_id != 0;
}

void uv_update_time(uv_loop_t *loop)
{
    (void)loop;
}

void uv_close(uv_handle_t *h, uv_close_cb cb)
{
    cb(h);
}

/* ---- the server, and the client to it ---- */

struct client {
    unsigned agent;
};

struct sim_request {
    struct client *client;
    uint64_t id;
    bool watch, initial, open;
    enum object_kind kind;
    int64_t begun_us;
};

static bool away, expired; /* it does not answer; it has forgotten what was before */
static int64_t returned_us;
static unsigned version = 1000, requests[SECONDS], writes[SECONDS], lists, landed;
static unsigned n_clients;
static VEC(struct client_request *) watches;

static struct sim_request *sim(const struct client_request *r)
{
    return (struct sim_request *)r->easy;
}

struct client *client_open(uv_loop_t *loop, const struct kube_config *config,
                           const char *user_agent)
{
    struct client *h = calloc(1, sizeof(*h));
    (void)loop;
    (void)config;
    (void)user_agent;
    h->agent = n_clients++;
    return h;
}

void client_close(struct client *h)
{
    free(h);
}

static void release(struct client_request *r)
{
    for (size_t i = 0; i < watches.n; i++)
        if (watches.v[i] == r) {
            watches.v[i] = watches.v[--watches.n];
            break;
        }
    free(sim(r));
    r->easy = NULL;
}

void client_cancel(struct client_request *r)
{
    if (r->easy)
        release(r);
    buf_done(&r->body);
}

bool client_active(const struct client_request *r)
{
    return r->easy;
}

long client_status(const struct client_request *r)
{
    return r->easy && sim(r)->open ? 200 : 0;
}

void client_renew(struct client *h)
{
    (void)h;
}

size_t client_counts(const struct client *h, const struct client_count **ret)
{
    (void)h;
    *ret = NULL;
    return 0;
}

static enum object_kind kind_of(const char *path)
{
    enum object_kind kind = 0;
    for (;; kind++) {
        struct buf prefix = { 0 };
        kube_path(&prefix, kind, "", "");
        size_t n = strlen(prefix.p);
        bool same = !strncmp(path, prefix.p, n) && (path[n] == '?' || path[n] == '\0');
        buf_done(&prefix);
        if (same)
            return kind;
    }
}

void client_start(struct client *h, struct client_request *r, const struct client_call *call)
{
    struct sim_request *s = calloc(1, sizeof(*s));
    bool write = strcmp(call->verb, "WATCH") && strcmp(call->verb, "LIST");
    int64_t second = (now_us - returned_us) / 1000000;
    s->client = h;
    s->id = ++last_id;
    s->watch = !strcmp(call->verb, "WATCH");
    s->initial = strstr(call->path, "sendInitialEvents");
    if (!write)
        s->kind = kind_of(call->path);
    r->easy = (CURL *)s;
    r->verb = call->verb;
    r->client = h;
    buf_clear(&r->body);
    if (returned_us && second < SECONDS) {
        requests[second]++;
        writes[second] += write;
    }
    push((struct due){ now_us + ANSWER_US, s->id, .request = r });
}

static void finish(struct client_request *r, const struct client_answer *a)
{
    release(r);
    r->done(r->user, a);
}

static void say(struct client_request *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void say(struct client_request *r, const char *fmt, ...)
{
    struct buf b = { 0 };
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    uint64_t id = sim(r)->id;
    if (!r->data(r->user, b.p, b.n) && r->easy && sim(r)->id == id) {
        const struct client_answer enough = { .begun = true, .text = "it was enough" };
        finish(r, &enough);
    }
    buf_done(&b);
}

static void say_state(struct client_request *r)
{
    const struct kind_info *info = &kind_info[sim(r)->kind];
    unsigned agent = sim(r)->client->agent;
    if (sim(r)->kind == KIND_PORTMAPCLASS)
        say(r,
            "{\"type\":\"ADDED\",\"object\":{\"apiVersion\":\"%s\",\"kind\":\"%s\",\"metadata\":{"
            "\"name\":\"public\",\"uid\":\"u\",\"resourceVersion\":\"7\"},\"spec\":{\"nodes\":{\"a\":"
            "{\"interfaces\":[\"eth0\"]}},\"returnPath\":{\"mode\":\"None\"}}}}\n",
            info->api_version, info->kind);
    for (unsigned i = 0; sim(r)->kind == KIND_PORTMAP && i < MAPPINGS; i++)
        say(r,
            "{\"type\":\"ADDED\",\"object\":{\"apiVersion\":\"%s\",\"kind\":\"%s\",\"metadata\":{"
            "\"name\":\"m%u-%u\",\"namespace\":\"games\",\"uid\":\"u\",\"resourceVersion\":\"7\"},"
            "\"spec\":{\"className\":\"public\",\"protocol\":\"TCP\",\"port\":3000,\"serviceRef\":{"
            "\"name\":\"s\",\"port\":\"\"}}}}\n",
            info->api_version, info->kind, agent, i);
    say(r,
        "{\"type\":\"BOOKMARK\",\"object\":{\"apiVersion\":\"%s\",\"kind\":\"%s\",\"metadata\":{"
        "\"resourceVersion\":\"%u\",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n",
        info->api_version, info->kind, version);
}

static void answer(struct client_request *r)
{
    const struct client_answer none = { .text = "Connection refused" };
    const struct client_answer good = { .status = 200, .begun = true, .text = "" };
    if (away) {
        finish(r, &none);
    } else if (!sim(r)->watch) {
        assert_string_equal(r->verb, "PATCH"); /* the state came by watches before */
        landed++;
        buf_printf(&r->body, "{\"metadata\":{\"resourceVersion\":\"%u\"}}", ++version);
        finish(r, &good);
    } else {
        sim(r)->open = true;
        vec_push(&watches, r);
        lists += sim(r)->initial;
        if (sim(r)->initial)
            say_state(r);
        else if (expired)
            say(r, "{\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":\"too old\"}}\n");
    }
}

static void run_until(int64_t end_us)
{
    while (heap.n && heap.v[0].us <= end_us) {
        struct due d = pop();
        now_us = d.us;
        if (d.timer && d.timer->start_id == d.id) {
            d.timer->start_id = 0;
            d.timer->timer_cb(d.timer);
        } else if (d.request && d.request->easy && sim(d.request)->id == d.id) {
            answer(d.request);
        }
    }
    now_us = end_us;
}

/* ---- the agents ---- */

static struct source *agents[AGENTS];
static struct client_request *all[AGENTS * N_KINDS];

static void on_upsert(void *user, struct object *o)
{
    (void)user;
    object_free(o);
}

static void on_removed(void *user, enum object_kind kind, const char *ns, const char *name)
{
    (void)user;
    fail_msg("%d %s/%s was called gone", (int)kind, ns, name);
}

static void on_note(void *user, bool is_error, const char *where, const char *text)
{
    (void)user, (void)is_error, (void)where, (void)text;
}

static void on_changed(void *user)
{
    (void)user;
}

static void start_agents(void)
{
    static const char config[] =
        "current-context: c\ncontexts: [{name: c, context: {cluster: c, user: ''}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n";
    const struct source_sink sink = {
        .upsert = on_upsert, .removed = on_removed, .note = on_note, .changed = on_changed
    };
    char path[] = "/tmp/test-storm-XXXXXX";
    n_clients = 0;
    struct source_options opt = { .kubeconfig = path, .node = "a", .kinds = KINDS };
    int fd = mkstemp(path);
    assert_int_equal(write(fd, config, sizeof(config) - 1), sizeof(config) - 1);
    close(fd);
    for (unsigned i = 0; i < AGENTS; i++) {
        struct err err;
        assert_int_equal(kube_open(&opt, &sink, &agents[i], &err), 0);
        assert_int_equal(agents[i]->ops->start(agents[i], NULL, &err), 0);
    }
    unlink(path);
}

static void decide_statuses(void)
{
    for (unsigned i = 0; i < AGENTS; i++) {
        struct status_write row = { .kind = WRITE_CLASS_ROW,
                                    .ns = "",
                                    .name = "public",
                                    .row = { .name = "a", .ready = true, .message = "" } };
        assert_int_equal(agents[i]->ops->write(agents[i], &row, NULL), -EINPROGRESS);
        for (unsigned m = 0; m < MAPPINGS; m++) {
            char name[32];
            snprintf(name, sizeof(name), "m%u-%u", i, m);
            struct status_write w = {
                .kind = WRITE_PORTMAP_STATUS, .ns = "games", .name = name, .resource_version = "7"
            };
            assert_int_equal(agents[i]->ops->write(agents[i], &w, NULL), -EINPROGRESS);
        }
    }
}

static void lose_server(void)
{
    const struct client_answer cut = { .begun = true, .text = "cut off" };
    size_t n = watches.n;
    away = true;
    memcpy(all, watches.v, n * sizeof(*all));
    for (size_t i = 0; i < n; i++)
        finish(all[i], &cut);
}

/* What the server sees from its return on. `seconds`: of absence. */
static void measure(unsigned seconds, bool forgets)
{
    memset(requests, 0, sizeof(requests));
    memset(writes, 0, sizeof(writes));
    returned_us = 0;
    expired = false;
    start_agents();
    run_until(now_us + 30000000);
    assert_int_equal(watches.n, AGENTS * N_KINDS);
    lose_server();
    decide_statuses();
    run_until(now_us + (int64_t)seconds * 1000000);
    away = false;
    expired = forgets;
    lists = landed = 0;
    returned_us = now_us;
    int64_t whole_us = 0;
    while (now_us < returned_us + (int64_t)(SECONDS - 1) * 1000000) {
        run_until(now_us + 100000);
        if (!whole_us && watches.n == AGENTS * N_KINDS)
            whole_us = now_us - returned_us;
    }
    unsigned peak = 0, peak_writes = 0, total = 0;
    for (unsigned i = 0; i < SECONDS; i++) {
        peak = requests[i] > peak ? requests[i] : peak;
        peak_writes = writes[i] > peak_writes ? writes[i] : peak_writes;
        total += requests[i];
    }
    print_message("# away %u s%s: %u requests, %u of them lists, %u writes; peak %u a second, %u "
                  "writes; all watch after %.1f s; by second:",
                  seconds, forgets ? ", history lost" : "", total, lists, landed, peak, peak_writes,
                  (double)whole_us / 1e6);
    for (unsigned i = 0; i < 30; i++)
        print_message(" %u", requests[i]);
    print_message("\n");
    assert_true(whole_us && whole_us < 40000000);
    assert_int_equal(landed, AGENTS * (MAPPINGS + 1)); /* each once */
    assert_int_equal(lists, forgets ? AGENTS * N_KINDS : 0);
    assert_true(total <= AGENTS * (N_KINDS * (forgets ? 2 : 1) + MAPPINGS + 1));
    assert_true(peak <= AGENTS * (N_KINDS + MAPPINGS + 1) / 3);
    assert_true(peak_writes <= AGENTS * (MAPPINGS + 1) / 3);
    for (unsigned i = 0; i < AGENTS; i++) {
        agents[i]->ops->stop(agents[i]);
        agents[i]->ops->free(agents[i]);
    }
    heap.n = 0;
}

static void after_a_minute_agents_come_back_spread(void **state)
{
    (void)state;
    measure(60, false);
}

static void after_a_minute_agents_list_again_spread(void **state)
{
    (void)state;
    measure(60, true);
}

static void after_ten_minutes_it_is_no_worse(void **state)
{
    (void)state;
    measure(600, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_a_minute_agents_come_back_spread),
        cmocka_unit_test(after_a_minute_agents_list_again_spread),
        cmocka_unit_test(after_ten_minutes_it_is_no_worse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
