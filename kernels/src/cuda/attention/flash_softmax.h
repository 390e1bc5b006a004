#pragma once

#include <cmath>
#include <cstdint>

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>

#include "cuda/attention/flash_tiles.h"

/// The online softmax of a forward tile, in the registers of a lane: rows lane / 4 and lane / 4 + 8 of each
/// 16, of which it has two columns in eight.
namespace strata::kernels::detail {

template <int kM>
struct SoftmaxRows {
  float max[kM][2];  ///< the highest score so far, times the scale
  float sum[kM][2];  ///< the probabilities of the lane's own columns
  float rescale[kM]
               [2];  ///< the maximum of a tile of unscaled scores, and then what earlier sums are scaled by
};
/// s[m][n] are a lane's scores of rows 16 m on and of columns 8 n on.
template <int kM, int kKeys>
using LaneScores = float[kM][kKeys / 8][4];

template <int kM>
STRATA_DEVICE_INLINE void start_softmax(SoftmaxRows<kM>& r) {
  unrolled<kM, 2>([&](int m, int half) {
    r.max[m][half] = kLowestScore;
    r.sum[m][half] = 0.0f;
  });
}

/// Sets the masked scores of queries `row` on and keys `key` on to minus infinity.
template <int kM, int kKeys, class T>
STRATA_DEVICE_INLINE void mask_scores(LaneScores<kM, kKeys>& s, const AttentionView<T>& v, std::int64_t batch,
                                      int key, int row) {
  unrolled<kM, 2>([&](int m, int half) {
    const int query = row + m * 16 + half * 8, seq = static_cast<int>(v.seq);
    const int begin = first_visible_key(v, opaque(batch), query) - key;
    const int end = (v.causal && query < seq ? query + 1 : seq) - key;
    unrolled<kKeys / 8, 2>([&](int n, int e) {
      if (n * 8 + e < begin || n * 8 + e >= end) s[m][n][half * 2 + e] = -INFINITY;
    });
  });
}
/// Scales the scores and adds ALiBi's bias.
template <int kM, int kKeys>
STRATA_DEVICE_INLINE void bias_scores(LaneScores<kM, kKeys>& s, float scale, float bias, int key, int row) {
  unrolled<kM, 2, kKeys / 8, 2>([&](int m, int half, int n, int e) {
    float& score = s[m][n][half * 2 + e];
    score = fused_multiply_add(score, scale,
                               bias * static_cast<float>(key + n * 8 + e - (row + m * 16 + half * 8)));
  });
}
/// The lane's part of the maxima of a tile.
template <int kM, int kKeys>
STRATA_DEVICE_INLINE void max_of_scores(SoftmaxRows<kM>& r, const LaneScores<kM, kKeys>& s) {
  unrolled<kM, 2>([&](int m, int half) {
    float highest = -INFINITY;
    unrolled<kKeys / 8, 2>([&](int n, int e) { highest = max_of(highest, s[m][n][half * 2 + e]); });
    r.rescale[m][half] = highest;
  });
}
/// Turns scores into probabilities, relative to the new maxima.
template <int kM, int kKeys>
STRATA_DEVICE_INLINE void exponentiate(SoftmaxRows<kM>& r, LaneScores<kM, kKeys>& s, float scale) {
  unrolled<kM, 2>([&](int m, int half) {
    const float new_max = max_of(r.max[m][half], r.rescale[m][half] * scale);
    const float rescale = exp2_approx(r.max[m][half] - new_max);
    float sum = 0.0f;
    unrolled<kKeys / 8, 2>([&](int n, int e) {
      float& p = s[m][n][half * 2 + e];
      p = exp2_approx(fused_multiply_add(p, scale, -new_max));
      sum = sum + p;
    });
    r.sum[m][half] = r.sum[m][half] * rescale + sum;
    r.max[m][half] = new_max;
    r.rescale[m][half] = rescale;
  });
}
template <int kM, int kColumns>
STRATA_DEVICE_INLINE void rescale_sums(const SoftmaxRows<kM>& r, float (&o)[kM][kColumns][4]) {
  unrolled<kM, kColumns, 4>([&](int m, int n, int i) { o[m][n][i] = o[m][n][i] * r.rescale[m][i / 2]; });
}

/// The softmax of a warp's tile of scores: queries `row` on, keys [key, key + kKeys). Accumulators are left
/// to the caller to rescale.
template <int kM, int kKeys, class Warp, class T, class Scores, class Rows>
STRATA_DEVICE_INLINE void softmax_tile(const Warp& warp, const Scores& scores, const Rows& rows,
                                       const AttentionView<T>& v, std::int64_t batch, int key, int row,
                                       float scale, float bias, bool is_masked) {
  const auto for_each_lane = [&](const auto& f) {
    warp.for_each_lane([&](int lane) { f(scores(lane), rows(lane), key + lane % 4 * 2, row + lane / 4); });
  };
  if (bias != 0.0f)
    for_each_lane([&](auto& s, auto&, int j, int i) { bias_scores<kM, kKeys>(s, scale, bias, j, i); });
  if (is_masked)
    for_each_lane([&](auto& s, auto&, int j, int i) { mask_scores<kM, kKeys>(s, v, batch, j, i); });
  for_each_lane([&](auto& s, auto& r, int, int) { max_of_scores<kM, kKeys>(r, s); });
  unrolled<2 * kM>([&](int i) {
    warp.quad_reduce([&](int lane) -> float& { return rows(lane).rescale[i / 2][i % 2]; },
                     [](float a, float b) { return max_of(a, b); });
  });
  const float rest = bias != 0.0f ? 1.0f : scale;
  for_each_lane([&](auto& s, auto& r, int, int) { exponentiate<kM, kKeys>(r, s, rest); });
}

/// Sums the lanes' parts and stores the outputs and log-sum-exps of queries `row` on.
template <int kM, class Warp, class T, class Sums, class Rows>
STRATA_DEVICE_INLINE void store_outputs(const Warp& warp, const Sums& sums, const Rows& rows,
                                        const AttentionView<T>& v, std::int64_t batch, std::int64_t head,
                                        std::int64_t row, T* out, float* lse) {
  unrolled<2 * kM>([&](int i) {
    warp.quad_reduce([&](int lane) -> float& { return rows(lane).sum[i / 2][i % 2]; },
                     [](float a, float b) { return a + b; });
  });
  warp.for_each_lane([&](int lane) {
    const auto& o = sums(lane);
    const SoftmaxRows<kM>& r = rows(lane);
    constexpr int kColumns = static_cast<int>(sizeof(o[0]) / sizeof(o[0][0]));
    const int column = lane % 4 * 2;
    unrolled<kM, 2>([&](int m, int half) {
      const std::int64_t query = row + lane / 4 + m * 16 + half * 8;
      if (query >= v.seq) return;
      const float row_sum = r.sum[m][half];
      const MergedWeights weights =
          v.with_sink(head, static_cast<float>(static_cast<double>(r.max[m][half]) * 0.69314718055994531 +
                                               simd::log_of(static_cast<double>(row_sum))));
      T* const to = out + v.out(batch, head) + query * v.heads * v.d + column;
      unrolled<kColumns>([&](int n) {
        store_pair(to + n * 8, o[m][n][half * 2] / row_sum * weights.a,
                   o[m][n][half * 2 + 1] / row_sum * weights.a);
      });
      if (column == 0) lse[v.stat(batch, head) + query] = weights.lse;
    });
  });
}

}  // namespace strata::kernels::detail
