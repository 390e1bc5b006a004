#pragma once

#include <cstdint>

namespace strata {

/// Counts heap allocations made by strata's own code while armed (contract C6). The counter is in the
/// library, but it counts only in programs that link the replaced `operator new` (strata_alloc_hook).
/// Thread-safe. Allocations inside a ThirdPartyScope of the same thread are not counted.
class AllocCounter {
 public:
  static void note() noexcept;                 ///< called by the replaced operator new
  static void set_armed(bool armed) noexcept;  ///< starts or stops counting on all threads
  static std::uint64_t count() noexcept;       ///< allocations counted since process start
  static bool hooked() noexcept;               ///< whether operator new is replaced in this program
};

/// Marks a call into a library whose allocations are not counted (oneTBB, oneDNN). Cheap; may be nested.
class ThirdPartyScope {
 public:
  ThirdPartyScope() noexcept;
  ~ThirdPartyScope();
  ThirdPartyScope(const ThirdPartyScope&) = delete;
  ThirdPartyScope& operator=(const ThirdPartyScope&) = delete;
};

/// Inside a ThirdPartyScope, marks a callback into strata's own code, whose allocations count again.
class OwnCodeScope {
 public:
  OwnCodeScope() noexcept;
  ~OwnCodeScope();
  OwnCodeScope(const OwnCodeScope&) = delete;
  OwnCodeScope& operator=(const OwnCodeScope&) = delete;

 private:
  int saved_;
};

}  // namespace strata
