#pragma once

#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>

#include "cuda/attention/attention_math.h"
#include "cuda/attention/warpgroup/tma.h"
#include "cuda/attention/warpgroup/wgmma.h"
#include "lowest_score.h"

/// FlashAttention-2 (Dao 2023, arXiv 2307.08691) for heads of kD 16-bit values. Scores, probabilities and
/// accumulators stay in the registers of warps; shared memory holds only operands, which are loaded while
/// others are multiplied. A warp has 16 rows of a tile, or a multiple of 16. There are no atomics: dq has one
/// kernel, dk and dv another. Scores are in units of log 2, for exp2; probabilities are rounded to T for the
/// GEMMs.
namespace strata::kernels::detail {

inline constexpr float kLog2E = 1.44269504f;

/// How tiles are stored in shared memory and multiplied. With this policy each warp multiplies on its own, by
/// mma.sync.
struct MmaPolicy {
  static constexpr int kWarps = 4, kWarpsPerMma = 1;
  template <class T, int kD, int kRows>
  using Rows = PaddedRows<T, kD>;
  /// Keys or queries loaded per iteration: fewer for large heads, whose values would not all stay in
  /// registers.
  static STRATA_HD constexpr int forward_inner_tile(int d) { return d > 64 ? 32 : 64; }
  static STRATA_HD constexpr int backward_inner_tile(int d) { return forward_inner_tile(d); }
  /// Keys loaded at once for the gradients of queries, of which there are two accumulators.
  static STRATA_HD constexpr int backward_keys(int d) { return d > 96 ? 16 : backward_inner_tile(d); }
  /// Waits for all products but the newest kLeft; `acc` is one that is complete then. Here all are already.
  template <int kLeft, int kN, class Warp, class Acc>
  static STRATA_DEVICE_INLINE void finish(const Warp&, const Acc&) {}
  /// Makes what is computed from a product complete before the next wait.
  template <int kN, class Warp, class Acc>
  static STRATA_DEVICE_INLINE void hold(const Warp&, const Acc&) {}
};
/// Four warps multiply together, by wgmma, and operands are loaded by TMA.
struct WgmmaPolicy {
  static constexpr int kWarps = 8, kWarpsPerMma = 4;
  template <class T, int kD, int kRows>
  using Rows = SwizzledRows<T, kD, kRows>;
  static STRATA_HD constexpr int forward_inner_tile(int) { return 128; }
  static STRATA_HD constexpr int backward_inner_tile(int) { return 64; }
  static STRATA_HD constexpr int backward_keys(int) { return 64; }
  template <int kLeft, int kN, class Warp, class Acc>
  static STRATA_DEVICE_INLINE void finish(const Warp& warp, const Acc& acc) {
    finish_gemm<kLeft, kN>(warp, acc);
  }
  template <int kN, class Warp, class Acc>
  static STRATA_DEVICE_INLINE void hold(const Warp& warp, const Acc& acc) {
    fence_scores<kN>(warp, acc);
  }
};
/// First and end of the rows of the warps that multiply together with `warp`; each warp has 16 kM rows.
template <class Policy, int kM>
STRATA_HD constexpr int mma_row_begin(int warp) {
  return warp / Policy::kWarpsPerMma * Policy::kWarpsPerMma * 16 * kM;
}
template <class Policy, int kM>
STRATA_HD constexpr int mma_row_end(int warp) {
  return mma_row_begin<Policy, kM>(warp + Policy::kWarpsPerMma);
}

template <class Policy, int kM>
STRATA_HD constexpr int mma_rows() {
  return Policy::kWarpsPerMma * 16 * kM;
}

/// The columns of a head in a sequence: where they begin, and their matrix and coordinates for TMA.
template <class T>
struct HeadColumns {
  const T* first;
  std::int64_t ld, seq;
  TmaOperand matrix;
  int column, batch;
};
template <class T>
STRATA_HD HeadColumns<T> columns_of_qkv(const AttentionView<T>& v, std::int64_t batch, std::int64_t column) {
  return {v.qkv + v.token(batch, 0) * v.width() + column,
          v.width(),
          v.seq,
          TmaOperand::qkv,
          static_cast<int>(column),
          static_cast<int>(batch)};
}
template <class T>
STRATA_HD HeadColumns<T> query_head(const AttentionView<T>& v, std::int64_t batch, std::int64_t head) {
  return columns_of_qkv(v, batch, head * v.d);
}
template <class T>
STRATA_HD HeadColumns<T> key_head(const AttentionView<T>& v, std::int64_t batch, std::int64_t kv) {
  return columns_of_qkv(v, batch, (v.heads + kv) * v.d);
}
template <class T>
STRATA_HD HeadColumns<T> value_head(const AttentionView<T>& v, std::int64_t batch, std::int64_t kv) {
  return columns_of_qkv(v, batch, (v.heads + v.kv_heads + kv) * v.d);
}
template <class T>
STRATA_HD HeadColumns<T> dout_head(const AttentionView<T>& v, const T* dout, std::int64_t batch,
                                   std::int64_t head) {
  return {dout + v.out(batch, head),    v.heads * v.d,          v.seq, TmaOperand::dout,
          static_cast<int>(head * v.d), static_cast<int>(batch)};
}

/// Starts loading rows [first, first + kRows) of a head; rows past the end of the sequence become zero.
template <int kRows, class ThreadBlock, class T, int kHead>
STRATA_DEVICE_INLINE void load_tile_async(const ThreadBlock& block, const PaddedRows<T, kHead>& to,
                                          const HeadColumns<T>& from, std::int64_t first) {
  cp_async_rows<kRows>(block, to, from.first, from.ld, first, from.seq);
}
template <int kRows, class ThreadBlock, class T, int kHead>
STRATA_DEVICE_INLINE void load_tile_async(const ThreadBlock& block, const SwizzledRows<T, kHead, kRows>& to,
                                          const HeadColumns<T>& from, std::int64_t first) {
  constexpr int kColumns = TmaTensor::kBox[0], kDown = kRows / TmaTensor::kBox[1];
  static_assert(kColumns == to.kPanel && kDown * TmaTensor::kBox[1] == kRows);
  block.template tma_load<kHead / kColumns * kDown, T>(from.matrix, [&](int i, T*& at) {
    at = to.at + i * kColumns * static_cast<int>(TmaTensor::kBox[1]);  // panel by panel, each from row 0
    return BoxCoord{from.column + i / kDown * kColumns,
                    static_cast<int>(first) + i % kDown * static_cast<int>(TmaTensor::kBox[1]), from.batch};
  });
}

/// The first key that a query sees. All tokens of the sequence are there, so this needs none of the runs that
/// v.first_visible_key() looks through. For queries past the sequence, whose results are never stored, any
/// value will do.
template <class T>
STRATA_HD int first_visible_key(const AttentionView<T>& v, std::int64_t batch, int query) {
  const int start = v.doc_start == nullptr || query >= v.seq ? 0 : v.doc_start[batch * v.seq + query];
  const int of_window = v.window > 0 ? query - static_cast<int>(v.window) + 1 : 0;
  return of_window > start ? of_window : start;
}
template <class T>
STRATA_HD bool is_visible(const AttentionView<T>& v, int begin, int query, int key) {
  return key >= begin && key < static_cast<int>(v.seq) && (!v.causal || key <= query);
}

/// Whether all queries from `query` on, which see the key `common`, see the keys [key, end): then no score of
/// the tile is masked.
template <class T>
STRATA_HD bool is_interior(const AttentionView<T>& v, int common, int query, int key, int end) {
  return key >= common && end <= static_cast<int>(v.seq) && (!v.causal || end <= query + 1);
}
/// Whether scores of the keys [key, end) are masked for the warps that multiply together with `warp`, whose
/// rows are queries. Starts of documents and windows never decrease from query to query, so the last one sees
/// the fewest of the first keys.
template <class Policy, int kM, class T>
STRATA_HD bool is_masked_tile(const AttentionView<T>& v, std::int64_t batch, int first, int warp, int key,
                              int end) {
  const int rows_end = first + mma_row_end<Policy, kM>(warp), seq = static_cast<int>(v.seq);
  return !is_interior(v, first_visible_key(v, batch, (rows_end < seq ? rows_end : seq) - 1),
                      first + mma_row_begin<Policy, kM>(warp), key, end);
}

/// The tiles of kKeys keys that some query in [first, first + kRows) sees.
struct KeyTileRange {
  std::int64_t begin;
  int count;
};
template <int kRows, int kKeys, class T>
STRATA_HD KeyTileRange visible_key_tiles(const AttentionView<T>& v, std::int64_t batch, std::int64_t first) {
  // Documents follow each other, so the first query sees furthest back.
  const std::int64_t begin =
      first_visible_key(v, batch, static_cast<int>(first)) / kKeys * std::int64_t{kKeys};
  const std::int64_t end = v.causal && first + kRows < v.seq ? first + kRows : v.seq;
  return {begin, static_cast<int>((end - begin + kKeys - 1) / kKeys)};
}

}  // namespace strata::kernels::detail
