#include <oneapi/dnnl/dnnl.h>

#include <strata/runtime/assert.h>
#include <strata/runtime/memory/alloc_counter.h>

#include "gemm/dnnl_sgemm.h"
#include "gemm/gemm.h"
#include "gemm/one_openmp_thread.h"

namespace strata::kernels::detail {

void call_dnnl_sgemm(const Gemm& g) noexcept {
  const dnnl_status_t status =
      dnnl_sgemm(g.trans_a ? 'T' : 'N', g.trans_b ? 'T' : 'N', g.m, g.n, g.k, 1.0f,
                 static_cast<const float*>(g.a), g.lda, static_cast<const float*>(g.b), g.ldb,
                 g.accumulate ? 1.0f : 0.0f, static_cast<float*>(g.c), g.ldc);
  STRATA_ASSERT(status == dnnl_success, "dnnl_sgemm returned ", static_cast<int>(status), " for ", g.m, " x ",
                g.n, " x ", g.k);
}

bool dnnl_uses_avx2() noexcept {
  static const auto isa = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
  constexpr unsigned kAvx2 = dnnl_cpu_isa_avx2, kAvx512 = dnnl_cpu_isa_avx512_core;
  return (isa & kAvx2) == kAvx2 && (isa & kAvx512) != kAvx512;
}

void gemm_one_thread(const Gemm& g) noexcept {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) return write_empty_sums(g);
  const OneOpenMpThread one_thread;
  const ThirdPartyScope scope;  // allocations of oneDNN's packing buffers, and of ours
  dnnl_uses_avx2() ? gemm_on_avx2(g) : call_dnnl_sgemm(g);
}

}  // namespace strata::kernels::detail
