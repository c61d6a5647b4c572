#include "test.h"

#include <string.h>
#include <unistd.h>

#include "agent/few.h"
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

/* `n` problems of an object, the last of which is one for an Event. */
static size_t add(struct problem *v, size_t at, const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[at + i] = (struct problem){ KIND_SERVICE, "games", name, i == FEW ? "first" : "f",
                                      "",           "Bad",   "",   i == n - 1 };
    return at + n;
}

static void of_one_object_ten_problems_are_told(void **state)
{
    (void)state;
    static struct problem v[5100];
    struct arena mem = { 0 };
    size_t n = add(v, 0, "a", 3);
    n = add(v, n, "b", FEW);
    n = add(v, n, "c", 5000);
    n = add(v, n, "d", FEW + 1);
    const struct problems all = { v, n };
    struct problems few = few_problems(&mem, &all);
    assert_int_equal(few.n, 3 + FEW + (FEW + 1) + (FEW + 1));
    for (size_t i = 0; i < few.n; i++) {
        bool more = i == 3 + FEW + FEW || i == few.n - 1;
        assert_string_equal(few.v[i].reason, more ? "MoreProblems" : "Bad");
        if (more) { /* the first that is left out, and an Event when any of them is one */
            assert_string_equal(few.v[i].field, "first");
            assert_true(few.v[i].event);
            assert_non_null(
                strstr(few.v[i].message, i == few.n - 1 ? "of 1 more" : "of 4990 more"));
        }
    }
    arena_done(&mem);
}

static void of_one_owner_ten_refusals_are_told(void **state)
{
    (void)state;
    static struct refusal v[300];
    const struct refusal *few;
    struct arena mem = { 0 };
    for (size_t i = 0; i < 300; i++)
        v[i] = (struct refusal){ i < 280 ? "a" : "b", i == FEW ? "first" : "o", 17, "no" };
    assert_int_equal(few_refusals(&mem, v, 290, &few), FEW + 1 + FEW);
    assert_string_equal(few[FEW].object, "first");
    assert_string_equal(few[FEW].text,
                        "one of 270 more refusals of this owner, which are not listed");
    assert_string_equal(few[FEW + 1].owner, "b");
    assert_string_equal(few[2 * FEW].text, "no");
    arena_done(&mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_a_fact_when_it_comes_and_when_it_goes),
        cmocka_unit_test(quotes_what_would_break_a_line),
        cmocka_unit_test(a_full_pipe_drops_lines_and_says_how_many),
        cmocka_unit_test(of_one_object_ten_problems_are_told),
        cmocka_unit_test(of_one_owner_ten_refusals_are_told),
    };
    return cmocka_run_group_tests_name("notes", tests, NULL, NULL);
}
