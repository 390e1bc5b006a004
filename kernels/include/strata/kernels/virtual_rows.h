#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// Virtual rows: n rows before the `seq` rows of each of B sequences, the same rows before each. They have
// `columns` <= h columns, which are the last ones of a row; the others are zero. Values are only copied, and
// summed in f32.

/// y = the virtual rows, then the rows of x, for each sequence.
struct SpliceRowsArgs {
  TensorView x;      ///< stored dtype (embedding.h) [..., h], B seq rows
  TensorView added;  ///< as x [n, columns]; rank 0: zeros
  TensorView y;      ///< as x, B (n + seq) rows, written; must not overlap x
  std::int64_t n = 0, seq = 0;
};
Status splice_rows_async(Backend& backend, Stream& stream, const SpliceRowsArgs& args);
void splice_rows_host(const SpliceRowsArgs& args, ThreadPool& pool);

/// The gradient of the virtual rows: the sum over the sequences, in their order, in f32.
struct SpliceRowsBackwardArgs {
  TensorView dy;      ///< stored dtype [..., h], B (n + seq) rows
  TensorView dadded;  ///< f32 or stored dtype [n, columns], written
  std::int64_t seq = 0;
  bool accumulate = false;
};
Status splice_rows_backward_async(Backend& backend, Stream& stream, const SpliceRowsBackwardArgs& args);
void splice_rows_backward_host(const SpliceRowsBackwardArgs& args, ThreadPool& pool);

/// The inverse: y = the rows of x without those before each sequence.
struct DropRowsArgs {
  TensorView x;  ///< stored dtype [..., h], B (n + seq) rows
  TensorView y;  ///< as x, B seq rows, written; must not overlap x
  std::int64_t n = 0, seq = 0;
};
Status drop_rows_async(Backend& backend, Stream& stream, const DropRowsArgs& args);
void drop_rows_host(const DropRowsArgs& args, ThreadPool& pool);

/// y = x, but the last `columns` columns of a row at position p < n are those of virtual row p.
struct ReplaceRowsArgs {
  TensorView x;          ///< stored dtype [..., h], R rows
  TensorView positions;  ///< i32, R values that are not negative
  TensorView added;      ///< as x [n, columns]
  TensorView y;          ///< as x, written; may be x
};
Status replace_rows_async(Backend& backend, Stream& stream, const ReplaceRowsArgs& args);
void replace_rows_host(const ReplaceRowsArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
