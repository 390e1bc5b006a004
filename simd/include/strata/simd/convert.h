#pragma once

#include <cstdint>

#include <strata/runtime/float16.h>

namespace strata::simd {

/// Converts n values to f32, exactly; `from` and `into` must not overlap. Not threaded.
void widen(const float* from, float* into, std::int64_t n) noexcept;
void widen(const bf16* from, float* into, std::int64_t n) noexcept;
void widen(const f16* from, float* into, std::int64_t n) noexcept;
/// Converts n values from f32, rounded to nearest even, with the same bits as from_f32().
void narrow(const float* from, float* into, std::int64_t n) noexcept;
void narrow(const float* from, bf16* into, std::int64_t n) noexcept;
void narrow(const float* from, f16* into, std::int64_t n) noexcept;

}  // namespace strata::simd
