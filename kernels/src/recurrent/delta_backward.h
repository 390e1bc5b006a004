#pragma once

#include "recurrent/delta_forward.h"

/// The derivative of the gated delta rule, for a Unit (delta_rows.h): chunk by chunk from the last one. With
/// the names of the forward, and d(x) for the gradient of x (o is the result, S' the state after the chunk):
///   d(values) = m^T d(o) + e k d(S'), then (I + a^T)^-1 of it, y below
///   d(m) = d(o) values^T, d(a) = -y values^T
///   d(S) = decay d(S') + (decay q)^T d(o) - (beta decay k)^T y
/// where e is the decay from a row to the chunk's last one.
namespace strata::kernels::detail {

/// Where the gradients of a key head's rows go.
template <class T>
struct DeltaGradients {
  T *dq, *dk, *dv;
  std::int64_t width;
  float *dg, *dbeta;
  std::int64_t heads;

  STRATA_HD DeltaGradients from(std::int64_t row) const {
    return {dq + row * width,
            dk + row * width,
            dv + row * width,
            width,
            dg + row * heads,
            dbeta + row * heads,
            heads};
  }
};

struct DeltaBackwardScratch {
  DeltaScratch forward;
  float *k, *inverse_q, *inverse_k;    ///< normalized keys [64, dk], and the factors that normalize [64]
  float *dq, *dk;                      ///< gradients of normalized rows, summed over value heads [64, dk]
  float *dout, *y, *scaled;            ///< [64, dv]
  float* values_t;                     ///< [dv, 64]
  float *d_m, *d_a, *d_gamma;          ///< the last times gamma [64, 64]
  float* x;                            ///< [64, dk]
  float *d_decay, *d_end, *cumulated;  ///< [64]
  float *state_t, *d_state_t;          ///< [dv, dk]
  float* d_state;                      ///< all value heads have theirs here [group, dk, dv]
  float* products;                     ///< d(S') . S by row of S [dk]

  STRATA_HD DeltaBackwardScratch(DeltaMemory& memory, const DeltaSizes& d)
      : forward(memory, d),
        k(memory.take(kDeltaChunk * d.dk)),
        inverse_q(memory.take(kDeltaChunk)),
        inverse_k(memory.take(kDeltaChunk)),
        dq(memory.take(kDeltaChunk * d.dk)),
        dk(memory.take(kDeltaChunk * d.dk)),
        dout(memory.take(kDeltaChunk * d.dv)),
        y(memory.take(kDeltaChunk * d.dv)),
        scaled(memory.take(kDeltaChunk * d.dv)),
        values_t(memory.take(kDeltaChunk * d.dv)),
        d_m(memory.take(kDeltaChunk * kDeltaChunk)),
        d_a(memory.take(kDeltaChunk * kDeltaChunk)),
        d_gamma(memory.take(kDeltaChunk * kDeltaChunk)),
        x(memory.take(kDeltaChunk * d.dk)),
        d_decay(memory.take(kDeltaChunk)),
        d_end(memory.take(kDeltaChunk)),
        cumulated(memory.take(kDeltaChunk)),
        state_t(memory.take(d.dk * d.dv)),
        d_state_t(memory.take(d.dk * d.dv)),
        d_state(memory.take(d.group * d.dk * d.dv)),
        products(memory.take(d.dk)) {}
};

/// A matrix [m, n] transposed, in rows of `stride`.
template <class Unit>
STRATA_DEVICE_INLINE void transpose(const Unit& unit, const float* from, std::int64_t m, std::int64_t n,
                                    float* into, std::int64_t stride) {
  unit.rows(n, [&](std::int64_t c, const auto& lanes) {
    lanes.for_each(m, [&](std::int64_t r) { into[c * stride + r] = from[r * n + c]; });
  });
}

/// Rows of a chunk: sizes, inputs, results and memory.
template <class X, class Gradients, class Scratch, class T>
struct BackwardRows {
  DeltaSizes d;
  X x;
  Gradients to;
  const T* dout;
  std::int64_t out_width;
  const Scratch& s;
  const DeltaWindow& window;
  std::int64_t n;  ///< rows
  bool begins;     ///< S is 0
  bool ends;       ///< d(S') is 0
};
template <class T>
using DeltaBackwardRows = BackwardRows<DeltaRows<T>, DeltaGradients<T>, DeltaBackwardScratch, T>;

/// d(values), into y.
template <class Unit, class Rows>
STRATA_DEVICE_INLINE void delta_backward_values(const Unit& unit, const Rows& c, std::int64_t head,
                                                const float* d_state) {
  const auto& s = c.s;
  const std::int64_t dv = c.d.dv, n = c.n;
  unit.rows(n, [&](std::int64_t r, const auto& lanes) {
    const auto* const from = c.dout + r * c.out_width + head * dv;
    lanes.for_each(dv, [&](std::int64_t i) { s.dout[r * dv + i] = to_f32(from[i]); });
  });
  if (!c.ends)
    unit.product({.a = s.k,
                  .a_row = c.d.dk,
                  .a_column = 1,
                  .b = d_state,
                  .b_row = dv,
                  .c = s.y,
                  .c_row = dv,
                  .m = n,
                  .n = dv,
                  .k = c.d.dk});
  unit.product({.a = s.forward.m,
                .a_row = 1,
                .a_column = kDeltaChunk,
                .b = s.dout,
                .b_row = dv,
                .c = s.y,
                .c_row = dv,
                .m = n,
                .n = dv,
                .k = n,
                .row_keep = c.ends ? nullptr : s.forward.gamma + (n - 1) * kDeltaChunk,
                .zeros = Product::Zeros::below});
}

/// d(m) and d(a) times gamma, and what they add to d(gamma) gamma and d(beta); d(v).
template <class Unit, class T>
STRATA_DEVICE_INLINE void delta_backward_matrices(const Unit& unit, const DeltaBackwardRows<T>& c,
                                                  std::int64_t head, const float* values) {
  const DeltaBackwardScratch& s = c.s;
  const std::int64_t dv = c.d.dv, n = c.n;
  transpose(unit, values, n, dv, s.values_t, kDeltaChunk);
  Product product = {.a = s.dout,
                     .a_row = dv,
                     .a_column = 1,
                     .b = s.values_t,
                     .b_row = kDeltaChunk,
                     .c = s.d_m,
                     .c_row = kDeltaChunk,
                     .m = n,
                     .n = (n + 15) / 16 * 16,
                     .k = dv,
                     .only_lower = true};
  unit.product(product);
  product.a = s.y;
  product.c = s.d_a;
  unit.product(product);
  unit.rows(n, [&](std::int64_t r, const auto& lanes) {
    const std::int64_t at = r * kDeltaChunk;
    const float by = c.x.beta[r * c.x.heads + head], decay = s.forward.decay[r];
    const float *const gamma = s.forward.gamma + at, *const kk = s.forward.key_products + at,
                       *const a = s.forward.a + at, *const m = s.forward.m + at;
    float *const d_m = s.d_m + at, *const d_a = s.d_a + at, *const d_gamma = s.d_gamma + at;
    const float of_a =
        lanes.template sum<float>(r, [&](std::int64_t j) { return d_a[j] * kk[j] * gamma[j]; });
    lanes.for_each(kDeltaChunk, [&](std::int64_t j) {
      const float of_m = d_m[j], of_keys = d_a[j];
      const float both = of_m * m[j] - of_keys * a[j];
      const float m_gamma = of_m * gamma[j], a_gamma = of_keys * by * gamma[j];
      d_gamma[j] = j < r ? both : 0.0f;
      d_m[j] = j <= r ? m_gamma : 0.0f;
      d_a[j] = j < r ? 0.0f - a_gamma : 0.0f;
    });
    const T* const v = c.x.v + r * c.x.width + head * dv;
    const float *const p = s.forward.p + r * dv, *const y = s.y + r * dv;
    const bool begins = c.begins;
    const float of_values = lanes.template sum<float>(
        dv, [&](std::int64_t i) { return y[i] * (begins ? to_f32(v[i]) : to_f32(v[i]) - decay * p[i]); });
    if (lanes.is_leader()) c.to.dbeta[r * c.to.heads + head] = of_values - of_a;
    T* const d_v = c.to.dv + r * c.to.width + head * dv;
    lanes.for_each(dv, [&](std::int64_t i) { d_v[i] = from_f32<T>(by * y[i]); });
  });
}

/// Adds to d(q) and d(k) what m and a give them.
template <class Unit, class T>
STRATA_DEVICE_INLINE void delta_backward_chunk_keys(const Unit& unit, const DeltaBackwardRows<T>& c) {
  const DeltaBackwardScratch& s = c.s;
  Product product = {.a = s.d_m,
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
  product.a = s.d_a;
  product.c = s.dk;
  unit.product(product);
  product.a_row = 1;
  product.a_column = kDeltaChunk;
  product.zeros = Product::Zeros::below;
  unit.product(product);
  product.a = s.d_m;
  product.b = s.forward.q;
  unit.product(product);
}

/// Adds to d(q) and d(k) what the state before the chunk gives them, and finds d(decay).
template <class Unit, class T>
STRATA_DEVICE_INLINE void delta_backward_state(const Unit& unit, const DeltaBackwardRows<T>& c,
                                               std::int64_t head, const float* state) {
  const DeltaBackwardScratch& s = c.s;
  const std::int64_t dk = c.d.dk, dv = c.d.dv, n = c.n;
  transpose(unit, state, dk, dv, s.state_t, dk);
  Product product = {.a = s.dout,
                     .a_row = dv,
                     .a_column = 1,
                     .b = s.state_t,
                     .b_row = dk,
                     .c = s.x,
                     .c_row = dk,
                     .m = n,
                     .n = dk,
                     .k = dv};
  unit.product(product);
  unit.rows(n, [&](std::int64_t r, const auto& lanes) {
    const float decay = s.forward.decay[r], by = c.x.beta[r * c.x.heads + head];
    const float *const x = s.x + r * dk, *const q = s.forward.q + r * dk;
    float* const dq = s.dq + r * dk;
    const float of_out = lanes.template sum<float>(dk, [&](std::int64_t i) { return q[i] * x[i]; });
    lanes.for_each(dk, [&](std::int64_t i) { dq[i] = dq[i] + decay * x[i]; });
    const float *const y = s.y + r * dv, *const p = s.forward.p + r * dv;
    const float of_values = lanes.template sum<float>(dv, [&](std::int64_t i) { return y[i] * p[i]; });
    if (lanes.is_leader()) s.d_decay[r] = of_out - by * of_values;
    // The gradient of k^T S.
    const float factor = 0.0f - by * decay;
    float* const scaled = s.scaled + r * dv;
    lanes.for_each(dv, [&](std::int64_t i) { scaled[i] = factor * y[i]; });
  });
  product.a = s.scaled;
  product.c = s.dk;
  product.keep = 1.0f;
  unit.product(product);
}

/// Adds to d(k) what the state after the chunk gives it, and finds d(e) and the products of d(S') and S.
template <class Unit, class Rows>
STRATA_DEVICE_INLINE void delta_backward_end(const Unit& unit, const Rows& c, const float* state,
                                             const float* values, const float* d_state) {
  const auto& s = c.s;
  const std::int64_t dk = c.d.dk, dv = c.d.dv, n = c.n;
  transpose(unit, d_state, dk, dv, s.d_state_t, dk);
  unit.product({.a = values,
                .a_row = dv,
                .a_column = 1,
                .b = s.d_state_t,
                .b_row = dk,
                .c = s.x,
                .c_row = dk,
                .m = n,
                .n = dk,
                .k = dv});
  unit.rows(n, [&](std::int64_t r, const auto& lanes) {
    const float end = s.forward.gamma[(n - 1) * kDeltaChunk + r];
    const float *const x = s.x + r * dk, *const k = s.k + r * dk;
    float* const to = s.dk + r * dk;
    const float of_end = lanes.template sum<float>(dk, [&](std::int64_t i) { return k[i] * x[i]; });
    lanes.for_each(dk, [&](std::int64_t i) { to[i] = to[i] + end * x[i]; });
    if (lanes.is_leader()) s.d_end[r] = r < n - 1 ? of_end * end : 0.0f;
  });
  if (c.begins) return;
  unit.rows(dk, [&](std::int64_t r, const auto& lanes) {
    const float sum = lanes.template sum<float>(
        dv, [&](std::int64_t i) { return d_state[r * dv + i] * state[r * dv + i]; });
    if (lanes.is_leader()) s.products[r] = sum;
  });
}

/// d(g): the gradient of the logarithm of every decay goes to the rows that it runs over.
template <class Unit, class Rows>
STRATA_DEVICE_INLINE void delta_backward_decays(const Unit& unit, const Rows& c, std::int64_t head) {
  const auto& s = c.s;
  const std::int64_t n = c.n;
  unit.rows(n, [&](std::int64_t r, const auto& lanes) {
    const float earlier =
        lanes.template sum<float>(r, [&](std::int64_t j) { return s.d_gamma[r * kDeltaChunk + j]; });
    const float later = lanes.template sum<float>(
        n - 1 - r, [&](std::int64_t j) { return s.d_gamma[(r + 1 + j) * kDeltaChunk + r]; });
    float sum = earlier - later;
    if (!c.begins) sum = sum + s.d_decay[r] * s.forward.decay[r];
    if (!c.ends) {
      sum = sum - s.d_end[r];
      if (r == n - 1) {
        sum = sum + lanes.template sum<float>(n, [&](std::int64_t j) { return s.d_end[j]; });
        if (!c.begins)
          sum = sum + s.forward.decay[r] *
                          lanes.template sum<float>(c.d.dk, [&](std::int64_t i) { return s.products[i]; });
      }
    }
    if (lanes.is_leader()) s.cumulated[r] = sum;
  });
  unit.rows(1, [&](std::int64_t, const auto& lanes) {
    if (!lanes.is_leader()) return;
    float sum = 0.0f;
    for (std::int64_t r = n - 1; r >= 0; --r) {
      sum = sum + s.cumulated[r];
      c.to.dg[r * c.to.heads + head] = r == 0 && c.begins ? 0.0f : sum;  // no decay runs over this row
    }
  });
}

/// d(S) from d(S'), in place.
template <class Unit, class T>
STRATA_DEVICE_INLINE void delta_backward_fold(const Unit& unit, const DeltaBackwardRows<T>& c,
                                              float* d_state) {
  const DeltaBackwardScratch& s = c.s;
  const std::int64_t dv = c.d.dv, n = c.n;
  Product product = {.a = c.window.keys(),
                     .a_row = kDeltaChunk,
                     .a_column = 1,
                     .b = s.scaled,
                     .b_row = dv,
                     .c = d_state,
                     .c_row = dv,
                     .m = c.d.dk,
                     .n = dv,
                     .k = n,
                     .keep = c.ends ? 0.0f : s.forward.decay[n - 1]};
  unit.product(product);
  unit.rows(n, [&](std::int64_t r, const auto& lanes) {
    const float decay = s.forward.decay[r];
    lanes.for_each(dv, [&](std::int64_t i) { s.scaled[r * dv + i] = decay * s.dout[r * dv + i]; });
  });
  product.a = s.forward.q;
  product.a_row = 1;
  product.a_column = c.d.dk;
  product.keep = 1.0f;
  unit.product(product);
}

/// The gradient of what unit_row() normalizes.
template <class Lanes, class T>
STRATA_DEVICE_INLINE void unit_row_backward(const Lanes& lanes, const float* row, const float* d,
                                            float inverse, float factor, T* dx, std::int64_t n) {
  const float by = factor * inverse, square = factor * factor;
  const float sum = lanes.template sum<float>(n, [&](std::int64_t i) { return row[i] * d[i]; }) / square;
  lanes.for_each(n, [&](std::int64_t i) { dx[i] = from_f32<T>(by * (d[i] - row[i] * sum)); });
}

/// The rows of a chunk. `state` has S of all value heads one after the other; `d_state` is d(S'), and becomes
/// d(S) unless the document begins with the chunk.
template <class Unit, class T>
STRATA_DEVICE_INLINE void backward_rows(const Unit& unit, const DeltaBackwardRows<T>& c,
                                        const float* states) {
  const DeltaBackwardScratch& s = c.s;
  const DeltaSizes& d = c.d;
  const DeltaSpan span = {0, c.n, c.begins};
  float* const keys = c.window.keys();
  delta_keys(unit, d, c.x, s.forward, keys, span);
  unit.rows(c.n, [&](std::int64_t r, const auto& lanes) {
    // A second time, for the factors and for keys in rows.
    const float of_q = unit_row(lanes, c.x.q + r * c.x.width, s.dq + r * d.dk, 1, d.dk, d.scale);
    const float of_k = unit_row(lanes, c.x.k + r * c.x.width, s.k + r * d.dk, 1, d.dk, 1.0f);
    if (lanes.is_leader()) {
      s.inverse_q[r] = of_q;
      s.inverse_k[r] = of_k;
    }
    lanes.for_each(d.dk, [&](std::int64_t i) { s.dq[r * d.dk + i] = s.dk[r * d.dk + i] = 0.0f; });
  });
  for (std::int64_t i = 0; i < d.group; ++i) {
    const float* const state = states + i * d.dk * d.dv;
    float *const values = c.window.values(i), *const d_state = s.d_state + i * d.dk * d.dv;
    delta_decays(unit, c.x.g + i, c.x.heads, s.forward, span, nullptr);
    delta_matrices(unit, c.x.beta + i, c.x.heads, s.forward, span);
    delta_values(unit, d, c.x, i, s.forward, keys, state, values, span);
    delta_backward_values(unit, c, i, d_state);
    unit.solve({.a = s.forward.a, .y = s.y, .n = d.dv, .first = 0, .last = c.n, .transposed = true});
    delta_backward_matrices(unit, c, i, values);
    delta_backward_chunk_keys(unit, c);
    if (!c.begins) delta_backward_state(unit, c, i, state);
    if (!c.ends) delta_backward_end(unit, c, state, values, d_state);
    delta_backward_decays(unit, c, i);
    if (!c.begins) delta_backward_fold(unit, c, d_state);
  }
  unit.rows(c.n, [&](std::int64_t r, const auto& lanes) {
    unit_row_backward(lanes, s.forward.q + r * d.dk, s.dq + r * d.dk, s.inverse_q[r], d.scale,
                      c.to.dq + r * c.to.width, d.dk);
    unit_row_backward(lanes, s.k + r * d.dk, s.dk + r * d.dk, s.inverse_k[r], 1.0f, c.to.dk + r * c.to.width,
                      d.dk);
  });
}

}  // namespace strata::kernels::detail
