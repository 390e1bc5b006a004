#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// y = (x - mean) * rstd * weight + bias for each row (Ba, Kiros & Hinton 2016), by two passes and with
/// biased variance. If `added` is given, the op normalizes x + added, rounded once to the stored dtype; the
/// bits are those of a separate addition before the norm, without its pass over memory.
struct LayernormForwardArgs {
  TensorView x;       ///< stored dtype (embedding.h) [..., h], T rows
  TensorView weight;  ///< stored dtype [h]
  TensorView bias;    ///< stored dtype [h]
  TensorView y;       ///< as x, written
  TensorView mean;    ///< f32, T values, written
  TensorView rstd;    ///< f32, T values, written
  float eps = 1e-5f;
  TensorView added = {};  ///< as x, or none
  TensorView sum = {};    ///< as x, written: x + added; may be x or added. None without `added`
};
Status layernorm_forward_async(Backend& backend, Stream& stream, const LayernormForwardArgs& args);
void layernorm_forward_host(const LayernormForwardArgs& args, ThreadPool& pool);

struct LayernormBackwardArgs {
  TensorView x;        ///< stored dtype [..., h], T rows
  TensorView weight;   ///< stored dtype [h]
  TensorView mean;     ///< f32, T values, from the forward
  TensorView rstd;     ///< f32, T values, from the forward
  TensorView dy;       ///< as x
  TensorView dx;       ///< as x, written; may be dy
  TensorView dweight;  ///< f32 or stored dtype [h], written
  TensorView dbias;    ///< f32 or stored dtype [h], written
  bool accumulate_dweight = false;
  bool accumulate_dbias = false;
  BufferView workspace;      ///< layernorm_backward_workspace_bytes(T, h), 4-aligned
  TensorView residual = {};  ///< as x, or none: added to dx before dx is rounded; may be dx or dy
};
std::size_t layernorm_backward_workspace_bytes(std::int64_t rows, std::int64_t hidden) noexcept;
Status layernorm_backward_async(Backend& backend, Stream& stream, const LayernormBackwardArgs& args);
void layernorm_backward_host(const LayernormBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
