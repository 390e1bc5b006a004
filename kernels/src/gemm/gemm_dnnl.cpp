#include <oneapi/dnnl/dnnl.h>

#include <strata/runtime/assert.h>
#include <strata/runtime/memory/alloc_counter.h>

#include "gemm/dnnl_sgemm.h"
#include "gemm/gemm.h"
#include "gemm/gemm_chains.h"
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

namespace {

bool dnnl_uses(dnnl_cpu_isa_t isa) noexcept {
  static const auto all = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
  return (all & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
}

}  // namespace

bool sums_by_chains() noexcept { return dnnl_uses(dnnl_cpu_isa_avx2); }

void gemm_one_thread(const Gemm& g) noexcept {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) return write_empty_sums(g);
  const OneOpenMpThread one_thread;
  const ThirdPartyScope scope;  // allocations of oneDNN's packing buffers, and of ours
  sums_by_chains() ? gemm_by_chains(g, !dnnl_uses(dnnl_cpu_isa_avx512_core)) : call_dnnl_sgemm(g);
}

}  // namespace strata::kernels::detail
