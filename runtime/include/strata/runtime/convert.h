#pragma once

#include <cstddef>
#include <span>

#include <strata/runtime/dtype.h>
#include <strata/runtime/float16.h>
#include <strata/runtime/status.h>

namespace strata {

/// into[i] = element i of `from`, of `dtype` f32, bf16 or f16; every value is exact. `from` needs no
/// alignment. Errors: `unsupported` for another dtype; `invalid` unless the sizes agree, naming both.
Status widen_to_f32(DType dtype, std::span<const std::byte> from, std::span<float> into);
/// The other way, rounding to nearest even.
Status narrow_from_f32(std::span<const float> from, DType dtype, std::span<std::byte> into);

/// The index of the first NaN or infinity; values.size() where there is none.
std::size_t first_non_finite(std::span<const float> values) noexcept;

}  // namespace strata
