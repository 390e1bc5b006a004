#include <strata/simd/simd.h>

#include "lora_rows_table.h"

namespace strata::kernels::STRATA_ISA {
namespace {

using simd::STRATA_ISA::f32x16;
using simd::STRATA_ISA::for_each_16;
using simd::STRATA_ISA::load_lanes;
using simd::STRATA_ISA::reduce_add;
using simd::STRATA_ISA::store_lanes;

template <class X, class T>
STRATA_HD float dot(const X* x, const T* row, std::int64_t n) {
  f32x16 sum(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    sum = sum + load_lanes(x + i, lanes) * load_lanes(row + i, lanes);
  });
  return reduce_add(sum);
}

template <class T>
void down(const T* x, const T* matrix, float scale, float* out, std::int64_t inner, std::int64_t count) {
  for (std::int64_t j = 0; j < count; ++j) out[j] = scale * dot(x, matrix + j * inner, inner);
}

template <class T>
void up(const float* u, const T* matrix, T* y, std::int64_t inner, std::int64_t count) {
  for_each_16(count, [&](std::int64_t j, int lanes) STRATA_LANES_INLINE {
    alignas(64) float sums[16] = {};
    for (int i = 0; i < lanes; ++i) sums[i] = dot(u, matrix + (j + i) * inner, inner);
    store_lanes(y + j, load_lanes(y + j, lanes) + load_lanes(sums, lanes), lanes);
  });
}

}  // namespace

extern const detail::LoraRowsTable<float> lora_rows_f32 = {&down<float>, &up<float>};
extern const detail::LoraRowsTable<bf16> lora_rows_bf16 = {&down<bf16>, &up<bf16>};
extern const detail::LoraRowsTable<f16> lora_rows_f16 = {&down<f16>, &up<f16>};

}  // namespace strata::kernels::STRATA_ISA
