#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "cli/cli.h"

static const struct cli_command *const commands[] = {
    &cmd_agent, &cmd_plan, &cmd_diff, &cmd_get, &cmd_cleanup, &cmd_version,
};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_help(void)
{
    puts("portolan - brings outside traffic to pods, with the client's own address intact\n\n"
         "Usage: portolan COMMAND [OPTIONS]\n\nCommands:");
    for (size_t i = 0; i < N_COMMANDS; i++)
        printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    puts("\n'portolan COMMAND --help' lists a command's options; portolan(8) tells the rest.\n"
         "Exit status: 0 done, 1 failed, 2 usage.");
}

static void print_command_help(const struct cli_command *cmd)
{
    printf("Usage: portolan %s%s%s [OPTIONS]\n\n%s\n\nOptions:\n", cmd->name, *cmd->args ? " " : "",
           cmd->args, cmd->summary);
    for (const struct cli_option *o = cmd->options; o->name; o++) {
        char left[64];
        int n = o->letter ? snprintf(left, sizeof(left), "-%c, --%s", o->letter, o->name)
                          : snprintf(left, sizeof(left), "--%s", o->name);
        if (o->arg)
            snprintf(left + n, sizeof(left) - (size_t)n, " %s", o->arg);
        printf("  %-26s %s", left, o->help);
        if (o->value && *o->value)
            printf(" (default %s)", o->value);
        puts("");
    }
    printf("  %-26s %s\n", "--help", "this text");
}

const char *cli_value(const struct cli_command *cmd, const char *name)
{
    for (const struct cli_option *o = cmd->options; o->name; o++)
        if (!strcmp(o->name, name))
            return o->value ? o->value : "";
    abort();
}

bool cli_given(const struct cli_command *cmd, const char *name)
{
    for (const struct cli_option *o = cmd->options; o->name; o++)
        if (!strcmp(o->name, name))
            return o->given;
    abort();
}

int cli_node(const struct cli_command *cmd, const char **ret)
{
    const char *name = cli_value(cmd, "node");
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.");
    if (!*name)
        return cli_usage(cmd, "--node NAME is needed: the name of a Node object");
    if (name[n] || n > 253)
        return cli_usage(cmd,
                         "--node %s: a Node object's name is needed, of lower case letters, "
                         "digits, '-' and '.', 253 at most",
                         name);
    *ret = name;
    return CLI_DONE;
}

int cli_number(const struct cli_command *cmd, const char *name, unsigned min, unsigned max,
               unsigned *ret)
{
    const char *text = cli_value(cmd, name);
    size_t digits = strspn(text, "0123456789");
    unsigned long v = strtoul(text, NULL, 10);
    if (!digits || digits > 9 || text[digits] || v < min || v > max)
        return cli_usage(cmd, "--%s %s: a whole number from %u to %u is needed", name, text, min,
                         max);
    *ret = (unsigned)v;
    return CLI_DONE;
}

int cli_fail(const char *text)
{
    fprintf(stderr, "portolan: %s\n", text);
    return CLI_FAILED;
}

int cli_fail_kernel(int error, const char *text)
{
    bool rights = (error == -EPERM || error == -EACCES) && geteuid();
    fprintf(stderr, "portolan: %s%s\n", text,
            rights ? "; run it as root, or with CAP_NET_ADMIN" : "");
    return CLI_FAILED;
}

int cli_usage(const struct cli_command *cmd, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("portolan: ", stderr);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "; see 'portolan%s%s --help'\n", cmd ? " " : "", cmd ? cmd->name : "");
    return CLI_USAGE;
}

static struct cli_option *option_at(const struct cli_command *cmd, const char *name, int letter)
{
    for (struct cli_option *o = cmd->options; o->name; o++)
        if (name ? !strcmp(o->name, name) : o->letter && o->letter == letter)
            return o;
    return NULL;
}

static bool is_list(const struct cli_option *o)
{
    return o->arg && o->arg[strlen(o->arg) - 1] == 'S';
}

/* Lives as long as the program. */
static const char *joined(const char *a, const char *b)
{
    size_t n = strlen(a) + strlen(b) + 2;
    char *s = xmalloc(n);
    snprintf(s, n, "%s,%s", a, b);
    return s;
}

/* Fills the options' values and leaves the positional arguments at argv[optind..]. */
static int parse(const struct cli_command *cmd, int argc, char **argv, bool *ret_help)
{
    struct option longs[64] = { 0 };
    char shorts[64] = ":h";
    size_t n = 0, s = 2;
    for (struct cli_option *o = cmd->options; o->name; o++) {
        longs[n++] = (struct option){ o->name, o->arg ? required_argument : no_argument, NULL, 0 };
        if (o->letter) {
            shorts[s++] = o->letter;
            if (o->arg)
                shorts[s++] = ':';
        }
    }
    longs[n] = (struct option){ "help", no_argument, NULL, 'h' };
    opterr = 0;
    for (;;) {
        int index = -1, c = getopt_long(argc, argv, shorts, longs, &index);
        if (c == -1)
            return CLI_DONE;
        if (c == 'h') {
            *ret_help = true;
            return CLI_DONE;
        }
        if (c == ':')
            return cli_usage(cmd, "option %s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_usage(cmd, "unknown option %s", argv[optind - 1]);
        struct cli_option *o = c ? option_at(cmd, NULL, c) : &cmd->options[index];
        const char *value = optarg ? optarg : "yes";
        o->value = is_list(o) && o->given ? joined(o->value, value) : value;
        o->given = true;
    }
}

static int run(const struct cli_command *cmd, int argc, char **argv)
{
    bool help = false;
    for (struct cli_option *o = cmd->options; o->name; o++)
        if (!strcmp(o->name, "node") && getenv("NODE_NAME"))
            o->value = getenv("NODE_NAME"); /* as a DaemonSet passes it down */
    int r = parse(cmd, argc, argv, &help);
    if (r)
        return r;
    if (help) {
        print_command_help(cmd);
        return CLI_DONE;
    }
    size_t n = (size_t)(argc - optind);
    if (n < cmd->min_args || n > cmd->max_args)
        return cli_usage(cmd, "%s arguments: '%s%s%s' is needed",
                         n < cmd->min_args ? "too few" : "too many", cmd->name,
                         *cmd->args ? " " : "", cmd->args);
    return cmd->run(cmd, argv + optind, n);
}

static int version(const struct cli_command *cmd, char **args, size_t n_args)
{
    (void)cmd;
    (void)args;
    (void)n_args;
    puts("portolan " PORTOLAN_VERSION);
    return CLI_DONE;
}

const struct cli_command cmd_version = {
    .name = "version",
    .args = "",
    .summary = "Prints the program's version.",
    .options = (struct cli_option[]){ { 0 } },
    .run = version,
};

static int dispatch(int argc, char **argv)
{
    if (argc < 2)
        return cli_usage(NULL, "a command is needed");
    bool help = !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help");
    if (help && argc < 3) {
        print_help();
        return CLI_DONE;
    }
    if (!strcmp(argv[1], "--version"))
        return version(NULL, NULL, 0);
    const char *name = help ? argv[2] : argv[1];
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i]->name))
            continue;
        if (!help)
            return run(commands[i], argc - 1, argv + 1);
        print_command_help(commands[i]);
        return CLI_DONE;
    }
    return cli_usage(NULL, "unknown command '%s'", name);
}

/* A descriptor opened later must not become one of the standard ones. */
static void open_standard_fds(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
            abort();
}

int main(int argc, char **argv)
{
    open_standard_fds();
    int r = dispatch(argc, argv);
    /* A full disk or a closed pipe is a failure too. */
    if ((fflush(stdout) || ferror(stdout)) && !r)
        r = cli_fail("standard output could not be written");
    return r;
}
