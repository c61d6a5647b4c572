/* The control socket: a scripted BIRD on the other side that does what a real one will not, then a
 * real one. */
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "bird/control.h"
#include "bird/render.h"
#include "bird_world.h"
#include "netns.h"

static char folder[64];

struct world {
    uv_loop_t loop;
    uv_timer_t tick; /* so that a turn of the loop ends */
    struct bird_control *control;
    char path[108];
    int listener, peer; /* the scripted BIRD's; -1: none */
    unsigned ups, downs;
    char why[200];
    unsigned replies, failures;
    char text[400]; /* of the last reply: "CODE text\n" for each line */
    char order[100];
    bool close_in_callback;
};

static void on_tick(uv_timer_t *t)
{
    (void)t;
}

static void on_state(void *user, bool up, const char *why)
{
    struct world *w = user;
    if (up)
        w->ups++;
    else
        w->downs++;
    snprintf(w->why, sizeof(w->why), "%s", why);
}

static void on_done(void *user, const struct bird_reply *reply, const char *why)
{
    struct world *w = user;
    struct buf b = { 0 };
    for (size_t i = 0; reply && i < reply->lines.n; i++)
        buf_printf(&b, "%u %s\n", reply->lines.v[i].code, reply->lines.v[i].text);
    if (reply) {
        w->replies++;
        snprintf(w->text, sizeof(w->text), "%s", buf_str(&b));
    } else {
        w->failures++;
        snprintf(w->text, sizeof(w->text), "%s", why);
    }
    buf_done(&b);
    if (w->close_in_callback) {
        bird_control_close(w->control);
        w->control = NULL;
    }
}

/* Turns the loop until the condition holds, for ten seconds at most. */
#define until(w, condition)                                       \
    do {                                                          \
        int64_t end_ = clock_mono_us() + 10000000;                \
        while (!(condition)) {                                    \
            if (clock_mono_us() > end_)                           \
                fail_msg("never: " #condition " (%s)", (w)->why); \
            uv_run(&(w)->loop, UV_RUN_ONCE);                      \
        }                                                         \
    } while (0)

static void listen_there(struct world *w)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", w->path);
    unlink(w->path);
    w->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(w->listener, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(w->listener, 5), 0);
}

static void open_world(struct world *w, const char *name, unsigned reply_ms)
{
    *w = (struct world){ .listener = -1, .peer = -1 };
    snprintf(w->path, sizeof(w->path), "%s/%s", folder, name);
    uv_loop_init(&w->loop);
    uv_timer_init(&w->loop, &w->tick);
    uv_timer_start(&w->tick, on_tick, 5, 5);
    struct bird_control_options opt = {
        .path = w->path, .user = w, .state = on_state, .reply_ms = reply_ms, .retry_ms = 10
    };
    w->control = bird_control_open(&w->loop, &opt);
}

static void hang_up(struct world *w)
{
    close(w->peer);
    w->peer = -1;
}

static void close_world(struct world *w)
{
    bird_control_close(w->control);
    uv_close((uv_handle_t *)&w->tick, NULL);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    if (w->peer >= 0)
        close(w->peer);
    if (w->listener >= 0)
        close(w->listener);
}

static void say(struct world *w, const char *text)
{
    assert_int_equal(write(w->peer, text, strlen(text)), strlen(text));
}

static void take_peer(struct world *w)
{
    until(w, (w->peer = accept4(w->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0);
}

static void greet(struct world *w)
{
    unsigned ups = w->ups;
    take_peer(w);
    say(w, "0001 BIRD 2.0.12 ready.\n");
    until(w, w->ups == ups + 1);
}

/* Both sides, which have met. */
static void open_greeted(struct world *w, const char *name)
{
    open_world(w, name, 0);
    listen_there(w);
    greet(w);
}

/* The scripted BIRD has been asked this. */
static void expect_asked(struct world *w, const char *command)
{
    char got[200] = "";
    ssize_t n = 0;
    size_t have = 0;
    until(w, (n = read(w->peer, got + have, sizeof(got) - 1 - have)) > 0 &&
                 got[(have += (size_t)n) - 1] == '\n');
    got[have] = '\0';
    assert_string_equal(got, command);
}

static void command(struct world *w, const char *text)
{
    bird_control_command(w->control, text, on_done, w);
}

/* ---- scripted ---- */

static void a_reply_in_pieces_is_one_reply(void **state)
{
    (void)state;
    struct world w;
    open_greeted(&w, "pieces");
    assert_true(bird_control_up(w.control));
    command(&w, "show status");
    expect_asked(&w, "show status\n");
    static const char text[] = "1000-BIRD\n+noise\n an\n0013 Daemon is up\n";
    for (size_t i = 0; text[i]; i++) {
        char one[2] = { text[i], '\0' };
        assert_int_equal(w.replies, 0);
        say(&w, one);
        uv_run(&w.loop, UV_RUN_NOWAIT);
    }
    until(&w, w.replies == 1);
    assert_string_equal(w.text, "1000 BIRD\n1000 an\n13 Daemon is up\n");
    close_world(&w);
}

static void commands_wait_for_each_other(void **state)
{
    (void)state;
    struct world w;
    open_greeted(&w, "queue");
    command(&w, "one");
    command(&w, "two");
    expect_asked(&w, "one\n"); /* and not more */
    say(&w, "0001 a\n");
    until(&w, w.replies == 1);
    expect_asked(&w, "two\n");
    say(&w, "8002 f:3:1 syntax error\n");
    until(&w, w.replies == 2);
    assert_string_equal(w.text, "8002 f:3:1 syntax error\n");
    close_world(&w);
}

static void it_connects_again_and_says_so_once(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, "again", 0);
    until(&w, w.downs == 1);
    assert_string_equal(w.why, "no such file or directory");
    command(&w, "lost");
    until(&w, w.failures == 1);
    assert_string_equal(w.text, "no such file or directory");
    assert_int_equal(w.downs, 1); /* tried again meanwhile */
    listen_there(&w);
    greet(&w);
    command(&w, "one");
    command(&w, "two");
    expect_asked(&w, "one\n");
    hang_up(&w);
    until(&w, w.failures == 3);
    assert_int_equal(w.downs, 2);
    assert_string_equal(w.why, "BIRD has closed the connection");
    greet(&w);
    assert_int_equal(w.ups, 2);
    close_world(&w);
}

static void silence_ends_the_connection(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, "silent", 50);
    listen_there(&w);
    take_peer(&w); /* and no greeting */
    until(&w, w.downs == 1 && !strcmp(w.why, "BIRD does not answer"));
    hang_up(&w);
    greet(&w);
    command(&w, "show status");
    expect_asked(&w, "show status\n");
    say(&w, "1000-begun\n");
    until(&w, w.failures == 1);
    assert_string_equal(w.text, "BIRD does not answer");
    assert_false(bird_control_up(w.control));
    close_world(&w);
}

static void strangers_are_left(void **state)
{
    (void)state;
    static const char *const texts[] = { "SSH-2.0-OpenSSH\n", "0013 not a greeting\n",
                                         "8001 access denied\n" };
    struct world w;
    open_world(&w, "stranger", 0);
    listen_there(&w);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        w.why[0] = '\0';
        take_peer(&w);
        say(&w, texts[i]);
        char byte;
        until(&w, read(w.peer, &byte, 1) == 0); /* it hangs up */
        hang_up(&w);
    }
    assert_int_equal(w.downs, 1);
    assert_int_equal(w.ups, 0);
    greet(&w);
    say(&w, "0000 nobody asked\n");
    until(&w, w.downs == 2);
    assert_string_equal(w.why, "BIRD answers without being asked");
    close_world(&w);
}

static void a_line_without_end_is_given_up(void **state)
{
    (void)state;
    char text[4097];
    memset(text, 'x', sizeof(text));
    text[4096] = '\0';
    struct world w;
    open_greeted(&w, "endless");
    for (int i = 0; i < 17; i++) {
        say(&w, text);
        uv_run(&w.loop, UV_RUN_NOWAIT);
    }
    until(&w, w.downs == 1);
    close_world(&w);
}

/* Nobody waits for a reply then, so no patience ends. */
static void a_reply_without_end_is_given_up(void **state)
{
    (void)state;
    char text[4096];
    for (size_t i = 0; i + 7 < sizeof(text); i += 7)
        memcpy(text + i, "0001-x\n", 8);
    size_t len = strlen(text), sent = 0;
    struct world w;
    open_greeted(&w, "unbounded");
    while (!w.downs && sent < 64u << 20) {
        ssize_t n = send(w.peer, text + sent % len, len - sent % len, MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        uv_run(&w.loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(w.downs, 1);
    assert_string_equal(w.why, "what answers is not BIRD");
    close_world(&w);
}

static void a_callback_may_close(void **state)
{
    (void)state;
    struct world w;
    open_greeted(&w, "closing");
    w.close_in_callback = true;
    command(&w, "one");
    command(&w, "two");
    expect_asked(&w, "one\n");
    say(&w, "0000 \n0000 \n");
    until(&w, w.replies == 1);
    for (int i = 0; i < 5; i++)
        uv_run(&w.loop, UV_RUN_ONCE);
    assert_int_equal(w.replies + w.failures, 1);
    close_world(&w);
    open_world(&w, "nowhere", 0);
    w.close_in_callback = true;
    command(&w, "one");
    command(&w, "two");
    until(&w, w.failures == 1);
    close_world(&w);
}

static void a_path_too_long_is_told(void **state)
{
    (void)state;
    struct world w;
    char name[60];
    memset(name, 'n', sizeof(name));
    name[59] = '\0';
    open_world(&w, name, 0);
    bird_control_close(w.control);
    char path[300];
    memset(path, 'p', sizeof(path));
    path[299] = '\0';
    struct bird_control_options opt = { .path = path, .user = &w, .state = on_state };
    w.control = bird_control_open(&w.loop, &opt);
    until(&w, w.downs == 1);
    assert_non_null(strstr(w.why, "longer than"));
    close_world(&w);
}

/* ---- a real BIRD ---- */

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void birds_own_parser_takes_what_is_rendered(void **state)
{
    (void)state;
    for (int design = 0; design < BIRD_DESIGNS; design++)
        for (int bfd = 0; bfd < 2; bfd++) {
            char path[128];
            struct buf text = { 0 };
            bird_render(bird_world((enum bird_design)design, bfd), &text);
            snprintf(path, sizeof(path), "%s/%d%d.conf", folder, design, bfd);
            write_text(path, text.p);
            run("/usr/sbin/bird -p -c %s", path);
            buf_done(&text);
        }
}

static pid_t start_bird(const char *conf, const char *socket)
{
    char pid_file[128];
    snprintf(pid_file, sizeof(pid_file), "%s/bird.pid", folder);
    pid_t pid = fork();
    if (!pid) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 2);
        execl("/usr/sbin/bird", "bird", "-f", "-c", conf, "-s", socket, "-P", pid_file, NULL);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}

static bool has_session(struct world *w)
{
    char name[BIRD_SYMBOL_MAX];
    bird_session_name(47, "k8s-3.example", IP_V6, name);
    return strstr(w->text, name) != NULL;
}

static void ask(struct world *w, const char *text)
{
    unsigned before = w->replies;
    command(w, text);
    until(w, w->replies == before + 1);
}

static void a_real_bird_is_configured(void **state)
{
    (void)state;
    char conf[128], next[128], text[300];
    struct world w;
    netns_new();
    snprintf(conf, sizeof(conf), "%s/bird.conf", folder);
    snprintf(next, sizeof(next), "%s/bird.conf.new", folder);
    write_text(conf, "router id 10.0.0.1;\nprotocol device { }\n");
    open_world(&w, "bird.ctl", 0);
    pid_t pid = start_bird(conf, w.path);
    until(&w, w.ups == 1);
    ask(&w, "show status");
    assert_non_null(strstr(w.text, "\n13 Daemon is up and running\n"));

    write_text(next, "router id 10.0.0.1;\nprotocol device { }\nprotocol nonsense { }\n");
    snprintf(text, sizeof(text), "configure check \"%s\"", next);
    ask(&w, text);
    assert_non_null(strstr(w.text, "8002 "));
    assert_non_null(strstr(w.text, "bird.conf.new:3:"));

    struct buf good = { 0 };
    bird_render(bird_world(BIRD_HYBRID, false), &good);
    write_text(next, good.p);
    ask(&w, text);
    assert_non_null(strstr(w.text, "\n20 Configuration OK\n"));
    assert_int_equal(rename(next, conf), 0);
    ask(&w, "configure");
    assert_non_null(strstr(w.text, "\n3 Reconfigured\n"));
    char show[100], name[BIRD_SYMBOL_MAX];
    bird_session_name(47, "k8s-3.example", IP_V6, name);
    snprintf(show, sizeof(show), "show protocols \"%s\"", name);
    ask(&w, show);
    assert_true(has_session(&w));

    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    until(&w, w.downs == 1);
    pid = start_bird(conf, w.path);
    until(&w, w.ups == 2);
    ask(&w, show);
    assert_true(has_session(&w));
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    buf_done(&good);
    close_world(&w);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/portolan-bird-XXXXXX");
    signal(SIGPIPE, SIG_IGN);
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    run("rm -r %s", folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reply_in_pieces_is_one_reply),
        cmocka_unit_test(commands_wait_for_each_other),
        cmocka_unit_test(it_connects_again_and_says_so_once),
        cmocka_unit_test(silence_ends_the_connection),
        cmocka_unit_test(strangers_are_left),
        cmocka_unit_test(a_line_without_end_is_given_up),
        cmocka_unit_test(a_reply_without_end_is_given_up),
        cmocka_unit_test(a_callback_may_close),
        cmocka_unit_test(a_path_too_long_is_told),
        cmocka_unit_test(birds_own_parser_takes_what_is_rendered),
        cmocka_unit_test(a_real_bird_is_configured),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
