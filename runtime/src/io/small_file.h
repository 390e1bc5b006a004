#pragma once

#include <cstddef>
#include <string>

#include <strata/runtime/status.h>

namespace strata::detail {

/// Reads a small file to its end with plain system calls. The file size is not used, because /proc and /sys
/// files report 0. Errors: `not_found`, `io_error`, `invalid` for a directory or past `limit_bytes`.
Result<std::string> read_small_file(const std::string& path, std::size_t limit_bytes);

}  // namespace strata::detail
