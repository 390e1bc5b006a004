#pragma once

#include <cstdint>

#include "cuda/attention/attention_mma.h"
#include "cuda/emulation/thread_block.h"

/// The GEMMs of attention tiles (attention/attention_mma.h) on the host, for tests.
namespace strata::kernels::detail {

template <bool kReversed>
using EmulatedAttentionThreads = EmulatedThreads<kAttentionThreads, kReversed>;

/// Products of 16-bit values are exact in f32, as in tensor cores; their sums are not.
template <class T>
struct EmulatedMmaMath : MmaMath<T> {
  using Rows = typename MmaMath<T>::Rows;

  template <int kTile, bool kReversed>
  static void gemm_nt(const EmulatedAttentionThreads<kReversed>&, const Rows& a, const Rows& b,
                      const ScoreTile<kTile>& scores) {
    for (int i = 0; i < kTile; ++i)
      for (int j = 0; j < kTile; ++j) {
        float sum = 0.0f;
        for (std::int64_t c = 0; c < a.d; ++c) sum = sum + to_f32(a.row(i)[c]) * to_f32(b.row(j)[c]);
        scores(i, j) = sum;
      }
  }
  template <int kTile, bool kTransposed, bool kReversed>
  static void gemm_accumulate(const EmulatedAttentionThreads<kReversed>&, const ScoreTile<kTile>& scores,
                              const Rows& from, const F32Tile& to, const float* rescale) {
    for (int i = 0; i < kTile; ++i)
      for (std::int64_t c = 0; c < to.d; ++c) {
        float sum = rescale != nullptr ? to.row(i)[c] * rescale[i] : to.row(i)[c];
        for (int j = 0; j < kTile; ++j)
          sum = sum + to_f32(from_f32<T>(kTransposed ? scores(j, i) : scores(i, j))) * to_f32(from.row(j)[c]);
        to.row(i)[c] = sum;
      }
  }
};

}  // namespace strata::kernels::detail
