#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <strata/kernels/lora_parts.h>
#include <strata/kernels/quantized_matrix.h>

#include "adapters/dora_rows.h"
#include "gemm/gemm.h"
#include "adapters/lora_gemms.h"
#include "quant/quantized_gemms.h"

/// The panels of an adapted matrix, whose norms are computed one panel after the other by the host and by
/// CUDA.
namespace strata::kernels::detail {

/// The arrays in dora_norm's workspace.
struct DoraWorkspace {
  float* gram = nullptr;       ///< A A^T of a part
  float* products = nullptr;   ///< w A^T of a panel
  std::byte* panel = nullptr;  ///< a panel's values if the matrix is quantized
  std::size_t bytes = 0;
};
inline DoraWorkspace dora_workspace(const LoraParts& parts, std::int64_t columns,
                                    const QuantizedMatrix& matrix, DType dtype, std::byte* data) noexcept {
  std::int64_t gram = 0, products = 0, panel = 0;
  for (const LoraPart& part : parts.all()) {
    const std::int64_t rows = panel_extent(part.rows, std::max<std::int64_t>(1, columns));
    gram = std::max(gram, part.rank * part.rank);
    products = std::max(products, rows * part.rank);
    panel = std::max(panel, rows * columns);
  }
  if (matrix.format == WeightFormat::full) panel = 0;
  DoraWorkspace workspace;
  const auto take = [&](std::int64_t elems, std::size_t elem_bytes) {
    std::byte* const at = data == nullptr ? nullptr : data + workspace.bytes;
    workspace.bytes += (static_cast<std::size_t>(elems) * elem_bytes + 255) / 256 * 256;
    return at;
  };
  workspace.gram = reinterpret_cast<float*>(take(gram, sizeof(float)));
  workspace.products = reinterpret_cast<float*>(take(products, sizeof(float)));
  workspace.panel = take(panel, size_of(dtype));
  return workspace;
}

/// x A^T in f32, where x has `rows` rows.
inline Gemm products_gemm(const void* x, std::int64_t rows, const void* a, const LoraPart& part,
                          std::int64_t columns, DType dtype, float* into) {
  return {.trans_b = true,
          .m = rows,
          .n = part.rank,
          .k = columns,
          .a = x,
          .lda = columns,
          .b = a,
          .ldb = columns,
          .c = into,
          .ldc = part.rank,
          .dtype = dtype,
          .c_dtype = DType::f32};
}

/// Calls, in order, until one returns an error: for each part `steps.multiply(gemm)`, then for each of its
/// panels `steps.dequantize(panel, out)` if the matrix is quantized, `steps.multiply(gemm)` and
/// `steps.write_norms(rows)`. `Args` is DoraNormArgs.
template <class Args, class Steps>
Status for_each_dora_panel(const Args& args, const Steps& steps) {
  const DType dtype = args.a.dtype;
  const std::int64_t columns = dispatch::row_length(args.a);
  const bool is_quantized = args.matrix.format != WeightFormat::full;
  const DoraWorkspace space = dora_workspace(args.parts, columns, args.matrix, dtype, args.workspace.data);
  std::int64_t done = 0;  // rows of all parts
  return for_each_part(args.parts, [&](const LoraPart& part, const LoraOffsets& offsets) -> Status {
    const void* const a = at(args.a, offsets.u * columns);
    STRATA_TRY(steps.multiply(products_gemm(a, part.rank, a, part, columns, dtype, space.gram)));
    const std::int64_t step = panel_extent(part.rows, columns);
    for (std::int64_t row = 0; row < part.rows; row += step) {
      const Panel panel = {part.first_row + row, std::min(step, part.rows - row), 0, columns};
      if (is_quantized) STRATA_TRY(steps.dequantize(panel, space.panel));
      const void* const w = is_quantized ? space.panel : at(args.w, panel.row * columns);
      STRATA_TRY(steps.multiply(products_gemm(w, panel.rows, a, part, columns, dtype, space.products)));
      STRATA_TRY(steps.write_norms({w, a, at(args.b, offsets.b + row * part.rank), space.products, space.gram,
                                    args.norm.template as<float>() + done + row, panel.rows, part.rank,
                                    columns, static_cast<double>(args.scale)}));
    }
    done += part.rows;
    return {};
  });
}

}  // namespace strata::kernels::detail
