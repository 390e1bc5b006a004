#pragma once

#include <array>
#include <cstdint>

namespace strata::kernels {

/// Adjacent parts of a row's columns, each with a factor.
struct ColumnScales {
  static constexpr std::int32_t kMost = 8;
  std::int32_t parts = 0;
  std::array<std::int32_t, kMost> widths = {};
  std::array<float, kMost> factors = {};

  constexpr std::int64_t all() const noexcept {
    std::int64_t sum = 0;
    for (std::int32_t i = 0; i < parts && i < kMost; ++i) sum += widths[static_cast<std::size_t>(i)];
    return sum;
  }
  friend bool operator==(const ColumnScales&, const ColumnScales&) = default;
};

}  // namespace strata::kernels
