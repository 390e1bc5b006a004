#pragma once

#include <cstdint>

#include <strata/runtime/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// Products of operands in eight bits (runtime/float8.h). Each operand is cast with one scale, the largest
// power of two by which its largest value fits, so that scaling rounds nothing. The scale is that of the
// values at hand: one that is foretold from former steps, as in Micikevicius et al. 2022, saves a pass over
// the operand, but makes results depend on a history, which a checkpoint had to hold and a block that is
// computed again must not advance.

/// Rows and columns of operands are multiples of this, which is what GPUs multiply.
inline constexpr std::int64_t kFp8Multiple = 16;
/// Ten times the compute capability from which on GPUs do.
inline constexpr int kMinFp8ComputeCapability = 89;

/// codes = x * scale, rounded to nearest even, as rows or transposed or both. An operand with a value that is
/// not finite has the inverse scale NaN, and so has all that is made of it.
struct Fp8CastArgs {
  TensorView x;           ///< kept (embedding.h) [T, K]
  TensorView rowwise;     ///< e4m3 or e5m2 [T, K], written; a default view for none
  TensorView columnwise;  ///< e4m3 or e5m2 [K, T], written; a default view for none
  TensorView scale_inv;   ///< f32 [1], written: 1 / scale
  BufferView workspace;   ///< fp8_cast_workspace_bytes(), 4-aligned
};
std::size_t fp8_cast_workspace_bytes() noexcept;
Status fp8_cast_async(Backend& backend, Stream& stream, const Fp8CastArgs& args);
void fp8_cast_host(const Fp8CastArgs& args, ThreadPool& pool);

/// c = a b^T * (a_scale_inv * b_scale_inv) + bias, or c += the same; sums in f32, rounded once where c is
/// kept in 16 bits. A GPU's tensor cores sum in somewhat less than f32.
struct Fp8GemmArgs {
  TensorView a;            ///< e4m3 or e5m2 [M, K]
  TensorView a_scale_inv;  ///< f32 [1]
  TensorView b;            ///< e4m3 [N, K]
  TensorView b_scale_inv;  ///< f32 [1]
  TensorView bias;         ///< as c [N], added before c is rounded; a default view for none, as for f32
  TensorView c;            ///< f32, bf16 or f16 [M, N], written
  bool accumulate = false;
  BufferView workspace = {};  ///< gemm_workspace_bytes(M, N), 256-aligned, or none; the host reads none
};
Status fp8_gemm_async(Backend& backend, Stream& stream, const Fp8GemmArgs& args);
void fp8_gemm_host(const Fp8GemmArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
