#pragma once

#include "recurrent/delta_pairs.h"
#include "recurrent/scan_backward.h"

/// The ops of the state scan as pairs of a sequence and a block of heads, for a Unit (delta_rows.h), in the
/// slots of delta_pairs.h.
namespace strata::kernels::detail {

template <class T>
struct ScanOperands {
  using Scratch = ScanScratch;
  using BackwardScratch = ScanBackwardScratch;

  ScanHeads heads;
  DeltaSizes d;
  std::int64_t pairs;
  const T* xbc;
  const float *step, *g, *d_of_heads;
  const std::int32_t* doc_start;
  float* workspace;
  std::int64_t slot_floats;

  STRATA_HD std::int64_t blocks() const { return heads.heads / d.group; }
  STRATA_HD std::int64_t sequence(std::int64_t pair) const { return pair / blocks(); }
  STRATA_HD std::int64_t block(std::int64_t pair) const { return pair % blocks(); }
  STRATA_HD std::int64_t head(std::int64_t pair) const { return block(pair) * d.group; }
  STRATA_HD std::int64_t n_heads() const { return heads.heads; }
  STRATA_HD std::int64_t blocks_of_group() const { return blocks() / heads.groups; }
  STRATA_HD std::int64_t width() const { return out_width() + 2 * keys_width(); }
  STRATA_HD std::int64_t out_width() const { return std::int64_t{heads.heads} * d.dv; }
  /// Elements of B, or of C, of all groups.
  STRATA_HD std::int64_t keys_width() const { return std::int64_t{heads.groups} * d.dk; }
  STRATA_HD std::int64_t out(std::int64_t pair) const {
    return sequence(pair) * heads.seq * out_width() + head(pair) * d.dv;
  }
  /// Where x and B of a pair begin in xbc, and where its gates do.
  STRATA_HD std::int64_t x(std::int64_t pair) const {
    return sequence(pair) * heads.seq * width() + head(pair) * d.dv;
  }
  STRATA_HD std::int64_t b(std::int64_t pair) const {
    return sequence(pair) * heads.seq * width() + out_width() + block(pair) / blocks_of_group() * d.dk;
  }
  STRATA_HD std::int64_t gate(std::int64_t pair) const {
    return sequence(pair) * heads.seq * heads.heads + head(pair);
  }
  STRATA_HD ScanRows<T> rows(std::int64_t pair) const {
    return {xbc + x(pair),     xbc + b(pair),  xbc + b(pair) + keys_width(), width(),
            step + gate(pair), g + gate(pair), d_of_heads + head(pair),      heads.heads};
  }
  STRATA_HD DeltaChunks chunks(std::int64_t pair) const {
    return {doc_start == nullptr ? nullptr : doc_start + sequence(pair) * heads.seq, heads.seq};
  }
};

template <class T>
struct ScanForwardOperands {
  ScanOperands<T> of;
  T* out;
  const float* initial;  // may be null, and `last`, too
  float* last;
};

template <class T>
struct ScanBackwardOperands {
  ScanOperands<T> of;
  const T* dout;
  T* dxbc;
  float *dstep, *dg;
  float* keys;  ///< gradients of B | C from each block of heads [T, blocks, 2 dk]
  float* dots;  ///< [T, heads]
  std::int64_t border_floats;

  STRATA_HD ScanGradients<T> to(std::int64_t pair) const {
    const std::int64_t blocks = of.blocks();
    return {dxbc + of.x(pair),
            of.width(),
            keys + (of.sequence(pair) * of.heads.seq * blocks + of.block(pair)) * 2 * of.d.dk,
            blocks * 2 * of.d.dk,
            dstep + of.gate(pair),
            dg + of.gate(pair),
            dots + of.gate(pair),
            of.heads.heads};
  }
  /// The gradient of element i of B (part 0) or C (part 1) of a group, summed over its blocks of heads.
  STRATA_HD float key_gradient(std::int64_t row, std::int64_t part, std::int64_t group,
                               std::int64_t i) const {
    const std::int64_t n = of.blocks_of_group();
    const float* from = keys + (row * of.blocks() + group * n) * 2 * of.d.dk + part * of.d.dk + i;
    float sum = *from;
    for (std::int64_t k = 1; k < n; ++k) sum = sum + from[k * 2 * of.d.dk];
    return sum;
  }
  /// Where it goes in a row of dxbc.
  STRATA_HD std::int64_t key_column(std::int64_t part, std::int64_t group, std::int64_t i) const {
    return of.out_width() + part * of.keys_width() + group * of.d.dk + i;
  }
};

template <class T>
struct ScanCachedOperands {
  ScanOperands<T> of;
  CachedRows rows;
  float* state;
  T* out;
};

}  // namespace strata::kernels::detail
