#pragma once

#include <cstddef>
#include <span>

#include <strata/runtime/io/gguf/format.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

namespace strata {

/// The dtype whose values the format has; f32 for blocks.
DType dtype_in_gguf(GgufFormat format) noexcept;
/// Converts finite values to `format`: f16 and bf16 by rounding to nearest, blocks with the bits of ggml's
/// reference quantizers (quantize_row_*_ref), which use no importance matrix. `into` has the bytes that they
/// need, of whole blocks. Errors: `invalid` for other sizes.
Status encode_gguf(std::span<const float> values, GgufFormat format, std::span<std::byte> into);
/// The values that the bytes stand for, with the bits of ggml's dequantize_row_*. Errors: as for encode_gguf.
Status decode_gguf(std::span<const std::byte> bytes, GgufFormat format, std::span<float> into);

}  // namespace strata
