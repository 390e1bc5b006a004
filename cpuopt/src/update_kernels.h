#include "master_weights_simd.h"
#include "update_table.h"

namespace strata::cpuopt::STRATA_ISA {
namespace {

using Spans = detail::UpdateSpans;

UpdateScalars<f32splat> splat(const UpdateScalars<float>& s) {
  return {f32splat(s.grad_factor),     f32splat(s.momentum),      f32splat(s.one_minus_beta1),
          f32splat(s.one_minus_beta2), f32splat(s.eps),           f32splat(s.weight_decay),
          f32splat(s.decay),           f32splat(s.step_size),     f32splat(s.corrected_step_size),
          f32splat(s.inv_bias1),       f32splat(s.inv_sqrt_bias2)};
}

// If the master is stored apart from its parameter, the moments are prefetched: every kPrefetchGroup
// elements, the cache lines of one group of m and then those of one group of v. By measurement, prefetching
// lines of every span in each iteration gains less, prefetching every span in groups makes the step take half
// as long again, and groups of 64 or 256 elements gain less. For f32 masters CPUs differ, so there is a
// kernel for each Prefetch (cpuopt/prefetch.h).
constexpr std::int64_t kPrefetchGroup = 128;
constexpr std::uintptr_t kPrefetchBytes = 2048;
STRATA_LANES_INLINE inline void prefetch_group(const float* p) {
  const std::uintptr_t ahead = reinterpret_cast<std::uintptr_t>(p) + kPrefetchBytes;
  for (std::uintptr_t byte = 0; byte < kPrefetchGroup * sizeof(float); byte += 64)
    __builtin_prefetch(reinterpret_cast<const void*>(ahead + byte));
}

template <class R, MasterLayout kLayout, class G, Prefetch kAhead>
void update(const UpdateScalars<float>& scalars, const Spans& spans, std::int64_t n) {
  const UpdateScalars<f32splat> s = splat(scalars);
  const Masters<kLayout> masters(spans.param, spans.master);
  const G* g = static_cast<const G*>(spans.g);
  float* m = spans.m;
  float* v = spans.v;
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    if (kAhead != Prefetch::none && i % kPrefetchGroup == 0) {
      if constexpr (kAhead == Prefetch::all) {
        prefetch_group(static_cast<const float*>(spans.param) + i);
        prefetch_group(static_cast<const float*>(spans.g) + i);
      }
      if constexpr (R::kFacts.moments.first) prefetch_group(m + i);
      if constexpr (R::kFacts.moments.second) prefetch_group(v + i);
    }
    const f32x32 pi = masters.load_32(i), gi = f32x32::load(g + i);
    f32x32 mi, vi, moved;
    if constexpr (R::kFacts.moments.first) mi = f32x32::load(m + i);
    if constexpr (R::kFacts.moments.second) vi = f32x32::load(v + i);
    moved.a = R::update(pi.a, gi.a * s.grad_factor, mi.a, vi.a, s);
    moved.b = R::update(pi.b, gi.b * s.grad_factor, mi.b, vi.b, s);
    if constexpr (!R::kFacts.tensor_norms) masters.store_32(i, moved);
    if constexpr (R::kFacts.moments.first) mi.store(m + i);
    if constexpr (R::kFacts.moments.second) vi.store(v + i);
  }
  if constexpr (!R::kFacts.tensor_norms) masters.finish();
  for_each_16(n - i, [&](std::int64_t j, int lanes) STRATA_LANES_INLINE {
    const std::int64_t at = i + j;
    f32x16 mi, vi;
    if constexpr (R::kFacts.moments.first) mi = load_lanes(m + at, lanes);
    if constexpr (R::kFacts.moments.second) vi = load_lanes(v + at, lanes);
    const f32x16 pi =
        R::update(masters.load(at, lanes), load_lanes(g + at, lanes) * s.grad_factor, mi, vi, s);
    if constexpr (!R::kFacts.tensor_norms) masters.store(at, pi, lanes);
    if constexpr (R::kFacts.moments.first) store_lanes(m + at, mi, lanes);
    if constexpr (R::kFacts.moments.second) store_lanes(v + at, vi, lanes);
  });
}

template <MasterLayout kLayout>
void direction(const UpdateScalars<float>& scalars, const Spans& spans, float* into, std::int64_t n) {
  const UpdateScalars<f32splat> s = splat(scalars);
  const Masters<kLayout> masters(spans.param, spans.master);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(into + i,
                lamb_direction(masters.load(i, lanes), load_lanes(spans.m + i, lanes),
                               load_lanes(spans.v + i, lanes), s),
                lanes);
  });
}

template <MasterLayout kLayout>
void step_along(float rate, const float* along, void* param, void* master, std::int64_t n) {
  const Masters<kLayout> masters(param, master);
  const f32x16 wide_rate(rate);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    masters.store(i, masters.load(i, lanes) - wide_rate * load_lanes(along + i, lanes), lanes);
  });
}

template <MasterLayout kLayout>
void update_ema(float weight, void* param, void* master, float* ema, std::int64_t n) {
  const Masters<kLayout> masters(param, master);
  const f32splat w(weight);
  const bool copies = weight == 1;
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 p = masters.load(i, lanes);
    store_lanes(ema + i, copies ? p : moved_ema(load_lanes(ema + i, lanes), p, w), lanes);
  });
}

template <MasterLayout kLayout>
using Narrow = typename NarrowOf<kLayout>::Type;

template <MasterLayout kLayout>
constexpr Prefetch kDefaultPrefetch = kLayout == MasterLayout::f32 ? Prefetch::none : Prefetch::moments;

#define STRATA_UPDATES_OF_LAYOUT(R, layout)                                          \
  {                                                                                  \
    &update<R, MasterLayout::layout, float, kDefaultPrefetch<MasterLayout::layout>>, \
        &update<R, MasterLayout::layout, Narrow<MasterLayout::layout>,               \
                kDefaultPrefetch<MasterLayout::layout>>                              \
  }
#define STRATA_UPDATES_IN_F32(R)                                 \
  {                                                              \
    &update<R, MasterLayout::f32, float, Prefetch::none>,        \
        &update<R, MasterLayout::f32, float, Prefetch::moments>, \
        &update<R, MasterLayout::f32, float, Prefetch::all>      \
  }
#define STRATA_UPDATES_OF(R)                                                              \
  {                                                                                       \
    STRATA_UPDATES_OF_LAYOUT(R, f32), STRATA_UPDATES_OF_LAYOUT(R, bf16_split),            \
        STRATA_UPDATES_OF_LAYOUT(R, bf16_shadow), STRATA_UPDATES_OF_LAYOUT(R, f16_shadow) \
  }

template <class... R>
constexpr detail::UpdateTable table_of(RuleList<R...>) {
  return {{STRATA_UPDATES_OF(R)...},
          {STRATA_UPDATES_IN_F32(R)...},
          {&direction<MasterLayout::f32>, &direction<MasterLayout::bf16_split>,
           &direction<MasterLayout::bf16_shadow>, &direction<MasterLayout::f16_shadow>},
          {&step_along<MasterLayout::f32>, &step_along<MasterLayout::bf16_split>,
           &step_along<MasterLayout::bf16_shadow>, &step_along<MasterLayout::f16_shadow>},
          {&update_ema<MasterLayout::f32>, &update_ema<MasterLayout::bf16_split>,
           &update_ema<MasterLayout::bf16_shadow>, &update_ema<MasterLayout::f16_shadow>}};
}

}  // namespace

extern constinit const detail::UpdateTable update_table = table_of(UpdateRules());

}  // namespace strata::cpuopt::STRATA_ISA
