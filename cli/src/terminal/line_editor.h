#pragma once

#include <optional>
#include <string>

#include <strata/runtime/status.h>

namespace strata::cli {

/// Reads lines that a user edits at a terminal, with those of earlier sessions at the arrow keys, if the
/// build has libedit. From a pipe, and without it, lines are read as they are. One per process.
class LineEditor {
 public:
  /// `history`: a file for the lines, which is made if there is none; empty: they are not kept.
  explicit LineEditor(std::string history);
  /// Writes the history.
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  /// The next line; nothing at the end of the input. Ctrl-C discards what was typed: the line is empty.
  /// Errors: `io_error`.
  Result<std::optional<std::string>> read(const std::string& prompt);

 private:
  const std::string history_;
};

}  // namespace strata::cli
