#pragma once

#include <cstdint>
#include <span>

#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

namespace strata::simd {

/// Elements per norm partial. A gradient norm is the sum of partials whose boundaries are tensor coordinates,
/// so its bits do not depend on chunks, ranks, threads or the instruction set.
inline constexpr std::int64_t kNormPartialElems = 4096;
constexpr std::int64_t norm_partial_count(std::int64_t n_elems) noexcept {
  return (n_elems + kNormPartialElems - 1) / kNormPartialElems;
}

/// partials[i] = sum of squares of the i-th 4096 elements of `tensor` (a whole tensor, or a slice that begins
/// at a multiple of 4096). The squares are exact in f64 and are summed in 16 fixed lanes, then by a fixed
/// tree. Relative error <= 260 * 2^-53. Not threaded. Errors: `invalid` unless `partials` has
/// norm_partial_count(tensor.size()) elements.
Status square_sum_partials(std::span<const float> tensor, std::span<double> partials);
/// The same for `n` values of f32, bf16 or f16, without the check of sizes.
void square_sum_partials(DType dtype, const void* tensor, std::int64_t n, double* partials) noexcept;

/// Sum by one fixed pairwise tree: the left subtree has the largest power of two below the length. The sum of
/// no values is 0. Relative error <= log2(n) * 2^-53 for values of one sign.
double tree_sum(std::span<const double> values) noexcept;
/// The same sum in f64 of f32 values.
double tree_sum(std::span<const float> values) noexcept;

}  // namespace strata::simd
