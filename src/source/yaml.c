/* YAML to tokens, by libyaml's events. */
#include <errno.h>
#include <string.h>
#include <yaml.h>

#include "source/tokens.h"

static struct place place_of(const yaml_mark_t *m)
{
    return (struct place){ (uint32_t)m->line + 1, (uint32_t)m->column + 1 };
}

/* !!str and "!" make a string of what would be a number, !!int and the like the reverse;
 * other tags say nothing to us. */
static bool is_plain(const yaml_event_t *e)
{
    static const char prefix[] = "tag:yaml.org,2002:";
    bool plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    const char *tag = (const char *)e->data.scalar.tag;
    if (!tag)
        return plain;
    if (!strcmp(tag, "!"))
        return false;
    if (strncmp(tag, prefix, sizeof(prefix) - 1))
        return plain;
    const char *type = tag + sizeof(prefix) - 1;
    if (!strcmp(type, "str") || !strcmp(type, "binary"))
        return false;
    if (!strcmp(type, "int") || !strcmp(type, "bool") || !strcmp(type, "null") ||
        !strcmp(type, "float"))
        return true;
    return plain;
}

static int put_event(struct tokens *t, const yaml_event_t *e, struct err *err)
{
    struct place at = place_of(&e->start_mark);
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        return tokens_scalar(t, (const char *)e->data.scalar.value, e->data.scalar.length,
                             is_plain(e), at, err);
    case YAML_ALIAS_EVENT:
        tokens_alias(t, at);
        return tokens_scalar(t, "", 0, true, at, err);
    case YAML_MAPPING_START_EVENT:
        return tokens_start(t, TOKEN_MAP, at, err);
    case YAML_SEQUENCE_START_EVENT:
        return tokens_start(t, TOKEN_LIST, at, err);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        return tokens_end(t, at, err);
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_START_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        break;
    }
    return 0;
}

/* libyaml says of a tab that it "cannot start any token". */
static bool tab_indents(const char *text, size_t n, const yaml_mark_t *m)
{
    const char *line = text, *end = text + n;
    for (size_t i = 0; i < m->line && line; i++) {
        line = memchr(line, '\n', (size_t)(end - line));
        line = line ? line + 1 : NULL;
    }
    while (line && line < end && *line == ' ')
        line++;
    return line && line < end && *line == '\t';
}

static int parse_error(const yaml_parser_t *p, const char *text, size_t n,
                       struct place *reterr_place, struct err *err)
{
    if (p->error == YAML_MEMORY_ERROR)
        abort();
    if (p->error == YAML_READER_ERROR) {
        /* The reader knows bytes only; its mark is the start of what it could not decode. */
        *reterr_place = place_of(&p->mark);
        return err_set(err, EINVAL, "not YAML: %s at byte %zu", p->problem, p->problem_offset);
    }
    *reterr_place = place_of(&p->problem_mark);
    return err_set(err, EINVAL, "not YAML: %s%s%s%s", p->context ? p->context : "",
                   p->context ? ": " : "", p->problem ? p->problem : "unknown error",
                   tab_indents(text, n, &p->problem_mark) ? ": use spaces, not tabs" : "");
}

int yaml_parse(const char *text, size_t n, struct tokens *t, struct place *reterr_place,
               struct err *err)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        abort();
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    int r = 0;
    for (bool end = false; !end && !r;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            r = parse_error(&parser, text, n, reterr_place, err);
            break;
        }
        struct place at = place_of(&event.start_mark);
        r = put_event(t, &event, err);
        if (r)
            *reterr_place = at;
        end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return r;
}
