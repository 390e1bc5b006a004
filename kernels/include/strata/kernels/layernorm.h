#pragma once

#include <cstdint>

#include <strata/runtime/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// y = (x - mean) * rstd * weight + bias by row (Ba, Kiros & Hinton 2016); two passes, biased variance.
struct LayernormForwardArgs {
  TensorView x;       ///< f32 [..., h], T rows
  TensorView weight;  ///< f32 [h]
  TensorView bias;    ///< f32 [h]
  TensorView y;       ///< f32, as x, written
  TensorView mean;    ///< f32, T values, written
  TensorView rstd;    ///< f32, T values, written
  float eps = 1e-5f;
};
Status layernorm_forward_async(Backend& backend, Stream& stream, const LayernormForwardArgs& args);
void layernorm_forward_host(const LayernormForwardArgs& args, ThreadPool& pool);

struct LayernormBackwardArgs {
  TensorView x;        ///< f32 [..., h], T rows
  TensorView weight;   ///< f32 [h]
  TensorView mean;     ///< f32, T values, from the forward
  TensorView rstd;     ///< f32, T values, from the forward
  TensorView dy;       ///< f32, as x
  TensorView dx;       ///< f32, as x, written; may be dy unless accumulate_dx
  TensorView dweight;  ///< f32 [h], written
  TensorView dbias;    ///< f32 [h], written
  bool accumulate_dx = false;
  bool accumulate_dweight = false;
  bool accumulate_dbias = false;
  BufferView workspace;  ///< layernorm_backward_workspace_bytes(T, h), 4-aligned
};
std::size_t layernorm_backward_workspace_bytes(std::int64_t rows, std::int64_t hidden) noexcept;
Status layernorm_backward_async(Backend& backend, Stream& stream, const LayernormBackwardArgs& args);
void layernorm_backward_host(const LayernormBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
