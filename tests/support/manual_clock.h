#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include <strata/runtime/clock.h>
#include <strata/runtime/thread_annotations.h>

namespace strata::test {

/// A clock that only the test advances. Thread-safe.
class ManualClock final : public Clock {
 public:
  std::int64_t now_ns() const noexcept override {
    const MutexLock lock(mutex_);
    return now_ns_;
  }
  void wait_until(std::int64_t deadline_ns) override {
    const MutexLock lock(mutex_);
    const auto mine = deadlines_.insert(deadline_ns);
    changed_.notify_all();
    while (now_ns_ < deadline_ns) changed_.wait(mutex_);
    deadlines_.erase(mine);
    changed_.notify_all();
  }
  /// Advances the time; does not wait for the threads that this wakes.
  void advance_to(std::int64_t now_ns) {
    const MutexLock lock(mutex_);
    now_ns_ = now_ns;
    changed_.notify_all();
  }
  /// Blocks until exactly `n` threads wait for a future time, and returns those times, soonest first.
  std::vector<std::int64_t> await_waiters(std::size_t n) {
    const MutexLock lock(mutex_);
    while (true) {
      const std::vector<std::int64_t> waiting(deadlines_.upper_bound(now_ns_), deadlines_.end());
      if (waiting.size() == n) return waiting;
      changed_.wait(mutex_);
    }
  }

 private:
  mutable Mutex mutex_;
  Condition changed_;
  std::int64_t now_ns_ STRATA_GUARDED_BY(mutex_) = 0;
  std::multiset<std::int64_t> deadlines_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::test
