#include <strata/simd/simd.h>

#include "gradient_table.h"

namespace strata::simd::STRATA_ISA {
namespace {

constexpr std::int64_t kPartialElems = 4096;

template <class G>
void accumulate(float* acc, const void* g, bool first, std::int64_t n) {
  const G* from = static_cast<const G*>(g);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 more = load_lanes(from + i, lanes);
    store_lanes(acc + i, first ? more : load_lanes(acc + i, lanes) + more, lanes);
  });
}

// A plain array: the loop fixes 16 f64 lanes, and the compiler chooses the registers. The square of an f32 is
// exact in f64, so only the additions round.
template <class T>
double square_sum(const T* x, std::int64_t n) {
  const auto square = [](T value) STRATA_LANES_INLINE {
    return static_cast<double>(to_f32(value)) * static_cast<double>(to_f32(value));
  };
  double lanes[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; ++j) lanes[j] += square(x[i + j]);
  for (int j = 0; i + j < n; ++j) lanes[j] += square(x[i + j]);
  for (int width = 8; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  return lanes[0];
}

template <class T>
void square_sum_partials(const void* x, std::int64_t n, double* partials) {
  for (std::int64_t i = 0; i < n; i += kPartialElems, ++partials)
    *partials = square_sum(static_cast<const T*>(x) + i, n - i < kPartialElems ? n - i : kPartialElems);
}

}  // namespace

extern const detail::GradientTable gradient_table = {
    {&accumulate<float>, &accumulate<bf16>, &accumulate<f16>},
    {&square_sum_partials<float>, &square_sum_partials<bf16>, &square_sum_partials<f16>}};

}  // namespace strata::simd::STRATA_ISA
