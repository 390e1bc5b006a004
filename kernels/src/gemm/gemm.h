#pragma once

#include <cstdint>

#include <strata/runtime/dtype.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata::kernels::detail {

/// C[m, n] = op(A)[m, k] * op(B)[k, n], plus C itself if `accumulate`. All matrices are row-major with a
/// leading dimension; op transposes if its flag is set. Without `accumulate`, C is written and never read.
struct Gemm {
  bool trans_a = false;
  bool trans_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  std::int64_t lda = 0;
  const void* b = nullptr;
  std::int64_t ldb = 0;
  void* c = nullptr;
  std::int64_t ldc = 0;
  bool accumulate = false;
  DType dtype = DType::f32;    ///< of A and B: f32, bf16 or f16 (fp8 GEMMs of device_gemm(): only of A)
  DType c_dtype = DType::f32;  ///< f32, or `dtype`: then the f32 sum is rounded once
};

/// Computes one GEMM of f32 operands on the calling thread. Its bits depend only on the shapes and flags (and
/// on the host GEMM's instruction set).
void gemm_one_thread(const Gemm& gemm) noexcept;

/// Rows and columns of one tile of C, which depend only on the shapes and never on threads.
struct TileGrid {
  std::int64_t rows, columns;
};
TileGrid tile_grid(std::int64_t m, std::int64_t n) noexcept;
inline constexpr TileGrid kLargestTile = {256, 512};

/// Computes the tiles of C in parallel, each as an independent GEMM over the whole of k. `row_bias` (n values
/// of `dtype`, or null) is added to every row of C before C is rounded.
void gemm_tiled(const Gemm& gemm, const void* row_bias, ThreadPool& pool);

}  // namespace strata::kernels::detail
