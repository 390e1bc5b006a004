#pragma once

#include <cstdint>

#include <strata/dispatch/cuda/launch.h>

// The second half of sums over rows: one thread per column.
namespace strata::kernels::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(dispatch::kThreads)
    add_partials(const float* partials, std::int64_t count, std::int64_t stride, T* out, std::int64_t n,
                 bool accumulate) {
  const std::int64_t i = dispatch::thread_index();
  if (i >= n) return;
  float sum = count > 0 ? partials[i] : 0.0f;
#pragma unroll 8  // loads of later blocks do not wait for the sum
  for (std::int64_t block = 1; block < count; ++block) sum = sum + partials[block * stride + i];
  out[i] = from_f32<T>(accumulate ? to_f32(out[i]) + sum : sum);
}

/// out (+)= partials[0] + partials[1] + ..., in that order, rounded once if `out` is stored in 16 bits.
/// Partial i begins at partials + i * stride.
inline Status sum_partials(const float* partials, std::int64_t count, std::int64_t stride,
                           const TensorView& out, bool accumulate, cudaStream_t stream) {
  const std::int64_t n = out.n_elems();
  if (n == 0) return Status::ok();
  return dispatch::dispatch_launch(out.dtype, [&]<class T>(std::type_identity<T>) {
    add_partials<<<dispatch::num_blocks(n, dispatch::kThreads), dispatch::kThreads, 0, stream>>>(
        partials, count, stride, out.as<T>(), n, accumulate);
  });
}

}  // namespace
}  // namespace strata::kernels::cuda
