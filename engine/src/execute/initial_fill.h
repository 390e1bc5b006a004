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
/// order, element), which neither the layout nor the ranks change, or rows, norms of rows and principal
/// factors of what a matrix starts from; quantized where the run holds a matrix quantized.
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
  Status fill_whole(const StatePiece& piece, std::span<float> values);
  Status fill_quantized(const StatePiece& piece, std::span<float> values);
  Status quantized_bytes(const StatePiece& piece);
  StatePiece renamed(const StatePiece& piece, std::string_view name) const;
  Status fill_picked(const StatePiece& piece, const PickedRows& picked, std::span<float> values);
  static void fill_one_hot(const StatePiece& piece, std::span<const std::int64_t> rows,
                           std::span<float> values);
  void draw(const StatePiece& piece, std::span<float> values);
  /// A matrix whose rows are read: of a quantized one, whose bytes are in bytes_, what it stands for.
  struct Matrix {
    std::int32_t tensor = -1;
    std::int64_t columns = 0;
  };
  Result<Matrix> open_matrix(std::string_view name);
  Status read_rows(const Matrix& matrix, std::int64_t first, std::span<float> values);
  Status compute_norms(const RowNorms& norms);
  Status compute_factors(const PrincipalFactor& factor);

  const RunPlan& plan_;
  ThreadPool& pool_;
  const std::uint64_t seed_;
  const InitialValues given_;
  const QuantizedValues given_quantized_;
  std::int32_t tensor_ = -1;  // the one of quantizer_
  std::optional<MatrixQuantizer> quantizer_;
  std::vector<std::byte> bytes_;    // the bytes of one piece
  std::int32_t norms_tensor_ = -1;  // the one of norms_
  std::vector<float> norms_;
  PrincipalFactor factor_;         // the one of factors_, of either side
  std::vector<float> factors_[2];  // indexed by side
};

}  // namespace strata::detail
