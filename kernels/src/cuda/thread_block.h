#pragma once

#include <cstdint>

#include "cuda/lanes.h"

/// Kernel code as steps between barriers. A ThreadBlock is the threads of a block: run_and_sync(f) calls f(i)
/// for each thread i, and returns when all are done. In tests the host runs the same code, one thread after
/// the other.
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
/// Host emulation. `kReversed`: the last thread runs first, because results must not depend on the order of
/// threads.
template <int kThreads, bool kReversed = false>
struct EmulatedThreads {
  template <class F>
  void run_and_sync(const F& f) const {
    for (int i = 0; i < kThreads; ++i) f(kReversed ? kThreads - 1 - i : i);
  }
};

}  // namespace strata::kernels::detail
