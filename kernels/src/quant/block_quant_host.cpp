#include <algorithm>
#include <array>

#include <strata/dispatch/cuda/emulation/half_warp.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/block_quant.h>

#include "cuda/quant/block_math.h"
#include "dtype_dispatch.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

/// Calls body(first, n, scale) for every block: index of its first value, number of values, and its scale.
template <class Body>
void for_blocks(const BlockQuantArgs& a, ThreadPool& pool, const Body& body) {
  const std::int64_t n = a.x.n_elems();
  const std::int64_t blocks_per_item = std::max<std::int64_t>(1, detail::kElementsPerItem / a.block);
  dispatch::parallel_for_ranges(pool, dispatch::ceil_div(n, a.block), blocks_per_item,
                                [&](std::int64_t block, std::int64_t count) {
                                  for (const std::int64_t end = block + count; block < end; ++block) {
                                    const std::int64_t first = block * a.block;
                                    body(first, std::min(a.block, n - first), a.scales.as<float>() + block);
                                  }
                                });
}

template <class T>
void quantize(const BlockQuantArgs& a, ThreadPool& pool) {
  for_blocks(a, pool, [&](std::int64_t first, std::int64_t n, float* scale) {
    detail::quantize_block(dispatch::EmulatedHalfWarp(), a.format, a.x.as<T>() + first, n,
                           a.quantized.as<std::uint8_t>() + quantized_bytes(a.format, first), scale);
  });
}

template <class T>
void dequantize_nf4(const BlockQuantArgs& a, ThreadPool& pool) {
  for_blocks(a, pool, [&](std::int64_t first, std::int64_t n, const float* scale) {
    std::array<T, 16> values;  // a level is rounded once per block, not once per value
    for (int q = 0; q < 16; ++q)
      values[static_cast<std::size_t>(q)] = from_f32<T>(detail::kNf4Levels[q] * *scale);
    const std::uint8_t* quantized = a.quantized.as<std::uint8_t>() + first / 2;
    T* const x = a.x.as<T>() + first;
    for (std::int64_t i = 0; i < n / 2; ++i) {
      x[2 * i] = values[quantized[i] >> 4];
      x[2 * i + 1] = values[quantized[i] & 0xF];
    }
    if (n % 2 != 0) x[n - 1] = values[quantized[n / 2] >> 4];
  });
}

template <class T>
void dequantize_int8(const BlockQuantArgs& a, ThreadPool& pool) {
  for_blocks(a, pool, [&](std::int64_t first, std::int64_t n, const float* scale) {
    const std::uint8_t* quantized = a.quantized.as<std::uint8_t>() + first;
    T* const x = a.x.as<T>() + first;
    const float all = *scale;
    for (std::int64_t i = 0; i < n; ++i) x[i] = from_f32<T>(detail::int8_fraction(quantized[i]) * all);
  });
}

}  // namespace

void quantize_blocks_host(const BlockQuantArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { quantize<T>(a, pool); });
}

void dequantize_blocks_host(const BlockQuantArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    a.format == BlockQuantFormat::nf4 ? dequantize_nf4<T>(a, pool) : dequantize_int8<T>(a, pool);
  });
}

}  // namespace strata::kernels
