#include <algorithm>
#include <cmath>

#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/rope.h>
#include <strata/runtime/assert.h>

#include "dtype_dispatch.h"
#include "embedding/rope_scaling.h"
#include "simd_table.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

// The frequency is rounded to f32, and angles are computed in f32, as in the implementations that models were
// trained with. An angle of 1e5 radians then has an error of 4e-3, the same in all implementations.
float frequency(const RopeFrequencies& f, std::int64_t i, std::int64_t n) {
  const auto plain = static_cast<float>(
      std::pow(static_cast<double>(f.theta), -static_cast<double>(i) / static_cast<double>(n)));
  return detail::scaled_frequency(f, plain, i, n);
}

// Rotates the `n` pairs of one head. The interleaved form rotates one pair at a time, with the same bits on
// every instruction set.
template <class T>
void rotate_head(const RopeArgs& a, const T* x, const float* cosines, const float* sines, T* y,
                 std::int64_t n) {
  if (!a.interleaved) {
    detail::simd_table<T>().rotate(x, x + n, cosines, sines, y, y + n, n);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const float even = to_f32(x[2 * i]), odd = to_f32(x[2 * i + 1]);
    y[2 * i] = from_f32<T>(even * cosines[i] - odd * sines[i]);
    y[2 * i + 1] = from_f32<T>(odd * cosines[i] + even * sines[i]);
  }
}

}  // namespace

void positions_host(const PositionsArgs& a, ThreadPool& pool) {
  auto* positions = a.positions.as<std::int32_t>();
  const std::int32_t* starts = dispatch::is_present(a.doc_start) ? a.doc_start.as<std::int32_t>() : nullptr;
  dispatch::parallel_for_ranges(
      pool, a.positions.n_elems(), detail::kElementsPerItem, [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t) {
          const auto place = static_cast<std::int32_t>(t % a.seq);
          STRATA_DCHECK(starts == nullptr || (starts[t] >= 0 && starts[t] <= place), "token ", t,
                        " of a document that starts at ", starts[t]);
          positions[t] = static_cast<std::int32_t>(a.first) + place - (starts == nullptr ? 0 : starts[t]);
        }
      });
}

void rope_table_host(const RopeTableArgs& a, ThreadPool& pool) {
  const std::int64_t n = dispatch::row_length(a.table) / 2;
  dispatch::parallel_for_ranges(
      pool, dispatch::row_count(a.table), 16, [&](std::int64_t first, std::int64_t rows) {
        for (std::int64_t i = 0; i < n; ++i) {
          const float inv_freq = frequency(a.frequencies, i, n);
          for (std::int64_t p = first; p < first + rows; ++p) {
            const float angle = static_cast<float>(p) * inv_freq;
            float* row = a.table.as<float>() + p * 2 * n;
            row[i] =
                static_cast<float>(std::cos(static_cast<double>(angle))) * a.frequencies.attention_factor;
            row[n + i] =
                static_cast<float>(std::sin(static_cast<double>(angle))) * a.frequencies.attention_factor;
          }
        }
      });
}

template <class T>
void rope(const RopeArgs& a, ThreadPool& pool) {
  const std::int64_t width = dispatch::row_length(a.x);
  const std::int64_t rotary_dim = dispatch::row_length(a.table);
  const std::int64_t n = rotary_dim / 2;
  dispatch::parallel_for_ranges(
      pool, dispatch::row_count(a.x), detail::rows_per_item(width),
      [&](std::int64_t first, std::int64_t rows) {
        float negated_sines[1024];  // the negated sines of a row, for the inverse rotation
        STRATA_ASSERT(n <= 1024, "a head with ", rotary_dim, " rotated elements");
        for (std::int64_t t = first; t < first + rows; ++t) {
          const std::int32_t position = a.positions.as<std::int32_t>()[t];
          STRATA_DCHECK(position >= 0 && position < dispatch::row_count(a.table), "token ", t,
                        " at position ", position, " of ", dispatch::row_count(a.table));
          const float* cosines = a.table.as<float>() + position * rotary_dim;
          const float* sines = cosines + n;
          if (a.inverse) {
            for (std::int64_t i = 0; i < n; ++i) negated_sines[i] = -sines[i];
            sines = negated_sines;
          }
          const T* x = a.x.as<T>() + t * width;
          T* y = a.y.as<T>() + t * width;
          for (std::int64_t head = 0; head < a.heads; ++head) {
            const std::int64_t at = head * a.head_dim;
            rotate_head(a, x + at, cosines, sines, y + at, n);
            if (x != y) std::copy(x + at + rotary_dim, x + at + a.head_dim, y + at + rotary_dim);
          }
          if (x != y) std::copy(x + a.heads * a.head_dim, x + width, y + a.heads * a.head_dim);
        }
      });
}

void rope_host(const RopeArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { rope<T>(a, pool); });
}

}  // namespace strata::kernels
