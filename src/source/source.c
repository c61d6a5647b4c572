#include "source/source.h"

#include <errno.h>
#include <string.h>

#include "source/dir/open.h"

int source_open(const char *spec, const struct source_sink *sink, struct source **ret,
                struct err *err)
{
    if (strncmp(spec, "dir:", 4) || !spec[4])
        return err_set(err, EINVAL, "source \"%s\": give dir:DIR, a folder of manifests", spec);
    *ret = dir_open(spec + 4, sink);
    return 0;
}
