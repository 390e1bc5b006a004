#pragma once

#include <cstdint>

#include <strata/dispatch/cuda/packs.h>
#include <strata/runtime/float16.h>

#include "experts/gate_math.h"

/// The work of one thread on a part of a row of experts: kN consecutive elements, a pack or one. Compiled for
/// the host, too, where tests run it thread by thread.
namespace strata::kernels::detail {

using dispatch::load_pack;
using dispatch::Pack;
using dispatch::store_pack;

template <int kN, class T>
struct RowPart {
  T value[kN];
};
template <int kN, class T>
STRATA_DEVICE_INLINE RowPart<kN, T> load_part(const T* from) {
  RowPart<kN, T> part;
  if constexpr (kN == 1) {
    part.value[0] = *from;
  } else {
    static_assert(kN == Pack<T>::kSize);
    const Pack<T> pack = load_pack(from);
    for (int i = 0; i < kN; ++i) part.value[i] = pack.value[i];
  }
  return part;
}
template <int kN, class T>
STRATA_DEVICE_INLINE void store_part(T* into, const RowPart<kN, T>& part) {
  if constexpr (kN == 1) {
    *into = part.value[0];
  } else {
    Pack<T> pack;
    for (int i = 0; i < kN; ++i) pack.value[i] = part.value[i];
    store_pack(into, pack);
  }
}

/// y[first...] of a token: the sum of its rows at `position`, and the base. `base` may be null or y.
template <int kN, class T>
STRATA_DEVICE_INLINE void sum_part(const T* rows, const std::int32_t* position, int chosen, const T* base,
                                   T* y, int h, int first) {
  float sum[kN] = {};
  for (int j = 0; j < chosen; ++j) {
    const auto row = load_part<kN>(rows + std::int64_t{position[j]} * h + first);
    for (int i = 0; i < kN; ++i) sum[i] = sum[i] + to_f32(row.value[i]);
  }
  if (base != nullptr) {
    const auto row = load_part<kN>(base + first);
    for (int i = 0; i < kN; ++i) sum[i] = sum[i] + to_f32(row.value[i]);
  }
  RowPart<kN, T> out;
  for (int i = 0; i < kN; ++i) out.value[i] = from_f32<T>(sum[i]);
  store_part<kN>(y + first, out);
}

/// a[first...] of a row, from its gates and ups, which are `up` apart: 0 if there are no ups.
template <int kN, class T, class Gate>
STRATA_DEVICE_INLINE void expert_gate_part(const Gate& gate, const T* gate_up, float weight, T* a, int up,
                                           int first) {
  const auto g = load_part<kN>(gate_up + first), u = load_part<kN>(gate_up + first + up);
  RowPart<kN, T> out;
  for (int i = 0; i < kN; ++i)
    out.value[i] = from_f32<T>(gate.value(to_f32(g.value[i]), to_f32(u.value[i])) * weight);
  store_part<kN>(a + first, out);
}

/// The gradients of a row's gates and ups; returns that of its weight, in every lane.
template <class T, class Gate, class Lanes>
STRATA_DEVICE_INLINE float expert_gate_row_backward(const Lanes& lanes, const Gate& gate, const T* gate_up,
                                                    float weight, const T* da, T* dgate_up, std::int64_t f,
                                                    std::int64_t up) {
  return lanes.template sum<float>(f, [&](std::int64_t i) {
    const float d = to_f32(da[i]);
    float dg, du;
    const float value = gate.backward(to_f32(gate_up[i]), to_f32(gate_up[i + up]), d * weight, dg, du);
    dgate_up[i] = from_f32<T>(dg);
    dgate_up[i + up] = from_f32<T>(du);
    return value * d;
  });
}

}  // namespace strata::kernels::detail
