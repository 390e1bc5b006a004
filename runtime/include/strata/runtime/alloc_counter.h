#pragma once

#include <cstdint>

namespace strata {

/// Counts heap allocations made by our own code while armed (contract C6). The library carries the counter; a
/// program that wants it to see anything links the replaced `operator new` (strata_alloc_hook).
/// Thread-safe. Allocations inside a ThirdPartyScope of the same thread are not ours and are not counted.
class AllocCounter {
 public:
  static void note() noexcept;                 ///< called by the replaced operator new
  static void set_armed(bool armed) noexcept;  ///< counting starts or stops, on all threads
  static std::uint64_t count() noexcept;       ///< allocations counted since the process began
  static bool hooked() noexcept;               ///< whether operator new is replaced in this program
};

/// Marks a call into a library whose allocations are its own affair (oneTBB, oneDNN). Cheap; nests.
class ThirdPartyScope {
 public:
  ThirdPartyScope() noexcept;
  ~ThirdPartyScope();
  ThirdPartyScope(const ThirdPartyScope&) = delete;
  ThirdPartyScope& operator=(const ThirdPartyScope&) = delete;
};

/// Inside a ThirdPartyScope, marks a call back into our own code.
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
