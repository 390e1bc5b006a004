#pragma once

#include <strata/dispatch/cuda/lanes.h>

#include "recurrent/delta_rows.h"

/// The forward of the gated delta rule on the rows of a chunk, for a Unit (delta_rows.h).
namespace strata::kernels::detail {

/// out = x / sqrt(the sum of squares + eps) * factor, with elements `stride` apart. Returns the reciprocal
/// root.
template <class Lanes, class T>
STRATA_DEVICE_INLINE float unit_row(const Lanes& lanes, const T* x, float* out, std::int64_t stride,
                                    std::int64_t n, float factor) {
  const float squares = lanes.template sum<float>(n, [&](std::int64_t i) {
    const float v = to_f32(x[i]);
    return v * v;
  });
  const float inverse = 1.0f / simd::sqrt_of(squares + kDeltaEps);
  if (stride == 1)
    lanes.for_each(n, [&](std::int64_t i) { out[i] = to_f32(x[i]) * inverse * factor; });
  else
    lanes.for_each(n, [&](std::int64_t i) { out[i * stride] = to_f32(x[i]) * inverse * factor; });
  return inverse;
}

/// Normalizes queries and keys of rows, which `x` begins with, and multiplies them.
template <class Unit, class T>
STRATA_DEVICE_INLINE void delta_keys(const Unit& unit, const DeltaSizes& d, const DeltaRows<T>& x,
                                     const DeltaScratch& s, float* keys, const DeltaSpan& span) {
  const std::int64_t first = span.first, rows = span.last - first;
  unit.rows(rows, [&](std::int64_t r, const auto& lanes) {
    unit_row(lanes, x.q + r * x.width, s.q + (first + r) * d.dk, 1, d.dk, d.scale);
    unit_row(lanes, x.k + r * x.width, keys + first + r, kDeltaChunk, d.dk, 1.0f);
  });
  // Columns of later rows are computed, too, so that no register is filled in part; nothing reads them.
  const std::int64_t columns = (span.last + 15) / 16 * 16;
  Product product = {.a = keys + first,
                     .a_row = 1,
                     .a_column = kDeltaChunk,
                     .b = keys,
                     .b_row = kDeltaChunk,
                     .c = s.key_products + first * kDeltaChunk,
                     .c_row = kDeltaChunk,
                     .m = rows,
                     .n = columns,
                     .k = d.dk,
                     .only_lower = true,
                     .first = first};
  unit.product(product);
  product.a = s.q + first * d.dk;
  product.a_row = d.dk;
  product.a_column = 1;
  product.c = s.query_products + first * kDeltaChunk;
  unit.product(product);
}

/// The decays of the span's rows of a value head; `before`: those of the row before, if it is in the chunk.
template <class Unit, class Scratch>
STRATA_DEVICE_INLINE void delta_decays(const Unit& unit, const float* g, std::int64_t heads, const Scratch& s,
                                       const DeltaSpan& span, const float* before) {
  unit.rows(1, [&](std::int64_t, const auto& lanes) {
    // An element is written by one lane in all rows, so a row needs no wait for the one before.
    const float* last = before;
    float from_begin = span.first > 0 ? before[kDeltaChunk] : 1.0f;
    for (std::int64_t r = span.first; r < span.last; ++r) {
      const float e = simd::exp_of(g[(r - span.first) * heads]);
      float* const row = s.gamma + r * kDeltaChunk;
      from_begin = from_begin * e;
      if (r == 0)
        lanes.for_each(kDeltaChunk, [&](std::int64_t j) { row[j] = j == 0 ? 1.0f : 0.0f; });
      else
        lanes.for_each(kDeltaChunk, [&](std::int64_t j) {
          const float older = last[j] * e;
          row[j] = j < r ? older : j == r ? 1.0f : 0.0f;
        });
      if (lanes.is_leader()) s.decay[r] = from_begin;
      last = row;
    }
  });
}

/// The matrices of a value head's rows: a and m of the scratch.
template <class Unit>
STRATA_DEVICE_INLINE void delta_matrices(const Unit& unit, const float* beta, std::int64_t heads,
                                         const DeltaScratch& s, const DeltaSpan& span) {
  unit.rows(span.last - span.first, [&](std::int64_t r, const auto& lanes) {
    const std::int64_t row = span.first + r, at = row * kDeltaChunk;
    const float by = beta[r * heads];
    const float *const gamma = s.gamma + at, *const kk = s.key_products + at,
                       *const qk = s.query_products + at;
    float *const a = s.a + at, *const m = s.m + at;
    lanes.for_each(kDeltaChunk, [&](std::int64_t j) {
      const float of_keys = by * kk[j] * gamma[j], of_query = qk[j] * gamma[j];
      a[j] = j < row ? of_keys : 0.0f;
      m[j] = j <= row ? of_query : 0.0f;
    });
  });
}

/// What the span's rows write to the state, into `values`, and their k^T S, into p of the scratch.
template <class Unit, class T>
STRATA_DEVICE_INLINE void delta_values(const Unit& unit, const DeltaSizes& d, const DeltaRows<T>& x,
                                       std::int64_t head, const DeltaScratch& s, const float* keys,
                                       const float* state, float* values, const DeltaSpan& span) {
  const std::int64_t first = span.first, rows = span.last - first;
  if (!span.begins)
    unit.product({.a = keys + first,
                  .a_row = 1,
                  .a_column = kDeltaChunk,
                  .b = state,
                  .b_row = d.dv,
                  .c = s.p + first * d.dv,
                  .c_row = d.dv,
                  .m = rows,
                  .n = d.dv,
                  .k = d.dk});
  unit.rows(rows, [&](std::int64_t r, const auto& lanes) {
    const T* const v = x.v + r * x.width + head * d.dv;
    const float by = x.beta[r * x.heads + head], decay = s.decay[first + r];
    const float* const p = s.p + (first + r) * d.dv;
    float* const y = values + (first + r) * d.dv;
    if (span.begins)
      lanes.for_each(d.dv, [&](std::int64_t c) { y[c] = by * to_f32(v[c]); });
    else
      lanes.for_each(d.dv, [&](std::int64_t c) { y[c] = by * (to_f32(v[c]) - decay * p[c]); });
  });
  unit.solve({.a = s.a, .y = values, .n = d.dv, .first = first, .last = span.last});
}

/// S after the chunk, where `s.o` may be overwritten.
template <class Unit, class Scratch>
STRATA_DEVICE_INLINE void delta_fold(const Unit& unit, const DeltaSizes& d, const Scratch& s,
                                     const float* keys, const float* values, float* state,
                                     const DeltaSpan& span) {
  const std::int64_t end = span.last;
  unit.rows(end, [&](std::int64_t r, const auto& lanes) {
    const float decay = s.gamma[(end - 1) * kDeltaChunk + r];
    const float* const y = values + r * d.dv;
    float* const scaled = s.o + r * d.dv;
    lanes.for_each(d.dv, [&](std::int64_t c) { scaled[c] = decay * y[c]; });
  });
  unit.product({.a = keys,
                .a_row = kDeltaChunk,
                .a_column = 1,
                .b = s.o,
                .b_row = d.dv,
                .c = state,
                .c_row = d.dv,
                .m = d.dk,
                .n = d.dv,
                .k = end,
                .keep = span.begins ? 0.0f : s.decay[end - 1]});
}

/// o of the scratch = q^T S + what the rows of the chunk have written to it since.
template <class Unit, class Scratch>
STRATA_DEVICE_INLINE void delta_read(const Unit& unit, const DeltaSizes& d, const Scratch& s,
                                     const float* state, const float* values, const DeltaSpan& span) {
  const std::int64_t first = span.first, rows = span.last - first;
  float* const o = s.o + first * d.dv;
  if (!span.begins)
    unit.product({.a = s.q + first * d.dk,
                  .a_row = d.dk,
                  .a_column = 1,
                  .b = state,
                  .b_row = d.dv,
                  .c = o,
                  .c_row = d.dv,
                  .m = rows,
                  .n = d.dv,
                  .k = d.dk});
  unit.product({.a = s.m + first * kDeltaChunk,
                .a_row = kDeltaChunk,
                .a_column = 1,
                .b = values,
                .b_row = d.dv,
                .c = o,
                .c_row = d.dv,
                .m = rows,
                .n = d.dv,
                .k = span.last,
                .row_keep = span.begins ? nullptr : s.decay + first,
                .zeros = Product::Zeros::above,
                .first = first});
}

template <class Unit, class T>
STRATA_DEVICE_INLINE void delta_out(const Unit& unit, const DeltaSizes& d, const DeltaScratch& s,
                                    const float* state, const float* values, const DeltaSpan& span, T* out,
                                    std::int64_t out_width) {
  delta_read(unit, d, s, state, values, span);
  unit.rows(span.last - span.first, [&](std::int64_t r, const auto& lanes) {
    const float* const o = s.o + (span.first + r) * d.dv;
    lanes.for_each(d.dv, [&](std::int64_t c) { out[r * out_width + c] = from_f32<T>(o[c]); });
  });
}

/// Leaves in the window what later rows of the chunk need of the decays.
template <class Unit, class Scratch>
STRATA_DEVICE_INLINE void delta_keep_decays(const Unit& unit, const Scratch& s, const DeltaSpan& span,
                                            float* decays) {
  unit.rows(1, [&](std::int64_t, const auto& lanes) {
    const float* const last = s.gamma + (span.last - 1) * kDeltaChunk;
    lanes.for_each(kDeltaChunk, [&](std::int64_t j) { decays[j] = last[j]; });
    if (lanes.is_leader()) decays[kDeltaChunk] = s.decay[span.last - 1];
  });
}

/// The rows of a span, which `x` and `out` begin with. `folds`: S after them is computed. Otherwise, and if
/// `keeps`, the window is left as later rows of the chunk need it.
template <class Unit, class T>
STRATA_DEVICE_INLINE void forward_rows(const Unit& unit, const DeltaSizes& d, const DeltaRows<T>& x,
                                       const DeltaScratch& s, const DeltaWindow& window,
                                       const DeltaSpan& span, bool folds, bool keeps, T* out,
                                       std::int64_t out_width) {
  delta_keys(unit, d, x, s, window.keys(), span);
  for (std::int64_t i = 0; i < d.group; ++i) {
    float *const state = window.state(i), *const values = window.values(i);
    delta_decays(unit, x.g + i, x.heads, s, span, window.decays(i));
    delta_matrices(unit, x.beta + i, x.heads, s, span);
    delta_values(unit, d, x, i, s, window.keys(), state, values, span);
    delta_out(unit, d, s, state, values, span, out + i * d.dv, out_width);
    if (folds)
      delta_fold(unit, d, s, window.keys(), values, state, span);
    else if (keeps)
      delta_keep_decays(unit, s, span, window.decays(i));
  }
}

/// A matrix [m, n] copied.
template <class Unit>
STRATA_DEVICE_INLINE void copy_matrix(const Unit& unit, const float* from, float* into, std::int64_t m,
                                      std::int64_t n) {
  unit.rows(m, [&](std::int64_t r, const auto& lanes) {
    lanes.for_each(n, [&](std::int64_t i) { into[r * n + i] = from[r * n + i]; });
  });
}

/// The states after a chunk, from those before it.
template <class Unit, class T>
STRATA_DEVICE_INLINE void border_rows(const Unit& unit, const DeltaSizes& d, const DeltaRows<T>& x,
                                      const DeltaScratch& s, const DeltaWindow& window, const DeltaSpan& span,
                                      const float* before, float* after) {
  delta_keys(unit, d, x, s, window.keys(), span);
  for (std::int64_t i = 0; i < d.group; ++i) {
    const float* const state = before + i * d.dk * d.dv;
    float* const next = after + i * d.dk * d.dv;
    delta_decays(unit, x.g + i, x.heads, s, span, nullptr);
    delta_matrices(unit, x.beta + i, x.heads, s, span);
    delta_values(unit, d, x, i, s, window.keys(), state, window.values(i), span);
    if (!span.begins) copy_matrix(unit, state, next, d.dk, d.dv);
    delta_fold(unit, d, s, window.keys(), window.values(i), next, span);
  }
}

}  // namespace strata::kernels::detail
