#pragma once

#include <cstddef>
#include <string>

#include <strata/runtime/status.h>

namespace strata::detail {

/// The whole of a small file, read with plain system calls to its end: /proc and /sys files claim a size of
/// 0, so this does not go by size. Errors: `not_found`, `io_error`, `invalid` for a folder or past
/// `limit_bytes`.
Result<std::string> read_small_file(const std::string& path, std::size_t limit_bytes);

}  // namespace strata::detail
