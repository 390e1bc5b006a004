#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <strata/dispatch/cuda/packs.h>

#include "cuda/norm/norm_ops.h"
#include "cuda/warps.h"

/// Norms whose rows are staged in shared memory: a block copies several rows by cp.async, 16 bytes a thread;
/// half warps sum a row there in the order of their lanes; all threads write packs of results. So each
/// element is read once from memory, however often a norm needs it.
namespace strata::kernels::detail {

inline constexpr int kNormWarps = 4, kNormThreads = kNormWarps * 32,
                     kNormHalfWarps = kNormThreads / dispatch::kLanes;

/// What a half warp found out about a staged row.
struct StagedRow {
  RowStats stats;
  RowWeight weight;
};

/// The rows of a block, by shape alone.
struct NormTile {
  int rows, stride;  ///< elements from one row to the next
  std::size_t bytes;
};
/// No tile (0 rows) if a row needs more shared memory than every GPU since sm_80 gives to a block.
template <class Op>
constexpr NormTile norm_tile(std::int64_t rows, std::int64_t length) {
  using T = typename Op::Element;
  constexpr std::int64_t kBytes = 36 << 10, kMaxBytes = 96 << 10, kMaxRows = 32, kBanks = 128;
  // Two half warps read the same columns of two rows at once; the padding gives them different banks.
  constexpr auto kElement = static_cast<std::int64_t>(sizeof(T));
  const std::int64_t row = (length * kElement + kBanks - 1) / kBanks * kBanks + dispatch::kLanes * kElement;
  const std::int64_t of_row = row * Op::kStaged + static_cast<std::int64_t>(sizeof(StagedRow));
  if (of_row > kMaxBytes) return {0, 0, 0};
  // Few rows, as of a prompt, still occupy many multiprocessors.
  std::int64_t of_tile = kBytes / of_row < kMaxRows ? kBytes / of_row : kMaxRows;
  if (of_tile > rows / 256) of_tile = rows / 256;
  if (of_tile < 1) of_tile = 1;
  return {static_cast<int>(of_tile), static_cast<int>(row / kElement),
          static_cast<std::size_t>(of_tile * of_row)};
}

/// kN consecutive elements: a pack, or one where rows are no multiples of packs.
template <class T>
struct OneElement {
  T value[1];
};
template <int kN, class T>
using Piece = std::conditional_t<kN == 1, OneElement<T>, dispatch::Pack<T>>;
template <int kN, class T>
STRATA_DEVICE_INLINE Piece<kN, T> load_piece(const T* from) {
  if constexpr (kN == 1)
    return {*from};
  else
    return dispatch::load_pack(from);
}
template <int kN, class T>
STRATA_DEVICE_INLINE void store_piece(T* into, const Piece<kN, T>& piece) {
  if constexpr (kN == 1)
    *into = piece.value[0];
  else
    dispatch::store_pack(into, piece);
}

/// Piece after piece of consecutive rows, of which a thread has each kNormThreads-th. It divides once.
struct PieceWalk {
  int row, column, per_row, rows_apart, columns_apart;
  STRATA_HD PieceWalk(int piece, int in_row)
      : row(piece / in_row),
        column(piece % in_row),
        per_row(in_row),
        rows_apart(kNormThreads / in_row),
        columns_apart(kNormThreads % in_row) {}
  STRATA_HD void advance() {
    row += rows_apart;
    column += columns_apart;
    if (column >= per_row) {
      column -= per_row;
      ++row;
    }
  }
};

/// Calls load(slot, piece, walk) for up to kBatch pieces of a thread, then store(slot, piece, walk) for the
/// same: loads that wait for memory together although the compiler cannot tell that no store precedes them.
template <int kBatch, class Load, class Store>
STRATA_DEVICE_INLINE void for_each_piece(int thread, int pieces, int per_row, const Load& load,
                                         const Store& store) {
  PieceWalk ahead(thread, per_row), walk = ahead;
  for (int first = thread; first < pieces; first += kBatch * kNormThreads) {
    unrolled<kBatch>([&](int slot) {
      const int piece = first + slot * kNormThreads;
      if (piece < pieces) load(slot, piece, ahead);
      ahead.advance();
    });
    unrolled<kBatch>([&](int slot) {
      const int piece = first + slot * kNormThreads;
      if (piece < pieces) store(slot, piece, walk);
      walk.advance();
    });
  }
}

/// The staged rows of a block.
template <class Op>
struct NormStage {
  using T = typename Op::Element;
  NormTile tile;
  T* at;
  STRATA_HD T* row(int operand, int i) const { return at + (operand * tile.rows + i) * tile.stride; }
  STRATA_HD StagedRow& info(int i) const {
    return reinterpret_cast<StagedRow*>(at + Op::kStaged * tile.rows * tile.stride)[i];
  }
};

/// Starts copying `rows` rows from `from`, which follow each other, to operand `operand`.
template <int kN, class ThreadBlock, class Op, class T>
STRATA_DEVICE_INLINE void stage_rows(const ThreadBlock& block, const NormStage<Op>& to, int operand,
                                     const T* from, int pieces, int per_row) {
  block.for_each_thread([&](int thread) {
    PieceWalk walk(thread, per_row);
    for (int piece = thread; piece < pieces; piece += kNormThreads, walk.advance()) {
      T* const into = to.row(operand, walk.row) + walk.column * kN;
      if constexpr (kN == 1)
        *into = from[piece];
      else
        block.cp_async(into, from + piece * kN, true);
    }
  });
}
/// Stages x + added, and writes it to `sum`.
template <int kN, class ThreadBlock, class Op, class T>
STRATA_DEVICE_INLINE void stage_sums(const ThreadBlock& block, const NormStage<Op>& to, const T* x,
                                     const T* added, T* sum, int pieces, int per_row) {
  constexpr int kBatch = 4;
  block.for_each_thread([&](int thread) {
    Piece<kN, T> one[kBatch], other[kBatch];
    for_each_piece<kBatch>(
        thread, pieces, per_row,
        [&](int slot, int piece, const PieceWalk&) {
          one[slot] = load_piece<kN>(x + piece * kN);
          other[slot] = load_piece<kN>(added + piece * kN);
        },
        [&](int slot, int piece, const PieceWalk& walk) {
          unrolled<kN>(
              [&](int i) { one[slot].value[i] = stored_add(one[slot].value[i], other[slot].value[i]); });
          store_piece<kN>(sum + piece * kN, one[slot]);
          store_piece<kN>(to.row(0, walk.row) + walk.column * kN, one[slot]);
        });
  });
}

/// Writes the rows' results. What is needed once, a bias or a residual, is read here.
template <int kN, class ThreadBlock, class Op>
STRATA_DEVICE_INLINE void write_rows(const ThreadBlock& block, const Op& op, const NormStage<Op>& from,
                                     std::int64_t begin, int pieces, int per_row) {
  using T = typename Op::Element;
  constexpr int kBatch = 2;  // more of them would take registers from other blocks
  block.for_each_thread([&](int thread) {
    Piece<kN, T> weight[kBatch], once[kBatch] = {};
    for_each_piece<kBatch>(
        thread, pieces, per_row,
        [&](int slot, int piece, const PieceWalk& walk) {
          const int column = walk.column * kN;
          if (const RowWeight row = from.info(walk.row).weight; op.rows.is_unit(row))
            unrolled<kN>([&](int i) { weight[slot].value[i] = op.unit(); });
          else if (!op.rows.is_copied(row))
            weight[slot] = load_piece<kN>(op.rows.weight_of(row) + column);
          if (const T* const at = op.once(begin + piece * kN, column); at != nullptr)
            once[slot] = load_piece<kN>(at);
        },
        [&](int slot, int piece, const PieceWalk& walk) {
          const StagedRow row = from.info(walk.row);
          const bool is_copied = op.rows.is_copied(row.weight);
          if (is_copied && !op.copies()) return;
          const Piece<kN, T> x = load_piece<kN>(from.row(0, walk.row) + walk.column * kN),
                             dy = load_piece<kN>(from.row(Op::kStaged - 1, walk.row) + walk.column * kN);
          Piece<kN, T> out;
          unrolled<kN>([&](int i) {
            out.value[i] = is_copied ? Op::copied(x.value[i], dy.value[i])
                                     : op.element(row.stats, x.value[i], dy.value[i], weight[slot].value[i],
                                                  once[slot].value[i]);
          });
          store_piece<kN>(op.out() + begin + piece * kN, out);
        });
  });
}

/// The rows of a norm from `first` on that are in one tile. All of them have the length `op.rows.length`.
template <int kN, class ThreadBlock, class Op>
STRATA_DEVICE_INLINE void norm_staged_rows(const ThreadBlock& block, const Op& op, const NormStage<Op>& stage,
                                           std::int64_t first) {
  const std::int64_t left = op.rows.count - first, begin = first * op.rows.length;
  const int rows = left < stage.tile.rows ? static_cast<int>(left) : stage.tile.rows,
            per_row = static_cast<int>(op.rows.length) / kN, pieces = rows * per_row;
  bool is_staged = false;
  if constexpr (Op::kStaged > 1) {
    stage_rows<kN>(block, stage, 1, op.other() + begin, pieces, per_row);
  } else if (op.added != nullptr) {
    stage_sums<kN>(block, stage, op.one() + begin, op.added + begin, op.sum + begin, pieces, per_row);
    is_staged = true;
  }
  if (!is_staged) stage_rows<kN>(block, stage, 0, op.one() + begin, pieces, per_row);
  block.commit_group();
  block.template wait_group<0>();
  block.for_each_half_warp([&](const auto& lanes, int half_warp) {
    for (int i = half_warp; i < rows; i += kNormHalfWarps) {
      const auto row = op.rows.row(first + i);
      RowStats s;
      if (!op.rows.is_copied(row.weight))
        s = op.stats(lanes, row, stage.row(0, i), stage.row(Op::kStaged - 1, i));
      if (lanes.is_leader()) stage.info(i) = {s, row.weight};
    }
  });
  block.sync();
  write_rows<kN>(block, op, stage, begin, pieces, per_row);
}

#ifdef __CUDACC__
struct NormBlock : BlockWarps<kNormWarps> {
  /// Calls f(lanes, index of the half warp).
  template <class F>
  __device__ __forceinline__ void for_each_half_warp(const F& f) const {
    f(dispatch::HalfWarp(), static_cast<int>(threadIdx.x) / dispatch::kLanes);
  }
};
#endif

}  // namespace strata::kernels::detail
