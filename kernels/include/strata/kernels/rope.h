#pragma once

#include <cstdint>

#include <strata/kernels/values/rope_frequencies.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// The position of every token in its document: first + t % seq, minus the position of the document's first
/// token if documents are packed.
struct PositionsArgs {
  TensorView doc_start;  ///< i32, T values: t % seq of the first token of token t's document; rank 0 for none
  TensorView positions;  ///< i32, T values, written
  std::int64_t seq = 0;
  std::int64_t first = 0;
};
Status positions_async(Backend& backend, Stream& stream, const PositionsArgs& args);
void positions_host(const PositionsArgs& args, ThreadPool& pool);

/// Computes the table of angles: row p has the cosines of all n angles at position p, then their sines.
struct RopeTableArgs {
  TensorView table;  ///< f32 [positions, rotary_dim], written
  RopeFrequencies frequencies;
};
Status rope_table_async(Backend& backend, Stream& stream, const RopeTableArgs& args);
void rope_table_host(const RopeTableArgs& args, ThreadPool& pool);

/// Rotates the first rotary_dim elements of each of the first `heads` heads of every row and copies the rest
/// of the row. A pair is (i, i + rotary_dim / 2), or (2i, 2i + 1) if interleaved.
struct RopeArgs {
  TensorView x;          ///< stored dtype (embedding.h) [..., w], T rows, w a multiple of head_dim
  TensorView positions;  ///< i32, T values below the table's rows; the caller has checked them
  TensorView table;      ///< from rope_table
  TensorView y;          ///< as x, written; may be x
  std::int64_t heads = 1;
  std::int64_t head_dim = 0;
  bool interleaved = false;
  bool inverse = false;  ///< rotate backward, which is the gradient
};
Status rope_async(Backend& backend, Stream& stream, const RopeArgs& args);
void rope_host(const RopeArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
