#pragma once

#include <cstdint>

namespace strata::detail {

/// Accumulates the time during which at least one of several overlapping operations is in flight.
class BusyTime {
 public:
  void begin(std::int64_t now_ns) noexcept {
    if (under_way_++ == 0) since_ns_ = now_ns;
  }
  void end(std::int64_t now_ns) noexcept {
    if (--under_way_ == 0) total_ns_ += now_ns - since_ns_;
  }
  std::int64_t until(std::int64_t now_ns) const noexcept {
    return total_ns_ + (under_way_ > 0 ? now_ns - since_ns_ : 0);
  }

 private:
  std::int64_t total_ns_ = 0, since_ns_ = 0;
  std::int64_t under_way_ = 0;
};

}  // namespace strata::detail
