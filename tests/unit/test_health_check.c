/* Health-check node ports on a loop and a namespace of their own; curl is the witness. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/health_check.h"
#include "base/clock.h"
#include "netns.h"

struct world {
    uv_loop_t loop;
    struct health health;
    struct health_checks checks;
    struct notes notes;
};

static struct world *world_new(void)
{
    struct world *w = xcalloc(1, sizeof(*w));
    netns_new();
    uv_loop_init(&w->loop);
    w->checks.loop = &w->loop;
    w->checks.health = &w->health;
    return w;
}

static void world_free(struct world *w)
{
    health_checks_close(&w->checks);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    notes_done(&w->notes);
    free(w);
}

static int sync_checks(struct world *w, const struct health_check *checks, size_t n,
                       const char *address, struct err *err)
{
    struct ip ip;
    assert_true(ip_parse(address, &ip));
    notes_begin(&w->notes);
    int r = health_checks_sync(&w->checks, checks, n, &ip, 1, &w->notes, err);
    notes_end(&w->notes);
    return r;
}

static void serve(struct world *w, const struct health_check *checks, size_t n, const char *address)
{
    struct err err;
    if (sync_checks(w, checks, n, address, &err))
        fail_msg("%s", err.text);
}

/* What curl says, while the loop turns. */
static const char *curl(struct world *w, const char *url)
{
    static char text[2000];
    char command[300];
    snprintf(command, sizeof(command), "curl -g -s -i -m 5 '%s' || echo failed", url);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t n = 0;
    int64_t end = clock_mono_us() + 10000000;
    /* The answer comes from this very thread: turn the loop until curl has ended. */
    int fd = fileno(f);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    for (;;) {
        uv_run(&w->loop, UV_RUN_NOWAIT);
        ssize_t got = read(fd, text + n, sizeof(text) - 1 - n);
        if (!got)
            break;
        if (got > 0)
            n += (size_t)got;
        assert_true(clock_mono_us() < end);
        netns_pause();
    }
    pclose(f);
    text[n] = 0;
    return text;
}

static void answers_say_how_many_endpoints_are_here(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct health_check checks[] = { { 32000, "games", "a", 2 }, { 32001, "games", "b", 0 } };
    serve(w, checks, 2, "::");
    const char *urls[] = { "http://127.0.0.1:32000/", "http://[::1]:32000/any/path" };
    for (size_t i = 0; i < 2; i++) {
        const char *a = curl(w, urls[i]);
        assert_non_null(strstr(a, "HTTP/1.1 200 "));
        assert_non_null(strstr(a, "X-Load-Balancing-Endpoint-Weight: 2\r\n"));
        assert_non_null(strstr(a, "Content-Type: application/json\r\n"));
        assert_non_null(strstr(a, "\r\n\r\n{\"service\":{\"namespace\":\"games\",\"name\":\"a\"},"
                                  "\"localEndpoints\":2,\"serviceProxyHealthy\":true}\n"));
    }
    const char *none = curl(w, "http://127.0.0.1:32001/");
    assert_non_null(strstr(none, "HTTP/1.1 503 "));
    assert_non_null(strstr(none, "X-Load-Balancing-Endpoint-Weight: 0\r\n"));
    world_free(w);
}

static void a_proxy_that_is_late_is_not_healthy(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct health_check check = { 32000, "games", "a", 2 };
    serve(w, &check, 1, "127.0.0.1");
    health_update(&w->health, clock_wall());
    health_queue(&w->health, clock_mono_us() - HEALTH_PATIENCE_US);
    const char *a = curl(w, "http://127.0.0.1:32000/");
    assert_non_null(strstr(a, "HTTP/1.1 503 "));
    assert_non_null(strstr(a, "\"localEndpoints\":2,\"serviceProxyHealthy\":false"));
    world_free(w);
}

static void ports_follow_what_is_wanted(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct health_check check = { 32000, "games", "a", 1 };
    serve(w, &check, 1, "::");
    check = (struct health_check){ 32000, "games", "other", 3 };
    serve(w, &check, 1, "::");
    assert_non_null(
        strstr(curl(w, "http://127.0.0.1:32000/"), "\"name\":\"other\"},\"localEndpoints\":3"));
    check.port = 32002;
    serve(w, &check, 1, "::");
    assert_string_equal(curl(w, "http://127.0.0.1:32000/"), "failed\n");
    assert_non_null(strstr(curl(w, "http://127.0.0.1:32002/"), "HTTP/1.1 200 "));
    serve(w, NULL, 0, "::");
    assert_string_equal(curl(w, "http://127.0.0.1:32002/"), "failed\n");
    assert_string_equal(output("ss -Htln"), "");
    world_free(w);
}

/* From 127.0.0.`client`. */
static int dial(uint8_t client, uint16_t port)
{
    struct sockaddr_in from = { .sin_family = AF_INET };
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
    from.sin_addr.s_addr = htonl((INADDR_LOOPBACK & 0xffffff00) | client);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&from, sizeof(from)), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* One more than are served at a time: the loop turns until the last of them has to wait. */
static void a_crowd_that_leaves_makes_room(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct health_check check = { 32000, "games", "a", 2 };
    serve(w, &check, 1, "127.0.0.1");
    int fds[129];
    for (size_t i = 0; i < 129; i++)
        fds[i] = dial((uint8_t)(2 + i / 16), 32000);
    int64_t end = clock_mono_us() + 10000000;
    while (strncmp(output("ss -Htln | awk '{print $2}'"), "1\n", 2)) {
        uv_run(&w->loop, UV_RUN_NOWAIT);
        assert_true(clock_mono_us() < end);
    }
    for (size_t i = 0; i < 129; i++)
        close(fds[i]);
    assert_non_null(strstr(curl(w, "http://127.0.0.1:32000/"), "HTTP/1.1 200 "));
    world_free(w);
}

static void one_stranger_leaves_room_for_others(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct health_check check = { 32000, "games", "a", 2 };
    serve(w, &check, 1, "127.0.0.1");
    int fds[140];
    for (size_t i = 0; i < 140; i++) {
        fds[i] = dial(2, 32000);
        uv_run(&w->loop, UV_RUN_NOWAIT);
    }
    assert_non_null(strstr(curl(w, "http://127.0.0.1:32000/"), "HTTP/1.1 200 "));
    for (size_t i = 0; i < 140; i++)
        close(fds[i]);
    world_free(w);
}

static void a_port_that_is_taken_is_tried_again(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct err err = { 0 };
    struct health_check check = { 32000, "games", "a", 1 };
    struct http *other;
    struct http_address address;
    const struct http_handler nobody = { 0 };
    assert_true(http_address_parse("127.0.0.1:32000", &address));
    assert_int_equal(http_open(&address, &w->loop, &nobody, &other, &err), 0);
    assert_int_equal(sync_checks(w, &check, 1, "127.0.0.1", &err), -EADDRINUSE);
    assert_string_equal(err.text, "health check of service games/a: 127.0.0.1:32000: Address "
                                  "already in use");
    http_close(other);
    serve(w, &check, 1, "127.0.0.1");
    assert_non_null(strstr(curl(w, "http://127.0.0.1:32000/"), "HTTP/1.1 200 "));
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_say_how_many_endpoints_are_here),
        cmocka_unit_test(a_proxy_that_is_late_is_not_healthy),
        cmocka_unit_test(ports_follow_what_is_wanted),
        cmocka_unit_test(a_crowd_that_leaves_makes_room),
        cmocka_unit_test(one_stranger_leaves_room_for_others),
        cmocka_unit_test(a_port_that_is_taken_is_tried_again),
    };
    return cmocka_run_group_tests_name("health_check", tests, NULL, NULL);
}
