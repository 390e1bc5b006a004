#pragma once

#include "recurrent/scan_rows.h"

/// The forward of the state scan on the rows of a chunk, for a Unit (delta_rows.h).
namespace strata::kernels::detail {

/// B of rows, which `x` begins with, into a window's keys.
template <class Unit, class T>
STRATA_DEVICE_INLINE void scan_keys(const Unit& unit, const DeltaSizes& d, const ScanRows<T>& x, float* keys,
                                    const DeltaSpan& span) {
  unit.rows(span.last - span.first, [&](std::int64_t r, const auto& lanes) {
    const T* const b = x.b + r * x.width;
    float* const into = keys + span.first + r;
    lanes.for_each(d.dk, [&](std::int64_t i) { into[i * kDeltaChunk] = to_f32(b[i]); });
  });
}

/// C of the rows, and C B^T.
template <class Unit, class T>
STRATA_DEVICE_INLINE void scan_queries(const Unit& unit, const DeltaSizes& d, const ScanRows<T>& x,
                                       const ScanScratch& s, const float* keys, const DeltaSpan& span) {
  const std::int64_t first = span.first, rows = span.last - first;
  unit.rows(rows, [&](std::int64_t r, const auto& lanes) {
    const T* const c = x.c + r * x.width;
    float* const into = s.q + (first + r) * d.dk;
    lanes.for_each(d.dk, [&](std::int64_t i) { into[i] = to_f32(c[i]); });
  });
  // Columns of later rows are computed, too, so that no register is filled in part; nothing reads them.
  unit.product({.a = s.q + first * d.dk,
                .a_row = d.dk,
                .a_column = 1,
                .b = keys,
                .b_row = kDeltaChunk,
                .c = s.query_products + first * kDeltaChunk,
                .c_row = kDeltaChunk,
                .m = rows,
                .n = (span.last + 15) / 16 * 16,
                .k = d.dk,
                .only_lower = true,
                .first = first});
}

/// What the span's rows write to the state of a head.
template <class Unit, class T>
STRATA_DEVICE_INLINE void scan_values(const Unit& unit, const DeltaSizes& d, const ScanRows<T>& x,
                                      std::int64_t head, float* values, const DeltaSpan& span) {
  unit.rows(span.last - span.first, [&](std::int64_t r, const auto& lanes) {
    const T* const from = x.x + r * x.width + head * d.dv;
    const float step = x.step[r * x.heads + head];
    float* const into = values + (span.first + r) * d.dv;
    lanes.for_each(d.dv, [&](std::int64_t c) { into[c] = step * to_f32(from[c]); });
  });
}

/// m of the scratch.
template <class Unit>
STRATA_DEVICE_INLINE void scan_matrix(const Unit& unit, const ScanScratch& s, const DeltaSpan& span) {
  unit.rows(span.last - span.first, [&](std::int64_t r, const auto& lanes) {
    const std::int64_t row = span.first + r, at = row * kDeltaChunk;
    const float *const gamma = s.gamma + at, *const products = s.query_products + at;
    float* const m = s.m + at;
    lanes.for_each(kDeltaChunk, [&](std::int64_t j) {
      const float of_query = products[j] * gamma[j];
      m[j] = j <= row ? of_query : 0.0f;
    });
  });
}

/// The rows of a span, as forward_rows() of the delta rule.
template <class Unit, class T>
STRATA_DEVICE_INLINE void forward_rows(const Unit& unit, const DeltaSizes& d, const ScanRows<T>& x,
                                       const ScanScratch& s, const DeltaWindow& window, const DeltaSpan& span,
                                       bool folds, bool keeps, T* out, std::int64_t out_width) {
  scan_keys(unit, d, x, window.keys(), span);
  scan_queries(unit, d, x, s, window.keys(), span);
  for (std::int64_t i = 0; i < d.group; ++i) {
    float *const state = window.state(i), *const values = window.values(i);
    delta_decays(unit, x.g + i, x.heads, s, span, window.decays(i));
    scan_values(unit, d, x, i, values, span);
    scan_matrix(unit, s, span);
    delta_read(unit, d, s, state, values, span);
    unit.rows(span.last - span.first, [&](std::int64_t r, const auto& lanes) {
      const T* const from = x.x + r * x.width + i * d.dv;
      const float* const o = s.o + (span.first + r) * d.dv;
      const float factor = x.d[i];
      T* const into = out + r * out_width + i * d.dv;
      lanes.for_each(d.dv, [&](std::int64_t c) { into[c] = from_f32<T>(o[c] + factor * to_f32(from[c])); });
    });
    if (folds)
      delta_fold(unit, d, s, window.keys(), values, state, span);
    else if (keeps)
      delta_keep_decays(unit, s, span, window.decays(i));
  }
}

/// The states after a chunk, from those before it.
template <class Unit, class T>
STRATA_DEVICE_INLINE void border_rows(const Unit& unit, const DeltaSizes& d, const ScanRows<T>& x,
                                      const ScanScratch& s, const DeltaWindow& window, const DeltaSpan& span,
                                      const float* before, float* after) {
  scan_keys(unit, d, x, window.keys(), span);
  for (std::int64_t i = 0; i < d.group; ++i) {
    float* const next = after + i * d.dk * d.dv;
    delta_decays(unit, x.g + i, x.heads, s, span, nullptr);
    scan_values(unit, d, x, i, window.values(i), span);
    if (!span.begins) copy_matrix(unit, before + i * d.dk * d.dv, next, d.dk, d.dv);
    delta_fold(unit, d, s, window.keys(), window.values(i), next, span);
  }
}

}  // namespace strata::kernels::detail
