#pragma once

#include <cstdint>

#include <strata/kernels/values/delta_heads.h>
#include <strata/runtime/float16.h>
#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>

#include "recurrent/delta_products.h"

/// The operands and the memory of the gated delta rule for one key head and its value heads. All matrices are
/// row-major. The code that works on them is a template over a Unit, which computes products and runs rows:
///   unit.product(Product), unit.solve(UnitTriangle): wait until they are done;
///   unit.rows(n, f): calls f(row, lanes) for n independent rows and waits, where lanes.for_each(count, f)
///     calls f(i) for independent elements, and lanes.sum(count, f) is the sum of 16 lanes
///     (dispatch/cuda/lanes.h).
/// There is one for each instruction set (delta_rule_kernels.h), one for the threads of a block on CUDA
/// (cuda/recurrent/delta_unit.h), and one that emulates those in tests.
namespace strata::kernels::detail {

inline constexpr std::int64_t kDeltaChunk = 64;
inline constexpr float kDeltaEps = 1e-6f;

struct DeltaSizes {
  std::int64_t dk, dv, group;
  float scale;  ///< queries are multiplied by it
};
inline DeltaSizes delta_sizes(const DeltaHeads& heads) noexcept {
  return {heads.key_dim, heads.value_dim, heads.group(),
          1.0f / simd::sqrt_of(static_cast<float>(heads.key_dim))};
}

/// Rows of one key head, from a first row on.
template <class T>
struct DeltaRows {
  const T *q, *k, *v;
  std::int64_t width;
  const float *g, *beta;  ///< the first value head has them
  std::int64_t heads;     ///< the length of a row of g

  STRATA_HD DeltaRows from(std::int64_t row) const {
    return {
        q + row * width, k + row * width, v + row * width, width, g + row * heads, beta + row * heads, heads};
  }
};

/// What a row needs of the earlier ones: the states at the last border, and the rows of the chunk since then.
struct DeltaWindow {
  float* memory;
  std::int64_t dk, dv;

  static constexpr std::int64_t kDecays = kDeltaChunk + 16;
  static constexpr STRATA_HD std::int64_t head_floats(std::int64_t dk, std::int64_t dv) {
    return dk * dv + kDeltaChunk * dv + kDecays;
  }
  static constexpr STRATA_HD std::int64_t floats(std::int64_t dk, std::int64_t dv, std::int64_t group) {
    return dk * kDeltaChunk + group * head_floats(dk, dv);
  }
  /// The normalized keys of the chunk's rows, transposed [dk, 64].
  STRATA_HD float* keys() const { return memory; }
  /// S of a value head [dk, dv].
  STRATA_HD float* state(std::int64_t i) const {
    return memory + dk * kDeltaChunk + i * (dk * dv + kDeltaChunk * dv + kDecays);
  }
  /// What each row of the chunk writes to S [64, dv]: beta (v - S^T k) with the S that it finds.
  STRATA_HD float* values(std::int64_t i) const { return state(i) + dk * dv; }
  /// The decay from each row of the chunk to its last one [64], then that from the chunk's begin.
  STRATA_HD float* decays(std::int64_t i) const { return values(i) + kDeltaChunk * dv; }
};

/// Memory for the rows of a chunk, allocated from front to back; without memory, it only counts.
class DeltaMemory {
 public:
  STRATA_HD explicit DeltaMemory(float* begin) : begin_(begin) {}
  STRATA_HD float* take(std::int64_t n) {
    const std::int64_t at = used_;
    used_ += (n + 15) / 16 * 16;
    return begin_ == nullptr ? nullptr : begin_ + at;
  }
  STRATA_HD std::int64_t floats() const { return used_; }

 private:
  float* begin_;
  std::int64_t used_ = 0;
};

struct DeltaScratch {
  float* q;                              ///< normalized and scaled queries [64, dk]
  float *key_products, *query_products;  ///< k k^T and q k^T [64, 64]
  float* gamma;                          ///< the decay from row j to row i in row i, 0 above the diagonal
  float* decay;                          ///< the decay from the chunk's begin to each row [64]
  float *a, *m;                          ///< beta k k^T gamma below the diagonal, q k^T gamma up to it
  float *p, *o;                          ///< k^T S and the result [64, dv]

  STRATA_HD DeltaScratch(DeltaMemory& memory, const DeltaSizes& d)
      : q(memory.take(kDeltaChunk * d.dk)),
        key_products(memory.take(kDeltaChunk * kDeltaChunk)),
        query_products(memory.take(kDeltaChunk * kDeltaChunk)),
        gamma(memory.take(kDeltaChunk * kDeltaChunk)),
        decay(memory.take(kDeltaChunk)),
        a(memory.take(kDeltaChunk * kDeltaChunk)),
        m(memory.take(kDeltaChunk * kDeltaChunk)),
        p(memory.take(kDeltaChunk * d.dv)),
        o(memory.take(kDeltaChunk * d.dv)) {}
};

/// The rows [first, last) of a chunk; `begins`: its document begins with it, so that S is 0.
struct DeltaSpan {
  std::int64_t first, last;
  bool begins;
};

/// The chunks of a sequence of `seq` rows, whose documents begin at doc_start or, if that is null, where the
/// sequence does.
struct DeltaChunks {
  const std::int32_t* doc_start;
  std::int64_t seq;

  STRATA_HD std::int64_t document_of(std::int64_t row) const {
    const std::int64_t begin = doc_start == nullptr ? 0 : doc_start[row];
    return begin < 0 ? 0 : begin > row ? row : begin;  // no value may lead out of the sequence
  }
  STRATA_HD bool begins_document(std::int64_t row) const { return row == document_of(row); }
  /// The end of the chunk that begins at `row`.
  STRATA_HD std::int64_t end_of(std::int64_t row) const {
    const std::int64_t most = row + kDeltaChunk < seq ? row + kDeltaChunk : seq;
    std::int64_t end = row + 1;
    while (end < most && document_of(end) == document_of(row)) ++end;
    return end;
  }
  /// The begin of the chunk whose last row is `row`.
  STRATA_HD std::int64_t begin_of(std::int64_t row) const {
    const std::int64_t document = document_of(row);
    return row - (row - document) % kDeltaChunk;
  }
};

}  // namespace strata::kernels::detail
