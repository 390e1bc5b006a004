#pragma once

#include <cstdint>

namespace strata {

/// Counts heap allocations made by strata's own code while armed (contract C6), and lets tests make one fail.
/// The counter is in the library, but it counts only in programs that link the replaced `operator new`
/// (strata_alloc_hook). Thread-safe. Allocations inside a ThirdPartyScope of the same thread are not counted
/// by count().
class AllocCounter {
 public:
  /// Called by the replaced operator new. Returns whether the allocation may succeed.
  static bool note() noexcept;
  static void set_armed(bool armed) noexcept;  ///< starts or stops counting on all threads
  static std::uint64_t count() noexcept;       ///< allocations counted since process start
  static bool hooked() noexcept;               ///< whether operator new is replaced in this program

  static std::uint64_t thread_count() noexcept;  ///< all allocations of the calling thread, armed or not
  /// Makes the calling thread's allocation with this number (of thread_count(), from 1) fail; 0: none.
  static void fail_at(std::uint64_t number) noexcept;
};

/// Marks a call into a library whose allocations are not counted (oneDNN, CUDA). Cheap; may be nested.
class ThirdPartyScope {
 public:
  ThirdPartyScope() noexcept;
  ~ThirdPartyScope();
  ThirdPartyScope(const ThirdPartyScope&) = delete;
  ThirdPartyScope& operator=(const ThirdPartyScope&) = delete;
};

}  // namespace strata
