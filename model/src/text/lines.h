#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <strata/runtime/io/digest.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata::detail {

struct Line {
  std::uint64_t number = 0;  ///< starts at 1
  const std::string& text;   ///< without its line feed; only the beginning if it is too long
  bool too_long = false;
};

/// Calls `take` for each line of a file after its byte order mark. It is read in blocks; holds at most
/// `max_bytes` of a line. The text after the last line feed is a line unless it is empty. Errors: those of
/// reading, and the first error of `take`, which ends the loop.
Result<FileDigest> for_each_line(Io& io, const std::string& path, std::size_t max_bytes,
                                 const std::function<Status(const Line&)>& take);

}  // namespace strata::detail
