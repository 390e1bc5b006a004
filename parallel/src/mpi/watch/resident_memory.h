#pragma once

#include <cstdint>

namespace strata::detail {

/// The bytes that this process has in RAM, as the kernel reports them; 0 if it does not.
struct ResidentBytes {
  std::uint64_t own = 0;     ///< anonymous memory and files
  std::uint64_t shared = 0;  ///< memory that processes share
};
ResidentBytes resident_bytes();

}  // namespace strata::detail
