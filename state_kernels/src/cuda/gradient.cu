#include <strata/simd/norm.h>
#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/cuda/packs.h>
#include <strata/state_kernels/gradient.h>

#include "cuda/square_sum.h"

namespace strata::state_kernels::cuda {
namespace {

using dispatch::are_pack_aligned;
using dispatch::dispatch_launch;
using dispatch::HalfWarp;
using dispatch::kThreads;
using dispatch::load_pack;
using dispatch::num_blocks;
using dispatch::Pack;
using dispatch::store_pack;
using dispatch::thread_index;

template <class T>
__device__ void add_one(float* acc, const T* g, bool first, std::int64_t i) {
  const float x = to_f32(g[i]);
  acc[i] = first ? x : acc[i] + x;
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    accumulate_gradient(float* acc, const T* g, bool first, std::int64_t n) {
  if (const std::int64_t i = thread_index(); i < n) add_one(acc, g, first, i);
}
// A thread has a pack of g, whose sums are one or two packs.
template <class T>
__global__ void __launch_bounds__(kThreads)
    accumulate_packs(float* acc, const T* g, bool first, std::int64_t n) {
  constexpr int kSize = Pack<T>::kSize, kSums = Pack<float>::kSize;
  const std::int64_t at = thread_index() * kSize;
  if (at + kSize > n) {
    for (std::int64_t i = at; i < n; ++i) add_one(acc, g, first, i);
    return;
  }
  const Pack<T> x = load_pack(g + at);
  for (int begin = 0; begin < kSize; begin += kSums) {
    Pack<float> sums;
    if (!first) sums = load_pack(acc + at + begin);
    for (int i = 0; i < kSums; ++i) {
      const float value = to_f32(x.value[begin + i]);
      sums.value[i] = first ? value : sums.value[i] + value;
    }
    store_pack(acc + at + begin, sums);
  }
}

// A half warp per partial, from shared memory.
template <class T>
__global__ void __launch_bounds__(detail::PartialStage<T>::kThreads)
    sum_squares(const T* x, double* partials, std::int64_t n, std::int64_t count, bool is_aligned) {
  using Stage = detail::PartialStage<T>;
  __shared__ Stage stage;
  const std::int64_t begin = std::int64_t{blockIdx.x} * Stage::kPartials;
  const std::int64_t first = begin * simd::kNormPartialElems;
  detail::stage_partials(static_cast<int>(threadIdx.x), x + first, n - first, is_aligned, stage);
  __syncthreads();
  const int half_warp = static_cast<int>(threadIdx.x) / dispatch::kLanes;
  const std::int64_t partial = begin + half_warp;
  if (half_warp >= Stage::kPartials || partial >= count) return;
  const std::int64_t left = n - partial * simd::kNormPartialElems;
  const HalfWarp lanes;
  const double sum = detail::square_sum(lanes, stage.at + half_warp * Stage::kStride,
                                        left < simd::kNormPartialElems ? left : simd::kNormPartialElems);
  if (lanes.is_leader()) partials[partial] = sum;
}

}  // namespace

Status accumulate(Backend&, Stream& stream, const AccumulateArgs& a) {
  const std::int64_t n = a.acc.n_elems();
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.g.dtype, [&]<class T>(std::type_identity<T>) {
    auto* const acc = a.acc.as<float>();
    const T* const g = a.g.as<T>();
    if (are_pack_aligned(acc, g))
      accumulate_packs<<<num_blocks(n, kThreads * Pack<T>::kSize), kThreads, 0, queue>>>(acc, g, a.first, n);
    else
      accumulate_gradient<<<num_blocks(n, kThreads), kThreads, 0, queue>>>(acc, g, a.first, n);
  });
}

Status square_sum_partials(Backend&, Stream& stream, const SquareSumPartialsArgs& a) {
  const std::int64_t n = a.x.n_elems(), count = simd::norm_partial_count(n);
  if (count == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    using Stage = detail::PartialStage<T>;
    const T* const x = a.x.as<T>();
    sum_squares<<<num_blocks(count, Stage::kPartials), Stage::kThreads, 0, queue>>>(
        x, a.partials.as<double>(), n, count, are_pack_aligned(x));
  });
}

}  // namespace strata::state_kernels::cuda
