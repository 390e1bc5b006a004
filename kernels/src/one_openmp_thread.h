#pragma once

#include <omp.h>

namespace strata::kernels::detail {

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

}  // namespace strata::kernels::detail
