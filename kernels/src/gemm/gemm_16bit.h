#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <strata/runtime/thread_annotations.h>

#include "few_rows_table.h"
#include "gemm/gemm.h"
#include "gemm/tile_grid.h"

// GEMMs of 16-bit operands with an f32 C of at most one tile.
namespace strata::kernels::detail {

/// Computes a GEMM of any 16-bit operands: blocks of kWidenedK of the inner extent are converted to f32 in
/// `panels` and multiplied by the f32 GEMM.
void gemm_widened(const Gemm& gemm, float* panels) noexcept;
/// One chain of Note [chains]. It is large enough that sgemm's packing and its passes over C cost little:
/// measured on Zen 3 over the GEMMs of GPT-2 with 256 tokens, 512 and 256 take the same time, 0.8 to 0.9 of
/// that of f32 operands; 192 and 128 take about 6 % longer.
inline constexpr std::int64_t kWidenedK = kChain;
inline constexpr std::int64_t kPanelFloats = kWidenedK * (kLargestTile.rows + kLargestTile.columns);

/// Scratch blocks of tiles, each an f32 C followed by panels. Blocks are never freed, so their number is the
/// maximum that was in use at once, and later steps allocate none. Thread-safe.
class TileScratch {
 public:
  static constexpr std::int64_t kFloats = kLargestTile.rows * kLargestTile.columns + kPanelFloats;
  /// Allocates until at least `blocks` exist.
  void reserve(std::size_t blocks);
  float* acquire();
  void release(float* block) noexcept;

 private:
  void add_block() STRATA_REQUIRES(mutex_);
  Mutex mutex_;
  std::vector<std::unique_ptr<float[]>> blocks_ STRATA_GUARDED_BY(mutex_);
  std::vector<float*> free_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::kernels::detail
