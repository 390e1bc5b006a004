#include <strata/simd/simd.h>

#include "convert_table.h"

namespace strata::simd::STRATA_ISA {
namespace {

template <class From, class Into>
void convert(const From* from, Into* into, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes)
                     STRATA_LANES_INLINE { store_lanes(into + i, load_lanes(from + i, lanes), lanes); });
}

}  // namespace

extern const detail::ConvertTable convert_table = {&convert<bf16, float>, &convert<f16, float>,
                                                   &convert<float, bf16>, &convert<float, f16>};

}  // namespace strata::simd::STRATA_ISA
