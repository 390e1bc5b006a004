#include <strata/cpuopt/simd.h>

#include "cached_attention_table.h"

namespace strata::kernels::STRATA_ISA {
namespace {

using cpuopt::STRATA_ISA::f32x16;
using cpuopt::STRATA_ISA::for_each_16;
using cpuopt::STRATA_ISA::load_lanes;
using cpuopt::STRATA_ISA::reduce_add;
using cpuopt::STRATA_ISA::store_lanes;

// The only place that depends on the dtype of the cache.
STRATA_HD f32x16 load_cached(const float* at, int lanes) { return load_lanes(at, lanes); }

template <class Stored>
void scores(const float* query, const Stored* keys, float* out, std::int64_t d, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    const Stored* key = keys + j * d;
    f32x16 sum(0.0f);
    for_each_16(d, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
      sum = sum + load_lanes(query + i, lanes) * load_cached(key + i, lanes);
    });
    out[j] = reduce_add(sum);
  }
}

template <class Stored>
void weighted_sum(const float* weights, const Stored* values, float* out, std::int64_t d, std::int64_t n) {
  for_each_16(d, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    f32x16 sum(0.0f);
    for (std::int64_t j = 0; j < n; ++j)
      sum = sum + f32x16(weights[j]) * load_cached(values + j * d + i, lanes);
    store_lanes(out + i, sum, lanes);
  });
}

}  // namespace

extern const detail::CachedAttentionTable cached_attention_kernels = {&scores<float>, &weighted_sum<float>};

}  // namespace strata::kernels::STRATA_ISA
