#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <strata/runtime/digest.h>
#include <strata/runtime/io.h>
#include <strata/runtime/status.h>

namespace strata::detail {

struct Line {
  std::uint64_t number = 0;  ///< from 1
  const std::string& text;   ///< without its line feed; the beginning alone where it is too long
  bool too_long = false;
};

/// Gives the lines of a file, read in blocks, holding at most `max_bytes` of one. What follows the last line
/// feed is a line unless it is empty. Errors: those of reading; the first of `take`, which ends it.
Result<FileDigest> for_each_line(Io& io, const std::string& path, std::size_t max_bytes,
                                 const std::function<Status(const Line&)>& take);

}  // namespace strata::detail
