/* Objects from YAML and JSON, and back.
 *
 * Reading has two steps. codec_parse() finds the objects of a text: kind, name, place, and
 * a hash of the content, so that a caller can leave alone what it knows already.
 * doc_decode() makes the model's object of one, by the tables in shapes.c: defaults applied,
 * everything outside the schema refused with the field's path, the value and what would
 * be right. Unknown fields are ignored, but for the spec of PortMaps and PortMapClasses in
 * manifests, where one that is misspelt would leave the rest wider than meant. Writing goes by the same tables.
 *
 * YAML: several documents, the core schema, kind: List. Anchors are ignored; an alias is
 * refused, since a few lines of them can stand for gigabytes. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/vec.h"
#include "model/host.h"
#include "model/object.h"
#include "source/source.h"

struct place {
    uint32_t line, column; /* from 1; 0: the whole file */
};

enum codec_format { CODEC_YAML, CODEC_JSON };

/* One object of a text. Valid during the call that hands it out. */
struct doc {
    enum object_kind kind; /* KIND_COUNT: none that is read */
    const char *api_version, *kind_name;
    const char *ns, *name; /* name "": it has none that can be read */
    uint64_t hash;         /* of everything in it */
    struct place place;
    const struct tokens *tokens;
    uint32_t root;
};

struct codec_handler {
    void *user;
    void (*object)(void *user, const struct doc *doc);
    /* The rest of a list (its metadata), after its last item. Or NULL. */
    void (*list)(void *user, const struct doc *doc);
    /* An item of a list beyond the limits; ns and name "" when they were not read before
     * that. NULL: such a text is refused. */
    void (*skipped)(void *user, const char *ns, const char *name);
};

/* -EINVAL or -E2BIG: the text itself is bad; some objects may have been handed out before. */
int codec_parse(const char *text, size_t n, enum codec_format format,
                const struct codec_handler *handler, struct place *reterr_place, struct err *err);

/* The kind, or the one that a document misses by letter case, spelling or version of the API
 * only; doc_decode() then says so. KIND_COUNT: another program's, or none at all. */
enum object_kind doc_meant(const struct doc *doc);

/* JSON that comes in pieces; memory follows the largest object in it. Places are not known. */
struct codec_stream *codec_stream_new(const struct codec_handler *handler);
/* As codec_parse(). After an error give it no more. */
int codec_stream_put(struct codec_stream *s, const char *p, size_t n, struct err *err);
/* -EINVAL when the text ends in the middle. */
int codec_stream_end(struct codec_stream *s, struct err *err);
void codec_stream_free(struct codec_stream *s); /* accepts NULL */

/* Takes the status of PortMap and PortMapClass only when asked: in a manifest it is not the
 * author's to say. A manifest is also what may hold no unknown fields. */
int doc_decode(const struct doc *doc, bool with_status, struct object **ret,
               struct place *reterr_place, struct err *err);

/* The format by the name's ending (.json, else YAML). */
enum codec_format codec_format(const char *path);
/* Files above 64 MiB are refused. The text is NUL-terminated; *ret_n does not count that. */
int codec_read_file(const char *path, char **ret, size_t *ret_n, struct err *err);

/* Both. What is wrong with the text is told with file, line and column. */
int codec_parse_file(const char *path, const struct codec_handler *handler, struct err *err);

/* Of spec.FIELD, or of the spec that lacks it. */
struct place doc_place(const struct doc *doc, const char *field);

/* Every object of a file, status included, to sink->upsert; what is wrong with single
 * objects to sink->note. For tests and one-shot reading without records. */
int codec_load_file(const char *path, const struct source_sink *sink, struct err *err);

/* The document of kind PortolanHost (apiVersion portolan/v1) named `node`: what
 * `plan --host FILE` plans for. Strings live in the arena. */
int host_decode_file(const char *path, const char *node, struct arena *arena, struct host *ret,
                     struct err *err);

/* ---- writing ---- */

struct writer;
/* Appends one document to `out`. */
struct writer *writer_yaml_new(struct buf *out);
struct writer *writer_json_new(struct buf *out, bool indented);
void writer_free(struct writer *w); /* completes the document; accepts NULL */

/* Bytes that are not UTF-8 are written as U+FFFD. */
void writer_map(struct writer *w);
void writer_map_end(struct writer *w);
void writer_list(struct writer *w);
void writer_list_end(struct writer *w);
void writer_key(struct writer *w, const char *key);
void writer_string(struct writer *w, const char *s);
void writer_int(struct writer *w, int64_t n);
void writer_bool(struct writer *w, bool b);
void writer_null(struct writer *w);

/* The whole object as one value: apiVersion, kind, metadata, spec, status. */
void encode_object(struct writer *w, const struct object *o);
/* One field of the status, as a value; an empty list is written as one. */
void encode_status_field(struct writer *w, const struct object *o, const char *name);
/* A class's row of a node, as a value. */
void encode_node_row(struct writer *w, const struct node_row *row);
struct traffic_row;
void encode_traffic_row(struct writer *w, const struct traffic_row *row);
/* True when two objects of a kind have the same spec. */
bool encode_same_spec(const struct object *a, const struct object *b);
/* The same when the specs are. */
uint64_t encode_spec_hash(const struct object *o);
