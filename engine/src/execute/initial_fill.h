#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <strata/engine/initial_values.h>
#include <strata/engine/run_plan.h>
#include <strata/runtime/threads/thread_pool.h>

#include "execute/matrix_quantizer.h"

namespace strata::detail {

/// The values that a run's parameters start from: given ones, or draws that are a function of (seed, program
/// order, element), which the layout does not change, or norms of rows of what a matrix starts from;
/// quantized where the run holds a matrix quantized.
class InitialFill {
 public:
  /// `plan` and `pool` outlive it.
  InitialFill(const RunPlan& plan, ThreadPool& pool, std::uint64_t seed, InitialValues given,
              QuantizedValues quantized)
      : plan_(plan),
        pool_(pool),
        seed_(seed),
        given_(std::move(given)),
        given_quantized_(std::move(quantized)) {}
  /// As FillState.
  Status fill(const StatePiece& piece, std::span<float> values);

 private:
  Status fill_values(const StatePiece& piece, std::span<float> values);
  Status fill_quantized(const StatePiece& piece, std::span<float> values);
  Status quantized_bytes(const StatePiece& piece);
  void draw(const StatePiece& piece, std::span<float> values);
  Status compute_norms(const RowNorms& norms);
  Status read_rows(std::int32_t tensor, std::int64_t first, std::int64_t columns, std::span<float> values);

  const RunPlan& plan_;
  ThreadPool& pool_;
  const std::uint64_t seed_;
  const InitialValues given_;
  const QuantizedValues given_quantized_;
  std::int32_t tensor_ = -1;  // the one of quantizer_
  std::optional<MatrixQuantizer> quantizer_;
  std::vector<std::byte> bytes_;    // of one piece
  std::int32_t norms_tensor_ = -1;  // the one of norms_
  std::vector<float> norms_;
};

}  // namespace strata::detail
