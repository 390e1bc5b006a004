#pragma once

#include <cstdint>

#include <strata/dispatch/cuda/lanes.h>

#include "recurrent/delta_rows.h"

/// The Unit of the delta rule (delta_rows.h) that is a block of threads on CUDA, or what emulates one. Its
/// sums have the terms of the host's in the same order.
namespace strata::kernels::detail {

inline constexpr int kDeltaThreads = 256;

/// Four rows of a column for each thread, as they share the elements of b.
STRATA_DEVICE_INLINE void product_of_thread(const Product& p, std::int64_t thread) {
  constexpr int kRows = 4;
  for (std::int64_t at = thread; at < (p.m + kRows - 1) / kRows * p.n; at += kDeltaThreads) {
    const std::int64_t i = at / p.n * kRows, j = at % p.n, first = p.first + i, last = first + kRows;
    const int rows = p.m - i < kRows ? static_cast<int>(p.m - i) : kRows;
    if (p.only_lower && j >= last) continue;
    const std::int64_t begin = p.zeros == Product::Zeros::below && first < p.k ? first : 0,
                       end = p.zeros == Product::Zeros::above && last < p.k ? last : p.k;
    float sum[kRows] = {};
    for (int r = 0; r < rows; ++r) {
      const float keep = p.row_keep == nullptr ? p.keep : p.row_keep[i + r];
      if (keep != 0.0f) sum[r] = keep * p.c[(i + r) * p.c_row + j] + 0.0f;
    }
    for (std::int64_t l = begin; l < end; ++l) {
      const float b = p.b[l * p.b_row + j];
      for (int r = 0; r < rows; ++r) sum[r] = sum[r] + p.a[(i + r) * p.a_row + l * p.a_column] * b;
    }
    for (int r = 0; r < rows; ++r) p.c[(i + r) * p.c_row + j] = sum[r];
  }
}
/// A column for each thread: the rows of a column need each other, and no other column.
STRATA_DEVICE_INLINE void solve_of_thread(const UnitTriangle& t, std::int64_t thread) {
  for (std::int64_t j = thread; j < t.n; j += kDeltaThreads)
    for (std::int64_t i = t.first; i < t.last; ++i) {
      const std::int64_t row = t.transposed ? t.last - 1 - (i - t.first) : i,
                         begin = t.transposed ? row + 1 : 0, end = t.transposed ? t.last : row;
      float sum = t.y[row * t.n + j];
      for (std::int64_t l = begin; l < end; ++l)
        sum = sum - t.a[t.transposed ? l * kDeltaChunk + row : row * kDeltaChunk + l] * t.y[l * t.n + j];
      t.y[row * t.n + j] = sum;
    }
}

/// `Threads` has run_and_sync() (cuda/thread_block.h) for kDeltaThreads threads. `Lanes` are those of a half
/// warp, all of whose threads call together, or of one thread in place of sixteen if `kIsEmulated`.
template <class Threads, class Lanes, bool kIsEmulated>
struct DeltaBlock {
  Threads threads;

  template <class F>
  STRATA_DEVICE_INLINE void rows(std::int64_t n, const F& f) const {
    threads.run_and_sync([&](int thread) {
      if (kIsEmulated && thread % dispatch::kLanes != 0) return;
      for (std::int64_t r = thread / dispatch::kLanes; r < n; r += kDeltaThreads / dispatch::kLanes)
        f(r, Lanes());
    });
  }
  STRATA_DEVICE_INLINE void product(const Product& p) const {
    threads.run_and_sync([&](int thread) { product_of_thread(p, thread); });
  }
  STRATA_DEVICE_INLINE void solve(const UnitTriangle& t) const {
    threads.run_and_sync([&](int thread) { solve_of_thread(t, thread); });
  }
};

}  // namespace strata::kernels::detail
