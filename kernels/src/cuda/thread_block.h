#pragma once

#include <cstdint>

#include "cuda/lanes.h"

/// What each thread of a block does between its barriers. A ThreadBlock is the threads of a block:
/// run_and_sync(f) calls f(i) for each, and ends when all are done. The host runs it as tests, one thread
/// after the other.
namespace strata::kernels::detail {

#ifdef __CUDACC__
struct BlockThreads {
  template <class F>
  __device__ void run_and_sync(const F& f) const {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
};
#endif
/// The last one first, if `kReversed`: what comes out may not hang on the turns.
template <int kThreads, bool kReversed = false>
struct EmulatedThreads {
  template <class F>
  void run_and_sync(const F& f) const {
    for (int i = 0; i < kThreads; ++i) f(kReversed ? kThreads - 1 - i : i);
  }
};

}  // namespace strata::kernels::detail
