#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// T tokens choose k experts each: choice c = t k + j is the j-th of token t. The R = T k rows that experts
// compute are ordered by expert, and those of one expert by choice, so that they do not depend on who
// computes them.

/// The order of rows: a stable counting sort of the choices.
struct RouteRowsArgs {
  TensorView experts;  ///< i32 [T, k], each in [0, E); others are taken as E - 1
  TensorView
      offsets;  ///< i32 [E + 1], E at most 1,024, written: expert e has rows [offsets[e], offsets[e + 1])
  TensorView source;    ///< i32 [R], written: the choice of each row
  TensorView position;  ///< i32 [R], written: the row of each choice
};
Status route_rows_async(Backend& backend, Stream& stream, const RouteRowsArgs& args);
void route_rows_host(const RouteRowsArgs& args, ThreadPool& pool);

/// rows[r] = x[source[r] / k]. It is the derivative of sum_rows.
struct GatherRowsArgs {
  TensorView x;       ///< stored dtype [T, H]
  TensorView source;  ///< i32 [R]
  TensorView rows;    ///< stored dtype [R, H], written
};
Status gather_rows_async(Backend& backend, Stream& stream, const GatherRowsArgs& args);
void gather_rows_host(const GatherRowsArgs& args, ThreadPool& pool);

/// y[t] = base[t] + the sum of rows[position[t k + j]], in f32 from j = 0 to k - 1 and the base last, rounded
/// once. Without a base it is the derivative of gather_rows.
struct SumRowsArgs {
  TensorView rows;      ///< stored dtype [R, H]
  TensorView position;  ///< i32 [R]
  TensorView base;      ///< stored dtype [T, H]; default view (rank 0): none
  TensorView y;         ///< stored dtype [T, H], written; may be `base`
};
Status sum_rows_async(Backend& backend, Stream& stream, const SumRowsArgs& args);
void sum_rows_host(const SumRowsArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
