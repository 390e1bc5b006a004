#pragma once

#include <memory>
#include <vector>

#include <strata/kernels/bf16_gemm.h>
#include <strata/runtime/thread_annotations.h>

#include "gemm.h"

// Products of operands kept in 16 bits, one tile of C at most: C is f32 here.
namespace strata::kernels::detail {

/// What this build and CPU have, whatever was forced. The build with oneDNN says so, the other `widened`.
Bf16Gemm native_bf16_gemm() noexcept;
/// bf16 operands, by the CPU's own instructions, sums in f32; only where native_bf16_gemm() is not `widened`.
/// Its bits depend on the shapes, leading dimensions and flags alone. Creates a primitive at the first call
/// with such a shape.
void gemm_native_bf16(const Gemm& gemm) noexcept;

/// Any 16-bit operands, by blocks of kWidenedK that are widened into `panels` for the f32 product.
void gemm_widened(const Gemm& gemm, float* panels) noexcept;
/// Deep enough that sgemm's own packing and its passes over C cost little. Measured on Zen 3 over the
/// products of a GPT-2 of 256 tokens: 512 and 256 take the same time, 0.8 to 0.9 of that of f32 operands, so
/// the one with half the scratch; 192 and 128 take some 6 % more.
inline constexpr std::int64_t kWidenedK = 256;
inline constexpr std::int64_t kPanelFloats = kWidenedK * (kLargestTile.rows + kLargestTile.columns);

/// Scratch of tiles: a C in f32, then panels. As many blocks as were ever wanted at once are kept for good,
/// so that a step allocates none. Thread-safe.
class TileScratch {
 public:
  static constexpr std::int64_t kFloats = kLargestTile.rows * kLargestTile.columns + kPanelFloats;
  /// At least `blocks` exist afterwards.
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
