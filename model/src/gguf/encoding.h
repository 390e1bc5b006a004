#pragma once

#include <cstddef>
#include <span>

#include <strata/model/gguf/format.h>

namespace strata::detail {

/// Converts finite values to `format`, rounding to nearest; q8_0 as ggml's quantize_row_q8_0_ref, with the
/// same bits. `into` has the bytes that they need; of q8_0 there are whole blocks of 32 values. Errors:
/// `invalid` for other sizes.
Status encode_gguf(std::span<const float> values, GgufFormat format, std::span<std::byte> into);
/// The values that the bytes stand for. Errors: as for encode_gguf.
Status decode_gguf(std::span<const std::byte> bytes, GgufFormat format, std::span<float> into);

}  // namespace strata::detail
