#include "gemm.h"

// Where oneDNN's own threading would drown ThreadSanitizer in false reports: the plain sum, in order of k.
namespace strata::kernels::detail {

void gemm_one_thread(const Gemm& g) noexcept {
  for (std::int64_t i = 0; i < g.m; ++i) {
    float* row = g.c + i * g.ldc;
    for (std::int64_t j = 0; j < g.n && !g.accumulate; ++j) row[j] = 0.0f;
    for (std::int64_t p = 0; p < g.k; ++p) {
      const float a = g.trans_a ? g.a[p * g.lda + i] : g.a[i * g.lda + p];
      for (std::int64_t j = 0; j < g.n; ++j)
        row[j] += a * (g.trans_b ? g.b[j * g.ldb + p] : g.b[p * g.ldb + j]);
    }
  }
}

}  // namespace strata::kernels::detail
