#pragma once

#include <strata/simd/convert.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "dtype_dispatch.h"
#include "gemm/gemm_tiled.h"
#include "loss/head.h"
#include "work_split.h"

namespace strata::kernels::detail {

/// Calls row(t) in parallel for every row t of a block.
template <class Row>
void for_block_rows(const LogitsBlock& block, ThreadPool& pool, const Row& row) {
  dispatch::parallel_for_ranges(pool, block.n, rows_per_item(block.vocab),
                                [&](std::int64_t begin, std::int64_t n) {
                                  for (std::int64_t t = begin; t < begin + n; ++t) row(t);
                                });
}

/// Computes the logits of every block in order, and calls row(block, t) for each of its rows.
template <class Row>
void for_head_rows(const Head& head, ThreadPool& pool, const Row& row) {
  for (std::int64_t i = 0; i < n_logits_blocks(head); ++i) {
    const LogitsBlock block = logits_block(head, i);
    gemm_tiled(logits_gemm(head, block), nullptr, pool);
    for_block_rows(block, pool, [&](std::int64_t t) { row(block, t); });
  }
}

/// The same with the gradients: row() replaces the logits of a row by their gradient, which is rounded once
/// to the dtype of x for the GEMMs of dx and dw, as far as these are present, of gradient_rows() rows each.
template <class Row>
void for_head_rows_backward(const Head& head, const TensorView& dx, const TensorView& dw, bool accumulate_dw,
                            ThreadPool& pool, const Row& row) {
  for (std::int64_t i = 0; i < n_logits_blocks(head); ++i) {
    const LogitsBlock block = logits_block(head, i);
    gemm_tiled(logits_gemm(head, block), nullptr, pool);
    for_block_rows(block, pool, [&](std::int64_t t) {
      row(block, t);
      const float* const gradient = block.logits + t * block.vocab;
      dispatch_dtype(head.x.dtype, [&]<class T>(std::type_identity<T>) {
        if constexpr (dtype_of<T> != DType::f32)
          simd::narrow(gradient, reinterpret_cast<T*>(block.dlogits) + t * block.vocab, block.vocab);
      });
    });
    const GradientRows& rows = block.gradients;
    if (rows.n == 0) continue;
    if (dispatch::is_present(dx)) gemm_tiled(head_input_gemm(head, rows, dx), nullptr, pool);
    if (dispatch::is_present(dw)) gemm_tiled(head_weight_gemm(head, rows, dw, accumulate_dw), nullptr, pool);
  }
}

}  // namespace strata::kernels::detail
