#pragma once

#include <cstdint>

namespace strata::kernels {

/// The heads of the gated delta rule. A row of `qkv` has the queries of all key heads, then their keys, then
/// the values of all value heads.
struct DeltaHeads {
  std::int32_t key_heads = 1;
  std::int32_t value_heads = 1;  ///< a multiple: value head i reads key head i / (value_heads / key_heads)
  std::int32_t key_dim = 0, value_dim = 0;
  std::int32_t seq = 0;  ///< tokens of a sequence; 0 for rows that name their sequences

  constexpr std::int64_t group() const noexcept { return value_heads / key_heads; }
  constexpr std::int64_t qkv_width() const noexcept {
    return 2 * std::int64_t{key_heads} * key_dim + std::int64_t{value_heads} * value_dim;
  }
  constexpr std::int64_t out_width() const noexcept { return std::int64_t{value_heads} * value_dim; }
  friend bool operator==(const DeltaHeads&, const DeltaHeads&) = default;
};

}  // namespace strata::kernels
