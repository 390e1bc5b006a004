#include <strata/kernels/fp8.h>

#include <algorithm>
#include <array>
#include <atomic>

#include <strata/simd/convert.h>
#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "cuda/quant/fp8_math.h"
#include "dtype_dispatch.h"
#include "gemm/gemm.h"
#include "gemm/gemm_16bit.h"
#include "gemm/tile_grid.h"
#include "simd_table.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

using detail::Fp8Format;

Fp8Format format_of(DType dtype) { return dtype == DType::e4m3 ? Fp8Format::e4m3 : Fp8Format::e5m2; }

/// Casts with the tiles of the GPU kernel; the threads of a tile's thread block are run one after another.
template <class T>
void cast(const Fp8CastArgs& a, ThreadPool& pool) {
  const std::int64_t rows = dispatch::row_count(a.x), columns = dispatch::row_length(a.x);
  const T* x = a.x.as<T>();
  auto& max_bits = *reinterpret_cast<std::uint32_t*>(a.workspace.data);
  max_bits = 0;
  dispatch::parallel_for_ranges(
      pool, rows * columns, detail::kElementsPerItem, [&](std::int64_t first, std::int64_t n) {
        std::uint32_t here = 0;
        for (std::int64_t i = first; i < first + n; ++i)
          here = std::max(here, detail::magnitude_bits(to_f32(x[i])));
        std::atomic_ref<std::uint32_t> all(max_bits);
        for (std::uint32_t seen = all.load(); seen < here && !all.compare_exchange_weak(seen, here);) {
        }
      });
  const bool has_rowwise = dispatch::is_present(a.rowwise),
             has_columnwise = dispatch::is_present(a.columnwise);
  const Fp8Format format = format_of((has_rowwise ? a.rowwise : a.columnwise).dtype);
  const detail::Fp8Scale scale = detail::fp8_scale(format, max_bits);
  *a.scale_inv.as<float>() = scale.inverse;
  const std::int64_t across = dispatch::ceil_div(columns, detail::kFp8Tile);
  pool.parallel_for(dispatch::ceil_div(rows, detail::kFp8Tile) * across, [&](std::int64_t i) {
    const detail::Fp8Tile at{i / across * detail::kFp8Tile, i % across * detail::kFp8Tile, rows, columns};
    alignas(4) std::array<std::uint8_t, detail::kFp8TileBytes> tile;
    for (int thread = 0; thread < detail::kFp8Threads; ++thread)
      detail::cast_tile(thread, at, x, scale.scale, format,
                        has_rowwise ? a.rowwise.as<std::uint8_t>() : nullptr, tile.data());
    for (int thread = 0; has_columnwise && thread < detail::kFp8Threads; ++thread)
      detail::store_transposed(thread, at, tile.data(), a.columnwise.as<std::uint8_t>());
  });
}

/// The value of each of the 256 fp8 bit patterns, times `inverse`.
std::array<float, 256> dequantized_values(DType dtype, float inverse) {
  std::array<float, 256> values;
  for (std::size_t code = 0; code < values.size(); ++code) {
    const auto bits = static_cast<std::uint8_t>(code);
    values[code] = (dtype == DType::e4m3 ? e4m3_to_f32(bits) : e5m2_to_f32(bits)) * inverse;
  }
  return values;
}

void widen(const std::array<float, 256>& values, const std::uint8_t* quantized, std::int64_t ld,
           std::int64_t rows, std::int64_t columns, float* into) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) into[i * columns + j] = values[quantized[i * ld + j]];
}

detail::TileScratch& scratch() {
  static detail::TileScratch all;  // scratch memory, as for 16-bit GEMMs: sharing it changes no result
  return all;
}

/// As in rounded_tile() of gemm_tiled.cpp, the bias and the previous C are added to the f32 sum before its
/// only rounding.
template <class C>
void finish_row(const float* sum, const C* bias, bool accumulate, C* row, std::int64_t n, float* joined) {
  std::copy_n(sum, n, joined);
  if (bias != nullptr) detail::simd_table<C>().accumulate_row(joined, bias, n);
  if (accumulate) detail::simd_table<C>().accumulate_row(joined, row, n);
  if constexpr (std::is_same_v<C, float>)
    std::copy_n(joined, n, row);
  else
    simd::narrow(joined, row, n);
}

template <class C>
void multiply(const Fp8GemmArgs& a, ThreadPool& pool) {
  const std::int64_t m = dispatch::row_count(a.a), k = dispatch::row_length(a.a),
                     n = dispatch::row_count(a.b);
  const auto a_values = dequantized_values(a.a.dtype, *a.a_scale_inv.as<float>());
  const auto b_values = dequantized_values(a.b.dtype, *a.b_scale_inv.as<float>());
  const detail::TileGrid grid = detail::tile_grid(m, n);
  const std::int64_t across = dispatch::ceil_div(n, grid.columns);
  scratch().reserve(static_cast<std::size_t>(pool.threads()));
  pool.parallel_for(dispatch::ceil_div(m, grid.rows) * across, [&](std::int64_t i) {
    const std::int64_t row = i / across * grid.rows, column = i % across * grid.columns;
    const std::int64_t tall = std::min(grid.rows, m - row), wide = std::min(grid.columns, n - column);
    float* const block = scratch().acquire();
    float* const a_panel = block + detail::kLargestTile.rows * detail::kLargestTile.columns;
    float* const b_panel = a_panel + detail::kWidenedK * detail::kLargestTile.rows;
    std::fill_n(block, tall * wide, 0.0f);
    for (std::int64_t at = 0; at < k; at += detail::kWidenedK) {
      const std::int64_t depth = std::min(detail::kWidenedK, k - at);
      widen(a_values, a.a.as<std::uint8_t>() + row * k + at, k, tall, depth, a_panel);
      widen(b_values, a.b.as<std::uint8_t>() + column * k + at, k, wide, depth, b_panel);
      detail::gemm_one_thread({.trans_b = true,
                               .m = tall,
                               .n = wide,
                               .k = depth,
                               .a = a_panel,
                               .lda = depth,
                               .b = b_panel,
                               .ldb = depth,
                               .c = block,
                               .ldc = wide,
                               .accumulate = true});
    }
    for (std::int64_t r = 0; r < tall; ++r)
      finish_row<C>(block + r * wide, dispatch::is_present(a.bias) ? a.bias.as<C>() + column : nullptr,
                    a.accumulate, a.c.as<C>() + (row + r) * n + column, wide, a_panel);
    scratch().release(block);
  });
}

bool is_f8(DType dtype) { return dtype == DType::e4m3 || dtype == DType::e5m2; }
bool fits(std::int64_t n) { return n % kFp8Multiple == 0; }

}  // namespace

STRATA_OP(fp8_cast, Fp8CastArgs);
STRATA_OP(fp8_gemm, Fp8GemmArgs);

void fp8_cast_host(const Fp8CastArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { cast<T>(a, pool); });
}

void fp8_gemm_host(const Fp8GemmArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.c.dtype, [&]<class C>(std::type_identity<C>) { multiply<C>(a, pool); });
}

std::size_t fp8_cast_workspace_bytes() noexcept { return sizeof(std::uint32_t); }

Status fp8_cast_async(Backend& backend, Stream& stream, const Fp8CastArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x), k = dispatch::row_length(a.x);
  const bool has_rowwise = dispatch::is_present(a.rowwise),
             has_columnwise = dispatch::is_present(a.columnwise);
  const DType dtype = has_rowwise ? a.rowwise.dtype : a.columnwise.dtype;
  dispatch::Check check("fp8_cast", "x", a.x);
  check.shape("x", a.x, a.x.dtype, {rows, k})
      .require(fits(rows) && fits(k), "x is [", rows, ", ", k, "]; both extents must be multiples of ",
               kFp8Multiple)
      .require(has_rowwise || has_columnwise,
               "neither rowwise nor columnwise is given; at least one is needed")
      .require(is_f8(dtype), "the output's dtype is ", to_string(dtype), "; it must be e4m3 or e5m2")
      .elements("scale_inv", a.scale_inv, DType::f32, 1)
      .workspace(a.workspace, fp8_cast_workspace_bytes());
  if (has_rowwise) check.shape("rowwise", a.rowwise, dtype, {rows, k});
  if (has_columnwise) check.shape("columnwise", a.columnwise, dtype, {k, rows});
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, fp8_cast_op, a, {a.x}, {a.rowwise, a.columnwise, a.scale_inv},
                           a.workspace);
}

Status fp8_gemm_async(Backend& backend, Stream& stream, const Fp8GemmArgs& a) {
  const std::int64_t m = dispatch::row_count(a.a), k = dispatch::row_length(a.a),
                     n = dispatch::row_count(a.b);
  dispatch::Check check("fp8_gemm", "c", a.c);
  check.require(is_f8(a.a.dtype), "a is ", to_string(a.a.dtype), "; it must be e4m3 or e5m2")
      .shape("a", a.a, a.a.dtype, {m, k})
      .shape("b", a.b, DType::e4m3, {n, k})
      .require(fits(m) && fits(n) && fits(k), "a is [", m, ", ", k, "] and b is [", n, ", ", k,
               "]; all extents must be multiples of ", kFp8Multiple)
      .elements("a_scale_inv", a.a_scale_inv, DType::f32, 1)
      .elements("b_scale_inv", a.b_scale_inv, DType::f32, 1)
      .shape("c", a.c, a.c.dtype, {m, n});
  if (dispatch::is_present(a.bias))
    check.shape("bias", a.bias, a.c.dtype, {n})
        .require(a.c.dtype != DType::f32, "bias is given, but c is f32; a bias requires a bf16 or f16 c");
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, fp8_gemm_op, a, {a.a, a.a_scale_inv, a.b, a.b_scale_inv, a.bias},
                           {a.c});
}

}  // namespace strata::kernels
