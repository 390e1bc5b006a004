#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// A score in f32 for every row: scores[t] = x[t] . weight + bias, summed in sixteen lanes. It is the head of
/// a reward or value model (Ouyang et al. 2022, arXiv 2203.02155, section 3.5).
struct RowScoresArgs {
  TensorView x;          ///< f32, bf16 or f16 [..., K], T rows
  TensorView weight;     ///< as x, [1, K]
  TensorView bias = {};  ///< as x, [1]; rank 0: none
  TensorView scores;     ///< f32, T values, written
};
Status row_scores_async(Backend& backend, Stream& stream, const RowScoresArgs& args);
void row_scores_host(const RowScoresArgs& args, ThreadPool& pool);

struct RowScoresBackwardArgs {
  TensorView x, weight;   ///< as in RowScoresArgs
  TensorView dscores;     ///< f32, T values
  TensorView dx;          ///< as x, written
  TensorView dweight;     ///< [1, K], a gradient of weight: f32, or as x if it is not accumulated
  TensorView dbias = {};  ///< [1], a gradient of bias; rank 0: none
  bool accumulate_dweight = false, accumulate_dbias = false;
  BufferView workspace;  ///< row_scores_backward_workspace_bytes(T, K)
};
std::size_t row_scores_backward_workspace_bytes(std::int64_t rows, std::int64_t k) noexcept;
Status row_scores_backward_async(Backend& backend, Stream& stream, const RowScoresBackwardArgs& args);
void row_scores_backward_host(const RowScoresBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
