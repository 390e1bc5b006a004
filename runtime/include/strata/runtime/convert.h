#pragma once

#include <cstddef>
#include <span>

#include <strata/runtime/dtype.h>
#include <strata/runtime/float16.h>
#include <strata/runtime/status.h>

namespace strata {

/// Converts every element of `from`, whose `dtype` is f32, bf16 or f16, to f32; the conversion is exact.
/// `from` needs no alignment. Errors: `unsupported` for another dtype; `invalid` if the sizes do not match,
/// naming both.
Status widen_to_f32(DType dtype, std::span<const std::byte> from, std::span<float> into);
/// Converts f32 to `dtype`, rounding to nearest even. Errors: as for widen_to_f32.
Status narrow_from_f32(std::span<const float> from, DType dtype, std::span<std::byte> into);

/// The index of the first NaN or infinity; values.size() if there is none.
std::size_t first_non_finite(std::span<const float> values) noexcept;

}  // namespace strata
