#pragma once

#include <string>
#include <string_view>

namespace strata {

/// Bytes that come in pieces, as text that is UTF-8 after every piece: what may still become a character
/// waits, and each byte that cannot is U+FFFD. However the bytes are cut, the text is the same.
class Utf8Stream {
 public:
  /// The text that `bytes` completes.
  std::string push(std::string_view bytes);
  /// The text of what waits; then the stream is as new.
  std::string finish();

 private:
  std::string take(bool at_end);
  std::string waiting_;
};

}  // namespace strata
