#pragma once

#include <string>
#include <string_view>

namespace strata {

/// Converts bytes that arrive in pieces to text that is valid UTF-8 after every piece. An incomplete
/// character is held back, and each byte that cannot be part of one becomes U+FFFD. The text does not depend
/// on how the bytes are split.
class Utf8Stream {
 public:
  /// Returns the text that `bytes` completes.
  std::string push(std::string_view bytes);
  /// Returns the text of the bytes held back and resets the stream.
  std::string finish();

 private:
  std::string take(bool at_end);
  std::string waiting_;
};

}  // namespace strata
