// Optimizer steps for states that live on a GPU. They use the element functions of cpuopt/math/element.h,
// whose bits the host's SIMD kernels match: a thread has eight elements (update_packs.h), a warp a block of
// int8 moments. Compiled without contraction: a fused multiply-add would round once where the host rounds
// twice.

#include <string>

#include <strata/cpuopt/math/element.h>
#include <strata/simd/norm.h>
#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/state_kernels/update.h>

#include "cuda/update_packs.h"

namespace strata::state_kernels::cuda {
namespace {

using cpuopt::MasterLayout;
using cpuopt::RoundingNoise;
using cpuopt::UpdateBlock;
using cpuopt::UpdateScalars;
using dispatch::kThreads;
using dispatch::num_blocks;

unsigned thread_blocks(std::int64_t n) {
  return num_blocks(n, std::int64_t{kThreads} * detail::kThreadElems);
}
__device__ detail::ThreadRange own_range(std::int64_t n, bool are_aligned) {
  return detail::thread_range(dispatch::thread_index(), n, are_aligned);
}

template <class Rule, MasterLayout kLayout>
__global__ void __launch_bounds__(kThreads)
    update_elements(UpdateScalars<float> s, UpdateBlock b, std::int64_t n, RoundingNoise noise,
                    bool are_aligned) {
  const detail::ThreadRange range = own_range(n, are_aligned);
  detail::UpdateThread<Rule, kLayout> thread;
  thread.step(s, b, range);
  std::uint32_t m_bits = 0, v_bits = 0;
  if (b.states == StateFormat::int8) {
    m_bits = __reduce_max_sync(0xFFFFFFFFu, detail::max_bits(range, thread.m));
    v_bits = __reduce_max_sync(0xFFFFFFFFu, detail::max_bits(range, thread.v));
  }
  thread.store_moments(b, range, noise, m_bits, v_bits);
}

// A half warp per partial, as the host's sixteen lanes.
template <MasterLayout kLayout, StateFormat kFormat>
__global__ void __launch_bounds__(kThreads, 1)
    lamb_norm_partials(UpdateScalars<float> s, UpdateBlock b, std::int64_t n, double* master_partials,
                       double* direction_partials) {
  const std::int64_t partial = dispatch::half_warp_index(), first = partial * simd::kNormPartialElems;
  if (first >= n) return;
  const std::int64_t len = n - first < simd::kNormPartialElems ? n - first : simd::kNormPartialElems;
  const dispatch::HalfWarp lanes;
  const auto sums = detail::lamb_square_sums<kLayout, kFormat>(lanes, s, b, first, len);
  if (!lanes.is_leader()) return;
  master_partials[partial] = sums.masters;
  direction_partials[partial] = sums.directions;
}

template <MasterLayout kLayout>
__global__ void __launch_bounds__(kThreads)
    apply_lamb(UpdateScalars<float> s, UpdateBlock b, std::int64_t n, const float* trust, bool are_aligned) {
  detail::apply_lamb<kLayout>(s, b, own_range(n, are_aligned), *trust);
}

template <MasterLayout kLayout>
__global__ void __launch_bounds__(kThreads)
    update_ema(float weight, UpdateBlock b, std::int64_t n, bool are_aligned) {
  detail::update_ema<kLayout>(weight, b, own_range(n, are_aligned));
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
    update_elements<Rule, kLayout><<<thread_blocks(a.n), kThreads, 0, queue>>>(
        a.step.scalars, a.block, a.n, a.noise, detail::are_pack_aligned(a.block));
  });
}
template <class... Rules>
Status launch_update(cpuopt::RuleList<Rules...>, const UpdateArgs& a, cudaStream_t queue) {
  constexpr Status (*kLaunches[])(const UpdateArgs&, cudaStream_t) = {launch_rule<Rules>...};
  return kLaunches[a.step.rule](a, queue);
}

template <StateFormat kFormat>
Status launch_lamb_partials(const LambPartialsArgs& a, cudaStream_t queue) {
  return launch_layout(a.block.layout, [&]<MasterLayout kLayout>(LayoutConstant<kLayout>) {
    const std::int64_t count = simd::norm_partial_count(a.n);
    lamb_norm_partials<kLayout, kFormat><<<num_blocks(count, dispatch::kRowsPerBlock), kThreads, 0, queue>>>(
        a.step.scalars, a.block, a.n, a.master_partials, a.direction_partials);
  });
}

}  // namespace

Status update(Backend&, Stream& stream, const UpdateArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return launch_update(cpuopt::UpdateRules(), a, queue);
}

Status lamb_partials(Backend&, Stream& stream, const LambPartialsArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  switch (a.block.states) {
    case StateFormat::bf16:
      return launch_lamb_partials<StateFormat::bf16>(a, queue);
    case StateFormat::int8:
      return launch_lamb_partials<StateFormat::int8>(a, queue);
    default:
      return launch_lamb_partials<StateFormat::fp32>(a, queue);
  }
}

Status lamb_apply(Backend&, Stream& stream, const LambApplyArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return launch_layout(a.block.layout, [&]<MasterLayout kLayout>(LayoutConstant<kLayout>) {
    apply_lamb<kLayout><<<thread_blocks(a.n), kThreads, 0, queue>>>(a.step.scalars, a.block, a.n, a.trust,
                                                                    detail::are_pack_aligned(a.block));
  });
}

Status ema(Backend&, Stream& stream, const EmaArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return launch_layout(a.block.layout, [&]<MasterLayout kLayout>(LayoutConstant<kLayout>) {
    update_ema<kLayout><<<thread_blocks(a.n), kThreads, 0, queue>>>(a.weight, a.block, a.n,
                                                                    detail::are_pack_aligned(a.block));
  });
}

}  // namespace strata::state_kernels::cuda
