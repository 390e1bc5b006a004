#pragma once

#include <cstdint>

#include "cuda/norm/norm_math.h"
#include "cuda/norm/staged_norms.h"

/// Sums over the rows of a block of rows: a thread has kN consecutive columns, and adds row after row.
namespace strata::kernels::detail {

/// Columns of a thread, of `columns` in rows that are `stride` elements apart: a pack where all of them are
/// aligned if the first one is.
template <class T>
constexpr int columns_of_thread(std::int64_t columns, std::int64_t stride) {
  constexpr int kSize = dispatch::Pack<T>::kSize;
  return columns % kSize == 0 && stride % kSize == 0 ? kSize : 1;
}

/// The gradients of kN columns of a layer norm from `column` on, over the rows from `first` to `end`. The
/// weight's follow each other at `weight_sums`, the bias's at `bias_sums`.
template <int kN, class T>
STRATA_DEVICE_INLINE void layernorm_columns(const T* x, const float* mean, const float* rstd, const T* dy,
                                            std::int64_t column, std::int64_t first, std::int64_t end,
                                            std::int64_t n, float* weight_sums, float* bias_sums) {
  WeightBias sums[kN];
#ifdef __CUDACC__
#pragma unroll 4
#endif
  for (std::int64_t t = first; t < end; ++t) {
    const Piece<kN, T> of_x = load_piece<kN>(x + t * n + column), of_dy = load_piece<kN>(dy + t * n + column);
    unrolled<kN>([&](int i) {
      add_to_column(sums[i], to_f32(of_x.value[i]), to_f32(of_dy.value[i]), mean[t], rstd[t]);
    });
  }
  unrolled<kN>([&](int i) {
    weight_sums[i] = sums[i].weight;
    bias_sums[i] = sums[i].bias;
  });
}

/// The heads of a qkv row that share a weight: `count` heads of d elements, from element `at` and statistic
/// `first` on, in rows of `width` elements and `stats` statistics. A row that is normalized as a whole is one
/// head.
struct HeadGroup {
  std::int64_t first, at, count, d, width, stats;
};
/// Columns of a thread for sums over heads. Packs of a short head's columns would leave few threads.
template <class T>
constexpr int columns_of_thread(const HeadGroup& heads) {
  return heads.count == 1 ? columns_of_thread<T>(heads.d, heads.width) : 1;
}
/// The same for RMSNorm. Within a row, its heads are added one after the other.
template <int kN, class T>
STRATA_DEVICE_INLINE void rmsnorm_columns(const T* x, const float* rstd, const T* dy, const HeadGroup& heads,
                                          std::int64_t column, std::int64_t first, std::int64_t end,
                                          float* sums_of_block) {
  float sums[kN] = {};
  const auto add_head = [&](std::int64_t t, std::int64_t head) {
    const std::int64_t at = t * heads.width + heads.at + head * heads.d + column;
    const float scale = rstd[t * heads.stats + heads.first + head];
    const Piece<kN, T> of_x = load_piece<kN>(x + at), of_dy = load_piece<kN>(dy + at);
    unrolled<kN>(
        [&](int i) { add_to_column(sums[i], to_f32(of_x.value[i]), to_f32(of_dy.value[i]), scale); });
  };
  if (heads.count == 1) {
#ifdef __CUDACC__
#pragma unroll 4
#endif
    for (std::int64_t t = first; t < end; ++t) add_head(t, 0);
  } else {
    for (std::int64_t t = first; t < end; ++t)
#ifdef __CUDACC__
#pragma unroll 8
#endif
      for (std::int64_t head = 0; head < heads.count; ++head) add_head(t, head);
  }
  unrolled<kN>([&](int i) { sums_of_block[i] = sums[i]; });
}

/// The bias gradient of kN columns.
template <int kN, class T>
STRATA_DEVICE_INLINE void bias_columns(const T* dy, std::int64_t column, std::int64_t n, std::int64_t first,
                                       std::int64_t end, float* sums_of_block) {
  float sums[kN] = {};
#ifdef __CUDACC__
#pragma unroll 8
#endif
  for (std::int64_t t = first; t < end; ++t) {
    const Piece<kN, T> of_dy = load_piece<kN>(dy + t * n + column);
    unrolled<kN>([&](int i) { sums[i] = sums[i] + to_f32(of_dy.value[i]); });
  }
  unrolled<kN>([&](int i) { sums_of_block[i] = sums[i]; });
}

}  // namespace strata::kernels::detail
