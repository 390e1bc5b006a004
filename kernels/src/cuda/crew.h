#pragma once

#include <cstdint>

#include "cuda/lanes.h"

/// What each thread of a block does between its barriers. A Crew is the threads of a block: all(f) calls f(i)
/// for each, and ends when all are done. The host runs it as tests, one thread after the other.
namespace strata::kernels::detail {

#ifdef __CUDACC__
struct BlockCrew {
  template <class F>
  __device__ void all(const F& f) const {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
};
#endif
/// The last one first, if `kBackwards`: what comes out may not hang on the turns.
template <int kThreads, bool kBackwards = false>
struct ThreadsInTurn {
  template <class F>
  void all(const F& f) const {
    for (int i = 0; i < kThreads; ++i) f(kBackwards ? kThreads - 1 - i : i);
  }
};

}  // namespace strata::kernels::detail
