#pragma once

#include <chrono>
#include <cstdint>

namespace strata {

/// Monotonic time, behind an interface so that tests can control it; thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Nanoseconds since an arbitrary start; never goes back.
  virtual std::int64_t now_ns() const noexcept = 0;
  /// Blocks the caller until `deadline_ns`.
  virtual void wait_until(std::int64_t deadline_ns) = 0;
};

/// std::chrono::steady_clock.
class SteadyClock final : public Clock {
 public:
  std::int64_t now_ns() const noexcept override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  void wait_until(std::int64_t deadline_ns) override;
};

}  // namespace strata
