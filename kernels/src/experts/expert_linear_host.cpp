#include <algorithm>

#include <strata/simd/convert.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/experts/expert_linear.h>

#include "dtype_dispatch.h"
#include "experts/expert_panels.h"
#include "experts/panel_heights.h"
#include "gemm/gemm_tiled.h"
#include "gemm/tile_grid.h"
#include "partial_sums.h"
#include "simd_table.h"

namespace strata::kernels {
namespace {

using detail::ExpertRows;
using detail::Gemm;
using detail::kExpertPanel;

/// Calls body(expert of the block, its rows, item of the expert) for items_of(rows) items of each of the
/// `experts` experts from `first` on, in parallel. The items follow from the offsets alone, so that an expert
/// with all rows has as many as it needs.
template <class ItemsOf, class Body>
void each_item(const TensorView& offsets, std::int64_t first, std::int64_t experts, std::int64_t rows,
               ThreadPool& pool, const ItemsOf& items_of, const Body& body) {
  std::int64_t total = 0;
  for (std::int64_t e = 0; e < experts; ++e)
    total += items_of(detail::rows_of_expert(offsets, first + e, rows));
  pool.parallel_for(total, [&](std::int64_t item) {
    std::int64_t e = 0, left = item;
    ExpertRows of = detail::rows_of_expert(offsets, first, rows);
    for (std::int64_t n = items_of(of); left >= n; n = items_of(of)) {
      left -= n;
      of = detail::rows_of_expert(offsets, first + ++e, rows);
    }
    body(e, of, left);
  });
}

/// A scratch block of a tile: its f32 C, and panels behind it. The rows of C are a cache line longer than the
/// tile: with a stride of a power of two, the rows that a GEMM of little depth writes together fall into the
/// same cache sets, which makes bf16 GEMMs of 64 rows a third slower.
class TileBlock {
 public:
  static constexpr std::int64_t stride(std::int64_t columns) noexcept { return columns + 16; }
  TileBlock() : block_(detail::tile_scratch().acquire()) {}
  ~TileBlock() { detail::tile_scratch().release(block_); }
  TileBlock(const TileBlock&) = delete;
  TileBlock& operator=(const TileBlock&) = delete;
  float* sums() const noexcept { return block_; }
  float* panels() const noexcept { return block_ + detail::kLargestTile.rows * detail::kLargestTile.columns; }

 private:
  float* block_;
};

/// out[r] = in[r] op(w[e]) + bias[e] for the rows r of each expert e.
struct RowProduct {
  TensorView in, w, bias, offsets, out;
  std::int64_t first;
  bool trans_w;
  BufferView workspace;
};

template <class T>
class RowProducts {
 public:
  RowProducts(const RowProduct& p, ThreadPool& pool)
      : p_(p),
        pool_(pool),
        rows_(dispatch::row_count(p.in)),
        inner_(dispatch::row_length(p.in)),
        columns_(dispatch::row_length(p.out)),
        across_(dispatch::ceil_div(columns_, kColumns)),
        tail_(reinterpret_cast<T*>(p.workspace.data)) {}

  void run() {
    const std::int64_t experts = p_.w.shape.dims[0];
    if (rows_ == 0 || experts == 0 || columns_ == 0) return;
    detail::tile_scratch().reserve(static_cast<std::size_t>(pool_.threads()));
    const detail::PanelHeights heights = panel_heights();
    const std::int64_t last = detail::rows_of_expert(p_.offsets, p_.first + experts - 1, rows_).end;
    if (!heights.any() && last > first_tail_row()) copy_tail();
    const std::int64_t together = heights.most;
    const auto items_of = [&](const ExpertRows& of) {
      return dispatch::ceil_div(of.count(), together) * across_;
    };
    each_item(p_.offsets, p_.first, experts, rows_, pool_, items_of,
              [&](std::int64_t e, const ExpertRows& of, std::int64_t item) {
                // The rows of a tile of w one after the other, as w is in the cache then.
                const std::int64_t of_tile = dispatch::ceil_div(of.count(), together),
                                   row = of.begin + item % of_tile * together;
                rows(e, row, std::min(of.end, row + together), item / of_tile * kColumns, heights);
              });
  }

 private:
  static constexpr std::int64_t kColumns = detail::kLargestTile.columns;

  std::int64_t first_tail_row() const { return detail::first_tail_row(rows_); }
  void copy_tail() {
    const std::int64_t first = first_tail_row();
    pool_.parallel_for(detail::kTailPanelRows, [&](std::int64_t i) {
      T* const into = tail_ + i * inner_;
      if (first + i < rows_)
        std::copy_n(p_.in.as<T>() + (first + i) * inner_, inner_, into);
      else
        std::fill_n(into, inner_, T{});
    });
  }
  /// What GEMMs of tiles of `n` columns share.
  Gemm gemm_of(std::int64_t n) const {
    return {.trans_b = p_.trans_w,
            .m = kExpertPanel,
            .n = n,
            .k = inner_,
            .lda = inner_,
            .ldb = p_.trans_w ? inner_ : columns_,
            .ldc = TileBlock::stride(n),
            .dtype = dtype_of<T>};
  }
  /// The heights that the tiles of all columns may have.
  detail::PanelHeights panel_heights() const {
    const auto last = detail::panel_heights(gemm_of(columns_ - (across_ - 1) * kColumns));
    if (across_ == 1) return last;
    const auto others = detail::panel_heights(gemm_of(kColumns));
    return {std::min(last.few, others.few), std::max(last.unit, others.unit),
            std::min(last.most, others.most)};
  }
  /// Columns from `column` on of the rows [row, end).
  void rows(std::int64_t e, std::int64_t row, std::int64_t end, std::int64_t column,
            const detail::PanelHeights& heights) const {
    const std::int64_t unit = heights.unit;
    while (row < end) {
      std::int64_t height = end - row;
      if (height > heights.few) height = dispatch::ceil_div(height, unit) * unit;
      if (row + height > rows_) height = std::max((rows_ - row) / unit, std::int64_t{1}) * unit;
      panel(e, row, height, std::min(height, end - row), column);
      row += height;
    }
  }
  /// The first `count` of `height` rows.
  void panel(std::int64_t e, std::int64_t row, std::int64_t height, std::int64_t count,
             std::int64_t column) const {
    const T* const w = p_.w.as<T>() + e * inner_ * columns_;
    const TileBlock block;
    const std::int64_t n = std::min(kColumns, columns_ - column);
    Gemm g = gemm_of(n);
    g.m = height;
    g.a = row + height <= rows_ ? p_.in.as<T>() + row * inner_ : tail_ + (row - first_tail_row()) * inner_;
    g.b = p_.trans_w ? w + column * inner_ : w + column;
    g.c = block.sums();
    detail::gemm_to_f32(g, block.panels());
    for (std::int64_t i = 0; i < count; ++i) {
      float* const sums = block.sums() + i * TileBlock::stride(n);
      if (dispatch::is_present(p_.bias))
        detail::simd_table<T>().accumulate_row(sums, p_.bias.as<T>() + e * columns_ + column, n);
      simd::narrow(sums, p_.out.as<T>() + (row + i) * columns_ + column, n);
    }
  }

  const RowProduct& p_;
  ThreadPool& pool_;
  std::int64_t rows_, inner_, columns_, across_;
  T* tail_;
};

/// dw (+)= the sum over the rows of each expert. A tile of dw is one work item.
template <class T>
class WeightGradients {
 public:
  WeightGradients(const ExpertLinearBackwardWeightArgs& a, ThreadPool& pool)
      : a_(a),
        pool_(pool),
        rows_(dispatch::row_count(a.dy)),
        n_(dispatch::row_length(a.dy)),
        k_(dispatch::row_length(a.x)) {}

  void run() {
    if (n_ == 0 || k_ == 0) return;
    detail::tile_scratch().reserve(static_cast<std::size_t>(pool_.threads()));
    const std::int64_t across = dispatch::ceil_div(k_, kTile), tiles = dispatch::ceil_div(n_, kTile) * across;
    each_item(
        a_.offsets, a_.first, a_.dw.shape.dims[0], rows_, pool_, [&](const ExpertRows&) { return tiles; },
        [&](std::int64_t e, const ExpertRows& of, std::int64_t item) {
          tile(e, of, item / across * kTile, item % across * kTile);
        });
  }

 private:
  // Rows that are added by one GEMM: longer sums are faster, and for each depth there is a primitive of bf16.
  static constexpr std::int64_t kDepth = 8 * kExpertPanel;
  // Rows and columns of a tile.
  static constexpr std::int64_t kTile = 256;

  void tile(std::int64_t e, const ExpertRows& of, std::int64_t row, std::int64_t column) const {
    const TileBlock block;
    const std::int64_t m = std::min(kTile, n_ - row), n = std::min(kTile, k_ - column);
    Gemm sum = {.trans_a = true,
                .m = m,
                .n = n,
                .lda = n_,
                .ldb = k_,
                .c = block.sums(),
                .ldc = TileBlock::stride(n),
                .dtype = dtype_of<T>};
    if (of.count() == 0) detail::write_empty_sums(sum);
    for (std::int64_t r = of.begin; r < of.end; r += sum.k, sum.accumulate = true) {
      sum.k = std::min(kDepth, (of.end - r) / kExpertPanel * kExpertPanel);
      const T *dy = a_.dy.as<T>() + r * n_ + row, *x = a_.x.as<T>() + r * k_ + column;
      if (sum.k == 0) {
        sum.k = kExpertPanel;
        sum.lda = m;
        sum.ldb = n;
        // Behind the panels of a sum of this depth.
        T* const copies = reinterpret_cast<T*>(block.panels() + kExpertPanel * detail::kLargestTile.rows);
        dy = copy_rows(dy, n_, of.end - r, m, copies);
        x = copy_rows(x, k_, of.end - r, n, copies + kExpertPanel * m);
      }
      sum.a = dy;
      sum.b = x;
      detail::gemm_to_f32(sum, block.panels());
    }
    for (std::int64_t i = 0; i < m; ++i)
      detail::store_sum(a_.dw, (e * n_ + row + i) * k_ + column, block.sums() + i * TileBlock::stride(n), n,
                        a_.accumulate);
  }
  /// The last rows of an expert, followed by zeros.
  static const T* copy_rows(const T* from, std::int64_t ld, std::int64_t rows, std::int64_t columns,
                            T* into) {
    for (std::int64_t i = 0; i < rows; ++i) std::copy_n(from + i * ld, columns, into + i * columns);
    std::fill_n(into + rows * columns, (kExpertPanel - rows) * columns, T{});
    return into;
  }

  const ExpertLinearBackwardWeightArgs& a_;
  ThreadPool& pool_;
  std::int64_t rows_, n_, k_;
};

static_assert(detail::kMostPanelRows * TileBlock::stride(detail::kLargestTile.columns) <=
              detail::kLargestTile.rows * detail::kLargestTile.columns);

constexpr std::int64_t kBiasColumns = 256;

/// Columns [column, column + n) of the sum over an expert's rows: panel by panel, whose sums are added.
template <class T>
void sum_columns(const ExpertLinearBackwardBiasArgs& a, std::int64_t e, const ExpertRows& of,
                 std::int64_t column) {
  const std::int64_t length = dispatch::row_length(a.dy), n = std::min(kBiasColumns, length - column);
  alignas(64) float total[kBiasColumns] = {}, sum[kBiasColumns];
  for (std::int64_t panel = of.begin; panel < of.end; panel += kExpertPanel) {
    std::fill_n(sum, n, 0.0f);
    for (std::int64_t r = panel; r < std::min(of.end, panel + kExpertPanel); ++r)
      detail::simd_table<T>().accumulate_row(sum, a.dy.as<T>() + r * length + column, n);
    detail::simd_table<float>().accumulate_row(total, sum, n);
  }
  detail::store_sum(a.db, e * length + column, total, n, a.accumulate);
}

}  // namespace

void expert_linear_forward_host(const ExpertLinearForwardArgs& a, ThreadPool& pool) {
  const RowProduct product = {a.x, a.w, a.b, a.offsets, a.y, a.first, true, a.workspace};
  detail::dispatch_dtype(a.x.dtype,
                         [&]<class T>(std::type_identity<T>) { RowProducts<T>(product, pool).run(); });
}

void expert_linear_backward_input_host(const ExpertLinearBackwardInputArgs& a, ThreadPool& pool) {
  const RowProduct product = {a.dy, a.w, {}, a.offsets, a.dx, a.first, false, a.workspace};
  detail::dispatch_dtype(a.dy.dtype,
                         [&]<class T>(std::type_identity<T>) { RowProducts<T>(product, pool).run(); });
}

void expert_linear_backward_weight_host(const ExpertLinearBackwardWeightArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.dy.dtype,
                         [&]<class T>(std::type_identity<T>) { WeightGradients<T>(a, pool).run(); });
}

void expert_linear_backward_bias_host(const ExpertLinearBackwardBiasArgs& a, ThreadPool& pool) {
  const std::int64_t across = dispatch::ceil_div(dispatch::row_length(a.dy), kBiasColumns);
  detail::dispatch_dtype(a.dy.dtype, [&]<class T>(std::type_identity<T>) {
    each_item(
        a.offsets, a.first, a.db.shape.dims[0], dispatch::row_count(a.dy), pool,
        [&](const ExpertRows&) { return across; },
        [&](std::int64_t e, const ExpertRows& of, std::int64_t item) {
          sum_columns<T>(a, e, of, item * kBiasColumns);
        });
  });
}

}  // namespace strata::kernels
