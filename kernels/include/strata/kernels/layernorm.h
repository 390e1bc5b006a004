#pragma once

#include <cstdint>

#include <strata/runtime/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// y = (x - mean) * rstd * weight + bias by row (Ba, Kiros & Hinton 2016); two passes, biased variance. With
/// `added` it is x + added, rounded once as it is kept, that is normed: the bits of an addition before it, in
/// one pass.
struct LayernormForwardArgs {
  TensorView x;       ///< kept (embedding.h) [..., h], T rows
  TensorView weight;  ///< kept [h]
  TensorView bias;    ///< kept [h]
  TensorView y;       ///< as x, written
  TensorView mean;    ///< f32, T values, written
  TensorView rstd;    ///< f32, T values, written
  float eps = 1e-5f;
  TensorView added = {};  ///< as x, or none
  TensorView sum = {};    ///< as x, written: x + added; may be either. None without `added`
};
Status layernorm_forward_async(Backend& backend, Stream& stream, const LayernormForwardArgs& args);
void layernorm_forward_host(const LayernormForwardArgs& args, ThreadPool& pool);

struct LayernormBackwardArgs {
  TensorView x;        ///< kept [..., h], T rows
  TensorView weight;   ///< kept [h]
  TensorView mean;     ///< f32, T values, from the forward
  TensorView rstd;     ///< f32, T values, from the forward
  TensorView dy;       ///< as x
  TensorView dx;       ///< as x, written; may be dy
  TensorView dweight;  ///< f32 or kept [h], written
  TensorView dbias;    ///< f32 or kept [h], written
  bool accumulate_dweight = false;
  bool accumulate_dbias = false;
  BufferView workspace;      ///< layernorm_backward_workspace_bytes(T, h), 4-aligned
  TensorView residual = {};  ///< as x, or none: added to dx before it is rounded; may be dx, or dy
};
std::size_t layernorm_backward_workspace_bytes(std::int64_t rows, std::int64_t hidden) noexcept;
Status layernorm_backward_async(Backend& backend, Stream& stream, const LayernormBackwardArgs& args);
void layernorm_backward_host(const LayernormBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
