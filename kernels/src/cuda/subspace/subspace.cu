#include <strata/dispatch/cuda/launch.h>
#include <strata/kernels/subspace.h>

#include "cuda/gemm/device_gemm.h"
#include "cuda/subspace/basis_steps.h"

namespace strata::kernels::cuda {
namespace {

using dispatch::HalfWarp;
using dispatch::kThreads;
using dispatch::num_blocks;

template <class F>
__global__ void __launch_bounds__(kThreads) run_rows(std::int64_t n, F f) {
  const std::int64_t row = dispatch::half_warp_index();
  if (row < n) f(HalfWarp{}, row);
}
template <class F>
__global__ void __launch_bounds__(kThreads) run_elements(std::int64_t n, F f) {
  const std::int64_t i = dispatch::thread_index();
  if (i < n) f(i);
}

struct QueueDevice {
  cudaStream_t queue;

  template <class F>
  Status rows(std::int64_t n, const F& f) const {
    if (n == 0) return Status::ok();
    run_rows<<<num_blocks(n, dispatch::kRowsPerBlock), kThreads, 0, queue>>>(n, f);
    STRATA_CUDA_TRY(cudaGetLastError());
    return Status::ok();
  }
  template <class F>
  Status elements(std::int64_t n, const F& f) const {
    if (n == 0) return Status::ok();
    run_elements<<<num_blocks(n, kThreads), kThreads, 0, queue>>>(n, f);
    STRATA_CUDA_TRY(cudaGetLastError());
    return Status::ok();
  }
  Status multiply(const detail::Gemm& gemm) const { return detail::device_gemm(gemm, nullptr, {}, queue); }
  template <class Body>
  Status dispatch(DType dtype, const Body& body) const {
    return strata::dispatch::dispatch_dtype(dtype, body);
  }
};

}  // namespace

Status find_basis(Backend&, Stream& stream, const FindBasisArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return detail::find_bases(QueueDevice{queue}, a);
}

Status gradient_outside(Backend&, Stream& stream, const GradientOutsideArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return detail::find_outside(QueueDevice{queue}, a);
}

}  // namespace strata::kernels::cuda
