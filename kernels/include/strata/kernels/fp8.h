#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// GEMMs of fp8 operands (runtime/float8.h). Each operand is cast with one scale: the largest power of two for
// which its largest value fits, so scaling does not round. The scale is computed from the current values.
// Delayed scaling, which predicts the scale from earlier steps as in Micikevicius et al. 2022, saves a pass
// over the operand, but makes results depend on a history, which checkpoints would have to contain and which
// recomputation must not advance.

/// Rows and columns of operands must be multiples of this, as GPUs require.
inline constexpr std::int64_t kFp8Multiple = 16;
/// Ten times the minimum compute capability of GPUs with fp8 GEMMs.
inline constexpr int kMinFp8ComputeCapability = 89;

/// Casts x * scale, rounded to nearest even, to row-major or transposed fp8, or to both. If x has a value
/// that is not finite, the inverse scale is NaN, and so is everything computed from the operand.
struct Fp8CastArgs {
  TensorView x;           ///< stored dtype (embedding.h) [T, K]
  TensorView rowwise;     ///< e4m3 or e5m2 [T, K], written; a default view for none
  TensorView columnwise;  ///< e4m3 or e5m2 [K, T], written; a default view for none
  TensorView scale_inv;   ///< f32 [1], written: 1 / scale
  BufferView workspace;   ///< fp8_cast_workspace_bytes(), 4-aligned
};
std::size_t fp8_cast_workspace_bytes() noexcept;
Status fp8_cast_async(Backend& backend, Stream& stream, const Fp8CastArgs& args);
void fp8_cast_host(const Fp8CastArgs& args, ThreadPool& pool);

/// c = a b^T * (a_scale_inv * b_scale_inv) + bias, or c += that if `accumulate`. Sums are f32 and rounded
/// once if c is 16-bit. Tensor cores of a GPU accumulate with slightly less precision than f32.
struct Fp8GemmArgs {
  TensorView a;            ///< e4m3 or e5m2 [M, K]
  TensorView a_scale_inv;  ///< f32 [1]
  TensorView b;            ///< e4m3 [N, K]
  TensorView b_scale_inv;  ///< f32 [1]
  TensorView bias;         ///< dtype of c, [N], added before c is rounded; default view: none, as for f32 c
  TensorView c;            ///< f32, bf16 or f16 [M, N], written
  bool accumulate = false;
  BufferView workspace = {};  ///< gemm_workspace_bytes(M, N), 256-aligned, or none; unused on the host
};
Status fp8_gemm_async(Backend& backend, Stream& stream, const Fp8GemmArgs& args);
void fp8_gemm_host(const Fp8GemmArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
