#pragma once

#include <cstdint>

#include <strata/runtime/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// The place of every token in its document: t % seq, less the document's first place where documents are
/// packed.
struct PositionsArgs {
  TensorView doc_start;  ///< i32, T values: t % seq of the first token of token t's document; rank 0 for none
  TensorView positions;  ///< i32, T values, written
  std::int64_t seq = 0;
};
Status positions_async(Backend& backend, Stream& stream, const PositionsArgs& args);
void positions_host(const PositionsArgs& args, ThreadPool& pool);

/// How rotary angles follow from positions. Frequency i of n is theta^(-i / n), n = rotary_dim / 2 (Su et al.
/// 2021), then scaled: `linear` divides all by `factor`; `llama3` those of long waves (Grattafiori et al.
/// 2024: wave lengths below original / high_freq_factor stay, above original / low_freq_factor are divided,
/// between them blended); `yarn` (Peng et al. 2023, arXiv 2309.00071) those that turn less than beta_slow
/// times in the original positions, more than beta_fast times stay, between them blended by index; and
/// cosines and sines are multiplied by attention_factor.
struct RopeFrequencies {
  enum class Scaling : std::uint8_t { none, linear, llama3, yarn } scaling = Scaling::none;
  float theta = 10000.0f;
  float factor = 1.0f;
  float low_freq_factor = 1.0f;
  float high_freq_factor = 4.0f;
  float original_positions = 8192.0f;
  float beta_fast = 32.0f;
  float beta_slow = 1.0f;
  float attention_factor = 1.0f;
  bool truncate = true;  ///< of yarn: the indices between which it blends are whole numbers
  friend bool operator==(const RopeFrequencies&, const RopeFrequencies&) = default;
};
/// Row p: the cosines of all n angles at position p, then their sines.
struct RopeTableArgs {
  TensorView table;  ///< f32 [positions, rotary_dim], written
  RopeFrequencies frequencies;
};
Status rope_table_async(Backend& backend, Stream& stream, const RopeTableArgs& args);
void rope_table_host(const RopeTableArgs& args, ThreadPool& pool);

/// Turns the first rotary_dim elements of each of the first `heads` heads of every row; the rest of the row
/// is copied. A pair is (i, i + rotary_dim / 2), or (2i, 2i + 1) when interleaved.
struct RopeArgs {
  TensorView x;          ///< kept (embedding.h) [..., w], T rows, w a multiple of head_dim
  TensorView positions;  ///< i32, T values below the table's rows; the caller has checked them
  TensorView table;      ///< of rope_table
  TensorView y;          ///< as x, written; may be x
  std::int64_t heads = 1;
  std::int64_t head_dim = 0;
  bool interleaved = false;
  bool inverse = false;  ///< turns back: the derivative
};
Status rope_async(Backend& backend, Stream& stream, const RopeArgs& args);
void rope_host(const RopeArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
