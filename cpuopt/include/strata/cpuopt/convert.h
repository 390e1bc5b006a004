#pragma once

#include <cstdint>

#include <strata/runtime/float16.h>

namespace strata::cpuopt {

/// into[i] = from[i], n values, exactly; the spans do not overlap. Not threaded.
void widen(const float* from, float* into, std::int64_t n) noexcept;
void widen(const bf16* from, float* into, std::int64_t n) noexcept;
void widen(const f16* from, float* into, std::int64_t n) noexcept;
/// The other way, rounded to nearest even: the bits of from_f32().
void narrow(const float* from, float* into, std::int64_t n) noexcept;
void narrow(const float* from, bf16* into, std::int64_t n) noexcept;
void narrow(const float* from, f16* into, std::int64_t n) noexcept;

}  // namespace strata::cpuopt
