#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata {

/// Checks that a text does not begin with a byte order mark of UTF-16 or UTF-32. `head`: its first 4 bytes,
/// fewer if it is shorter. Errors: `invalid` with `name`.
Status check_byte_order_mark(const std::string& name, std::string_view head);
/// The text after a byte order mark of UTF-8, which editors on Windows write and which is no part of it.
std::string_view without_byte_order_mark(std::string_view text) noexcept;

/// Checks that bytes are UTF-8 text, which a tokenizer is trained on and encodes: binary data and other
/// encodings would be trained on as noise. The file is passed in blocks that may be split anywhere.
class TextCheck {
 public:
  /// Up to this fraction of the bytes may be invalid UTF-8, since large corpora contain some.
  static constexpr double kMaxInvalidFraction = 0.01;

  /// `name`: the file, for messages.
  explicit TextCheck(std::string name) : name_(std::move(name)) {}
  /// Errors: `invalid` with the name and the byte offset, for a byte order mark of UTF-16 or UTF-32 or a NUL.
  Status add(std::string_view block);
  /// Errors: `invalid` with the fraction and the first offset if more than kMaxInvalidFraction is invalid
  /// UTF-8.
  Status finish();
  /// A sentence about the invalid UTF-8 that was accepted; empty if there was none. Call after finish().
  std::string note() const;

 private:
  void count_invalid(std::string_view text, std::uint64_t begin, bool ends);

  std::string name_;
  std::string head_;  ///< the first bytes of the file, until a byte order mark is ruled out
  std::string tail_;  ///< an incomplete UTF-8 sequence that the next block may complete
  std::uint64_t bytes_ = 0, invalid_ = 0, first_invalid_ = 0;
  bool has_head_ = false;
};

/// The same checks for a complete text.
Status check_text(const std::string& name, std::string_view text);

}  // namespace strata
