#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <strata/runtime/status.h>

namespace strata::cli {

/// Reads lines from a file or a pipe as they arrive. Used by one thread.
class LineReader {
 public:
  /// The descriptor stays open and belongs to the caller.
  LineReader(int descriptor, std::size_t max_bytes) : descriptor_(descriptor), max_bytes_(max_bytes) {}

  enum class Got : std::uint8_t {
    line,
    too_long,  ///< a line of more than max_bytes, which was skipped
    nothing,   ///< no whole line is there yet
    end,
  };
  /// Takes the next line without its line feed. `waits`: until there is one or the input ends. The text after
  /// the last line feed is a line unless it is empty. Errors: `io_error`.
  Result<Got> next(bool waits, std::string& line);
  /// The number of the last line; starts at 1.
  std::uint64_t line_number() const noexcept { return line_number_; }

 private:
  bool take(std::string& line);
  Result<bool> fill(bool waits);

  const int descriptor_;
  const std::size_t max_bytes_;
  std::string buffer_;
  std::size_t begin_ = 0,
              searched_ = 0;  // in the buffer: of the next line, and the end of what has no line feed
  std::uint64_t line_number_ = 0;
  bool skips_ = false, ended_ = false;  // skips_: the beginning of the line was dropped
};

}  // namespace strata::cli
