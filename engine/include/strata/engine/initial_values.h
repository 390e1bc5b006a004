#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include <strata/kernels/quantized_matrix.h>
#include <strata/runtime/status.h>
#include <strata/session/state_piece.h>

namespace strata {

/// Writes the values of a piece and returns true, or returns false if it has none. A piece of a quantized
/// matrix is one of the matrix's values.
using InitialValues = std::function<Result<bool>(const StatePiece& piece, std::span<float> values)>;
/// The same for a piece of a quantized matrix as it is held: bytes from piece.offset on.
using QuantizedValues = std::function<Result<bool>(
    const StatePiece& piece, const kernels::QuantizedMatrix& matrix, std::span<std::byte> bytes)>;

}  // namespace strata
