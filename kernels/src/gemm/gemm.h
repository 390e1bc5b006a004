#pragma once

#include <cstdint>

#include <strata/runtime/dtype.h>

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
  /// The dtype of A and B: f32, bf16 or f16 (fp8 GEMMs of device_gemm(): the dtype of A only).
  DType dtype = DType::f32;
  DType c_dtype = DType::f32;  ///< f32, or `dtype`: then the f32 sum is rounded once
};

/// Writes the f32 C of a GEMM with k = 0: zeros, unless it accumulates.
inline void write_empty_sums(const Gemm& g) noexcept {
  auto* const c = static_cast<float*>(g.c);
  for (std::int64_t i = 0; i < g.m && !g.accumulate; ++i)
    for (std::int64_t j = 0; j < g.n; ++j) c[i * g.ldc + j] = 0.0f;
}

/// Whether an element's bits depend only on its row of A, its column of B and what it is added to: Note
/// [chains] in gemm_chains.h. Otherwise, on CPUs without AVX2, also on the GEMM's shape.
bool sums_by_chains() noexcept;

/// Computes one GEMM of f32 operands on the calling thread, by sums_by_chains().
void gemm_one_thread(const Gemm& gemm) noexcept;

}  // namespace strata::kernels::detail
