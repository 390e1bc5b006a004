#pragma once

#include <strata/runtime/config/config.h>
#include <strata/runtime/io/io.h>

namespace strata::detail {

/// Replaces the patterns in data.train and data.val (*, ? and [abc], as glob(7) has them) by the files that
/// they match, sorted by their bytes: a run keeps the files with which it began. A path that exists is no
/// pattern. Errors: `invalid`, naming all patterns that match no file.
Status expand_data_patterns(Io& io, ConfigTree& tree);

}  // namespace strata::detail
