#pragma once

#include <oneapi/dnnl/dnnl_config.h>
#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP
#include <omp.h>
#endif

namespace strata::kernels::detail {

#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP
// Sets OpenMP to one thread and restores the setting at the end of the scope. More threads would compete with
// the pool's and change oneDNN's split of k, and so bits. The setting is per thread and the caller may be a
// thread of the user, so it is set for each call and restored.
class OneOpenMpThread {
 public:
  OneOpenMpThread() noexcept : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneOpenMpThread() { omp_set_num_threads(before_); }
  OneOpenMpThread(const OneOpenMpThread&) = delete;
  OneOpenMpThread& operator=(const OneOpenMpThread&) = delete;

 private:
  int before_;
};
#else
// A oneDNN without threads of its own, as in packages for other systems, has nothing to set.
class OneOpenMpThread {
 public:
  OneOpenMpThread() noexcept {}
};
#endif

}  // namespace strata::kernels::detail
