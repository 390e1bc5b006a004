#pragma once

#include <string>

#include <strata/runtime/status.h>

namespace strata::detail {

/// Where the bytes of the folder's file `name` are: the file itself, or what a symlink leads to within the
/// folder or, in a snapshot of the Hugging Face hub's cache (REPOSITORY/snapshots/REVISION), within
/// REPOSITORY/blobs. What a file of the folder names may lead nowhere else. Errors: `invalid` for a symlink
/// to another place, naming it; `not_found` for one to nothing.
Result<std::string> file_in_hf_folder(const std::string& folder, const std::string& name);

}  // namespace strata::detail
