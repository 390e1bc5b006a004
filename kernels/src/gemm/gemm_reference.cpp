#include "gemm/gemm.h"

// The GEMM of builds without oneDNN, and of ThreadSanitizer builds, where OpenMP would cause many false
// reports: a plain sum in order of k.
namespace strata::kernels::detail {

bool sums_by_chains() noexcept { return false; }

void gemm_one_thread(const Gemm& g) noexcept {
  const auto* a = static_cast<const float*>(g.a);
  const auto* b = static_cast<const float*>(g.b);
  for (std::int64_t i = 0; i < g.m; ++i) {
    float* row = static_cast<float*>(g.c) + i * g.ldc;
    for (std::int64_t j = 0; j < g.n && !g.accumulate; ++j) row[j] = 0.0f;
    for (std::int64_t p = 0; p < g.k; ++p) {
      const float x = g.trans_a ? a[p * g.lda + i] : a[i * g.lda + p];
      for (std::int64_t j = 0; j < g.n; ++j) row[j] += x * (g.trans_b ? b[j * g.ldb + p] : b[p * g.ldb + j]);
    }
  }
}

}  // namespace strata::kernels::detail
