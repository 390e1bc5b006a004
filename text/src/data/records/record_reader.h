#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <strata/runtime/io/digest.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata::detail {

/// The text of one record of a file.
struct Record {
  std::uint64_t number = 0;  ///< the number of the line, or of the element of an array; starts at 1
  std::uint64_t offset = 0;  ///< the position of its first byte in the (uncompressed) file
  const std::string& text;   ///< only the beginning if it is too long
  bool in_array = false;
  bool too_long = false;
  /// "line 7", or "record 7 (byte 340)".
  std::string where() const;
};

struct ReadText {
  FileDigest file;          ///< as it is stored
  std::uint64_t bytes = 0;  ///< the size of its text
};

/// Calls `take` for each line of a file after its byte order mark, also uncompressed from a .gz. It is read
/// in blocks; holds at most `max_bytes` of a line. The text after the last line feed is a line unless it is
/// empty. Errors: those of reading, and the first error of `take`, which ends the loop.
Result<ReadText> for_each_line(Io& io, const std::string& path, std::size_t max_bytes,
                               const std::function<Status(const Record&)>& take);

/// The same for each element of a file that is a JSON array: of one whose first visible byte is '['. Of
/// another file the records are its lines. Elements are not parsed, only their ends are found. Errors: also
/// `invalid` for an array that does not end, for what is behind it, and for a comma too few or too many.
Result<ReadText> for_each_record(Io& io, const std::string& path, std::size_t max_bytes,
                                 const std::function<Status(const Record&)>& take);

}  // namespace strata::detail
