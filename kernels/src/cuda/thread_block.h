#pragma once

#include <cstdint>

/// Kernel code as steps between barriers. A ThreadBlock is the threads of a block: run_and_sync(f) calls f(i)
/// for each thread i, and returns when all are done. The host runs the same code with the threads of
/// emulation/thread_block.h.
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
}  // namespace strata::kernels::detail
