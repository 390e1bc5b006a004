#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// y = x / sqrt(mean(x^2) + eps) * weight * z sigmoid(z) for every head of N elements (Qwen3-Next's norm
/// after the delta rule), in f32 and rounded once. With gate_first (Mamba-2's norm after its scan) it is
///   y = u / sqrt(mean(u^2) + eps) * weight, where u = x z sigmoid(z)
/// The heads share a weight [N], or have a weight [heads * N].
struct GatedRmsnormForwardArgs {
  TensorView x, z;    ///< stored dtype [T, heads * N]
  TensorView weight;  ///< stored dtype [N], or [heads * N]
  TensorView y;       ///< stored dtype [T, heads * N], written
  TensorView rstd;    ///< f32, T * heads values, written
  float eps = 0;
  std::int64_t head_dim = 0;  ///< N; 0: the length of the weight
  bool gate_first = false;
};
Status gated_rmsnorm_forward_async(Backend& backend, Stream& stream, const GatedRmsnormForwardArgs& args);
void gated_rmsnorm_forward_host(const GatedRmsnormForwardArgs& args, ThreadPool& pool);

/// The derivative; the sum over heads is taken in blocks of them that depend on their number alone.
struct GatedRmsnormBackwardArgs {
  TensorView x, z, weight, rstd;  ///< as in the forward
  TensorView dy;                  ///< stored dtype [T, heads * N]
  TensorView dx, dz;              ///< stored dtype [T, heads * N], written; dx may be dy
  TensorView
      dweight;  ///< f32 or stored dtype, as `weight`, written; 16-bit only if it is not accumulated into
  std::int64_t head_dim = 0;  ///< as in the forward
  bool gate_first = false;
  bool accumulate_dweight = false;
  BufferView workspace;  ///< gated_rmsnorm_backward_workspace_bytes(elements of x, of the weight), 4-aligned
};
std::size_t gated_rmsnorm_backward_workspace_bytes(std::int64_t elems, std::int64_t of_weight) noexcept;
Status gated_rmsnorm_backward_async(Backend& backend, Stream& stream, const GatedRmsnormBackwardArgs& args);
void gated_rmsnorm_backward_host(const GatedRmsnormBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
