#include "agent/mesh.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/prometheus.h"
#include "base/file.h"
#include "base/log.h"
#include "base/vec.h"
#include "bird/control.h"
#include "bird/render.h"
#include "kernel/bird.h"

#define ASK_MS    1000
#define GONE_HINT "; BIRD does not run, or does not start with the file it has: its log says why"

enum step {
    STEP_IDLE,
    STEP_CHECK,     /* the new file is being judged */
    STEP_CONFIGURE, /* it is being taken into use */
    STEP_SETTLE,    /* BIRD goes on with that in the background */
    STEP_ASK,       /* sessions are asked for */
};

struct session {
    uint32_t table;
    char name[BIRD_SYMBOL_MAX];
    bool established;
};

struct mesh {
    char *conf, *next; /* paths; the file under judgement */
    unsigned away_ms;
    struct nl_port *port;
    void (*changed)(void *user);
    void *user;
    struct bird_control *control;
    bool known; /* whether BIRD is there */
    bool gone;  /* for away_ms */
    uv_timer_t ask, away;
    enum step step;
    char *tried;         /* what the step is about: `wanted` may be newer by now */
    char *wanted;        /* NULL: nothing was ever wanted */
    char *running;       /* acknowledged by the BIRD that is up; NULL: nothing yet */
    char *refused;       /* not tried again; NULL: nothing was */
    bool unwritable;     /* not BIRD refused it: it could not be written, and is tried again */
    char why[600];       /* it was refused, or could not be written */
    char down[300];      /* why BIRD is away; "" while it is up */
    char unwritten[512]; /* why the file could not be written then; "" */
    struct ip router_id;
    VEC(struct session) sessions; /* by table, as in the configuration */
    VEC(uint32_t) tables;         /* BIRD writes to these */
    VEC(uint32_t) left;           /* wrote, and has not acknowledged that it is over */
    VEC(struct bird_sessions) counts;
    struct bird_applied applied;
    char message[1000];
    uint64_t flushes, flushed_routes, refusals;
};

static void advance(struct mesh *m);

static bool same(const char *a, const char *b)
{
    return a && b && !strcmp(a, b);
}

/* ---- files ---- */

static int write_next(const struct mesh *m, const char *text, struct err *err)
{
    int r = file_write(m->next, text, strlen(text));
    return r ? err_set(err, -r, "cannot write %s: %s: is its folder there and writable?", m->next,
                       strerror(-r))
             : 0;
}

static int put_in_place(struct mesh *m, struct err *err)
{
    if (!rename(m->next, m->conf))
        return 0;
    return err_set(err, errno, "cannot rename %s to %s: %s", m->next, m->conf, strerror(errno));
}

/* ---- what is told ---- */

static void tell(struct mesh *m)
{
    m->changed(m->user);
}

/* The configuration that is wanted cannot be had. */
static void give_up(struct mesh *m, const char *why, bool unwritable)
{
    bool news = !same(m->refused, m->tried) || strcmp(m->why, why);
    m->unwritable = unwritable;
    m->step = STEP_IDLE;
    unlink(m->next);
    if (!news)
        return;
    free(m->refused);
    m->refused = xstrdup(m->tried);
    m->refusals++;
    snprintf(m->why, sizeof(m->why), "%s", why);
    log_error("event=bird_refused text=%s", log_quote(m->why));
    tell(m);
    advance(m);
}

/* ---- a new configuration, step by step ---- */

static void accept_wanted(struct mesh *m)
{
    free(m->running);
    m->running = xstrdup(m->tried);
    if (same(m->running, m->refused)) { /* it could be written at last */
        free(m->refused);
        m->refused = NULL;
    }
    if (same(m->running, m->wanted))
        m->left.n = 0;
    m->step = STEP_IDLE;
    m->why[0] = '\0';
    log_info("event=bird_configured sessions=%zu", m->sessions.n);
    tell(m);
    advance(m);
}

static const char *error_of(const struct bird_reply *reply)
{
    const char *error = bird_reply_error(reply);
    return error ? error : "BIRD says neither yes nor no";
}

static void on_settled(void *user, const struct bird_reply *reply, const char *why)
{
    struct mesh *m = user;
    (void)why;
    if (!reply || bird_reply_code(reply) != BIRD_STATUS ||
        strstr(bird_reply_find(reply, BIRD_STATUS), "econfiguration"))
        return; /* asked again by the timer; lost: on_state() begins anew */
    accept_wanted(m);
}

static void on_configured(void *user, const struct bird_reply *reply, const char *why)
{
    struct mesh *m = user;
    (void)why;
    if (!reply)
        m->step = STEP_IDLE;
    else if (bird_reply_find(reply, BIRD_RECONFIGURED))
        accept_wanted(m);
    else if (bird_reply_find(reply, BIRD_RECONFIGURING))
        m->step = STEP_SETTLE;
    else
        give_up(m, error_of(reply), false);
}

static void on_checked(void *user, const struct bird_reply *reply, const char *why)
{
    struct mesh *m = user;
    struct err err;
    (void)why;
    if (!reply) {
        m->step = STEP_IDLE;
    } else if (!bird_reply_find(reply, BIRD_CHECKED)) {
        give_up(m, error_of(reply), false);
    } else if (put_in_place(m, &err)) {
        give_up(m, err.text, true);
    } else {
        m->step = STEP_CONFIGURE;
        bird_control_command(m->control, "configure", on_configured, m);
    }
}

/* BIRD needs a file to start, and another one when it does not start with the one that is there. */
static void write_unjudged(struct mesh *m)
{
    struct err err = { 0 };
    bool there = !access(m->conf, F_OK);
    if (there && (!m->gone || file_says(m->conf, m->wanted, false)))
        return;
    if (!write_next(m, m->wanted, &err) && !put_in_place(m, &err))
        log_info("event=bird_conf_written cause=%s",
                 log_quote(there ? "BIRD does not come with the one before" : "there was none"));
    if (!strcmp(err.text, m->unwritten))
        return;
    snprintf(m->unwritten, sizeof(m->unwritten), "%s", err.text);
    if (*err.text)
        log_error("event=bird_conf text=%s", log_quote(err.text));
    tell(m);
}

/* Asks BIRD about the configuration that is wanted. */
static void submit(struct mesh *m)
{
    struct err err;
    free(m->tried);
    m->tried = xstrdup(m->wanted);
    if (write_next(m, m->tried, &err)) {
        give_up(m, err.text, true);
        return;
    }
    struct buf command = { 0 };
    buf_printf(&command, "configure check \"%s\"", m->next);
    m->step = STEP_CHECK;
    bird_control_command(m->control, command.p, on_checked, m);
    buf_done(&command);
}

static void advance(struct mesh *m)
{
    if (m->step != STEP_IDLE || !m->wanted || same(m->wanted, m->refused) ||
        same(m->wanted, m->running))
        return;
    if (bird_control_up(m->control))
        submit(m);
    else
        write_unjudged(m);
}

/* ---- sessions ---- */

static void on_sessions(void *user, const struct bird_reply *reply, const char *why)
{
    struct mesh *m = user;
    bool news = false;
    (void)why;
    m->step = STEP_IDLE;
    for (size_t i = 0; reply && i < m->sessions.n; i++) {
        struct session *s = &m->sessions.v[i];
        bool now = bird_reply_established(reply, s->name);
        if (now != s->established)
            log_info("event=bird_session name=%s established=%s", s->name, now ? "yes" : "no");
        news |= now != s->established;
        s->established = now;
    }
    if (news)
        tell(m);
    advance(m);
}

static void on_ask(uv_timer_t *t)
{
    struct mesh *m = t->data;
    if (!bird_control_up(m->control)) {
        advance(m); /* its folder may be there now */
        return;
    }
    if (m->step == STEP_IDLE && m->unwritable && same(m->wanted, m->refused))
        submit(m);
    if (m->step == STEP_SETTLE) {
        bird_control_command(m->control, "show status", on_settled, m);
    } else if (m->step == STEP_IDLE && m->wanted) { /* with no session, too: it may hang */
        m->step = STEP_ASK;
        bird_control_command(m->control, "show protocols", on_sessions, m);
    }
}

static bool was_established(const struct mesh *m, const char *name)
{
    for (size_t i = 0; i < m->sessions.n; i++)
        if (!strcmp(m->sessions.v[i].name, name))
            return m->sessions.v[i].established;
    return false;
}

static void list_sessions(struct mesh *m, const struct bird_config *c)
{
    VEC(struct session) fresh = { 0 };
    for (size_t i = 0; i < m->tables.n && !m->gone; i++)
        vec_push(&m->left, m->tables.v[i]);
    m->tables.n = 0;
    for (size_t i = 0; i < c->n_tables; i++) {
        const struct bird_mesh *mesh = c->tables[i].mesh;
        vec_push(&m->tables, c->tables[i].number);
        for (size_t j = 0; mesh && j < mesh->n_peers; j++) {
            struct session s = { .table = c->tables[i].number };
            bird_session_name(s.table, mesh->peers[j].node, mesh->peers[j].remote.family, s.name);
            s.established = was_established(m, s.name);
            vec_push(&fresh, s);
        }
    }
    vec_done(&m->sessions);
    memcpy(&m->sessions, &fresh, sizeof(fresh));
}

/* ---- BIRD comes and goes ---- */

static void on_away(uv_timer_t *t)
{
    struct mesh *m = t->data;
    struct err err;
    m->gone = true;
    tell(m);
    advance(m);
    for (size_t i = 0; i < m->tables.n; i++)
        vec_push(&m->left, m->tables.v[i]);
    int n = bird_flush_routes(m->port, m->left.v, m->left.n, &err);
    m->left.n = 0;
    if (n < 0) {
        log_error("event=bird_stale text=%s", log_quote(err.text));
        return;
    }
    m->flushes += n > 0;
    m->flushed_routes += (uint64_t)n;
    log_warn("event=bird_stale away_ms=%u routes_flushed=%d cause=%s", m->away_ms, n,
             log_quote(m->down));
}

static void on_state(void *user, bool up, const char *why)
{
    struct mesh *m = user;
    bool was_up = !*m->down;
    m->known = true;
    snprintf(m->down, sizeof(m->down), "%s", up ? "" : why);
    m->step = STEP_IDLE;
    free(m->running);
    m->running = NULL;
    log_write(up ? LOG_INFO : LOG_WARN, "event=bird_%s cause=%s", up ? "up" : "away",
              log_quote(why));
    if (up) { /* perhaps another than before: let it judge anew */
        uv_timer_stop(&m->away);
        m->gone = false;
        m->unwritten[0] = '\0';
        free(m->refused);
        m->refused = NULL;
    } else if (was_up) {
        uv_timer_start(&m->away, on_away, m->away_ms, 0);
    }
    for (size_t i = 0; !up && i < m->sessions.n; i++)
        m->sessions.v[i].established = false;
    tell(m);
    advance(m);
}

/* ---- for the pass ---- */

void mesh_want(struct mesh *m, const struct bird_config *config)
{
    struct bird_config none = { .router_id = m->router_id };
    /* Of a class that went while no agent was there. */
    bool leftover = !config && !m->wanted && file_says(m->conf, BIRD_CONF_HEAD, true);
    if (!config && !m->wanted && !leftover)
        return;
    if (!config)
        config = &none;
    m->router_id = config->router_id;
    struct buf text = { 0 };
    bird_render(config, &text);
    if (same(text.p, m->wanted)) {
        buf_done(&text);
        return;
    }
    free(m->wanted);
    m->wanted = text.p;
    list_sessions(m, config);
    advance(m);
}

static uint32_t count(const struct mesh *m, uint32_t table, bool established)
{
    uint32_t n = 0;
    for (size_t i = 0; i < m->sessions.n; i++)
        n += m->sessions.v[i].table == table && m->sessions.v[i].established == established;
    return n;
}

const struct bird_applied *mesh_applied(struct mesh *m)
{
    const char *reason = "";
    m->message[0] = '\0';
    m->counts.n = 0;
    for (size_t i = 0; i < m->tables.n; i++)
        vec_push(&m->counts,
                 (struct bird_sessions){ m->tables.v[i], count(m, m->tables.v[i], true) });
    if (*m->down) {
        reason = "BirdAway";
        snprintf(m->message, sizeof(m->message), "BIRD's control socket: %s%s%s", m->down,
                 *m->unwritten ? "; "
                 : m->gone     ? GONE_HINT
                               : "",
                 m->unwritten);
    } else if (same(m->wanted, m->refused)) {
        reason = "ConfigurationRefused";
        snprintf(m->message, sizeof(m->message), "BIRD keeps the configuration before: %s", m->why);
    } else if (m->wanted && !same(m->wanted, m->running)) {
        reason = "Configuring";
        snprintf(m->message, sizeof(m->message), "BIRD has not acknowledged its configuration yet");
    }
    m->applied = (struct bird_applied){ reason, m->message, m->counts.v, m->counts.n };
    return &m->applied;
}

const uint32_t *mesh_unsettled(const struct mesh *m, size_t *ret_n)
{
    bool settled =
        m->known && (*m->down || same(m->wanted, m->refused) || same(m->wanted, m->running));
    *ret_n = settled ? 0 : m->tables.n;
    return m->tables.v;
}

/* ---- metrics ---- */

static void put_sessions(const struct mesh *m, struct buf *out)
{
    prom_family(out, "portolan_bird_sessions", "gauge", "Sessions of BIRD's, by table and state.");
    for (size_t i = 0; i < m->tables.n; i++)
        for (int on = 1; on >= 0; on--)
            buf_printf(out,
                       "portolan_bird_sessions{table=\"%" PRIu32 "\",state=\"%s\"} %" PRIu32 "\n",
                       m->tables.v[i], on ? "established" : "other", count(m, m->tables.v[i], on));
}

static void put_routes(const struct mesh *m, struct buf *out)
{
    uint32_t *n = xcalloc(m->tables.n + 1, sizeof(*n));
    if (!bird_count_routes(m->port, m->tables.v, m->tables.n, n, NULL)) {
        prom_family(out, "portolan_bird_routes", "gauge",
                    "Routes of BIRD's in the kernel, by table.");
        for (size_t i = 0; i < m->tables.n; i++)
            buf_printf(out, "portolan_bird_routes{table=\"%" PRIu32 "\"} %" PRIu32 "\n",
                       m->tables.v[i], n[i]);
    }
    free(n);
}

void mesh_metrics(const struct mesh *m, struct buf *out)
{
    prom_single(out, "portolan_bird_up", "gauge", "Whether BIRD's control socket answers.",
                !*m->down);
    put_sessions(m, out);
    put_routes(m, out);
    prom_single(out, "portolan_bird_flushes_total", "counter",
                "Times BIRD was away for so long that routes of its were flushed.", m->flushes);
    prom_single(out, "portolan_bird_flushed_routes_total", "counter", "Routes flushed then.",
                m->flushed_routes);
    prom_single(out, "portolan_bird_refusals_total", "counter",
                "Configurations that could not be taken into use.", m->refusals);
}

/* ---- life ---- */

struct mesh *mesh_open(const struct mesh_options *opt, uv_loop_t *loop, struct nl_port *port,
                       void (*changed)(void *user), void *user)
{
    struct mesh *m = xcalloc(1, sizeof(*m));
    struct buf next = { 0 };
    buf_printf(&next, "%s.new", opt->conf);
    m->conf = xstrdup(opt->conf);
    m->next = next.p;
    m->away_ms = opt->away_seconds * 1000;
    m->port = port;
    m->changed = changed;
    m->user = user;
    m->router_id = ip_v4(127, 0, 0, 1); /* where there are no sessions any will do */
    snprintf(m->down, sizeof(m->down), "not connected yet");
    uv_timer_init(loop, &m->ask);
    uv_timer_init(loop, &m->away);
    m->ask.data = m->away.data = m;
    uv_timer_start(&m->ask, on_ask, ASK_MS, ASK_MS);
    uv_timer_start(&m->away, on_away, m->away_ms, 0);
    struct bird_control_options control = { .path = opt->socket, .user = m, .state = on_state };
    m->control = bird_control_open(loop, &control);
    return m;
}

static void close_timer(uv_timer_t *t)
{
    if (!uv_is_closing((uv_handle_t *)t))
        uv_close((uv_handle_t *)t, NULL);
}

void mesh_close(struct mesh *m)
{
    if (!m)
        return;
    bird_control_close(m->control);
    close_timer(&m->ask);
    close_timer(&m->away);
}

void mesh_free(struct mesh *m)
{
    if (!m)
        return;
    free(m->conf);
    free(m->next);
    free(m->tried);
    free(m->wanted);
    free(m->running);
    free(m->refused);
    vec_done(&m->sessions);
    vec_done(&m->tables);
    vec_done(&m->left);
    vec_done(&m->counts);
    free(m);
}
