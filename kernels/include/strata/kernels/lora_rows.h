#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/kernels/lora_parts.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// One adapter (LoRA; Hu et al. 2021, arXiv 2106.09685) of a matrix, applied to the rows of a batch that
/// choose it, so that rows with different adapters share one batch (Punica, Chen et al. 2023, arXiv
/// 2310.18547; S-LoRA, Sheng et al. 2023, arXiv 2311.03285):
///   y[t, rows of a part] = base[t, ...] + b_part u[t, its columns], with u[t] = scale * a x[t],
/// where adapters[t] == adapter, and y = base elsewhere. u is rounded to the stored dtype before and after
/// the scale, and each sum has the order of a GEMM's (on CPUs with AVX2), rounded once into y: a row has the
/// bits of the ops linear, scale and lora_up of an adapter alone. They depend only on that row of base and x
/// and on a, b and scale: not on other rows, the number of rows, threads or the instruction set, and CUDA
/// gives the same.
struct LoraRowsArgs {
  TensorView base;      ///< stored dtype (embedding.h) [T, N]
  TensorView x;         ///< stored dtype [T, K]
  TensorView a;         ///< stored dtype [sum of ranks, K]
  TensorView b;         ///< stored dtype, by part [rows, rank]
  TensorView adapters;  ///< i32, T values
  TensorView y;         ///< as base, written; may be base
  LoraParts parts;
  float scale = 1;
  std::int32_t adapter = 0;
  BufferView workspace;  ///< lora_rows_workspace_bytes(T, parts), 4-aligned
};
std::size_t lora_rows_workspace_bytes(std::int64_t rows, const LoraParts& parts) noexcept;
/// Errors: `invalid` for shapes that do not fit and for parts that overlap.
Status lora_rows_async(Backend& backend, Stream& stream, const LoraRowsArgs& args);
void lora_rows_host(const LoraRowsArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
