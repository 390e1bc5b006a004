#pragma once

#include "recurrent/scan_forward.h"

/// The derivative of the state scan, for a Unit (delta_rows.h): chunk by chunk from the last one. With the
/// names of the delta rule's (delta_backward.h):
///   d(values) = m^T d(o) + e B d(S'), d(m) = d(o) values^T
///   d(S) = decay d(S') + (decay C)^T d(o)
namespace strata::kernels::detail {

/// d(x), d(step), and what d's gradient is the sum of.
template <class Unit, class T>
STRATA_DEVICE_INLINE void scan_backward_inputs(const Unit& unit, const ScanBackwardRows<T>& c,
                                               std::int64_t head) {
  const std::int64_t dv = c.d.dv;
  unit.rows(c.n, [&](std::int64_t r, const auto& lanes) {
    const T* const x = c.x.x + r * c.x.width + head * dv;
    const float *const y = c.s.y + r * dv, *const dout = c.s.dout + r * dv;
    const float step = c.x.step[r * c.x.heads + head], factor = c.x.d[head];
    T* const dx = c.to.dx + r * c.to.width + head * dv;
    lanes.for_each(dv, [&](std::int64_t i) { dx[i] = from_f32<T>(step * y[i] + factor * dout[i]); });
    const float of_step = lanes.template sum<float>(dv, [&](std::int64_t i) { return y[i] * to_f32(x[i]); });
    const float dot = lanes.template sum<float>(dv, [&](std::int64_t i) { return dout[i] * to_f32(x[i]); });
    if (!lanes.is_leader()) return;
    c.to.dstep[r * c.to.heads + head] = of_step;
    c.to.dots[r * c.to.heads + head] = dot;
  });
}

/// What a head's d(m) adds to the gradient of C B^T and to d(gamma) gamma.
template <class Unit, class T>
STRATA_DEVICE_INLINE void scan_backward_matrix(const Unit& unit, const ScanBackwardRows<T>& c,
                                               const float* values) {
  const ScanBackwardScratch& s = c.s;
  transpose(unit, values, c.n, c.d.dv, s.values_t, kDeltaChunk);
  unit.product({.a = s.dout,
                .a_row = c.d.dv,
                .a_column = 1,
                .b = s.values_t,
                .b_row = kDeltaChunk,
                .c = s.d_m,
                .c_row = kDeltaChunk,
                .m = c.n,
                .n = (c.n + 15) / 16 * 16,
                .k = c.d.dv,
                .only_lower = true});
  unit.rows(c.n, [&](std::int64_t r, const auto& lanes) {
    const std::int64_t at = r * kDeltaChunk;
    const float *const gamma = s.forward.gamma + at, *const m = s.forward.m + at, *const d_m = s.d_m + at;
    float *const sum = s.d_products + at, *const d_gamma = s.d_gamma + at;
    lanes.for_each(kDeltaChunk, [&](std::int64_t j) {
      const float of_product = d_m[j] * gamma[j], of_gamma = d_m[j] * m[j], before = sum[j];
      sum[j] = j <= r ? before + of_product : 0.0f;
      d_gamma[j] = j < r ? of_gamma : 0.0f;
    });
  });
}

/// Adds to d(C) what the state before the chunk gives it, and finds d(decay).
template <class Unit, class T>
STRATA_DEVICE_INLINE void scan_backward_state(const Unit& unit, const ScanBackwardRows<T>& c,
                                              const float* state) {
  const ScanBackwardScratch& s = c.s;
  const std::int64_t dk = c.d.dk, dv = c.d.dv;
  transpose(unit, state, dk, dv, s.state_t, dk);
  unit.product({.a = s.dout,
                .a_row = dv,
                .a_column = 1,
                .b = s.state_t,
                .b_row = dk,
                .c = s.x,
                .c_row = dk,
                .m = c.n,
                .n = dk,
                .k = dv});
  unit.rows(c.n, [&](std::int64_t r, const auto& lanes) {
    const float decay = s.forward.decay[r];
    const float *const x = s.x + r * dk, *const q = s.forward.q + r * dk;
    float* const dq = s.dq + r * dk;
    const float of_out = lanes.template sum<float>(dk, [&](std::int64_t i) { return q[i] * x[i]; });
    lanes.for_each(dk, [&](std::int64_t i) { dq[i] = dq[i] + decay * x[i]; });
    if (lanes.is_leader()) s.d_decay[r] = of_out;
  });
}

/// d(S) from d(S'), in place.
template <class Unit, class T>
STRATA_DEVICE_INLINE void scan_backward_fold(const Unit& unit, const ScanBackwardRows<T>& c, float* d_state) {
  const ScanBackwardScratch& s = c.s;
  const std::int64_t dv = c.d.dv;
  unit.rows(c.n, [&](std::int64_t r, const auto& lanes) {
    const float decay = s.forward.decay[r];
    lanes.for_each(dv, [&](std::int64_t i) { s.scaled[r * dv + i] = decay * s.dout[r * dv + i]; });
  });
  unit.product({.a = s.forward.q,
                .a_row = 1,
                .a_column = c.d.dk,
                .b = s.scaled,
                .b_row = dv,
                .c = d_state,
                .c_row = dv,
                .m = c.d.dk,
                .n = dv,
                .k = c.n,
                .keep = c.ends ? 0.0f : s.forward.decay[c.n - 1]});
}

/// Adds to d(C) and d(B) what C B^T gives them.
template <class Unit, class T>
STRATA_DEVICE_INLINE void scan_backward_products(const Unit& unit, const ScanBackwardRows<T>& c) {
  const ScanBackwardScratch& s = c.s;
  Product product = {.a = s.d_products,
                     .a_row = kDeltaChunk,
                     .a_column = 1,
                     .b = s.k,
                     .b_row = c.d.dk,
                     .c = s.dq,
                     .c_row = c.d.dk,
                     .m = c.n,
                     .n = c.d.dk,
                     .k = c.n,
                     .keep = 1.0f,
                     .zeros = Product::Zeros::above};
  unit.product(product);
  product.a_row = 1;
  product.a_column = kDeltaChunk;
  product.b = s.forward.q;
  product.c = s.dk;
  product.zeros = Product::Zeros::below;
  unit.product(product);
}

/// The rows of a chunk, as backward_rows() of the delta rule.
template <class Unit, class T>
STRATA_DEVICE_INLINE void backward_rows(const Unit& unit, const ScanBackwardRows<T>& c, const float* states) {
  const ScanBackwardScratch& s = c.s;
  const DeltaSizes& d = c.d;
  const DeltaSpan span = {0, c.n, c.begins};
  float* const keys = c.window.keys();
  scan_keys(unit, d, c.x, keys, span);
  scan_queries(unit, d, c.x, s.forward, keys, span);
  unit.rows(c.n, [&](std::int64_t r, const auto& lanes) {
    const T* const b = c.x.b + r * c.x.width;
    lanes.for_each(d.dk, [&](std::int64_t i) {
      const std::int64_t at = r * d.dk + i;
      s.k[at] = to_f32(b[i]);
      s.dq[at] = 0.0f;
      s.dk[at] = 0.0f;
    });
    lanes.for_each(kDeltaChunk, [&](std::int64_t j) { s.d_products[r * kDeltaChunk + j] = 0.0f; });
  });
  for (std::int64_t i = 0; i < d.group; ++i) {
    const float* const state = states + i * d.dk * d.dv;
    float *const values = c.window.values(i), *const d_state = s.d_state + i * d.dk * d.dv;
    delta_decays(unit, c.x.g + i, c.x.heads, s.forward, span, nullptr);
    scan_values(unit, d, c.x, i, values, span);
    scan_matrix(unit, s.forward, span);
    delta_backward_values(unit, c, i, d_state);
    scan_backward_inputs(unit, c, i);
    scan_backward_matrix(unit, c, values);
    if (!c.begins) scan_backward_state(unit, c, state);
    if (!c.ends) delta_backward_end(unit, c, state, values, d_state);
    delta_backward_decays(unit, c, i);
    if (!c.begins) scan_backward_fold(unit, c, d_state);
  }
  scan_backward_products(unit, c);
  unit.rows(c.n, [&](std::int64_t r, const auto& lanes) {
    float* const into = c.to.keys + r * c.to.keys_width;
    lanes.for_each(d.dk, [&](std::int64_t i) {
      into[i] = s.dk[r * d.dk + i];
      into[d.dk + i] = s.dq[r * d.dk + i];
    });
  });
}

}  // namespace strata::kernels::detail
