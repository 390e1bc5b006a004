#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata {

/// Errors: `invalid` for a text that begins as UTF-16 or UTF-32 does, naming it. `head`: its first bytes, 4
/// if there are so many.
Status check_byte_order_mark(const std::string& name, std::string_view head);

/// Whether bytes are text in UTF-8, which is what a tokenizer learns from and encodes: binary data and other
/// encodings would be learnt as noise. Takes a file in blocks, cut anywhere.
class TextCheck {
 public:
  /// Of invalid UTF-8 up to this share of the bytes is taken as it is: large corpora have some.
  static constexpr double kMaxInvalidFraction = 0.01;

  /// `name`: of the file, for messages.
  explicit TextCheck(std::string name) : name_(std::move(name)) {}
  /// Errors: `invalid` with the name and the byte's offset: a byte order mark of UTF-16 or UTF-32, a NUL.
  Status add(std::string_view block);
  /// Errors: `invalid` with the share and the first offset where more is no UTF-8 than kMaxInvalidFraction.
  Status finish();
  /// What was taken although it is no UTF-8, in a sentence; empty where there is none. After finish().
  std::string note() const;

 private:
  void count_invalid(std::string_view text, std::uint64_t begin, bool ends);

  std::string name_;
  std::string head_;  ///< the first bytes of the file, until a byte order mark is ruled out
  std::string tail_;  ///< a sequence that the next block may complete
  std::uint64_t bytes_ = 0, invalid_ = 0, first_invalid_ = 0;
  bool has_head_ = false;
};

/// The same of a text that is at hand as a whole.
Status check_text(const std::string& name, std::string_view text);

}  // namespace strata
