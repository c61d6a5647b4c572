/* The manifest folder as a source. Next: dir.h. */
#pragma once

#include "source/source.h"

struct source *dir_open(const char *path, const struct source_sink *sink);
