#pragma once

#include <string>
#include <vector>

#include <strata/runtime/config/config.h>
#include <strata/runtime/io/io.h>

namespace strata::detail {

/// Replaces the patterns in data.train and data.val (*, ? and [abc], as glob(7) has them) by the files that
/// they match, sorted by their bytes, and folders by their data files: a run keeps the files with which it
/// began. A path that exists is no pattern. Adds to `notes` what of folders is not read. Errors: `invalid`,
/// naming all patterns that match no file and all folders without data.
Status expand_data_patterns(Io& io, ConfigTree& tree, std::vector<std::string>& notes);

}  // namespace strata::detail
