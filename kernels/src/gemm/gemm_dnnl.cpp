#include <oneapi/dnnl/dnnl.h>

#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/assert.h>

#include "gemm/gemm.h"
#include "gemm/one_openmp_thread.h"

namespace strata::kernels::detail {

void gemm_one_thread(const Gemm& g) noexcept {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) return write_empty_sums(g);
  const OneOpenMpThread one_thread;
  const ThirdPartyScope scope;  // allocations of oneDNN's packing buffers
  const dnnl_status_t status =
      dnnl_sgemm(g.trans_a ? 'T' : 'N', g.trans_b ? 'T' : 'N', g.m, g.n, g.k, 1.0f,
                 static_cast<const float*>(g.a), g.lda, static_cast<const float*>(g.b), g.ldb,
                 g.accumulate ? 1.0f : 0.0f, static_cast<float*>(g.c), g.ldc);
  STRATA_ASSERT(status == dnnl_success, "dnnl_sgemm returned ", static_cast<int>(status), " for ", g.m, " x ",
                g.n, " x ", g.k);
}

}  // namespace strata::kernels::detail
