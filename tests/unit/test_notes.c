#include "test.h"

#include <string.h>
#include <unistd.h>

#include "agent/notes.h"

/* What one round writes to stderr. */
static const char *round_of(struct notes *n, const char *const *texts, size_t count)
{
    static char out[4096];
    int pipe_fd[2], saved = dup(STDERR_FILENO);
    assert_return_code(pipe(pipe_fd), 0);
    dup2(pipe_fd[1], STDERR_FILENO);
    notes_begin(n);
    for (size_t i = 0; i < count; i++)
        notes_say(n, LOG_WARN, "problem", texts[i]);
    notes_end(n);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(pipe_fd[1]);
    ssize_t len = read(pipe_fd[0], out, sizeof(out) - 1);
    close(pipe_fd[0]);
    out[len > 0 ? len : 0] = 0;
    return out;
}

static void says_a_fact_when_it_comes_and_when_it_goes(void **state)
{
    (void)state;
    struct notes n = { 0 };
    const char *const a[] = { "a=1" }, *const ab[] = { "a=1", "b=2" };
    assert_non_null(strstr(round_of(&n, a, 1), "level=warn event=problem a=1"));
    assert_string_equal(round_of(&n, a, 1), "");
    const char *third = round_of(&n, ab, 2);
    assert_non_null(strstr(third, "b=2"));
    assert_null(strstr(third, "a=1"));
    const char *fourth = round_of(&n, ab + 1, 1);
    assert_non_null(strstr(fourth, "event=cleared was=\"event=problem a=1\""));
    assert_string_equal(round_of(&n, ab + 1, 1), "");
    notes_done(&n);
}

static void quotes_what_would_break_a_line(void **state)
{
    (void)state;
    assert_string_equal(log_quote("a \"b\" \\ \n\x01"), "\"a \\\"b\\\" \\\\ \\n\\x01\"");
    assert_string_equal(log_quote(NULL), "\"\"");
}

static void a_full_pipe_drops_lines_and_says_how_many(void **state)
{
    (void)state;
    static char out[1 << 20];
    int pipe_fd[2], saved = dup(STDERR_FILENO);
    assert_return_code(pipe(pipe_fd), 0);
    dup2(pipe_fd[1], STDERR_FILENO);
    close(pipe_fd[1]);
    alarm(20); /* a write that blocks would last for ever */
    for (int i = 0; i < 5000; i++)
        log_info("event=line number=%d", i);
    ssize_t first = read(pipe_fd[0], out, sizeof(out) - 1);
    log_info("event=last");
    ssize_t second = read(pipe_fd[0], out, sizeof(out) - 1);
    alarm(0);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(pipe_fd[0]);
    assert_true(first > 0 && second > 0);
    out[second] = 0;
    assert_non_null(strstr(out, "event=log_dropped lines="));
    assert_non_null(strstr(out, "event=last"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_a_fact_when_it_comes_and_when_it_goes),
        cmocka_unit_test(quotes_what_would_break_a_line),
        cmocka_unit_test(a_full_pipe_drops_lines_and_says_how_many),
    };
    return cmocka_run_group_tests_name("notes", tests, NULL, NULL);
}
