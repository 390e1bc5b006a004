#include <strata/cpuopt/simd.h>

#include "opt_table.h"

namespace strata::cpuopt::STRATA_ISA {
namespace {

constexpr std::int64_t kLeafElems = 4096;

// Where the 16 masters from element i on lie, by the parameter's type.
template <class P>
struct Masters;
template <>
struct Masters<float> {
  float* param;
  Masters(void* param_at, void*) : param(static_cast<float*>(param_at)) {}
  STRATA_LANES_INLINE f32x16 load(std::int64_t i, int lanes) const { return load_lanes(param + i, lanes); }
  STRATA_LANES_INLINE void store(std::int64_t i, const f32x16& x, int lanes) const {
    store_lanes(param + i, x, lanes);
  }
};
template <>
struct Masters<bf16> {
  bf16* high;
  std::uint16_t* low;
  Masters(void* param_at, void* master_at)
      : high(static_cast<bf16*>(param_at)), low(static_cast<std::uint16_t*>(master_at)) {}
  STRATA_LANES_INLINE f32x16 load(std::int64_t i, int lanes) const {
    return lanes == 16 ? f32x16::load_master(high + i, low + i)
                       : f32x16::load_first_master(high + i, low + i, lanes);
  }
  STRATA_LANES_INLINE void store(std::int64_t i, const f32x16& x, int lanes) const {
    if (lanes == 16)
      x.store_master(high + i, low + i);
    else
      x.store_first_master(high + i, low + i, lanes);
  }
};
template <>
struct Masters<f16> {
  f16* rounded;
  float* master;
  Masters(void* param_at, void* master_at)
      : rounded(static_cast<f16*>(param_at)), master(static_cast<float*>(master_at)) {}
  STRATA_LANES_INLINE f32x16 load(std::int64_t i, int lanes) const { return load_lanes(master + i, lanes); }
  STRATA_LANES_INLINE void store(std::int64_t i, const f32x16& x, int lanes) const {
    store_lanes(master + i, x, lanes);
    store_lanes(rounded + i, x, lanes);
  }
};

template <class P, class G>
void adamw(const AdamWScalars<float>& s, float factor, const AdamWBlock& block, std::int64_t n) {
  const AdamWScalars<f32x16> wide = {
      f32x16(s.beta1), f32x16(s.one_minus_beta1), f32x16(s.beta2),     f32x16(s.one_minus_beta2),
      f32x16(s.eps),   f32x16(s.decay),           f32x16(s.step_size), f32x16(s.inv_sqrt_bias2)};
  const f32x16 unscale(factor);
  const Masters<P> masters(block.param, block.master);
  const G* g = static_cast<const G*>(block.g);
  float* m = block.m;
  float* v = block.v;
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    f32x16 mi = load_lanes(m + i, lanes);
    f32x16 vi = load_lanes(v + i, lanes);
    const f32x16 pi = adamw_update(masters.load(i, lanes), load_lanes(g + i, lanes) * unscale, mi, vi, wide);
    masters.store(i, pi, lanes);
    store_lanes(m + i, mi, lanes);
    store_lanes(v + i, vi, lanes);
  });
}

template <class P>
void split(const float* from, void* param, void* master, std::int64_t n) {
  const Masters<P> masters(param, master);
  for_each_16(n, [&](std::int64_t i, int lanes)
                     STRATA_LANES_INLINE { masters.store(i, load_lanes(from + i, lanes), lanes); });
}
template <class P>
void join(const void* param, const void* master, float* into, std::int64_t n) {
  const Masters<P> masters(const_cast<void*>(param), const_cast<void*>(master));  // read alone
  for_each_16(n, [&](std::int64_t i, int lanes)
                     STRATA_LANES_INLINE { store_lanes(into + i, masters.load(i, lanes), lanes); });
}

template <class G>
void accumulate(float* acc, const void* g, bool first, std::int64_t n) {
  const G* from = static_cast<const G*>(g);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 more = load_lanes(from + i, lanes);
    store_lanes(acc + i, first ? more : load_lanes(acc + i, lanes) + more, lanes);
  });
}

// Plain arrays: 16 f64 lanes are fixed by the loop, and the compiler picks the registers. The square of an
// f32 is exact in f64, so only the additions round.
template <class T>
double leaf(const T* x, std::int64_t n) {
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
void square_sum_leaves(const void* x, std::int64_t n, double* leaves) {
  for (std::int64_t i = 0; i < n; i += kLeafElems, ++leaves)
    *leaves = leaf(static_cast<const T*>(x) + i, n - i < kLeafElems ? n - i : kLeafElems);
}

}  // namespace

extern const detail::OptTable opt_table = {
    {{&adamw<float, float>, &adamw<float, float>},
     {&adamw<bf16, float>, &adamw<bf16, bf16>},
     {&adamw<f16, float>, &adamw<f16, f16>}},
    {&accumulate<float>, &accumulate<bf16>, &accumulate<f16>},
    {&square_sum_leaves<float>, &square_sum_leaves<bf16>, &square_sum_leaves<f16>},
    {&split<float>, &split<bf16>, &split<f16>},
    {&join<float>, &join<bf16>, &join<f16>}};

}  // namespace strata::cpuopt::STRATA_ISA
