#pragma once

#include <strata/kernels/values/scan_heads.h>

#include "recurrent/delta_backward.h"

/// The operands and the memory of the state scan for heads of a group that are computed together. The scan is
/// the delta rule without its correction (Dao and Gu 2024, section 5): C are the queries, B the keys, and
/// step x the values. So it shares the chunks, the windows, and most functions of the rule (delta_rows.h).
namespace strata::kernels::detail {

inline DeltaSizes scan_sizes(const ScanHeads& heads) noexcept {
  return {heads.state_dim, heads.head_dim, heads.block(), 1.0f};
}

/// Rows of the heads, from a first row on.
template <class T>
struct ScanRows {
  const T *x, *b, *c;
  std::int64_t width;
  const float *step, *g, *d;  ///< the first head has them
  std::int64_t heads;         ///< the length of a row of g

  STRATA_HD ScanRows from(std::int64_t row) const {
    return {x + row * width,
            b + row * width,
            c + row * width,
            width,
            step + row * heads,
            g + row * heads,
            d,
            heads};
  }
};

struct ScanScratch {
  float* q;               ///< C [64, dk]
  float* query_products;  ///< C B^T [64, 64]
  float* gamma;           ///< the decay from row j to row i in row i, 0 above the diagonal
  float* decay;           ///< the decay from the chunk's begin to each row [64]
  float* m;               ///< C B^T gamma up to the diagonal
  float* o;               ///< the result without d x [64, dv]

  STRATA_HD ScanScratch(DeltaMemory& memory, const DeltaSizes& d)
      : q(memory.take(kDeltaChunk * d.dk)),
        query_products(memory.take(kDeltaChunk * kDeltaChunk)),
        gamma(memory.take(kDeltaChunk * kDeltaChunk)),
        decay(memory.take(kDeltaChunk)),
        m(memory.take(kDeltaChunk * kDeltaChunk)),
        o(memory.take(kDeltaChunk * d.dv)) {}
};

/// Where the gradients of the heads' rows go.
template <class T>
struct ScanGradients {
  T* dx;
  std::int64_t width;
  float* keys;  ///< gradients of B, then of C, from these heads alone, in f32
  std::int64_t keys_width;
  float *dstep, *dg;
  float* dots;  ///< dout . x, of which the sum is the gradient of d
  std::int64_t heads;

  STRATA_HD ScanGradients from(std::int64_t row) const {
    return {
        dx + row * width,   width, keys + row * keys_width, keys_width, dstep + row * heads, dg + row * heads,
        dots + row * heads, heads};
  }
};

struct ScanBackwardScratch {
  ScanScratch forward;
  float* k;                            ///< B [64, dk]
  float *dq, *dk;                      ///< gradients of C and B, summed over heads [64, dk]
  float* d_products;                   ///< the gradient of C B^T, summed over heads [64, 64]
  float *dout, *y, *scaled;            ///< y: d(values) [64, dv]
  float* values_t;                     ///< [dv, 64]
  float *d_m, *d_gamma;                ///< the last times gamma [64, 64]
  float* x;                            ///< [64, dk]
  float *d_decay, *d_end, *cumulated;  ///< [64]
  float *state_t, *d_state_t;          ///< [dv, dk]
  float* d_state;                      ///< all heads have theirs here [group, dk, dv]
  float* products;                     ///< d(S') . S by row of S [dk]

  STRATA_HD ScanBackwardScratch(DeltaMemory& memory, const DeltaSizes& d)
      : forward(memory, d),
        k(memory.take(kDeltaChunk * d.dk)),
        dq(memory.take(kDeltaChunk * d.dk)),
        dk(memory.take(kDeltaChunk * d.dk)),
        d_products(memory.take(kDeltaChunk * kDeltaChunk)),
        dout(memory.take(kDeltaChunk * d.dv)),
        y(memory.take(kDeltaChunk * d.dv)),
        scaled(memory.take(kDeltaChunk * d.dv)),
        values_t(memory.take(kDeltaChunk * d.dv)),
        d_m(memory.take(kDeltaChunk * kDeltaChunk)),
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

template <class T>
using ScanBackwardRows = BackwardRows<ScanRows<T>, ScanGradients<T>, ScanBackwardScratch, T>;

}  // namespace strata::kernels::detail
