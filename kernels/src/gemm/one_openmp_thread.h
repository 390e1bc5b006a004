#pragma once

#include <omp.h>

namespace strata::kernels::detail {

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

}  // namespace strata::kernels::detail
