#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// Ends a text that arrives in pieces before the first of some stop texts, which may span pieces. What could
/// be the beginning of one is held back. The stop text that is complete first counts, and of several that end
/// at the same byte the longest, so the result does not depend on how the text is cut. Texts and stops are
/// UTF-8; pieces end between characters, and so does what is returned.
class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Returns the text that `piece` makes certain; empty after a stop.
  std::string push(std::string_view piece);
  /// Returns what was held back: no more text follows.
  std::string finish();
  /// Whether a stop text has ended the text.
  bool stopped() const noexcept { return stopped_; }

 private:
  std::size_t held_bytes() const;

  std::vector<std::string> stops_;
  std::string waiting_;
  bool stopped_ = false;
};

}  // namespace strata
