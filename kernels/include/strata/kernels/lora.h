#pragma once

#include <strata/kernels/lora_parts.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// The second half of low-rank adapters (LoRA; Hu et al. 2021, arXiv 2106.09685) of one matrix, of which each
// adapts some rows: y = x W^T + s B A x, where u = s A x is given. Bits depend on the same as those of
// linear.h.

/// y[:, rows of a part] = base[:, ...] + u[:, its columns] b_part^T, and y = base elsewhere.
struct LoraUpArgs {
  TensorView base;  ///< stored dtype (embedding.h) [..., N], T rows
  TensorView u;     ///< stored dtype [..., sum of ranks], T rows
  TensorView b;     ///< stored dtype, by part [rows, rank]
  TensorView y;     ///< as base, written; may be base
  LoraParts parts;
};
Status lora_up_async(Backend& backend, Stream& stream, const LoraUpArgs& args);
void lora_up_host(const LoraUpArgs& args, ThreadPool& pool);

/// du[:, columns of a part] = dy[:, its rows] b_part.
struct LoraUpBackwardInputArgs {
  TensorView dy;  ///< stored dtype [..., N], T rows
  TensorView b;
  TensorView du;  ///< stored dtype [..., sum of ranks], T rows, written
  LoraParts parts;
};
Status lora_up_backward_input_async(Backend& backend, Stream& stream, const LoraUpBackwardInputArgs& args);
void lora_up_backward_input_host(const LoraUpBackwardInputArgs& args, ThreadPool& pool);

/// db_part = dy[:, its rows]^T u[:, its columns], or db += that.
struct LoraUpBackwardWeightArgs {
  TensorView dy;
  TensorView u;
  TensorView db;  ///< f32 or stored dtype, shape of b, written
  LoraParts parts;
  bool accumulate = false;
};
Status lora_up_backward_weight_async(Backend& backend, Stream& stream, const LoraUpBackwardWeightArgs& args);
void lora_up_backward_weight_host(const LoraUpBackwardWeightArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
