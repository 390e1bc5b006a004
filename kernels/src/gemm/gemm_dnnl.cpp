#include <oneapi/dnnl/dnnl.h>

#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/assert.h>

#include "gemm/gemm.h"
#include "gemm/one_openmp_thread.h"

namespace strata::kernels::detail {

void gemm_one_thread(const Gemm& g) noexcept {
  if (g.m == 0 || g.n == 0) return;
  auto* c = static_cast<float*>(g.c);
  if (g.k == 0) {
    for (std::int64_t i = 0; i < g.m && !g.accumulate; ++i)
      for (std::int64_t j = 0; j < g.n; ++j) c[i * g.ldc + j] = 0.0f;
    return;
  }
  const OneOpenMpThread one_thread;
  const ThirdPartyScope scope;  // allocations of oneDNN's packing buffers
  const dnnl_status_t status = dnnl_sgemm(
      g.trans_a ? 'T' : 'N', g.trans_b ? 'T' : 'N', g.m, g.n, g.k, 1.0f, static_cast<const float*>(g.a),
      g.lda, static_cast<const float*>(g.b), g.ldb, g.accumulate ? 1.0f : 0.0f, c, g.ldc);
  STRATA_ASSERT(status == dnnl_success, "dnnl_sgemm returned ", static_cast<int>(status), " for ", g.m, " x ",
                g.n, " x ", g.k);
}

}  // namespace strata::kernels::detail
