#pragma once

#include <optional>
#include <string>

#include <strata/runtime/status.h>

namespace strata::cli {

/// A line of standard input without its line feed; nothing at its end. The prompt is printed if that is a
/// terminal. Errors: `io_error`.
Result<std::optional<std::string>> read_plain_line(const std::string& prompt);

}  // namespace strata::cli
