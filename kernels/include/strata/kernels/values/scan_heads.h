#pragma once

#include <cstdint>
#include <limits>

namespace strata::kernels {

/// What the steps of a state scan are limited to.
struct StepLimits {
  float low = 0, high = std::numeric_limits<float>::infinity();
  friend bool operator==(const StepLimits&, const StepLimits&) = default;
};

/// The heads of a state scan. A row of `xbc` has x of all heads, then B of all groups, then C of all groups.
struct ScanHeads {
  std::int32_t groups = 1;
  std::int32_t heads = 1;  ///< a multiple: head h reads group h / (heads / groups)
  std::int32_t state_dim = 0, head_dim = 0;
  std::int32_t seq = 0;  ///< tokens of a sequence; 0 for rows that name their sequences

  constexpr std::int64_t group() const noexcept { return groups > 0 ? heads / groups : 0; }
  /// Heads of a group that are computed together, since they share the products of B and C.
  constexpr std::int64_t block() const noexcept {
    return group() % 4 == 0 ? 4 : group() % 3 == 0 ? 3 : group() % 2 == 0 ? 2 : 1;
  }
  constexpr std::int64_t blocks() const noexcept { return heads / block(); }
  constexpr std::int64_t xbc_width() const noexcept {
    return std::int64_t{heads} * head_dim + 2 * std::int64_t{groups} * state_dim;
  }
  constexpr std::int64_t out_width() const noexcept { return std::int64_t{heads} * head_dim; }
  friend bool operator==(const ScanHeads&, const ScanHeads&) = default;
};

}  // namespace strata::kernels
