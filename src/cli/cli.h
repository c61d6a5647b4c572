/* The command line: a table of subcommands, each a table of options. --help is printed from
 * the same tables that parse, and a test compares it with man/portolan.8. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2 }; /* exit status */

struct cli_option {
    char letter;      /* 0: long form only */
    const char *name; /* without the dashes */
    /* Placeholder, NULL for a flag. In the plural, such as CIDRS, a list with commas: given again, the
     * option adds to it. */
    const char *arg;
    const char *help;
    const char *value; /* the default before parsing, the given text after */
    bool given;
};

struct cli_command {
    const char *name;
    const char *args; /* positional arguments as shown in usage, "" for none */
    const char *summary;
    struct cli_option *options; /* ended by a NULL name */
    size_t min_args, max_args;
    int (*run)(const struct cli_command *cmd, char **args, size_t n_args);
};

extern const struct cli_command cmd_agent, cmd_plan, cmd_diff, cmd_get, cmd_cleanup, cmd_version;

/* The option's value. The name must be in the table. */
const char *cli_value(const struct cli_command *cmd, const char *name);
bool cli_given(const struct cli_command *cmd, const char *name);
/* --node, as a Node object can be called; else CLI_USAGE, the reason printed. */
int cli_node(const struct cli_command *cmd, const char **ret);
/* Whole numbers within bounds; on failure prints what would be right and returns CLI_USAGE. */
int cli_number(const struct cli_command *cmd, const char *name, unsigned min, unsigned max,
               unsigned *ret);
/* "portolan: TEXT" on stderr; returns CLI_FAILED. */
int cli_fail(const char *text);
/* The same for -errno of the kernel: a lack of rights is said so. */
int cli_fail_kernel(int error, const char *text);
/* The same with a hint at --help; returns CLI_USAGE. */
int cli_usage(const struct cli_command *cmd, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
