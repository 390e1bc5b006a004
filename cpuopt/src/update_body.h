#include "masters_body.h"
#include "update_table.h"

namespace strata::cpuopt::STRATA_ISA {
namespace {

using Spans = detail::UpdateSpans;

UpdateScalars<f32x16> widen(const UpdateScalars<float>& s) {
  return {f32x16(s.grad_factor),     f32x16(s.beta1),     f32x16(s.one_minus_beta1), f32x16(s.beta2),
          f32x16(s.one_minus_beta2), f32x16(s.eps),       f32x16(s.weight_decay),    f32x16(s.decay),
          f32x16(s.step_size),       f32x16(s.inv_bias1), f32x16(s.inv_sqrt_bias2)};
}

template <class R, MasterLayout kLayout, class G>
void update(const UpdateScalars<float>& scalars, const Spans& spans, std::int64_t n) {
  const UpdateScalars<f32x16> s = widen(scalars);
  const Masters<kLayout> masters(spans.param, spans.master);
  const G* g = static_cast<const G*>(spans.g);
  float* m = spans.m;
  float* v = spans.v;
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    f32x16 mi, vi;
    if constexpr (R::kFirst) mi = load_lanes(m + i, lanes);
    if constexpr (R::kSecond) vi = load_lanes(v + i, lanes);
    const f32x16 pi = R::update(masters.load(i, lanes), load_lanes(g + i, lanes) * s.grad_factor, mi, vi, s);
    if constexpr (R::kMoves) masters.store(i, pi, lanes);
    if constexpr (R::kFirst) store_lanes(m + i, mi, lanes);
    if constexpr (R::kSecond) store_lanes(v + i, vi, lanes);
  });
}

template <MasterLayout kLayout>
void direction(const UpdateScalars<float>& scalars, const Spans& spans, float* into, std::int64_t n) {
  const UpdateScalars<f32x16> s = widen(scalars);
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

template <class R, MasterLayout kLayout>
using Narrow = typename NarrowOf<kLayout>::Type;

#define STRATA_UPDATES_OF_LAYOUT(R, layout)                               \
  {                                                                       \
    &update<R, MasterLayout::layout, float>,                              \
        &update<R, MasterLayout::layout, Narrow<R, MasterLayout::layout>> \
  }
#define STRATA_UPDATES_OF(R)                                                              \
  {                                                                                       \
    STRATA_UPDATES_OF_LAYOUT(R, f32), STRATA_UPDATES_OF_LAYOUT(R, bf16_split),            \
        STRATA_UPDATES_OF_LAYOUT(R, bf16_shadow), STRATA_UPDATES_OF_LAYOUT(R, f16_shadow) \
  }

}  // namespace

extern const detail::UpdateTable update_table = {
    {STRATA_UPDATES_OF(AdamWRule), STRATA_UPDATES_OF(AdamRule), STRATA_UPDATES_OF(LionRule),
     STRATA_UPDATES_OF(AdagradRule), STRATA_UPDATES_OF(SgdRule), STRATA_UPDATES_OF(MomentumRule),
     STRATA_UPDATES_OF(NesterovRule), STRATA_UPDATES_OF(LambMomentsRule)},
    {&direction<MasterLayout::f32>, &direction<MasterLayout::bf16_split>,
     &direction<MasterLayout::bf16_shadow>, &direction<MasterLayout::f16_shadow>},
    {&step_along<MasterLayout::f32>, &step_along<MasterLayout::bf16_split>,
     &step_along<MasterLayout::bf16_shadow>, &step_along<MasterLayout::f16_shadow>}};

}  // namespace strata::cpuopt::STRATA_ISA
