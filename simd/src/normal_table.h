#pragma once

#include <cstdint>

#include <strata/simd/isa_table.h>

namespace strata::simd::detail {

/// The coordinates of random numbers: see Rng of runtime.
struct NormalDraws {
  std::uint64_t seed = 0, stream = 0, first = 0;
};
inline constexpr int kNormalsAtOnce = 256;

struct NormalTable {
  /// Bounds of kNormalsAtOnce values: each is the f32 nearest to a number that is at most as large, or at
  /// least as large, as what Rng::normal() rounds.
  void (*bounds)(const NormalDraws& draws, float* below, float* above);
};

}  // namespace strata::simd::detail

namespace strata::simd {
STRATA_DECLARE_ISA_TABLE(detail::NormalTable, normal_table)
}  // namespace strata::simd
