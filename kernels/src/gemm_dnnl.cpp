#include <omp.h>

#include <oneapi/dnnl/dnnl.h>

#include <strata/runtime/alloc_counter.h>
#include <strata/runtime/assert.h>

#include "gemm.h"

namespace strata::kernels::detail {
namespace {

// More threads would fight the pool's, and would change oneDNN's split of k, hence bits. The setting belongs
// to the calling thread, which may be the user's own: so it is made for each call and given back.
class OneOpenMpThread {
 public:
  OneOpenMpThread() noexcept : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneOpenMpThread() { omp_set_num_threads(before_); }
  OneOpenMpThread(const OneOpenMpThread&) = delete;
  OneOpenMpThread& operator=(const OneOpenMpThread&) = delete;

 private:
  int before_;
};

}  // namespace

void gemm_one_thread(const Gemm& g) noexcept {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) {
    for (std::int64_t i = 0; i < g.m && !g.accumulate; ++i)
      for (std::int64_t j = 0; j < g.n; ++j) g.c[i * g.ldc + j] = 0.0f;
    return;
  }
  const OneOpenMpThread one_thread;
  const ThirdPartyScope scope;  // packing buffers
  const dnnl_status_t status = dnnl_sgemm(g.trans_a ? 'T' : 'N', g.trans_b ? 'T' : 'N', g.m, g.n, g.k, 1.0f,
                                          g.a, g.lda, g.b, g.ldb, g.accumulate ? 1.0f : 0.0f, g.c, g.ldc);
  STRATA_ASSERT(status == dnnl_success, "dnnl_sgemm returned ", static_cast<int>(status), " for ", g.m, " x ",
                g.n, " x ", g.k);
}

}  // namespace strata::kernels::detail
