#include <strata/simd/simd.h>

#include "cached_attention_table.h"

namespace strata::kernels::STRATA_ISA {
namespace {

using simd::STRATA_ISA::f32x16;
using simd::STRATA_ISA::for_each_16;
using simd::STRATA_ISA::load_lanes;
using simd::STRATA_ISA::reduce_add;
using simd::STRATA_ISA::store_lanes;

template <class T>
void scores(const T* query, const T* keys, float* out, std::int64_t d, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    const T* key = keys + j * d;
    f32x16 sum(0.0f);
    for_each_16(d, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
      sum = sum + load_lanes(query + i, lanes) * load_lanes(key + i, lanes);
    });
    out[j] = reduce_add(sum);
  }
}

template <class T>
void weighted_sum(const float* weights, const T* values, T* out, std::int64_t d, std::int64_t n) {
  for_each_16(d, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    f32x16 sum(0.0f);
    for (std::int64_t j = 0; j < n; ++j)
      sum = sum + f32x16(weights[j]) * load_lanes(values + j * d + i, lanes);
    store_lanes(out + i, sum, lanes);
  });
}

}  // namespace

extern const detail::CachedAttentionTable<float> cached_attention_f32 = {&scores<float>,
                                                                         &weighted_sum<float>};
extern const detail::CachedAttentionTable<bf16> cached_attention_bf16 = {&scores<bf16>, &weighted_sum<bf16>};
extern const detail::CachedAttentionTable<f16> cached_attention_f16 = {&scores<f16>, &weighted_sum<f16>};

}  // namespace strata::kernels::STRATA_ISA
