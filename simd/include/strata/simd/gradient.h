#pragma once

#include <span>

#include <strata/runtime/dtype.h>

namespace strata::simd {

/// Computes acc += g elementwise, or acc = g if `first` is true; `g` has acc.size() values of f32, bf16 or
/// f16. Not threaded.
void accumulate(std::span<float> acc, DType dtype, const void* g, bool first) noexcept;

}  // namespace strata::simd
