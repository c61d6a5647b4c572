#include "source/codec.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "source/tokens.h"

#define FILE_MAX (64 << 20)

int codec_parse(const char *text, size_t n, enum codec_format format,
                const struct codec_handler *handler, struct place *reterr_place, struct err *err)
{
    struct tokens t = { .handler = handler };
    int r = 0;
    switch (format) {
    case CODEC_YAML:
        r = yaml_parse(text, n, &t, reterr_place, err);
        break;
    case CODEC_JSON:
        r = json_parse(text, n, &t, reterr_place, err);
        break;
    }
    tokens_done(&t);
    return r;
}

enum codec_format codec_format(const char *path)
{
    size_t n = strlen(path);
    return n >= 5 && !strcmp(path + n - 5, ".json") ? CODEC_JSON : CODEC_YAML;
}

int codec_read_file(const char *path, char **ret, size_t *ret_n, struct err *err)
{
    /* O_NONBLOCK: opening a FIFO must not hang; a regular file does not care. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0)
        return err_set(err, errno, "cannot open %s: %s", path, strerror(errno));
    struct buf b = { 0 };
    ssize_t got = -1;
    int error = 0;
    if (fstat(fd, &st))
        error = errno;
    else if (!S_ISREG(st.st_mode))
        error = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    else if (st.st_size > FILE_MAX)
        error = EFBIG;
    /* Beyond the size seen first: a file may grow while it is read. */
    for (char chunk[16384]; !error && got;) {
        got = read(fd, chunk, sizeof(chunk));
        if (got < 0 && errno != EINTR)
            error = errno;
        else if (got > 0)
            buf_put(&b, chunk, (size_t)got);
        if (b.n > FILE_MAX)
            error = EFBIG;
    }
    close(fd);
    if (error) {
        buf_done(&b);
        return error == EFBIG
                   ? err_set(err, EFBIG, "%s is larger than %d MiB: split it", path, FILE_MAX >> 20)
               : error == EINVAL ? err_set(err, EINVAL, "%s is not a regular file", path)
                                 : err_set(err, error, "cannot read %s: %s", path, strerror(error));
    }
    if (!b.p)
        buf_put(&b, "", 0);
    *ret_n = b.n;
    *ret = b.p ? b.p : xstrdup("");
    return 0;
}

int codec_parse_file(const char *path, const struct codec_handler *handler, struct err *err)
{
    struct place place = { 0 };
    char *text;
    size_t n;
    int r = codec_read_file(path, &text, &n, err);
    if (r)
        return r;
    r = codec_parse(text, n, codec_format(path), handler, &place, err);
    free(text);
    if (r)
        err_prefix(err, "%s:%u:%u", path, place.line, place.column);
    return r;
}

/* ---- one file, whole ---- */

struct load {
    const char *path;
    const struct source_sink *sink;
};

static void load_one(void *user, const struct doc *doc)
{
    struct load *l = user;
    struct place place = doc->place;
    struct object *o;
    struct err err;
    if (doc_meant(doc) == KIND_COUNT && *doc->api_version && *doc->kind_name)
        return;
    if (!doc_decode(doc, true, &o, &place, &err)) {
        l->sink->upsert(l->sink->user, o);
        return;
    }
    struct buf where = { 0 };
    buf_printf(&where, "%s:%u:%u", l->path, place.line, place.column);
    l->sink->note(l->sink->user, true, buf_str(&where), err.text);
    buf_done(&where);
}

int codec_load_file(const char *path, const struct source_sink *sink, struct err *err)
{
    struct load load = { path, sink };
    const struct codec_handler handler = { .user = &load, .object = load_one };
    return codec_parse_file(path, &handler, err);
}
