#pragma once

#include <cstdint>

#include <strata/runtime/thread_pool.h>

namespace strata::kernels::detail {

/// C[m, n] = op(A)[m, k] * op(B)[k, n], plus C itself when `accumulate`. All row-major f32 with a leading
/// dimension; op transposes when its flag is set. Without `accumulate`, C is written and never read.
struct Gemm {
  bool trans_a = false;
  bool trans_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  std::int64_t lda = 0;
  const float* b = nullptr;
  std::int64_t ldb = 0;
  float* c = nullptr;
  std::int64_t ldc = 0;
  bool accumulate = false;
};

/// One product on the calling thread. Its bits depend on the shapes and flags alone (and on the host GEMM
/// ISA).
void gemm_one_thread(const Gemm& gemm) noexcept;

/// Rows and columns of one tile of C, a function of the shapes alone: never of threads.
struct TileGrid {
  std::int64_t rows, columns;
};
TileGrid tile_grid(std::int64_t m, std::int64_t n) noexcept;

/// The tiles of C as independent products over the whole of k, in parallel. `row_bias` (n values, or null) is
/// added to every row of C once its tile is done.
void gemm_tiled(const Gemm& gemm, const float* row_bias, ThreadPool& pool);

}  // namespace strata::kernels::detail
