#include <strata/simd/simd.h>

#include "expert_gate_table.h"
#include "experts/gate_math.h"

namespace strata::kernels::STRATA_ISA {
namespace {

using simd::STRATA_ISA::f32x16;
using simd::STRATA_ISA::for_each_16;
using simd::STRATA_ISA::load_lanes;
using simd::STRATA_ISA::reduce_add;
using simd::STRATA_ISA::store_lanes;

template <class T>
void gate_forward(const ExpertGate& gate, const T* g, const T* u, float weight, T* a, std::int64_t n) {
  detail::with_gate(gate, [&](const auto& kind) STRATA_LANES_INLINE {
    const f32x16 by(weight);
    for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
      store_lanes(a + i, kind.value(load_lanes(g + i, lanes), load_lanes(u + i, lanes)) * by, lanes);
    });
  });
}

template <class T>
float gate_backward(const ExpertGate& gate, const T* g, const T* u, float weight, const T* da, T* dg, T* du,
                    std::int64_t n) {
  return detail::with_gate(gate, [&](const auto& kind) STRATA_LANES_INLINE {
    const f32x16 by(weight);
    f32x16 sum(0.0f);
    for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
      const f32x16 d = load_lanes(da + i, lanes);
      f32x16 of_gate, of_up;
      const f32x16 value =
          kind.backward(load_lanes(g + i, lanes), load_lanes(u + i, lanes), d * by, of_gate, of_up);
      store_lanes(dg + i, of_gate, lanes);
      store_lanes(du + i, of_up, lanes);
      sum = sum + value * d;  // zero past the end, as d and value are
    });
    return reduce_add(sum);
  });
}

}  // namespace

extern const detail::ExpertGateTable<float> expert_gate_f32 = {&gate_forward<float>, &gate_backward<float>};
extern const detail::ExpertGateTable<bf16> expert_gate_bf16 = {&gate_forward<bf16>, &gate_backward<bf16>};
extern const detail::ExpertGateTable<f16> expert_gate_f16 = {&gate_forward<f16>, &gate_backward<f16>};

}  // namespace strata::kernels::STRATA_ISA
