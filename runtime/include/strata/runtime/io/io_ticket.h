#pragma once

#include <cstdint>

namespace strata {

/// Identifies an asynchronous request for I/O, a plain value. A default-constructed ticket is complete and
/// ok.
struct IoTicket {
  std::uint32_t index = 0;
  std::uint64_t sequence = 0;  ///< 0: no request
  bool valid() const noexcept { return sequence != 0; }
  friend bool operator==(const IoTicket&, const IoTicket&) = default;
};

}  // namespace strata
