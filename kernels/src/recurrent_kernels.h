#include <strata/simd/simd.h>

#include "recurrent/conv_math.h"
#include "recurrent/gated_norm_math.h"
#include "recurrent_table.h"

namespace strata::kernels::STRATA_ISA {
namespace {

using detail::kConvChannels;
using simd::STRATA_ISA::f32x16;
using simd::STRATA_ISA::for_each_16;
using simd::STRATA_ISA::load_lanes;
using simd::STRATA_ISA::reduce_add;
using simd::STRATA_ISA::store_lanes;

constexpr std::int64_t kMostTaps = 8;
constexpr std::int64_t kConvRows = 64;  // whose gradients before the activation are kept at a time

/// The weights of a block's channels, tap by tap.
template <class T>
struct ConvTaps {
  alignas(64) float weight[kMostTaps][kConvChannels];
  alignas(64) float bias[kConvChannels];

  STRATA_HD ConvTaps(const detail::ConvOperands<T>& c, std::int64_t channel, std::int64_t n) {
    for (std::int64_t j = 0; j < kConvChannels; ++j) {
      bias[j] = j < n && c.bias != nullptr ? to_f32(c.bias[channel + j]) : 0.0f;
      for (std::int64_t k = 0; k < c.rows.taps; ++k) weight[k][j] = j < n ? c.tap(channel + j, k) : 0.0f;
    }
  }
  STRATA_HD f32x16 sum(const detail::ConvOperands<T>& c, std::int64_t row, std::int64_t seen,
                       std::int64_t channel, std::int64_t j, int lanes) const {
    f32x16 z = f32x16::load(bias + j);
    const T* x = c.x + (row - (seen - 1)) * c.channels + channel + j;
    for (std::int64_t k = c.rows.taps - seen; k < c.rows.taps; ++k, x += c.channels)
      z = z + f32x16::load(weight[k] + j) * load_lanes(x, lanes);
    return z;
  }
};
STRATA_HD std::int64_t channels_of_block(std::int64_t channels, std::int64_t channel) {
  return channels - channel < kConvChannels ? channels - channel : kConvChannels;
}

template <class T>
void conv_forward(const detail::ConvOperands<T>& c, std::int64_t channel, std::int64_t first,
                  std::int64_t last, T* y) {
  const std::int64_t n = channels_of_block(c.channels, channel);
  const ConvTaps<T> taps(c, channel, n);
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t seen = c.rows.taps_of(row);
    for_each_16(n, [&](std::int64_t j, int lanes) STRATA_LANES_INLINE {
      store_lanes(y + row * c.channels + channel + j,
                  detail::conv_activation(taps.sum(c, row, seen, channel, j, lanes), c.silu), lanes);
    });
  }
}

template <class T>
void conv_backward(const detail::ConvOperands<T>& c, std::int64_t channel, std::int64_t first,
                   std::int64_t last, const T* dy, T* dx, float* sums) {
  const std::int64_t n = channels_of_block(c.channels, channel), taps = c.rows.taps;
  const ConvTaps<T> of(c, channel, n);
  alignas(64) float d_sums[kConvRows + kMostTaps - 1][kConvChannels];
  for (std::int64_t i = 0; i < (taps + 1) * kConvChannels; ++i) sums[i] = 0.0f;
  for (std::int64_t begin = first; begin < last; begin += kConvRows) {
    const std::int64_t end = begin + kConvRows < last ? begin + kConvRows : last,
                       readers = end + taps - 1 < c.rows.rows ? end + taps - 1 : c.rows.rows;
    for (std::int64_t row = begin; row < readers; ++row) {
      const std::int64_t seen = c.rows.taps_of(row);
      for_each_16(n, [&](std::int64_t j, int lanes) STRATA_LANES_INLINE {
        const f32x16 d =
            detail::conv_activation_backward(of.sum(c, row, seen, channel, j, lanes),
                                             load_lanes(dy + row * c.channels + channel + j, lanes), c.silu);
        d.store(d_sums[row - begin] + j);
        if (row >= end) return;
        const T* x = c.x + (row - (seen - 1)) * c.channels + channel + j;
        for (std::int64_t k = taps - seen; k < taps; ++k, x += c.channels) {
          float* const sum = sums + k * kConvChannels + j;
          (f32x16::load(sum) + d * load_lanes(x, lanes)).store(sum);
        }
        float* const sum = sums + taps * kConvChannels + j;
        (f32x16::load(sum) + d).store(sum);
      });
    }
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t seen_by = c.rows.readers_of(row);
      for_each_16(n, [&](std::int64_t j, int lanes) STRATA_LANES_INLINE {
        f32x16 sum(0.0f);
        for (std::int64_t m = 0; m < seen_by; ++m)
          sum = sum + f32x16::load(of.weight[taps - 1 - m] + j) * f32x16::load(d_sums[row - begin + m] + j);
        store_lanes(dx + row * c.channels + channel + j, sum, lanes);
      });
    }
  }
}

template <class Rule, class T>
void gated_norm_forward(const T* x, const T* z, const T* weight, T* y, float* rstd, float eps,
                        std::int64_t n) {
  f32x16 squares(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 v = Rule::input(load_lanes(x + i, lanes), load_lanes(z + i, lanes));
    squares = squares + v * v;
  });
  *rstd = detail::gated_norm_rstd(reduce_add(squares), eps, n);
  const f32x16 scale(*rstd);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(
        y + i,
        Rule::value(load_lanes(x + i, lanes), load_lanes(z + i, lanes), load_lanes(weight + i, lanes), scale),
        lanes);
  });
}

template <class Rule, class T>
void gated_norm_backward(const T* x, const T* z, const T* weight, float rstd, const T* dy, T* dx, T* dz,
                         float* dweight, std::int64_t n) {
  const f32x16 scale(rstd);
  f32x16 sum(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 w = load_lanes(weight + i, lanes);  // zero past the end
    const f32x16 of_z = load_lanes(z + i, lanes);
    sum = sum + Rule::d_normal(of_z, w, load_lanes(dy + i, lanes)) *
                    (Rule::input(load_lanes(x + i, lanes), of_z) * scale);
  });
  const f32x16 mean(reduce_add(sum) / static_cast<float>(n));
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 of_x = load_lanes(x + i, lanes), of_z = load_lanes(z + i, lanes),
                 w = load_lanes(weight + i, lanes), d = load_lanes(dy + i, lanes);
    store_lanes(dweight + i, load_lanes(dweight + i, lanes) + Rule::d_weight(of_x, of_z, scale, d), lanes);
    store_lanes(dx + i, Rule::d_x(of_x, of_z, w, scale, mean, d), lanes);
    store_lanes(dz + i, Rule::d_gate(of_x, of_z, w, scale, mean, d), lanes);
  });
}

template <class T>
constexpr detail::RecurrentTable<T> make_recurrent_table() {
  return {&conv_forward<T>,
          &conv_backward<T>,
          {&gated_norm_forward<detail::GateAfterNorm, T>, &gated_norm_forward<detail::GateBeforeNorm, T>},
          {&gated_norm_backward<detail::GateAfterNorm, T>, &gated_norm_backward<detail::GateBeforeNorm, T>}};
}

}  // namespace

extern const detail::RecurrentTable<float> recurrent_f32 = make_recurrent_table<float>();
extern const detail::RecurrentTable<bf16> recurrent_bf16 = make_recurrent_table<bf16>();
extern const detail::RecurrentTable<f16> recurrent_f16 = make_recurrent_table<f16>();

}  // namespace strata::kernels::STRATA_ISA
