#pragma once

#include <cstdint>

#include <strata/runtime/float16.h>
#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>

/// The elements of the causal convolution on the host and on a GPU, with the operations in the same order.
namespace strata::kernels::detail {

/// z sigmoid(z) or z, and its derivative.
template <class V>
STRATA_HD V conv_activation(V z, bool silu) {
  return silu ? z * simd::sigmoid_of(z).value : z;
}
template <class V>
STRATA_HD V conv_activation_backward(V z, V d, bool silu) {
  if (!silu) return d;
  const auto s = simd::sigmoid_of(z);
  return d * (s.value + z * (s.value * s.complement));
}

/// Which rows a row sees: documents end a convolution.
struct ConvRows {
  const std::int32_t* doc_start;  ///< null: none
  std::int64_t rows, seq, taps;

  /// The taps of a row that see rows of its document: the last ones.
  STRATA_HD std::int64_t taps_of(std::int64_t row) const {
    const std::int64_t position = row % seq;
    std::int64_t begin = doc_start == nullptr ? 0 : doc_start[row];
    begin = begin < 0 ? 0 : begin > position ? position : begin;
    return position - begin + 1 < taps ? position - begin + 1 : taps;
  }
  /// The rows from `row` on that see it.
  STRATA_HD std::int64_t readers_of(std::int64_t row) const {
    std::int64_t n = 1;
    while (n < taps && row + n < rows && taps_of(row + n) > n) ++n;
    return n;
  }
};

/// A convolution's operands.
template <class T>
struct ConvOperands {
  const T *x, *weight, *bias;
  std::int64_t channels;
  ConvRows rows;
  bool silu;

  STRATA_HD float tap(std::int64_t channel, std::int64_t k) const {
    return to_f32(weight[channel * rows.taps + k]);
  }
  /// The sum of a row, before the activation.
  STRATA_HD float sum(std::int64_t row, std::int64_t channel) const {
    float z = bias == nullptr ? 0.0f : to_f32(bias[channel]);
    for (std::int64_t k = rows.taps - rows.taps_of(row); k < rows.taps; ++k)
      z = z + tap(channel, k) * to_f32(x[(row - (rows.taps - 1) + k) * channels + channel]);
    return z;
  }
  /// Its gradient.
  STRATA_HD float d_sum(const T* dy, std::int64_t row, std::int64_t channel) const {
    return conv_activation_backward(sum(row, channel), to_f32(dy[row * channels + channel]), silu);
  }
  STRATA_HD float d_x(const T* dy, std::int64_t row, std::int64_t channel) const {
    float sum = 0.0f;
    for (std::int64_t m = 0; m < rows.readers_of(row); ++m)
      sum = sum + tap(channel, rows.taps - 1 - m) * d_sum(dy, row + m, channel);
    return sum;
  }
  /// What the rows [first, last) add to the gradients of a channel's weights and bias: sums[k], sums[taps].
  STRATA_HD void d_weights(const T* dy, std::int64_t first, std::int64_t last, std::int64_t channel,
                           float* sums) const {
    for (std::int64_t k = 0; k <= rows.taps; ++k) sums[k] = 0.0f;
    for (std::int64_t row = first; row < last; ++row) {
      const float d = d_sum(dy, row, channel);
      for (std::int64_t k = rows.taps - rows.taps_of(row); k < rows.taps; ++k)
        sums[k] = sums[k] + d * to_f32(x[(row - (rows.taps - 1) + k) * channels + channel]);
      sums[rows.taps] = sums[rows.taps] + d;
    }
  }
};

/// Rows of sequences that keep their last ones: `state` [sequences, taps - 1, channels], where position p is
/// in row p % (taps - 1).
template <class T>
struct CachedConv {
  const std::int32_t *positions, *slots;
  std::int64_t rows;
  T *state, *y;

  /// The place of the row `ago` rows before `row`, or where `row` itself is stored if that is 0.
  STRATA_HD T* kept(std::int64_t row, std::int64_t ago, std::int64_t taps, std::int64_t channels) const {
    const std::int64_t n = taps - 1;
    return state + (slots[row] * n + (positions[row] - ago) % n) * channels;
  }
};

/// All rows of a channel.
template <class T>
STRATA_HD void cached_conv_channel(const ConvOperands<T>& c, const CachedConv<T>& of, std::int64_t channel) {
  const std::int64_t taps = c.rows.taps;
  for (std::int64_t row = 0; row < of.rows; ++row) {
    const std::int64_t at = row * c.channels + channel;
    if (of.slots[row] < 0) {
      of.y[at] = from_f32<T>(0.0f);
      continue;
    }
    const std::int64_t position = of.positions[row], seen = position + 1 < taps ? position + 1 : taps;
    float z = c.bias == nullptr ? 0.0f : to_f32(c.bias[channel]);
    for (std::int64_t k = taps - seen; k < taps - 1; ++k)
      z = z + c.tap(channel, k) * to_f32(of.kept(row, taps - 1 - k, taps, c.channels)[channel]);
    z = z + c.tap(channel, taps - 1) * to_f32(c.x[at]);
    of.kept(row, 0, taps, c.channels)[channel] = c.x[at];
    of.y[at] = from_f32<T>(conv_activation(z, c.silu));
  }
}

}  // namespace strata::kernels::detail
