#pragma once

#include <cmath>
#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>
#include <strata/kernels/lora_parts.h>
#include <strata/runtime/float16.h>

#include "few_rows_table.h"
#include "adapters/lora_scale.h"

/// The arithmetic of adapters chosen by rows: the operations of lora_rows.cpp in the same order.
/// `Lanes` is HalfWarp (lanes.h), or EmulatedHalfWarp in tests.
namespace strata::kernels::detail {

/// Pointers and sizes of a call, for one part of the matrix where it matters.
template <class T>
struct LoraRowsView {
  const T* x;
  const T* a;
  const T* b;  ///< the B of the part
  const std::int32_t* adapters;
  T* y;
  float* u;
  std::int64_t rows, columns, inner, ranks;
  /// The part's first row in y, its extents, and its first element in a row of u.
  std::int64_t first_row = 0, part_rows = 0, rank = 0, first_u = 0;
  float scale = 1;
  std::int32_t adapter = 0;
};

/// The chain that begins with element `first` of a product of n elements (gemm_chains.h).
template <class X, class T>
STRATA_DEVICE_INLINE float chain_of(const X* x, const T* row, std::int64_t first, std::int64_t n) {
  const std::int64_t end = n - first < kChain ? n : first + kChain;
  float sum = 0.0f;
  for (std::int64_t i = first; i < end; ++i) sum = fmaf(to_f32(x[i]), to_f32(row[i]), sum);
  return sum;
}

/// Element `item` of u, by row and then by rank.
template <class T, class Lanes>
STRATA_DEVICE_INLINE void lora_down(const Lanes& lanes, const LoraRowsView<T>& v, std::int64_t item) {
  const std::int64_t t = item / v.ranks, j = item % v.ranks;
  if (v.adapters[t] != v.adapter) return;
  const T *const x = v.x + t * v.inner, *const row = v.a + j * v.inner;
  const float sum = lanes.sum_in_order((v.inner + kChain - 1) / kChain, [&](std::int64_t chain) {
    return chain_of(x, row, chain * kChain, v.inner);
  });
  if (lanes.is_leader()) v.u[item] = scaled_once_stored<T>(sum, v.scale);
}

/// Element `item` of the part's columns of y, by row and then by column.
template <class T>
STRATA_DEVICE_INLINE void lora_up_element(const LoraRowsView<T>& v, std::int64_t item) {
  const std::int64_t t = item / v.part_rows, j = item % v.part_rows;
  if (v.adapters[t] != v.adapter) return;
  const float* const u = v.u + t * v.ranks + v.first_u;
  float sum = 0.0f;
  for (std::int64_t first = 0; first < v.rank; first += kChain) {
    const float chain = chain_of(u, v.b + j * v.rank, first, v.rank);
    sum = first == 0 ? chain : sum + chain;
  }
  T& y = v.y[t * v.columns + v.first_row + j];
  y = from_f32<T>(to_f32(y) + sum);
}

}  // namespace strata::kernels::detail
