#pragma once

#include <string>

#include <strata/runtime/status.h>

namespace strata::detail {

/// Resolves the folder's file `name`: the file itself, or the target of a symlink within the folder or, in a
/// snapshot of the Hugging Face hub's cache (REPOSITORY/snapshots/REVISION), within REPOSITORY/blobs. A
/// symlink must not lead anywhere else. Errors: `invalid` for a symlink to another place, with the place;
/// `not_found` for a dangling one.
Result<std::string> file_in_hf_folder(const std::string& folder, const std::string& name);

}  // namespace strata::detail
