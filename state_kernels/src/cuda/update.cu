// Optimizer steps for states that live on a GPU. They use the element functions of cpuopt/math/element.h,
// whose bits the host's SIMD kernels match: one thread per element, one thread block per block of int8
// moments. Compiled without contraction: a fused multiply-add would round once where the host rounds twice.

#include <string>

#include <strata/cpuopt/math/element.h>
#include <strata/simd/norm.h>
#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/state_kernels/update.h>

namespace strata::state_kernels::cuda {
namespace {

using cpuopt::MasterLayout;
using cpuopt::Moment;
using cpuopt::MomentKind;
using cpuopt::RoundingNoise;
using cpuopt::UpdateBlock;
using cpuopt::UpdateScalars;
using dispatch::HalfWarp;
using dispatch::num_blocks;

constexpr int kUpdateThreads = static_cast<int>(kMomentBlock);

__device__ float gradient_at(const UpdateBlock& b, std::int64_t i) {
  switch (b.grad) {
    case DType::bf16:
      return to_f32(static_cast<const bf16*>(b.g)[i]);
    case DType::f16:
      return to_f32(static_cast<const f16*>(b.g)[i]);
    default:
      return static_cast<const float*>(b.g)[i];
  }
}

template <MomentKind kKind>
__device__ float load_moment(StateFormat format, const Moment& moment, std::int64_t i) {
  switch (format) {
    case StateFormat::bf16:
      return to_f32(static_cast<const bf16*>(moment.values)[i]);
    case StateFormat::int8:
      return cpuopt::dequantize_moment_byte<kKind>(static_cast<const std::uint8_t*>(moment.values)[i],
                                                   moment.scales[i / kMomentBlock]);
    default:
      return static_cast<const float*>(moment.values)[i];
  }
}

// The maximum of `bits` over the thread block. Every thread of the block must call this.
__device__ std::uint32_t block_max_bits(std::uint32_t bits) {
  __shared__ std::uint32_t of_warp[kUpdateThreads / 32];
  bits = __reduce_max_sync(0xFFFFFFFFu, bits);
  __syncthreads();  // all threads have read the previous call's result
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = bits;
  __syncthreads();
  std::uint32_t max_bits = 0;
  for (const std::uint32_t other : of_warp) max_bits = other > max_bits ? other : max_bits;
  return max_bits;
}

// `inside`: whether element `i` belongs to the tensor.
template <MomentKind kKind>
__device__ void store_moment(StateFormat format, const Moment& moment, std::int64_t i, float x, bool inside,
                             const RoundingNoise& noise, std::uint32_t index) {
  const std::uint32_t random = cpuopt::moment_noise<kKind>(noise, index);
  if (format == StateFormat::int8) {
    const float scale = cpuopt::moment_scale(block_max_bits(inside ? __float_as_uint(x) & 0x7FFFFFFFu : 0u));
    if (!inside) return;
    if (threadIdx.x == 0) moment.scales[i / kMomentBlock] = scale;
    static_cast<std::uint8_t*>(moment.values)[i] =
        cpuopt::quantize_moment_stochastic<kKind>(x, scale, random);
  } else if (inside && format == StateFormat::bf16) {
    static_cast<bf16*>(moment.values)[i] = cpuopt::round_to_bf16(x, random);
  } else if (inside) {
    static_cast<float*>(moment.values)[i] = x;
  }
}

template <class Rule, MasterLayout kLayout>
__global__ void __launch_bounds__(kUpdateThreads)
    update_elements(UpdateScalars<float> s, UpdateBlock b, std::int64_t n, RoundingNoise noise) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kUpdateThreads + threadIdx.x;
  const bool inside = i < n;
  const auto index = b.index + static_cast<std::uint32_t>(i);
  float m = 0, v = 0;
  if (inside) {
    if constexpr (Rule::kFacts.moments.first) m = load_moment<MomentKind::first>(b.states, b.m, i);
    if constexpr (Rule::kFacts.moments.second) v = load_moment<MomentKind::second>(b.states, b.v, i);
  }
  __syncthreads();  // a block's old scale has been read before the new one is written
  if (inside) cpuopt::update_at<Rule, kLayout>(s, b.param, b.master, m, v, gradient_at(b, i), i);
  if constexpr (Rule::kFacts.moments.first)
    store_moment<MomentKind::first>(b.states, b.m, i, m, inside, noise, index);
  if constexpr (Rule::kFacts.moments.second)
    store_moment<MomentKind::second>(b.states, b.v, i, v, inside, noise, index);
}

// A half warp per partial, as the host's sixteen lanes.
template <MasterLayout kLayout>
__global__ void __launch_bounds__(kUpdateThreads, 1)
    lamb_norm_partials(UpdateScalars<float> s, UpdateBlock b, std::int64_t n, double* master_partials,
                       double* direction_partials) {
  const std::int64_t partial = dispatch::half_warp_index(), first = partial * simd::kNormPartialElems;
  if (first >= n) return;
  const std::int64_t len = n - first < simd::kNormPartialElems ? n - first : simd::kNormPartialElems;
  const HalfWarp lanes;
  const auto square = [](float x) { return static_cast<double>(x) * static_cast<double>(x); };
  const auto master = [&](std::int64_t i) {
    return cpuopt::load_master_at<kLayout>(b.param, b.master, first + i);
  };
  const double masters = lanes.sum<double>(len, [&](std::int64_t i) { return square(master(i)); });
  const double directions = lanes.sum<double>(len, [&](std::int64_t i) {
    return square(cpuopt::lamb_direction(master(i), load_moment<MomentKind::first>(b.states, b.m, first + i),
                                         load_moment<MomentKind::second>(b.states, b.v, first + i), s));
  });
  if (!lanes.is_leader()) return;
  master_partials[partial] = masters;
  direction_partials[partial] = directions;
}

template <MasterLayout kLayout>
__global__ void __launch_bounds__(kUpdateThreads)
    apply_lamb(UpdateScalars<float> s, UpdateBlock b, std::int64_t n, const float* trust) {
  const std::int64_t i = dispatch::thread_index();
  if (i >= n) return;
  const float p = cpuopt::load_master_at<kLayout>(b.param, b.master, i);
  const float along = cpuopt::lamb_direction(p, load_moment<MomentKind::first>(b.states, b.m, i),
                                             load_moment<MomentKind::second>(b.states, b.v, i), s);
  cpuopt::store_master_at<kLayout>(b.param, b.master, i, p - s.step_size * *trust * along);
}

template <MasterLayout kLayout>
__global__ void __launch_bounds__(kUpdateThreads) update_ema(float weight, UpdateBlock b, std::int64_t n) {
  const std::int64_t i = dispatch::thread_index();
  if (i >= n) return;
  const float p = cpuopt::load_master_at<kLayout>(b.param, b.master, i);
  b.ema[i] = weight == 1 ? p : cpuopt::moved_ema(b.ema[i], p, weight);
}

template <MasterLayout kLayout>
using LayoutConstant = std::integral_constant<MasterLayout, kLayout>;

/// Calls `launch` with the layout as a compile-time constant; returns the launch's error, if any.
template <class Launch>
Status launch_layout(MasterLayout layout, const Launch& launch) {
  const auto launched = [&](auto constant) -> Status {
    launch(constant);
    STRATA_CUDA_TRY(cudaGetLastError());
    return Status::ok();
  };
  switch (layout) {
    case MasterLayout::f32:
      return launched(LayoutConstant<MasterLayout::f32>());
    case MasterLayout::bf16_split:
      return launched(LayoutConstant<MasterLayout::bf16_split>());
    case MasterLayout::bf16_shadow:
      return launched(LayoutConstant<MasterLayout::bf16_shadow>());
    case MasterLayout::f16_shadow:
      return launched(LayoutConstant<MasterLayout::f16_shadow>());
  }
  return Status::error(Code::invalid,
                       "master layout " + std::to_string(static_cast<int>(layout)) + " has no CUDA kernels");
}

template <class Rule>
Status launch_rule(const UpdateArgs& a, cudaStream_t queue) {
  return launch_layout(a.block.layout, [&]<MasterLayout kLayout>(LayoutConstant<kLayout>) {
    update_elements<Rule, kLayout><<<num_blocks(a.n, kUpdateThreads), kUpdateThreads, 0, queue>>>(
        a.step.scalars, a.block, a.n, a.noise);
  });
}
template <class... Rules>
Status launch_update(cpuopt::RuleList<Rules...>, const UpdateArgs& a, cudaStream_t queue) {
  constexpr Status (*kLaunches[])(const UpdateArgs&, cudaStream_t) = {launch_rule<Rules>...};
  return kLaunches[a.step.rule](a, queue);
}

}  // namespace

Status update(Backend&, Stream& stream, const UpdateArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return launch_update(cpuopt::UpdateRules(), a, queue);
}

Status lamb_partials(Backend&, Stream& stream, const LambPartialsArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  const std::int64_t count = simd::norm_partial_count(a.n);
  return launch_layout(a.block.layout, [&]<MasterLayout kLayout>(LayoutConstant<kLayout>) {
    lamb_norm_partials<kLayout>
        <<<num_blocks(count, kUpdateThreads / dispatch::kLanes), kUpdateThreads, 0, queue>>>(
            a.step.scalars, a.block, a.n, a.master_partials, a.direction_partials);
  });
}

Status lamb_apply(Backend&, Stream& stream, const LambApplyArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return launch_layout(a.block.layout, [&]<MasterLayout kLayout>(LayoutConstant<kLayout>) {
    apply_lamb<kLayout><<<num_blocks(a.n, kUpdateThreads), kUpdateThreads, 0, queue>>>(a.step.scalars,
                                                                                       a.block, a.n, a.trust);
  });
}

Status ema(Backend&, Stream& stream, const EmaArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return launch_layout(a.block.layout, [&]<MasterLayout kLayout>(LayoutConstant<kLayout>) {
    update_ema<kLayout>
        <<<num_blocks(a.n, kUpdateThreads), kUpdateThreads, 0, queue>>>(a.weight, a.block, a.n);
  });
}

}  // namespace strata::state_kernels::cuda
